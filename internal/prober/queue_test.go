package prober

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
)

// dueIn adds replicas of a namespace that have been due for some time.
func dueIn(q *queue, namespace string, number int, slow bool, since time.Time) {
	for i := range number {
		key := types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(i)}
		q.add(&member{entry: &entry{key: key}, due: since, fresh: true, slow: slow})
	}
}

// taken is how many slots each namespace takes until no more are given.
func taken(q *queue) map[string]int {
	slots := map[string]int{}
	for m := q.take(); m != nil; m = q.take() {
		slots[m.namespace()]++
	}
	return slots
}

func TestSlotsAreSharedByNamespace(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		slow bool
		due  map[string]int
		then map[string]int
	}{
		"one namespace takes all":           {due: map[string]int{"a": 200}, then: map[string]int{"a": 32}},
		"the fewest first":                  {due: map[string]int{"a": 200, "b": 1, "c": 5}, then: map[string]int{"a": 26, "b": 1, "c": 5}},
		"equal shares":                      {due: map[string]int{"a": 200, "b": 200}, then: map[string]int{"a": 16, "b": 16}},
		"slow: one leaves half":             {slow: true, due: map[string]int{"a": 200}, then: map[string]int{"a": 16}},
		"slow: three leave a quarter":       {slow: true, due: map[string]int{"a": 200, "b": 200, "c": 200}, then: map[string]int{"a": 8, "b": 8, "c": 8}},
		"slow: what is not needed is spare": {slow: true, due: map[string]int{"a": 200, "b": 1}, then: map[string]int{"a": 10, "b": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			q := newQueue(64)
			for namespace, number := range test.due {
				// The greedy namespace has waited for longer.
				dueIn(q, namespace, number, test.slow, now.Add(-time.Duration(number)*time.Second))
			}
			q.promote(now)
			g.Expect(taken(q)).To(Equal(test.then))
		})
	}
}

func TestNamespaceThatComesLaterFindsASlowSlot(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	q := newQueue(64)
	dueIn(q, "greedy", 200, true, now)
	q.promote(now)
	taken(q)
	dueIn(q, "other", 3, true, now)
	q.promote(now)
	g.Expect(taken(q)).To(Equal(map[string]int{"other": 3}))
}

// A namespace whose server is removed while its probe waits leaves its share to others.
func TestRemovedReplicaLeavesNoShare(t *testing.T) {
	for _, slow := range []bool{false, true} {
		g := NewWithT(t)
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		q := newQueue(64)
		removed := &member{entry: &entry{key: types.NamespacedName{Namespace: "removed", Name: "web"}}, due: now, slow: slow}
		q.add(removed)
		q.promote(now)
		q.remove(removed)
		q.remove(removed)
		g.Expect(q.hasBacklog()).To(BeFalse())
		g.Expect(q.laneOf(removed).shares).To(BeEmpty())
		dueIn(q, "a", 200, slow, now)
		q.promote(now)
		g.Expect(taken(q)).To(Equal(map[string]int{"a": map[bool]int{false: 32, true: 16}[slow]}))
	}
}

func TestReplicasThatAreDueAtOnceAreProbedInTheirOrder(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	q := newQueue(64)
	dueIn(q, "a", 10, false, now)
	q.remove(q.waiting[0])
	q.promote(now)
	for i := range 9 {
		g.Expect(q.take().entry.key.Name).To(Equal(fmt.Sprint(1 + i)))
	}
}

// Otherwise namespaces that have waited longest would starve while there are more of them than slots.
func TestNamespaceThatHasWaitedLongestIsFirst(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	q := newQueue(64)
	const namespaces = 20
	for i := range namespaces {
		dueIn(q, fmt.Sprint(i), 2, false, now.Add(-time.Duration(1+i*7%namespaces)*time.Second))
	}
	q.promote(now)
	for i := range namespaces {
		g.Expect(now.Sub(q.take().due)).To(Equal(time.Duration(namespaces-i) * time.Second))
	}
}

// hang takes slots for probes that run from some time on.
func hang(q *queue, since time.Time) {
	q.promote(since)
	for m := q.take(); m != nil; m = q.take() {
		m.started = since
	}
}

func TestProbesThatMoveToTheSlowLaneLeaveSlots(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	q := newQueue(4)
	dueIn(q, "a", 2, false, now)
	hang(q, now)
	next, _ := q.next()
	g.Expect(next).To(Equal(now.Add(time.Second)))

	dueIn(q, "b", 1, false, next)
	q.promote(next)
	g.Expect(q.separate(next)).To(BeEmpty())
	g.Expect(taken(q)).To(Equal(map[string]int{"b": 1}))
}

func TestNextIsTheFirstReplicaThatIsDueOrHangs(t *testing.T) {
	for waits, then := range map[time.Duration]time.Duration{500 * time.Millisecond: 500 * time.Millisecond, 10 * time.Second: promptLimit} {
		g := NewWithT(t)
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		q := newQueue(4)
		dueIn(q, "a", 1, false, now)
		hang(q, now)
		dueIn(q, "a", 1, false, now.Add(waits))
		next, ok := q.next()
		g.Expect(ok).To(BeTrue())
		g.Expect(next).To(Equal(now.Add(then)))
	}
}

// The one that has run longest is the least likely to end by itself.
func TestProbesOfANamespaceEndInTheOrderOfTheirStart(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	q := newQueue(64)
	const number = 20
	dueIn(q, "a", number, false, now)
	q.promote(now)
	for i := range number {
		q.take().started = now.Add(-time.Duration(i*7%number) * time.Second)
	}
	for i, m := range q.prompt.longest() {
		g.Expect(m.started).To(Equal(now.Add(time.Duration(i+1-number) * time.Second)))
	}
}

// Or else it could take slots without end.
func TestRemovedReplicaLeavesTheSlotsOfItsNamespaceCounted(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	q := newQueue(64)
	dueIn(q, "a", 17, true, now)
	removed := q.waiting[16]
	q.promote(now)
	g.Expect(taken(q)).To(Equal(map[string]int{"a": 16}))
	q.remove(removed)
	dueIn(q, "a", 17, true, now)
	q.promote(now)
	g.Expect(taken(q)).To(BeEmpty())
}

func TestOneProbeEndsForOneSlot(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	q := newQueue(6)
	dueIn(q, "small", 1, false, now.Add(-time.Second))
	dueIn(q, "small", 1, true, now.Add(-time.Second))
	hang(q, now.Add(-time.Second))
	dueIn(q, "greedy", 2, false, now)
	dueIn(q, "greedy", 1, true, now)
	hang(q, now)
	later := now.Add(promptLimit)
	dueIn(q, "b", 1, false, later)
	q.promote(later)
	ended := q.separate(later)
	g.Expect(ended).To(HaveLen(1), "the namespaces get no more slots of the slow lane")
	g.Expect(ended[0].namespace()).To(Equal("greedy"), "although the other one hangs for longer")
	ended[0].displaced = true
	g.Expect(q.separate(later)).To(BeEmpty(), "it ends already")
}
