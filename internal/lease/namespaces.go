package lease

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// Namespaces is a set of namespaces. The zero value is empty.
type Namespaces struct {
	// All means that the set contains every namespace.
	All   bool
	Names sets.Set[string]
}

// Has reports whether the set contains the namespace.
func (n Namespaces) Has(namespace string) bool { return n.All || n.Names.Has(namespace) }

// Empty reports whether the set contains no namespace.
func (n Namespaces) Empty() bool { return !n.All && n.Names.Len() == 0 }

// Equal reports whether both sets contain the same namespaces.
func (n Namespaces) Equal(other Namespaces) bool {
	return n.All == other.All && n.Names.Equal(other.Names)
}

// intersect returns the namespaces that both sets contain.
func (n Namespaces) intersect(other Namespaces) Namespaces {
	switch {
	case n.All:
		return other
	case other.All:
		return n
	default:
		return Namespaces{Names: n.Names.Intersection(other.Names)}
	}
}

// Change is a change of the namespaces that a guard permits.
type Change struct {
	Before, After Namespaces
	// expired is true if nothing was permitted any more before the change, because the claim had expired.
	expired bool
}

// Gained reports whether the namespace is permitted since the change, also if it was before the claim expired.
func (c Change) Gained(namespace string) bool {
	return c.After.Has(namespace) && (c.expired || !c.Before.Has(namespace))
}

// Lost reports whether the namespace was permitted until the change.
func (c Change) Lost(namespace string) bool {
	return c.Before.Has(namespace) && !c.After.Has(namespace)
}

// claims are the namespaces that the guard permits.
type claims struct {
	// exempt are namespaces in which writes that are not part of a reconcile need no claim, such as that of
	// the Lease of this release.
	exempt sets.Set[string]
	held   Namespaces
	// sent is when the last successful renewal was sent, and valid is for how long it proves the claims.
	sent  instant
	valid time.Duration
	// subscribers are called with every change, in order.
	subscribers []func(Change)
	// notifying serializes the calls.
	notifying sync.Mutex
}

// RequireClaims refuses writes in namespaces that this replica has not claimed with [Guard.Claim]. It is called
// before the guard is used. Writes that are not part of a reconcile need no claim in the exempt namespaces.
func (g *Guard) RequireClaims(exempt ...string) { g.claims = &claims{exempt: sets.New(exempt...)} }

// RequiresClaims reports whether writes need claims. A nil guard requires none.
func (g *Guard) RequiresClaims() bool { return g != nil && g.claims != nil }

// Subscribe calls the function with what is claimed now, and with every change, before the next one.
func (g *Guard) Subscribe(subscriber func(Change)) {
	g.claims.notifying.Lock()
	defer g.claims.notifying.Unlock()
	g.mu.Lock()
	g.claims.subscribers = append(g.claims.subscribers, subscriber)
	held := g.claims.held
	g.mu.Unlock()
	if !held.Empty() {
		subscriber(Change{After: held})
	}
}

// Claimed returns the namespaces in which this replica may write.
func (g *Guard) Claimed() Namespaces {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.claims.isValid(g.now()) {
		return Namespaces{}
	}
	return g.claims.held
}

// Claim permits writes in the namespaces once they are recorded, which send does. The record proves the claims
// for the given time from when it was sent.
func (g *Guard) Claim(namespaces Namespaces, valid time.Duration, send func() error) error {
	sent := g.now()
	if err := send(); err != nil {
		return err
	}
	g.setClaims(func(c *claims) { c.held, c.sent, c.valid = namespaces, sent, valid })
	return nil
}

// GiveUpAllBut refuses further writes in all namespaces but the given ones, and waits until pending writes in them
// have ended.
func (g *Guard) GiveUpAllBut(ctx context.Context, namespaces Namespaces) error {
	g.setClaims(func(c *claims) { c.held = c.held.intersect(namespaces) })
	return g.waitForWrites(ctx, func(w *write) bool { return !g.claims.exempts(w) && !namespaces.Has(w.namespace) })
}

func (g *Guard) setClaims(update func(*claims)) {
	g.claims.notifying.Lock()
	defer g.claims.notifying.Unlock()
	g.mu.Lock()
	change := Change{Before: g.claims.held, expired: !g.claims.isValid(g.now())} // reconciles were refused since
	update(g.claims)
	change.After = g.claims.held
	subscribers := slices.Clone(g.claims.subscribers)
	g.mu.Unlock()
	if change.Before.Equal(change.After) && (!change.expired || change.After.Empty()) {
		return
	}
	for _, subscriber := range subscribers {
		subscriber(change)
	}
}

func (c *claims) isValid(now instant) bool { return now.since(c.sent) < c.valid }

// permits reports whether a write may start. The caller holds the mutex of the guard.
func (c *claims) permits(w *write, now instant) bool {
	return c == nil || c.exempts(w) || c.held.Has(w.namespace) && c.isValid(now)
}

// exempts reports whether a write needs no claim: it is outside of namespaces, or it is not part of a reconcile and
// in an exempt namespace.
func (c *claims) exempts(w *write) bool {
	return w.namespace == "" || !w.reconciling && c.exempt.Has(w.namespace)
}

// namespaceOf returns the namespace in the path of a request to the API server; empty if there is none.
func namespaceOf(path string) string {
	prefix, rest, _ := strings.Cut(path, "/namespaces/")
	if !strings.Contains(prefix, "/api/") && !strings.Contains(prefix, "/apis/") {
		return ""
	}
	namespace, _, _ := strings.Cut(rest, "/")
	return namespace
}
