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

// keyReader reads what probes need out of Secrets and ConfigMaps: each version of an object once, for
// as long as the MCPServer is asked. It is safe for concurrent use.
type keyReader struct {
	// metadata reads PartialObjectMetadata from a cache, data whole objects past it.
	metadata, data client.Reader

	mu    sync.Mutex
	known map[client.ObjectKey]map[origin]version
}

// origin is a key of an object, in the namespace of the MCPServer.
type origin struct{ kind, name, key string }

// version is what an object held, in one of its versions.
type version struct {
	uid             types.UID
	resourceVersion string
	value           []byte
}

// read returns the value of a key; it is empty and not nil if there is none.
func (r *keyReader) read(ctx context.Context, server client.ObjectKey, from origin) ([]byte, error) {
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(from.kind))
	if err := r.metadata.Get(ctx, client.ObjectKey{Namespace: server.Namespace, Name: from.name}, metadata); err != nil {
		return nil, fmt.Errorf("looking for %s %s: %w", from.kind, from.name, err)
	}
	if known, ok := r.recall(server, from); ok && known.uid == metadata.UID && known.resourceVersion == metadata.ResourceVersion {
		return known.value, nil
	}
	fresh, err := r.fetch(ctx, server.Namespace, from)
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", from.kind, from.name, err)
	}
	r.remember(server, from, fresh)
	return fresh.value, nil
}

func (r *keyReader) fetch(ctx context.Context, namespace string, from origin) (version, error) {
	at := client.ObjectKey{Namespace: namespace, Name: from.name}
	if from.kind == "Secret" {
		var secret corev1.Secret
		if err := r.data.Get(ctx, at, &secret); err != nil {
			return version{}, err
		}
		return version{secret.UID, secret.ResourceVersion, present(secret.Data[from.key])}, nil
	}
	var configMap corev1.ConfigMap
	if err := r.data.Get(ctx, at, &configMap); err != nil {
		return version{}, err
	}
	value := configMap.BinaryData[from.key]
	if text, ok := configMap.Data[from.key]; ok {
		value = []byte(text)
	}
	return version{configMap.UID, configMap.ResourceVersion, present(value)}, nil
}

func present(value []byte) []byte {
	if value == nil {
		return []byte{}
	}
	return value
}

func (r *keyReader) recall(server client.ObjectKey, from origin) (version, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.known[server][from]
	return known, ok
}

func (r *keyReader) remember(server client.ObjectKey, from origin, fresh version) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = map[client.ObjectKey]map[origin]version{}
	}
	if r.known[server] == nil {
		r.known[server] = map[origin]version{}
	}
	r.known[server][from] = fresh
}

// forget drops what was read for an MCPServer: all of it, or all but what it still uses.
func (r *keyReader) forget(server client.ObjectKey, but ...origin) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := map[origin]version{}
	for _, from := range but {
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
