package ssa

import (
	"sync"
	"unique"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// applyCache holds what the API server answered to the last apply of each object. Whatever it does
// not hold is found from the object itself or by one apply that changes nothing. It makes the
// quiet check cheap, and holds the server's field set where the schema gives another.
type applyCache struct {
	mu      sync.RWMutex
	objects map[cacheKey]cached
}

type cacheKey struct {
	identity    identity
	subresource string
}

type cached struct {
	uid    types.UID
	config digest
	// fields is the applier's entry as the server recorded it for config. Equal sets share one string.
	fields unique.Handle[string]
	// resourceVersion is a version of the object whose status was found unchanged under config.
	resourceVersion string
}

func newApplyCache() *applyCache { return &applyCache{objects: map[cacheKey]cached{}} }

func (c *applyCache) get(key cacheKey) (cached, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	known, ok := c.objects[key]
	return known, ok
}

func (c *applyCache) put(key cacheKey, answer cached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.objects[key] = answer
}

func (c *applyCache) forget(id identity) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.objects, cacheKey{identity: id})
	delete(c.objects, cacheKey{identity: id, subresource: statusSubresource})
}

// remember caches fields as those that the API server records for the target.
func (a *Applier) remember(t target, live client.Object, fields string) {
	if !a.dryRun {
		a.cache.put(cacheKey{identity: t.id}, cached{uid: live.GetUID(), config: t.hash, fields: unique.Make(fields)})
	}
}

// recordedFields are those that the API server holds for the applier, or fallback if it holds none.
func (a *Applier) recordedFields(live client.Object, fallback string) string {
	if entry := appliedEntry(live, a.manager, ""); entry != nil && entry.FieldsV1 != nil {
		return entry.FieldsV1.GetRawString()
	}
	return fallback
}
