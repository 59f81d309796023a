package phases

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// newBackoff delays the retries of reconciles that fail: by first, then twice as long, and so on up to
// longest.
//
// A reconcile that an event asks for while a retry is due anyway is no retry: that it fails too does not
// delay the retry. Otherwise a second in which the API server refuses writes, and in which a rollout
// brings a dozen events, would delay the next retry by minutes.
func newBackoff(first, longest time.Duration, now clock.PassiveClock) *backoff {
	return &backoff{first: first, longest: longest, clock: now, retries: map[reconcile.Request]retry{}}
}

// backoff is a rate limiter of client-go's work queues.
type backoff struct {
	first, longest time.Duration
	clock          clock.PassiveClock

	mu      sync.Mutex
	retries map[reconcile.Request]retry
}

// retry is the next one of an object.
type retry struct {
	failures int
	delay    time.Duration
	due      time.Time
}

// When implements the rate limiter.
func (b *backoff) When(request reconcile.Request) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, r := b.clock.Now(), b.retries[request]
	if left := r.due.Sub(now); left > 0 {
		return left
	}
	r.failures++
	r.delay = min(max(b.first, 2*r.delay), b.longest)
	r.due = now.Add(r.delay)
	b.retries[request] = r
	return r.delay
}

// Forget implements the rate limiter.
func (b *backoff) Forget(request reconcile.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.retries, request)
}

// NumRequeues implements the rate limiter: it counts retries.
func (b *backoff) NumRequeues(request reconcile.Request) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.retries[request].failures
}
