package phases

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func requestOf(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: name}}
}

func TestRetriesAreFurtherApartEachTime(t *testing.T) {
	g, now := NewWithT(t), testingclock.NewFakePassiveClock(time.Now())
	b := newBackoff(50*time.Millisecond, time.Second, now)
	var pauses []time.Duration
	for range 7 {
		pause := b.When(requestOf("a"))
		pauses = append(pauses, pause)
		now.SetTime(now.Now().Add(pause))
	}
	const ms = time.Millisecond
	g.Expect(pauses).To(Equal([]time.Duration{50 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms, time.Second, time.Second}))
	g.Expect(b.NumRequeues(requestOf("a"))).To(Equal(7))
	g.Expect(b.When(requestOf("b"))).To(Equal(50*ms), "each object has a backoff of its own")
	b.Forget(requestOf("a"))
	g.Expect(b.When(requestOf("a"))).To(Equal(50 * ms))

	// What was due before a success is due no longer.
	now.SetTime(now.Now().Add(10 * ms))
	b.Forget(requestOf("a"))
	g.Expect(b.When(requestOf("a"))).To(Equal(50 * ms))
}

func TestDefaultBackoffRetriesWithinMinutes(t *testing.T) {
	g, now := NewWithT(t), testingclock.NewFakePassiveClock(time.Now())
	b := newBackoff(DefaultRetryMinDelay, DefaultRetryMaxDelay, now)
	g.Expect(b.When(requestOf("a"))).To(BeNumerically("<=", time.Second))
	for range 20 {
		now.SetTime(now.Now().Add(b.When(requestOf("a"))))
	}
	g.Expect(b.When(requestOf("a"))).To(And(BeNumerically(">=", time.Minute), BeNumerically("<=", 5*time.Minute)))
}

// A dozen events while the API server refuses a write, each of which causes a reconcile that fails, are one
// failure.
func TestFailuresBeforeTheRetryIsDueDoNotDelayIt(t *testing.T) {
	g, now := NewWithT(t), testingclock.NewFakePassiveClock(time.Now())
	b := newBackoff(50*time.Millisecond, 5*time.Minute, now)
	began := now.Now()
	for range 40 {
		due := now.Now().Add(b.When(requestOf("a")))
		g.Expect(due).To(Equal(began.Add(50 * time.Millisecond)))
		now.SetTime(now.Now().Add(time.Millisecond))
	}
	now.SetTime(began.Add(50 * time.Millisecond))
	g.Expect(b.When(requestOf("a"))).To(Equal(100 * time.Millisecond))
}
