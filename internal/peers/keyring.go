package peers

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

const (
	// KeyBytes is the size of a session key.
	KeyBytes = 32
	// KeyName is the layout of the names of session keys: the time of creation, in UTC.
	KeyName = "20060102T150405Z"
	// KeyActivation is the age from which a key seals ids. Before, replicas may not have read it yet, because
	// the kubelets update mounted Secrets at different times.
	KeyActivation = 10 * time.Minute
)

// keysMaxAge is the time after which the directory with the keys is read again.
const keysMaxAge = 5 * time.Second

// Purposes of what is derived from a key. Another version of the derivation needs another purpose.
const (
	purposeID   = "fixpoint.dev/bridge/session-id/v1"
	purposePeer = "fixpoint.dev/bridge/peer/v1"
)

// sessionKey is a key that the replicas of a server share.
type sessionKey struct {
	name    string
	created time.Time
	// seal encrypts session ids.
	seal cipher.AEAD
	// certificate identifies a replica to others; public is its key.
	certificate tls.Certificate
	public      ed25519.PublicKey
}

// newSessionKey derives what the secret is used for. The server is part of it, so that a copy of the secret gives no
// access to another server.
func newSessionKey(name string, secret []byte, server string) (*sessionKey, error) {
	created, err := time.Parse(KeyName, name)
	if err != nil {
		return nil, fmt.Errorf("the name is not a time such as %s", KeyName)
	}
	if len(secret) != KeyBytes {
		return nil, fmt.Errorf("it has %d bytes instead of %d", len(secret), KeyBytes)
	}
	k := &sessionKey{name: name, created: created}
	forIDs, err := hkdf.Key(sha256.New, secret, nil, purposeID+"\x00"+server, KeyBytes)
	if err != nil {
		return nil, fmt.Errorf("deriving the key of ids: %w", err)
	}
	block, err := aes.NewCipher(forIDs)
	if err != nil {
		return nil, fmt.Errorf("creating the cipher of ids: %w", err)
	}
	if k.seal, err = cipher.NewGCM(block); err != nil {
		return nil, fmt.Errorf("creating the cipher of ids: %w", err)
	}
	seed, err := hkdf.Key(sha256.New, secret, nil, purposePeer+"\x00"+server, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("deriving the key of replicas: %w", err)
	}
	k.certificate, k.public, err = selfSigned(ed25519.NewKeyFromSeed(seed))
	return k, err
}

// keyring reads session keys from a directory, such as that of a mounted Secret, and follows its changes. Each file is
// a key, and its name the id of the key.
type keyring struct {
	directory, server string
	log               logr.Logger
	now               func() time.Time

	mu   sync.Mutex
	read time.Time
	// keys are sorted by age, the oldest first.
	keys []*sessionKey
	// rejected are the files that are not keys, so that each is logged once.
	rejected map[string]string
}

// newKeyring fails if the directory has no key.
func newKeyring(directory, server string, log logr.Logger) (*keyring, error) {
	k := &keyring{directory: directory, server: server, log: log, now: time.Now, rejected: map[string]string{}}
	keys, err := k.load()
	if err != nil {
		return nil, err
	}
	k.keys, k.read = keys, k.now()
	return k, nil
}

// accepted are the keys that open ids, and that identify replicas. If the directory cannot be read, or has no keys, those
// read last remain, because sessions of clients depend on them.
func (k *keyring) accepted() []*sessionKey {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	if age := now.Sub(k.read); age >= 0 && age < keysMaxAge {
		return k.keys
	}
	k.read = now
	keys, err := k.load()
	if err != nil {
		k.log.Error(err, "Failed to read the session keys; those read before remain in use")
		return k.keys
	}
	k.keys = keys
	return keys
}

// sealing is the key that seals ids, and that identifies this replica: the newest one that all replicas have read.
func (k *keyring) sealing() *sessionKey {
	keys := k.accepted()
	chosen, since := keys[0], k.now().Add(-KeyActivation)
	for _, key := range keys {
		if !key.created.After(since) {
			chosen = key
		}
	}
	return chosen
}

// find returns an accepted key, or nil.
func (k *keyring) find(name string) *sessionKey {
	for _, key := range k.accepted() {
		if key.name == name {
			return key
		}
	}
	return nil
}

// trusts reports whether a public key is derived from an accepted key.
func (k *keyring) trusts(public ed25519.PublicKey) bool {
	return slices.ContainsFunc(k.accepted(), func(key *sessionKey) bool { return bytes.Equal(key.public, public) })
}

// load reads the directory.
func (k *keyring) load() ([]*sessionKey, error) {
	entries, err := os.ReadDir(k.directory)
	if err != nil {
		return nil, fmt.Errorf("reading the session keys: %w", err)
	}
	var keys []*sessionKey
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			continue // of the kubelet
		}
		key, err := k.loadKey(entry.Name())
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
		case err != nil:
			k.reject(entry.Name(), err)
		default:
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("reading the session keys: %s has none: it needs a file of %d bytes with a name such as %s",
			k.directory, KeyBytes, KeyName)
	}
	slices.SortFunc(keys, func(a, b *sessionKey) int { return a.created.Compare(b.created) })
	return keys, nil
}

// loadKey reads a key.
func (k *keyring) loadKey(name string) (*sessionKey, error) {
	secret, err := os.ReadFile(filepath.Join(k.directory, name))
	if err != nil {
		return nil, err
	}
	return newSessionKey(name, secret, k.server)
}

func (k *keyring) reject(name string, err error) {
	if k.rejected[name] != err.Error() {
		k.rejected[name] = err.Error()
		k.log.Info("Ignoring a file that is not a session key", "file", name, "cause", err.Error())
	}
}
