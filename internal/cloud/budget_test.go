package cloud

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"
)

func newTestBudget(limits Limits) (*budget, *clocktesting.FakePassiveClock) {
	c := clocktesting.NewFakePassiveClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	return newBudget(c, limits.withDefaults()), c
}

func step(c *clocktesting.FakePassiveClock, d time.Duration) { c.SetTime(c.Now().Add(d)) }

func TestWritesAreServedInOrderBeyondTheBurst(t *testing.T) {
	g := NewWithT(t)
	// given a bucket of three writes that refills by one per second
	b, c := newTestBudget(Limits{WritesPerSecond: 1, WritesBurst: 3})
	// then three objects may write now, and the others one after the other, in order
	for i := range 3 {
		g.Expect(b.reserveWrite(fmt.Sprint(i))).To(BeZero())
	}
	g.Expect(b.reserveWrite("a")).To(Equal(time.Second))
	g.Expect(b.reserveWrite("b")).To(Equal(2 * time.Second))
	// and asking again changes nothing
	g.Expect(b.reserveWrite("b")).To(Equal(2 * time.Second))
	step(c, time.Second)
	g.Expect(b.reserveWrite("c")).To(Equal(2*time.Second), "a later object waits longer")
	g.Expect(b.reserveWrite("a")).To(BeZero())
	// and a missed reservation is not lost
	step(c, time.Minute)
	g.Expect(b.reserveWrite("b")).To(BeZero())
	g.Expect(b.reserveWrite("c")).To(BeZero())
}

func TestWritesStayBelowTheRate(t *testing.T) {
	// given many objects that write exactly when they may
	b, c := newTestBudget(Limits{WritesPerSecond: 10, WritesBurst: 25})
	began, done := c.Now(), 0
	waiting := map[string]time.Time{}
	for i := range 200 {
		waiting[fmt.Sprint(i)] = began
	}
	for len(waiting) > 0 {
		for object, at := range waiting {
			if at.After(c.Now()) {
				continue
			}
			if wait := b.reserveWrite(object); wait > 0 {
				waiting[object] = c.Now().Add(wait)
				continue
			}
			delete(waiting, object)
			done++
			allowed := 20 + 10*c.Since(began).Seconds() + 1e-6
			NewWithT(t).Expect(float64(done)).To(BeNumerically("<=", allowed))
		}
		step(c, 10*time.Millisecond)
	}
	// then they took no longer than the rate requires
	NewWithT(t).Expect(c.Since(began)).To(BeNumerically("~", 18*time.Second, 100*time.Millisecond))
}

func TestReconcileWaitsForItsReads(t *testing.T) {
	g := NewWithT(t)
	b, c := newTestBudget(Limits{ReadsPerSecond: 1, ReadsBurst: 10})
	// given ten reads, a fifth of which are the reserve
	g.Expect(b.reserveReads("a", 3)).To(BeZero())
	g.Expect(b.reserveReads("b", 3)).To(BeZero())
	g.Expect(b.isBusy()).To(BeTrue())
	g.Expect(b.reserveReads("c", 3)).To(Equal(time.Second))
	g.Expect(b.reserveReads("c", 3)).To(Equal(time.Second), "it reserves no more")
	// then an admitted object reads, and is not admitted twice
	g.Expect(b.reserveReads("a", 3)).To(BeZero())
	for range 3 {
		g.Expect(b.read("a")).To(BeZero())
	}
	// and additional reads delay other objects
	g.Expect(b.read("a")).To(BeZero())
	g.Expect(b.reserveReads("d", 3)).To(Equal(5 * time.Second))
	step(c, time.Second)
	g.Expect(b.reserveReads("c", 3)).To(BeZero())
}

func TestReconcileWaitsForPendingWrite(t *testing.T) {
	g := NewWithT(t)
	b, c := newTestBudget(Limits{WritesPerSecond: 1, WritesBurst: 1})
	g.Expect(b.reserveWrite("a")).To(BeZero())
	g.Expect(b.isBusy()).To(BeFalse())
	g.Expect(b.reserveWrite("b")).To(Equal(time.Second))
	g.Expect(b.reserveWrite("c")).To(Equal(2 * time.Second))
	g.Expect(b.reserveReads("b", 1)).To(Equal(time.Second))
	step(c, 2*time.Second)
	g.Expect(b.isBusy()).To(BeFalse())
	g.Expect(b.reserveReads("b", 1)).To(BeZero())
	g.Expect(b.reserveWrite("b")).To(BeZero())
	// and another object may not write at the same time as one that is late
	g.Expect(b.reserveWrite("c")).To(Equal(time.Second))
	g.Expect(b.reserveReads("c", 1)).To(Equal(time.Second))
	g.Expect(b.isBusy()).To(BeTrue())
	step(c, time.Second)
	g.Expect(b.reserveReads("c", 1)).To(BeZero())
	g.Expect(b.shares["c"].left).To(Equal(1))
	g.Expect(b.reserveWrite("c")).To(BeZero())
}

// A write that is delayed by less than those that wait does not end the wait.
func TestIsBusyUntilTheLastWrite(t *testing.T) {
	g := NewWithT(t)
	b, c := newTestBudget(Limits{WritesPerSecond: 1, WritesBurst: 1})
	for i := range 5 {
		g.Expect(b.reserveWrite(fmt.Sprint(i))).To(Equal(time.Duration(i) * time.Second))
	}
	step(c, 2*time.Second)
	g.Expect(b.reserveWrite("2")).To(BeZero())
	g.Expect(b.reserveWrite("1")).To(Equal(time.Second))
	step(c, time.Second)
	g.Expect(b.isBusy()).To(BeTrue())
	step(c, time.Second)
	g.Expect(b.isBusy()).To(BeFalse())
}

