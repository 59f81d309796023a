package cloud

import (
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
)

// Limits of Azure Resource Manager for each subscription and principal: token buckets with a size and a
// refill rate per second. See
// https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling.
const (
	writesPerSecond = 10
	writesBurst     = 200
	readsPerSecond  = 25
	readsBurst      = 250
)

// reserveShare is the divisor of a bucket that gives its reserve. The reserve is used when objects with
// different reserved times send together, and when a reconcile reads more than it reserved.
const reserveShare = 5

// maxReadsPerReconcile is the largest number of reads of one reconcile. A bucket must not be smaller.
const maxReadsPerReconcile = 8

// budget shares the requests that Azure allows a subscription among its objects. If the bucket is empty,
// an object gets a time at which a request is reserved for it; the call does not wait. So Azure rarely
// throttles, objects are served in order, and no reads are spent on a reconcile that could not write.
type budget struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	// writes and reads reserve requests.
	writes, reads *rate.Limiter
	// sentWrites and sentReads model the buckets in Azure: objects that send later than reserved may
	// exceed them together.
	sentWrites, sentReads *rate.Limiter
	// shares are the reservations by object. swept is when stale ones were last dropped.
	shares map[string]*share
	swept  time.Time
	// writesUntil is when the last of the objects that wait for a write may send it.
	writesUntil time.Time
	// throttledUntil is the end of the Retry-After of the last throttled response.
	throttledUntil time.Time
	// streak counts the throttled responses that directly follow each other. It lengthens the wait,
	// because Retry-After is meant for one request and a reconcile sends several.
	streak int
}

// maxStreak limits the exponent by which a wait is lengthened, and maxLengthened the wait, unless Azure asks for more.
const (
	maxStreak     = 4
	maxLengthened = 5 * time.Minute
)

// share holds the reservations of an object.
type share struct {
	// writeAt is when the object may write; zero without a reservation.
	writeAt time.Time
	// readAt is when the reserved reads may be sent; zero without a reservation.
	readAt time.Time
	reads  int
	// left is how many reads the object may still send.
	left int
	// seen is when the object last reserved or sent a request.
	seen time.Time
}

// shareTimeout is how long the share of an inactive object is kept; the object may be deleted. An
// object that returns later only loses its place in the queue.
const shareTimeout = time.Hour

func newBudget(c clock.PassiveClock, limits Limits) *budget {
	return &budget{
		clock:      c,
		writes:     rate.NewLimiter(rate.Limit(limits.WritesPerSecond), limits.WritesBurst-limits.WritesBurst/reserveShare),
		reads:      rate.NewLimiter(rate.Limit(limits.ReadsPerSecond), max(maxReadsPerReconcile, limits.ReadsBurst-limits.ReadsBurst/reserveShare)),
		sentWrites: rate.NewLimiter(rate.Limit(limits.WritesPerSecond), limits.WritesBurst),
		sentReads:  rate.NewLimiter(rate.Limit(limits.ReadsPerSecond), limits.ReadsBurst),
		shares:     map[string]*share{},
	}
}

// reserveReads reserves the reads of a reconcile. It returns 0 if they may be sent now, or how long to
// wait. Calling it again while waiting does not reserve more.
func (b *budget) reserveReads(object string, reads int) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	if wait := b.throttledFor(now); wait > 0 {
		return wait
	}
	own := b.share(object, now)
	if wait := own.writeAt.Sub(now); wait > 0 {
		return wait
	}
	if wait := own.readIn(now); wait > 0 {
		return wait
	}
	missing := reads - own.left
	if missing <= 0 {
		return 0
	}
	own.readAt, own.reads = now.Add(b.reads.ReserveN(now, missing).DelayFrom(now)), missing
	return own.readIn(now)
}

// share returns the share of the object, and drops stale shares from time to time.
func (b *budget) share(object string, now time.Time) *share {
	if now.Sub(b.swept) >= shareTimeout {
		maps.DeleteFunc(b.shares, func(_ string, s *share) bool { return now.Sub(s.seen) >= shareTimeout })
		b.swept = now
	}
	own, ok := b.shares[object]
	if !ok {
		own = &share{}
		b.shares[object] = own
	}
	own.seen = now
	return own
}

// readIn hands out the reserved reads, or returns how long to wait for them.
func (s *share) readIn(now time.Time) time.Duration {
	if wait := s.readAt.Sub(now); wait > 0 {
		return wait
	}
	s.left += s.reads
	s.readAt, s.reads = time.Time{}, 0
	return 0
}

// read counts a read. A read beyond the reservation is sent anyway, and delays other objects.
func (b *budget) read(object string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	if wait := b.throttledFor(now); wait > 0 {
		return wait
	}
	if wait := send(b.sentReads, now); wait > 0 {
		return wait
	}
	if own := b.share(object, now); own.left > 0 {
		own.left--
	} else {
		b.reads.ReserveN(now, 1)
	}
	return 0
}

// reserveWrite returns 0 if the object may write now, or how long to wait.
func (b *budget) reserveWrite(object string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	if wait := b.throttledFor(now); wait > 0 {
		return wait
	}
	own := b.share(object, now)
	if own.writeAt.IsZero() {
		b.delayWrite(own, now.Add(b.writes.ReserveN(now, 1).DelayFrom(now)))
	}
	if wait := own.writeAt.Sub(now); wait > 0 {
		return wait
	}
	if wait := send(b.sentWrites, now); wait > 0 {
		b.delayWrite(own, now.Add(wait))
		return wait
	}
	own.writeAt = time.Time{}
	return 0
}

func (b *budget) delayWrite(own *share, until time.Time) {
	own.writeAt = until
	if until.After(b.writesUntil) {
		b.writesUntil = until
	}
}

// send takes a request from a bucket, or returns how long to wait for one.
func send(bucket *rate.Limiter, now time.Time) time.Duration {
	request := bucket.ReserveN(now, 1)
	wait := request.DelayFrom(now)
	if wait > 0 {
		request.CancelAt(now)
	}
	return wait
}

// refused records a throttled response, and returns how long all objects have to wait.
func (b *budget) refused(retryAfter time.Duration) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	if b.throttledFor(now) == 0 {
		retryAfter = min(retryAfter<<min(b.streak, maxStreak), max(retryAfter, maxLengthened))
		b.streak++
	}
	if until := now.Add(retryAfter); until.After(b.throttledUntil) {
		b.throttledUntil = until
	}
	return b.throttledFor(now)
}

// answered ends a streak of throttled responses.
func (b *budget) answered() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.clock.Since(b.throttledUntil) > streakTimeout {
		b.streak = 0
	}
}

// streakTimeout is how long after the end of a wait a throttled response continues the streak.
const streakTimeout = time.Minute

// isBusy says whether any object has to wait. It is asked before each routine reconcile, so it does not go through the objects.
func (b *budget) isBusy() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	return b.writesUntil.After(now) || b.throttledFor(now) > 0 || b.reads.TokensAt(now) < maxReadsPerReconcile
}

// throttledFor returns how long all objects have to wait after a throttled response.
func (b *budget) throttledFor(now time.Time) time.Duration {
	return max(0, b.throttledUntil.Sub(now))
}
