package phases

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// backoff is the exponential rate limiter of client-go, but for a reconcile that an event causes while a retry is
// due anyway. It is no retry: that it fails too does not delay the retry. Otherwise a second in which the API server
// refuses writes, and in which a rollout brings a dozen events, would delay the next retry by minutes.
type backoff struct {
	workqueue.TypedRateLimiter[reconcile.Request]
	clock clock.PassiveClock

	mu sync.Mutex
	// due is when the next retry of an object is due.
	due map[reconcile.Request]time.Time
}

// newBackoff delays the retries of reconciles that fail: by first, then twice as long, and so on up to longest.
func newBackoff(first, longest time.Duration, now clock.PassiveClock) *backoff {
	exponential := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](first, longest)
	return &backoff{TypedRateLimiter: exponential, clock: now, due: map[reconcile.Request]time.Time{}}
}

// When implements the rate limiter.
func (b *backoff) When(request reconcile.Request) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	if left := b.due[request].Sub(now); left > 0 {
		return left
	}
	delay := b.TypedRateLimiter.When(request)
	b.due[request] = now.Add(delay)
	return delay
}

// Forget implements the rate limiter.
func (b *backoff) Forget(request reconcile.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.due, request)
	b.TypedRateLimiter.Forget(request)
}
