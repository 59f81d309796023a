package faults

import (
	"cmp"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// Version is one observed version of an object. Callers must not modify it.
type Version struct {
	Type   watch.EventType
	Object *unstructured.Unstructured
	// Revision is the resourceVersion, which orders versions across kinds.
	Revision int64
	// Number counts the versions of objects with the same kind and name from 1.
	Number int
	// ObservedAt is when the watch event arrived.
	ObservedAt time.Time
}

// history holds every version of every object of an environment.
type history struct {
	mu       sync.Mutex
	versions []Version
	live     map[ID]*unstructured.Unstructured
	// created and deleted count by object.
	created, deleted map[ID]int
	// seen counts the versions of each object.
	seen map[ID]int
	// names maps UIDs to kinds and names.
	names map[types.UID]ID
	// changed is closed and replaced at every event.
	changed chan struct{}
}

func newHistory() *history {
	return &history{
		live: map[ID]*unstructured.Unstructured{}, created: map[ID]int{}, deleted: map[ID]int{}, seen: map[ID]int{},
		names: map[types.UID]ID{}, changed: make(chan struct{}),
	}
}

func (h *history) observe(event watch.EventType, object *unstructured.Unstructured) {
	h.mu.Lock()
	defer h.mu.Unlock()
	revision, _ := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	id := idOf(object)
	h.seen[id]++
	h.versions = append(h.versions, Version{Type: event, Object: object, Revision: revision, Number: h.seen[id], ObservedAt: time.Now()})
	h.names[object.GetUID()] = id
	switch event {
	case watch.Added:
		h.created[id]++
		h.live[id] = object
	case watch.Deleted:
		h.deleted[id]++
		delete(h.live, id)
	default:
		h.live[id] = object
	}
	close(h.changed)
	h.changed = make(chan struct{})
}

// get returns the live object, or nil. Callers must not modify it.
func (h *history) get(id ID) *unstructured.Unstructured {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.live[id]
}

// change returns a channel that is closed at the next event.
func (h *history) change() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changed
}

// all returns all versions in the order of their revisions.
func (h *history) all() []Version {
	h.mu.Lock()
	defer h.mu.Unlock()
	versions := slices.Clone(h.versions)
	slices.SortStableFunc(versions, func(a, b Version) int { return cmp.Compare(a.Revision, b.Revision) })
	return versions
}

func (h *history) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.versions)
}

// filter returns the live objects that match.
func (h *history) filter(match func(*unstructured.Unstructured) bool) []*unstructured.Unstructured {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []*unstructured.Unstructured
	for _, object := range h.live {
		if match(object) {
			found = append(found, object)
		}
	}
	slices.SortFunc(found, func(a, b *unstructured.Unstructured) int { return cmp.Compare(idOf(a).String(), idOf(b).String()) })
	return found
}