func TestEachWriteOfAnObjectIsReserved(t *testing.T) {
	g := NewWithT(t)
	b, c := newTestBudget(Limits{WritesPerSecond: 1, WritesBurst: 10})
	for range 8 {
		g.Expect(b.reserveWrite("a")).To(BeZero())
	}
	g.Expect(b.reserveWrite("a")).To(Equal(time.Second))
	step(c, time.Second)
	g.Expect(b.reserveWrite("a")).To(BeZero())
	g.Expect(b.reserveWrite("a")).To(Equal(time.Second))
}

// Objects that send later than they may, and so at the same time, do not exceed what Azure permits. A request that has
// to wait takes nothing from the limit.
func TestLateRequestsStayBelowTheLimit(t *testing.T) {
	for name, request := range map[string]struct {
		reserve, send func(b *budget, object string) time.Duration
	}{
		"reads":  {func(b *budget, object string) time.Duration { return b.reserveReads(object, 1) }, (*budget).read},
		"writes": {(*budget).reserveWrite, (*budget).reserveWrite},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b, c := newTestBudget(Limits{WritesPerSecond: 1, WritesBurst: 10, ReadsPerSecond: 1, ReadsBurst: 10})
			// given 8 objects that may send now, and others that may send one after the other
			for i := range 20 {
				g.Expect(request.reserve(b, fmt.Sprint(i))).To(Equal(time.Duration(max(0, i-7)) * time.Second))
			}
			// when these send at the same time
			step(c, time.Minute)
			for i := range 10 {
				g.Expect(request.send(b, fmt.Sprint(8+i))).To(BeZero())
			}
			// then those beyond the limit wait
			for range 2 {
				g.Expect(request.send(b, "18")).To(Equal(time.Second))
				g.Expect(request.send(b, "19")).To(Equal(time.Second))
			}
			step(c, time.Second)
			g.Expect(request.send(b, "18")).To(BeZero())
			g.Expect(request.send(b, "19")).To(Equal(time.Second))
		})
	}
}

func TestLimitsDefaultToThoseOfAzure(t *testing.T) {
	azure := Limits{WritesPerSecond: 10, WritesBurst: 200, ReadsPerSecond: 25, ReadsBurst: 250}
	own := Limits{WritesPerSecond: 1, WritesBurst: 2, ReadsPerSecond: 3, ReadsBurst: 4}
	g := NewWithT(t)
	g.Expect(Limits{}.withDefaults()).To(Equal(azure))
	g.Expect(own.withDefaults()).To(Equal(own))
}

func TestThrottledResponseDelaysAllObjects(t *testing.T) {
	g := NewWithT(t)
	b, c := newTestBudget(Limits{})
	// given
	g.Expect(b.isBusy()).To(BeFalse())
	g.Expect(b.refused(5 * time.Second)).To(Equal(5 * time.Second))
	// then
	g.Expect(b.isBusy()).To(BeTrue())
	g.Expect(b.reserveWrite("a")).To(Equal(5 * time.Second))
	g.Expect(b.reserveReads("b", 3)).To(Equal(5 * time.Second))
	g.Expect(b.read("c")).To(Equal(5 * time.Second))
	// and a concurrent throttled response does not shorten the wait
	g.Expect(b.refused(time.Second)).To(Equal(5 * time.Second))
	step(c, 5*time.Second)
	g.Expect(b.reserveWrite("a")).To(BeZero())
	// and throttled responses in a row lengthen the wait, up to 16 times
	for _, wait := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 80 * time.Second} {
		g.Expect(b.refused(5 * time.Second)).To(Equal(wait))
		step(c, wait)
	}
	// until requests have succeeded for more than a minute
	step(c, time.Minute)
	b.answered()
	g.Expect(b.refused(5 * time.Second)).To(Equal(80 * time.Second))
	step(c, 80*time.Second+time.Minute+1)
	b.answered()
	g.Expect(b.refused(5 * time.Second)).To(Equal(5 * time.Second))
}

// Each throttled response lengthens the wait, but not beyond five minutes or what Azure asks for.
func TestLengthenedWaitIsLimited(t *testing.T) {
	for asked, most := range map[time.Duration]time.Duration{
		17 * time.Second: 272 * time.Second,
		time.Minute:      5 * time.Minute,
		time.Hour:        time.Hour,
	} {
		g := NewWithT(t)
		b, c := newTestBudget(Limits{})
		for range maxStreak + 1 {
			step(c, b.refused(asked))
		}
		g.Expect(b.refused(asked)).To(Equal(most))
	}
}

func TestDropsReservationsOfInactiveObjects(t *testing.T) {
	g := NewWithT(t)
	// given objects that reserved a write and never return, and one that returns
	b, c := newTestBudget(Limits{WritesPerSecond: 1, WritesBurst: 1, ReadsPerSecond: 100, ReadsBurst: 100})
	for i := range 10 {
		b.reserveReads(fmt.Sprint(i), 3)
		b.reserveWrite(fmt.Sprint(i))
	}
	step(c, shareTimeout/2)
	g.Expect(b.reserveWrite("9")).To(BeZero())
	// when the timeout has passed
	step(c, shareTimeout/2)
	b.reserveWrite("new")
	// then only the reservations of the active object remain
	g.Expect(b.shares).To(And(HaveLen(2), HaveKey("9"), HaveKey("new")))
	g.Expect(b.shares["9"].left).To(Equal(3))
	// and the others go once per timeout
	step(c, shareTimeout-1)
	b.reserveWrite("new")
	g.Expect(b.shares).To(HaveLen(2))
	step(c, 1)
	b.reserveWrite("new")
	g.Expect(b.shares).To(And(HaveLen(1), HaveKey("new")))
}
