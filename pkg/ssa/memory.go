package ssa

import (
	"sync"
	"unique"

	"k8s.io/apimachinery/pkg/types"
)

// memory holds what the API server answered to our last apply of each object. It is a cache and
// nothing else: whatever it lost is found again from the object itself or by one apply that
// changes nothing. It makes the quiet check cheap, and it holds the server's own field set where
// that is not what our schema says.
type memory struct {
	mu      sync.RWMutex
	objects map[memoryKey]remembered
}

type memoryKey struct {
	identity    identity
	subresource string
}

type remembered struct {
	uid    types.UID
	config digest
	// fields is our entry as the server recorded it for config. Equal sets share one string.
	fields unique.Handle[string]
	// resourceVersion is a version of the object that was judged quiet under config, or empty.
	resourceVersion string
}

func newMemory() *memory { return &memory{objects: map[memoryKey]remembered{}} }

func (m *memory) get(key memoryKey) (remembered, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	r, ok := m.objects[key]
	return r, ok
}

func (m *memory) put(key memoryKey, r remembered) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.objects[key] = r
}

func (m *memory) forget(id identity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, memoryKey{identity: id})
	delete(m.objects, memoryKey{identity: id, subresource: statusSubresource})
}
