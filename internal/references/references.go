// Package references resolves the objects that a spec refers to and its controller does not create:
// whether they exist, and whether the data that pods use from them has changed. It caches metadata
// only; data is read when an object is new or has changed, and kept as a hash.
package references

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Kind is a kind that can be referred to.
type Kind string

// The kinds.
const (
	Secret                Kind = "Secret"
	ConfigMap             Kind = "ConfigMap"
	ServiceAccount        Kind = "ServiceAccount"
	PersistentVolumeClaim Kind = "PersistentVolumeClaim"
)

// Reference is one field of a spec that names an object.
type Reference struct {
	Kind Kind
	Name string
	// Keys are the data keys that must exist. Empty means that all existing keys are used.
	Keys []string
	// Optional objects and keys may be missing.
	Optional bool
	// Rolls is true if pods read the data at start, so that a change of it must replace them.
	Rolls bool
}

// ID is the key of the object within its namespace, such as Secret/tokens, for use in an index.
func (r Reference) ID() string { return string(r.Kind) + "/" + r.Name }

// Finding is the result of resolving a list of references.
type Finding struct {
	// Missing lists missing objects and keys, sorted, such as "Secret tokens" and
	// "key password of Secret tokens".
	Missing []string
	// MayBeOptional is true if the spec can mark some of the missing ones optional: those that pods read at start.
	MayBeOptional bool
	// Hash changes when data that pods use changes; it is empty if they use none. It has no key, so it reveals
	// data that can be guessed: see [Declare].
	Hash string
	// Secret is true if Hash includes data of Secrets.
	Secret bool
}

// Reader resolves references. It is safe for concurrent use.
type Reader struct {
	// Metadata reads PartialObjectMetadata from a cache.
	Metadata client.Reader
	// Data reads whole objects from the API server.
	Data client.Reader
	// Unreadable is that of a plan, see [Reader.Ignores]; nil in a manager.
	Unreadable func(error)

	mu    sync.Mutex
	known map[types.UID]snapshot
}

// snapshot is the data of one version of an object, as hashes of its keys.
type snapshot struct {
	resourceVersion string
	keys            map[string]string
}

// Find resolves all references of one object. It reads each object that they name once: a hash of two versions of one would
// replace the pods, and that of the later version again.
func (r *Reader) Find(ctx context.Context, namespace string, references []Reference) (Finding, error) {
	missing := map[string]bool{}
	var hashed []string
	secret, mayBeOptional := false, false
	read := map[string]*referenced{}
	for _, reference := range references {
		object := read[reference.ID()]
		if object == nil {
			object = &referenced{}
			read[reference.ID()] = object
		}
		present, err := r.find(ctx, namespace, reference, object)
		if err != nil {
			return Finding{}, err
		}
		for _, text := range present.missing {
			missing[text], mayBeOptional = true, mayBeOptional || reference.Rolls
		}
		if reference.Rolls {
			hashed = append(hashed, reference.ID()+"="+present.hash)
			secret = secret || reference.Kind == Secret
		}
	}
	finding := Finding{Missing: slices.Sorted(maps.Keys(missing)), MayBeOptional: mayBeOptional, Secret: secret}
	if len(hashed) > 0 {
		slices.Sort(hashed)
		finding.Hash = digest(strings.Join(slices.Compact(hashed), "\n"))
	}
	return finding, nil
}

type presence struct {
	missing []string
	hash    string
}

// referenced is what has been read of one object.
type referenced struct {
	isRead, isMissing bool
	metadata          metav1.PartialObjectMetadata
	// keys are nil before they are read.
	keys map[string]string
}

func (r *Reader) find(ctx context.Context, namespace string, reference Reference, object *referenced) (presence, error) {
	if err := r.readInto(ctx, namespace, reference, object); err != nil {
		return presence{}, err
	}
	switch {
	case object.isMissing && reference.Optional:
		// Pods cannot tell a missing object from one without the keys.
		return inspect(reference, nil), nil
	case object.isMissing:
		return presence{missing: []string{fmt.Sprintf("%s %s", reference.Kind, reference.Name)}}, nil
	case !reference.usesData():
		return presence{}, nil
	default:
		return inspect(reference, object.keys), nil
	}
}

// usesData reports whether the data matters, and not only whether the object exists.
func (r Reference) usesData() bool { return r.Rolls || len(r.Keys) > 0 }

// readInto reads of an object what a reference needs and is not read yet.
func (r *Reader) readInto(ctx context.Context, namespace string, reference Reference, object *referenced) error {
	if !object.isRead {
		object.metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(string(reference.Kind)))
		err := r.Metadata.Get(ctx, client.ObjectKey{Namespace: namespace, Name: reference.Name}, &object.metadata)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("getting %s %s: %w", reference.Kind, reference.Name, err)
		}
		object.isRead, object.isMissing = true, err != nil
	}
	if object.isMissing || object.keys != nil || !reference.usesData() {
		return nil
	}
	keys, err := r.keysOf(ctx, &object.metadata, reference.Kind)
	object.keys, object.isMissing = keys, apierrors.IsNotFound(err) // deleted, and the cache does not show it yet
	return client.IgnoreNotFound(err)
}

// inspect finds missing keys, and hashes the data that is used.
func inspect(reference Reference, keys map[string]string) presence {
	wanted := reference.Keys
	if len(wanted) == 0 {
		wanted = slices.Sorted(maps.Keys(keys))
	}
	var found presence
	var parts []string
	for _, key := range wanted {
		hash, ok := keys[key]
		if !ok && !reference.Optional {
			found.missing = append(found.missing, fmt.Sprintf("key %s of %s %s", key, reference.Kind, reference.Name))
		}
		parts = append(parts, key+"="+hash)
	}
	found.hash = digest(strings.Join(parts, "\n"))
	return found
}

// keysOf reads the data of an object, unless this version of it is cached.
func (r *Reader) keysOf(ctx context.Context, metadata *metav1.PartialObjectMetadata, kind Kind) (map[string]string, error) {
	r.mu.Lock()
	known, ok := r.known[metadata.UID]
	r.mu.Unlock()
	if ok && known.resourceVersion == metadata.ResourceVersion {
		return known.keys, nil
	}
	key := client.ObjectKeyFromObject(metadata)
	fresh, err := r.read(ctx, key, kind)
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", kind, key.Name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = map[types.UID]snapshot{}
	}
	r.known[metadata.UID] = fresh
	return fresh.keys, nil
}

func (r *Reader) read(ctx context.Context, key client.ObjectKey, kind Kind) (snapshot, error) {
	keys := map[string]string{}
	switch kind {
	case Secret:
		var secret corev1.Secret
		if err := r.Data.Get(ctx, key, &secret); err != nil {
			return snapshot{}, err
		}
		for name, value := range secret.Data {
			keys[name] = digest(string(value))
		}
		return snapshot{resourceVersion: secret.ResourceVersion, keys: keys}, nil
	case ConfigMap:
		var configMap corev1.ConfigMap
		if err := r.Data.Get(ctx, key, &configMap); err != nil {
			return snapshot{}, err
		}
		for name, value := range configMap.Data {
			keys[name] = digest(value)
		}
		for name, value := range configMap.BinaryData {
			keys[name] = digest(string(value))
		}
		return snapshot{resourceVersion: configMap.ResourceVersion, keys: keys}, nil
	default:
		return snapshot{}, nil
	}
}

// Forget drops the cached data of a deleted object.
func (r *Reader) Forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, uid)
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}
