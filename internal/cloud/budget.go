package cloud

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
)

// Limits of Azure Resource Manager for writes, for each subscription and principal: a bucket of
// 200 that refills by 10 a second. See
// https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling.
const (
	writesPerSecond = 10
	writesBurst     = 200
)

// budget shares the writes that a subscription allows between all objects in it. Who finds it empty
// is given a time at which a write is kept for it, and does not wait here.
type budget struct {
	clock   clock.PassiveClock
	mu      sync.Mutex
	limiter *rate.Limiter
	// kept are the times at which objects may write.
	kept map[string]time.Time
	// closedUntil is when the cloud, having refused, wants to be asked again.
	closedUntil time.Time
}

func newBudget(c clock.PassiveClock, perSecond float64, burst int) *budget {
	return &budget{clock: c, limiter: rate.NewLimiter(rate.Limit(perSecond), burst), kept: map[string]time.Time{}}
}

// take lets the object write now, or says how long it has to wait.
func (b *budget) take(object string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	if wait := b.closedUntil.Sub(now); wait > 0 {
		return wait
	}
	at, ok := b.kept[object]
	if !ok {
		at = now.Add(b.limiter.ReserveN(now, 1).DelayFrom(now))
	}
	if wait := at.Sub(now); wait > 0 {
		b.kept[object] = at
		return wait
	}
	delete(b.kept, object)
	return 0
}

// refused closes the budget for everybody: a request that comes before its time is told to wait anew.
func (b *budget) refused(retryAfter time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if until := b.clock.Now().Add(retryAfter); until.After(b.closedUntil) {
		b.closedUntil = until
	}
}

// closed says how long reads, too, have to wait after a refusal.
func (b *budget) closed() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(0, b.closedUntil.Sub(b.clock.Now()))
}
