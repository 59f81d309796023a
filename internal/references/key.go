package references

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// KeySecret is the name of the Secret with the key, in the namespace of the manager. It must never change.
const KeySecret = "hash-key.fixpoint.dev"

const (
	// keyEntry is the entry of the Secret, and keySize the size of the key in bytes.
	keyEntry = "key"
	keySize  = 32
)

// Declare returns the hash to declare in the pod template of an object, which is live in its present
// template. Whoever can read a pod template could guess data of a Secret from a hash without a key. So the
// hash of such data has the key, and differs between objects: a hash of known data in one object tells
// nothing about another. Two hashes need no key: those without data of Secrets, and one that an earlier
// version of the manager declared, for as long as the data has not changed, because a new hash replaces the
// pods.
func Declare(finding Finding, object types.NamespacedName, live string, key []byte) string {
	if !NeedsKey(finding, live) {
		return finding.Hash
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(object.String() + "\n" + finding.Hash))
	const length = 16 // bytes, twice that of a hash without a key
	return hex.EncodeToString(mac.Sum(nil)[:length])
}

// NeedsKey reports whether [Declare] uses the key.
func NeedsKey(finding Finding, live string) bool {
	return finding.Hash != "" && finding.Secret && live != finding.Hash
}

// Key is the key in the Secret [KeySecret]. It is read once. It is safe for concurrent use.
type Key struct {
	// Namespace is that of the manager, whose Secrets the users of other namespaces cannot read.
	Namespace string
	// Reader reads from the API server, and Applier creates the Secret.
	Reader  client.Reader
	Applier *ssa.Applier

	mu    sync.Mutex
	value []byte
}

// Read returns the key, or nil if the Secret does not exist.
func (k *Key) Read(ctx context.Context) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.value != nil {
		return k.value, nil
	}
	var secret corev1.Secret
	if err := k.Reader.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: KeySecret}, &secret); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading %s: %w", k, err)
	}
	value := secret.Data[keyEntry]
	if len(value) < keySize {
		return nil, fmt.Errorf("%s has %d bytes in the entry %s, and needs at least %d: restore it, or delete it to replace the pods that use data of Secrets", k, len(value), keyEntry, keySize)
	}
	k.value = value
	return value, nil
}

// Create creates the Secret with a random key. It changes nothing if another replica has created it.
func (k *Key) Create(ctx context.Context) error {
	value := make([]byte, keySize)
	_, _ = rand.Read(value) // never fails
	desired := corev1ac.Secret(KeySecret, k.Namespace).WithType(corev1.SecretTypeOpaque).WithImmutable(true).WithData(map[string][]byte{keyEntry: value})
	decision, err := k.Applier.Decide(ssa.Request{Desired: desired})
	if err != nil {
		return err
	}
	// The decision is to create. It is not repeated on a Secret that exists by now, whose key it would replace.
	if _, err := k.Applier.Execute(ctx, decision); err != nil && !ssa.IsStale(err) {
		return fmt.Errorf("creating %s: %w", k, err)
	}
	return nil
}

// String names the Secret.
func (k *Key) String() string { return "Secret " + k.Namespace + "/" + KeySecret }
