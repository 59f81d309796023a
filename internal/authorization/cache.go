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

// digest identifies a token without being it.
type digest [sha256.Size]byte

func digestOf(token string) digest { return sha256.Sum256([]byte(token)) }

// cache holds a value for each of the tokens that were used last, by digest. It is safe for concurrent use.
type cache[V any] struct {
	limit int

	mu      sync.Mutex
	entries map[digest]*list.Element
	order   *list.List // newest first
}

type cached[V any] struct {
	key   digest
	value V
	until time.Time
}

func newCache[V any](limit int) *cache[V] {
	return &cache[V]{limit: limit, entries: map[digest]*list.Element{}, order: list.New()}
}

// get returns false for a token that has no value, or had one.
func (c *cache[V]) get(key digest, now time.Time) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	element, ok := c.entries[key]
	if !ok {
		return value, false
	}
	found, _ := element.Value.(cached[V])
	if !now.Before(found.until) {
		c.remove(element)
		return value, false
	}
	c.order.MoveToFront(element)
	return found.value, true
}

// add keeps a value until a time, or until the limit is reached and all others have been used since.
func (c *cache[V]) add(key digest, value V, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if element, ok := c.entries[key]; ok {
		c.remove(element)
	}
	c.entries[key] = c.order.PushFront(cached[V]{key, value, until})
	if c.order.Len() > c.limit {
		c.remove(c.order.Back())
	}
}

func (c *cache[V]) remove(element *list.Element) {
	found, _ := element.Value.(cached[V])
	delete(c.entries, found.key)
	c.order.Remove(element)
}

// verifiedUntil is how long the identity in a token is used.
func verifiedUntil(who *identity, now time.Time) time.Time {
	return earlier(now.Add(maxAge), who.expires)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
