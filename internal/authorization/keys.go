package authorization

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-logr/logr"
)

const (
	// refreshAfter is the age at which the keys of a URL are fetched again, and so the longest time that a key is
	// accepted after its issuer has removed it, if the issuer can be reached.
	refreshAfter = 5 * time.Minute
	// retryAfter is the time between two fetches at least. Clients can cause fetches with unknown key IDs.
	retryAfter = 10 * time.Second
	// recheckAfter is the time between two checks whether a file has changed.
	recheckAfter = time.Second
	// maxKeys bounds the keys of an issuer.
	maxKeys = 100
	// minRSABits is the smallest RSA key that is accepted (RFC 7518, section 3.3).
	minRSABits = 2048
)

// keyring holds the keys of one issuer. It loads them when they are needed. Keys that were loaded stay while
// loading fails.
type keyring struct {
	// load returns the keys, or errUnchanged.
	load func(ctx context.Context) ([]jose.JSONWebKey, error)
	// refreshAfter and retryAfter are as the constants.
	refreshAfter, retryAfter time.Duration
	// waits makes callers wait for a refresh, instead of using the keys that are known.
	waits bool
	now   func() time.Time
	log   logr.Logger

	mu sync.Mutex
	// keys were loaded at loaded; loading was tried at tried, and failed with err.
	keys          []jose.JSONWebKey
	loaded, tried time.Time
	err           error
	// running is closed when the load that runs has ended; nil if none runs.
	running chan struct{}
}

// errUnchanged is returned by a load that found what it had found before.
var errUnchanged = errors.New("unchanged")

// find returns the keys with an ID; all keys for an empty ID. It returns an [unavailable] error if the keys cannot be
// loaded, so that the ID may be one of them.
func (k *keyring) find(ctx context.Context, id string) ([]jose.JSONWebKey, error) {
	k.mu.Lock()
	found := withID(k.keys, id)
	fresh := k.now().Sub(k.loaded) < k.refreshAfter
	switch {
	case len(found) > 0 && fresh:
		k.mu.Unlock()
		return found, nil
	case len(found) > 0 && !k.waits:
		k.start()
		k.mu.Unlock()
		return found, nil
	}
	running := k.start()
	k.mu.Unlock()
	if err := wait(ctx, running); err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	found = withID(k.keys, id)
	if len(found) == 0 && k.err != nil {
		return nil, &unavailable{k.err}
	}
	return found, nil
}

// renew loads the keys, if the last load was long enough ago, and reports whether it did. It is for a signature that
// the known key of its ID did not make: some issuers replace a key under the same ID.
func (k *keyring) renew(ctx context.Context) bool {
	k.mu.Lock()
	running := k.start()
	k.mu.Unlock()
	return running != nil && wait(ctx, running) == nil
}

// start starts a load, unless one runs or the last one was too recent. The returned channel is closed at the end of the
// load that runs; it is nil if none does. The caller holds the lock.
func (k *keyring) start() <-chan struct{} {
	if k.running != nil {
		return k.running
	}
	if !k.tried.IsZero() && k.now().Sub(k.tried) < k.retryAfter {
		return nil
	}
	done := make(chan struct{})
	k.running, k.tried = done, k.now()
	go func() {
		defer close(done)
		// It serves all requests, so it does not end with one of them.
		ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
		defer cancel()
		keys, err := k.load(ctx)
		k.store(keys, err)
	}()
	return done
}

func (k *keyring) store(keys []jose.JSONWebKey, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.running = nil
	switch {
	case errors.Is(err, errUnchanged):
		k.loaded = k.now()
	case err != nil:
		if k.err == nil || k.err.Error() != err.Error() {
			k.log.Info("Failed to load the keys of the issuer; those that are known stay in use", "error", err.Error(), "keys", len(k.keys))
		}
		k.err = err
		return
	default:
		k.keys, k.loaded = keys, k.now()
		k.log.V(1).Info("Loaded the keys of the issuer", "keys", len(keys))
	}
	k.err = nil
}

// wait waits for a load, if one runs.
func wait(ctx context.Context, running <-chan struct{}) error {
	if running == nil {
		return nil
	}
	select {
	case <-running:
		return nil
	case <-ctx.Done():
		return &unavailable{ctx.Err()}
	}
}

func withID(keys []jose.JSONWebKey, id string) []jose.JSONWebKey {
	if id == "" {
		return keys
	}
	var found []jose.JSONWebKey
	for i := range keys {
		if keys[i].KeyID == id {
			found = append(found, keys[i])
		}
	}
	return found
}

// unavailable is an error because of which a token can be neither accepted nor rejected.
type unavailable struct{ cause error }

func (u *unavailable) Error() string {
	return "the keys of the issuer cannot be loaded: " + u.cause.Error()
}
func (u *unavailable) Unwrap() error { return u.cause }

// parseKeys reads a JSON Web Key Set. Keys that cannot verify signatures of tokens are left out, as RFC 7517, section 5,
// says.
func parseKeys(data []byte) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, fmt.Errorf("reading the JSON Web Key Set: %w", err)
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("the JSON Web Key Set has %d keys; at most %d are supported", len(set.Keys), maxKeys)
	}
	var keys []jose.JSONWebKey
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) == nil && key.Valid() && isUsable(key) {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("the JSON Web Key Set has no public key for signatures: RSA with at least 2048 bits, P-256, P-384, P-521 or Ed25519")
	}
	return keys, nil
}

func isUsable(key jose.JSONWebKey) bool {
	for _, algorithm := range algorithms {
		if suits(key, algorithm) {
			return true
		}
	}
	return false
}

// suits reports whether a key may verify signatures of an algorithm. A key serves only the algorithms of its type, and
// only its own one if it names it, so that a token cannot choose what its key is used for.
func suits(key jose.JSONWebKey, algorithm jose.SignatureAlgorithm) bool {
	if key.Use != "" && key.Use != "sig" || key.Algorithm != "" && key.Algorithm != string(algorithm) {
		return false
	}
	switch public := key.Key.(type) {
	case *rsa.PublicKey:
		return isRSA(algorithm) && public.N.BitLen() >= minRSABits
	case *ecdsa.PublicKey:
		return public.Curve == curves[algorithm]
	case ed25519.PublicKey:
		return algorithm == jose.EdDSA
	default: // symmetric and private keys
		return false
	}
}

// algorithms are the accepted signature algorithms. None and HMAC are not among them.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

var curves = map[jose.SignatureAlgorithm]elliptic.Curve{jose.ES256: elliptic.P256(), jose.ES384: elliptic.P384(), jose.ES512: elliptic.P521()}

func isRSA(algorithm jose.SignatureAlgorithm) bool {
	switch algorithm {
	case jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512:
		return true
	default:
		return false
	}
}
