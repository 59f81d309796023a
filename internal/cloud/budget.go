package cloud

import (
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
)

// Limits of Azure Resource Manager for each subscription and principal: buckets of so many requests
// that refill by so many a second. See
// https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling.
const (
	writesPerSecond = 10
	writesBurst     = 200
	readsPerSecond  = 25
	readsBurst      = 250
)

// reserveShare is the part of each bucket that is kept back: requests that were told times one after
// the other may arrive together, and a pass may read more than it was let in for.
const reserveShare = 5

// longestPass is the most that one pass reads: a bucket that is smaller would never let it in.
const longestPass = 8

// budget shares the requests that a subscription allows between all objects in it. Who finds it
// empty is given a time at which a request is kept for it, and does not wait here. So the cloud
// hardly ever has to refuse, nobody waits longer than others, and no reads are spent on a pass
// that could not write.
type budget struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	// writes and reads hand out the turns.
	writes, reads *rate.Limiter
	// sentWrites and sentReads are the cloud's own buckets, as far as we can know them: those who
	// come late for their turns, all together, may find them empty after all.
	sentWrites, sentReads *rate.Limiter
	// shares are what each object has of it. swept is when those were last looked through.
	shares map[string]*share
	swept  time.Time
	// closedUntil is when the cloud, having refused, wants to be asked again.
	closedUntil time.Time
	// streak is how often in a row it has refused right after it was asked again: the time that it
	// tells is for one request, and a pass takes several.
	streak int
}

// longestStreak bounds by what power of two a refusal is made longer.
const longestStreak = 4

// share is what an object has of a budget.
type share struct {
	// writeAt is when the object may write; zero if it has not asked, or has written.
	writeAt time.Time
	// readAt is from when on there are so many reads for it; there are none kept if it is zero.
	readAt time.Time
	reads  int
	// left is how many reads the object was let in for and has not made yet.
	left int
	// seen is when the object last came.
	seen time.Time
}

// longestAbsence is how long the share of an object is kept that does not come any more: it may be
// deleted. Whoever comes after that asks anew, and loses no more than its place in the row.
const longestAbsence = time.Hour

func newBudget(c clock.PassiveClock, limits Limits) *budget {
	return &budget{
		clock:      c,
		writes:     rate.NewLimiter(rate.Limit(limits.WritesPerSecond), limits.WritesBurst-limits.WritesBurst/reserveShare),
		reads:      rate.NewLimiter(rate.Limit(limits.ReadsPerSecond), max(longestPass, limits.ReadsBurst-limits.ReadsBurst/reserveShare)),
		sentWrites: rate.NewLimiter(rate.Limit(limits.WritesPerSecond), limits.WritesBurst),
		sentReads:  rate.NewLimiter(rate.Limit(limits.ReadsPerSecond), limits.ReadsBurst),
		shares:     map[string]*share{},
		swept:      c.Now(),
	}
}

// enter lets the object begin a pass of so many reads now, or says how long it has to wait. To ask
// again is to ask for the same pass.
func (b *budget) reserveReads(object string, reads int) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	if wait := b.closedFor(now); wait > 0 {
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

// share is that of the object. Those of objects that have not come for long are dropped now and then.
func (b *budget) share(object string, now time.Time) *share {
	if now.Sub(b.swept) >= longestAbsence {
		maps.DeleteFunc(b.shares, func(_ string, s *share) bool { return now.Sub(s.seen) >= longestAbsence })
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

// readIn hands out the reads that are kept, or says how long they are not there yet.
func (s *share) readIn(now time.Time) time.Duration {
	if s.readAt.IsZero() {
		return 0
	}
	if wait := s.readAt.Sub(now); wait > 0 {
		return wait
	}
	s.left += s.reads
	s.readAt, s.reads = time.Time{}, 0
	return 0
}

// read counts a read of a pass that was let in. One that was not foreseen is not refused, and
// others come later for it.
func (b *budget) read(object string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	if wait := b.closedFor(now); wait > 0 {
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

// take lets the object write now, or says how long it has to wait.
func (b *budget) reserveWrite(object string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	if wait := b.closedFor(now); wait > 0 {
		return wait
	}
	own := b.share(object, now)
	if own.writeAt.IsZero() {
		own.writeAt = now.Add(b.writes.ReserveN(now, 1).DelayFrom(now))
	}
	if wait := own.writeAt.Sub(now); wait > 0 {
		return wait
	}
	if wait := send(b.sentWrites, now); wait > 0 {
		own.writeAt = now.Add(wait)
		return wait
	}
	own.writeAt = time.Time{}
	return 0
}

// send takes a request out of a bucket, or says how long there is none.
func send(bucket *rate.Limiter, now time.Time) time.Duration {
	request := bucket.ReserveN(now, 1)
	wait := request.DelayFrom(now)
	if wait > 0 {
		request.CancelAt(now)
	}
	return wait
}

// refused closes the budget for everybody, and says until when: a request that comes before its time
// is told to wait anew.
func (b *budget) refused(retryAfter time.Duration) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	if b.closedFor(now) == 0 {
		retryAfter <<= min(b.streak, longestStreak)
		b.streak++
	}
	if until := now.Add(retryAfter); until.After(b.closedUntil) {
		b.closedUntil = until
	}
	return b.closedFor(now)
}

// answered ends a streak of refusals, once the cloud has had room for something.
func (b *budget) answered() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.streak > 0 && b.clock.Since(b.closedUntil) > longestRefusal {
		b.streak = 0
	}
}

// longestRefusal is how long after a refusal another one counts as the same trouble.
const longestRefusal = time.Minute

// isBusy says whether somebody has to wait.
func (b *budget) isBusy() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	for _, own := range b.shares {
		if own.writeAt.After(now) {
			return true
		}
	}
	return b.closedFor(now) > 0 || b.reads.TokensAt(now) < longestPass
}

// closedFor says how long everybody has to wait after a refusal.
func (b *budget) closedFor(now time.Time) time.Duration {
	return max(0, b.closedUntil.Sub(now))
}
