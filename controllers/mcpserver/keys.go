package mcpserver

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// keyReader reads the values that probes need from Secrets and ConfigMaps. It reads each version of an
// object once, and caches values while the MCPServer is probed. It is safe for concurrent use.
type keyReader struct {
	// metadata reads PartialObjectMetadata from a cache, data whole objects from the API server.
	metadata, data client.Reader

	mu    sync.Mutex
	known map[client.ObjectKey]map[keyRef]version
}

// keyRef is a key of a Secret or ConfigMap in the namespace of the MCPServer.
type keyRef struct{ kind, name, key string }

// version is the value of a key in one version of its object.
type version struct {
	uid             types.UID
	resourceVersion string
	value           []byte
}

// read returns the value of a key; empty, but not nil, if the key does not exist.
func (r *keyReader) read(ctx context.Context, server client.ObjectKey, from keyRef) ([]byte, error) {
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(from.kind))
	if err := r.metadata.Get(ctx, client.ObjectKey{Namespace: server.Namespace, Name: from.name}, metadata); err != nil {
		return nil, fmt.Errorf("getting %s %s: %w", from.kind, from.name, err)
	}
	if known, ok := r.cached(server, from); ok && known.uid == metadata.UID && known.resourceVersion == metadata.ResourceVersion {
		return known.value, nil
	}
	fresh, err := r.fetch(ctx, server.Namespace, from)
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", from.kind, from.name, err)
	}
	r.store(server, from, fresh)
	return fresh.value, nil
}

func (r *keyReader) fetch(ctx context.Context, namespace string, from keyRef) (version, error) {
	at := client.ObjectKey{Namespace: namespace, Name: from.name}
	if from.kind == "Secret" {
		var secret corev1.Secret
		if err := r.data.Get(ctx, at, &secret); err != nil {
			return version{}, err
		}
		return version{secret.UID, secret.ResourceVersion, nonNil(secret.Data[from.key])}, nil
	}
	var configMap corev1.ConfigMap
	if err := r.data.Get(ctx, at, &configMap); err != nil {
		return version{}, err
	}
	value := configMap.BinaryData[from.key]
	if text, ok := configMap.Data[from.key]; ok {
		value = []byte(text)
	}
	return version{configMap.UID, configMap.ResourceVersion, nonNil(value)}, nil
}

func nonNil(value []byte) []byte {
	if value == nil {
		return []byte{}
	}
	return value
}

func (r *keyReader) cached(server client.ObjectKey, from keyRef) (version, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.known[server][from]
	return known, ok
}

func (r *keyReader) store(server client.ObjectKey, from keyRef, fresh version) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = map[client.ObjectKey]map[keyRef]version{}
	}
	if r.known[server] == nil {
		r.known[server] = map[keyRef]version{}
	}
	r.known[server][from] = fresh
}

// forget drops the cached values of an MCPServer, except for the given keys.
func (r *keyReader) forget(server client.ObjectKey, keep ...keyRef) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := map[keyRef]version{}
	for _, from := range keep {
		if known, ok := r.known[server][from]; ok {
			kept[from] = known
		}
	}
	if len(kept) == 0 {
		delete(r.known, server)
		return
	}
	r.known[server] = kept
}
