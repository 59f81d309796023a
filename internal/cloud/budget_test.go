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

func TestTheBurstIsForEverybody(t *testing.T) {
	g := NewWithT(t)
	// given a bucket of three writes, and one more each second
	b, c := newTestBudget(Limits{WritesPerSecond: 1, WritesBurst: 3})
	// then three may write now, and the others one after the other, in the order in which they came
	for i := range 3 {
		g.Expect(b.reserveWrite(fmt.Sprint(i))).To(BeZero())
	}
	g.Expect(b.reserveWrite("a")).To(Equal(time.Second))
	g.Expect(b.reserveWrite("b")).To(Equal(2 * time.Second))
	// and asking again gains and loses nothing
	g.Expect(b.reserveWrite("b")).To(Equal(2 * time.Second))
	step(c, time.Second)
	g.Expect(b.reserveWrite("c")).To(Equal(2*time.Second), "whoever comes later comes later")
	g.Expect(b.reserveWrite("a")).To(BeZero())
	// and a turn that was missed is not lost
	step(c, time.Minute)
	g.Expect(b.reserveWrite("b")).To(BeZero())
	g.Expect(b.reserveWrite("c")).To(BeZero())
}

func TestTheRateIsKept(t *testing.T) {
	// given many that come back exactly when they are told
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
	// then they took no longer than the throttle allows
	NewWithT(t).Expect(c.Since(began)).To(BeNumerically("~", 18*time.Second, 100*time.Millisecond))
}

func TestAPassWaitsForItsReads(t *testing.T) {
	g := NewWithT(t)
	b, c := newTestBudget(Limits{ReadsPerSecond: 1, ReadsBurst: 10})
	// given eight reads, of which one in five is kept back
	g.Expect(b.reserveReads("a", 3)).To(BeZero())
	g.Expect(b.reserveReads("b", 3)).To(BeZero())
	g.Expect(b.isBusy()).To(BeTrue())
	g.Expect(b.reserveReads("c", 3)).To(Equal(time.Second))
	// then who was let in reads, and is not let in twice
	g.Expect(b.reserveReads("a", 3)).To(BeZero())
	for range 3 {
		g.Expect(b.read("a")).To(BeZero())
	}
	// and what it reads beyond that makes others wait
	g.Expect(b.read("a")).To(BeZero())
	g.Expect(b.reserveReads("d", 3)).To(Equal(5 * time.Second))
	step(c, time.Second)
	g.Expect(b.reserveReads("c", 3)).To(BeZero())
}

func TestNoPassBeginsThatCouldNotWrite(t *testing.T) {
	g := NewWithT(t)
	b, c := newTestBudget(Limits{WritesPerSecond: 1, WritesBurst: 1})
	g.Expect(b.reserveWrite("a")).To(BeZero())
	g.Expect(b.reserveWrite("b")).To(Equal(time.Second))
	g.Expect(b.reserveReads("b", 1)).To(Equal(time.Second))
	step(c, time.Second)
	g.Expect(b.reserveReads("b", 1)).To(BeZero())
	g.Expect(b.reserveWrite("b")).To(BeZero())
}

func TestARefusalClosesForEverybody(t *testing.T) {
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
	// and one that was under way at the same time does not open it earlier
	g.Expect(b.refused(time.Second)).To(Equal(5 * time.Second))
	step(c, 5*time.Second)
	g.Expect(b.reserveWrite("a")).To(BeZero())
	// and one that is refused again at once is in a streak, which ends with peace
	g.Expect(b.refused(5 * time.Second)).To(Equal(10 * time.Second))
	step(c, 10*time.Second+2*longestRefusal)
	b.answered()
	g.Expect(b.refused(5 * time.Second)).To(Equal(5 * time.Second))
}

func TestWhatObjectsHadIsDroppedOnceTheyNeverCome(t *testing.T) {
	g := NewWithT(t)
	// given objects that asked for a turn and were deleted before it came, and one that comes again
	b, c := newTestBudget(Limits{WritesPerSecond: 1, WritesBurst: 1, ReadsPerSecond: 100, ReadsBurst: 100})
	for i := range 10 {
		b.reserveReads(fmt.Sprint(i), 3)
		b.reserveWrite(fmt.Sprint(i))
	}
	step(c, longestAbsence/2)
	g.Expect(b.reserveWrite("9")).To(BeZero())
	// when long has passed
	step(c, longestAbsence/2)
	b.reserveWrite("new")
	// then nothing of them is left, and everything of it
	g.Expect(b.shares).To(And(HaveLen(2), HaveKey("9"), HaveKey("new")))
	g.Expect(b.shares["9"].left).To(Equal(3))
}
