package authorization

import (
	"container/list"
	"crypto/sha256"
	"sync"
	"time"
)

const (
	// maxCached bounds the number of tokens that are known to be valid.
	maxCached = 4096
	// maxAge is how long a token is not verified again, and so how long it is accepted after its key is removed.
	maxAge = time.Minute
)

// tokenCache holds the identities of tokens that were verified, by the hash of the token. The least recently used one
// is dropped first. It is safe for concurrent use.
type tokenCache struct {
	limit int

	mu      sync.Mutex
	entries map[[sha256.Size]byte]*list.Element
	order   *list.List // newest first
}

type cachedToken struct {
	key   [sha256.Size]byte
	who   *identity
	until time.Time
}

func newTokenCache(limit int) *tokenCache {
	return &tokenCache{limit: limit, entries: map[[sha256.Size]byte]*list.Element{}, order: list.New()}
}

// get returns nil for a token that must be verified.
func (c *tokenCache) get(token string, now time.Time) *identity {
	key := sha256.Sum256([]byte(token))
	c.mu.Lock()
	defer c.mu.Unlock()
	element, ok := c.entries[key]
	if !ok {
		return nil
	}
	cached, _ := element.Value.(cachedToken)
	if !now.Before(cached.until) {
		c.remove(element)
		return nil
	}
	c.order.MoveToFront(element)
	return cached.who
}

func (c *tokenCache) add(token string, who *identity, now time.Time) {
	until := now.Add(maxAge)
	if who.expires.Before(until) {
		until = who.expires
	}
	entry := cachedToken{key: sha256.Sum256([]byte(token)), who: who, until: until}
	c.mu.Lock()
	defer c.mu.Unlock()
	if element, ok := c.entries[entry.key]; ok {
		c.remove(element)
	}
	c.entries[entry.key] = c.order.PushFront(entry)
	if c.order.Len() > c.limit {
		c.remove(c.order.Back())
	}
}

func (c *tokenCache) remove(element *list.Element) {
	cached, _ := element.Value.(cachedToken)
	delete(c.entries, cached.key)
	c.order.Remove(element)
}
