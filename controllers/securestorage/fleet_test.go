package securestorage

import (
	"container/heap"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// dueObject says when an object is reconciled next.
type dueObject struct {
	at     time.Time
	object *fixture
}

type dueQueue []dueObject

func (a dueQueue) Len() int           { return len(a) }
func (a dueQueue) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a dueQueue) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *dueQueue) Push(x any)        { *a = append(*a, x.(dueObject)) } //nolint:errcheck // only dueObjects are pushed
func (a *dueQueue) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

// newDueQueue has all objects due now.
func newDueQueue(fleet []*fixture) *dueQueue {
	due := &dueQueue{}
	for _, f := range fleet {
		heap.Push(due, dueObject{f.clock.Now(), f})
	}
	return due
}

// run reconciles each object when it is due, until it is done, which is asked after its reconcile.
func (a *dueQueue) run(isDone func(*fixture) bool) {
	for a.Len() > 0 {
		next := heap.Pop(a).(dueObject) //nolint:errcheck // only dueObjects are pushed
		clock := next.object.clock
		if next.at.After(clock.Now()) {
			clock.SetTime(next.at)
		}
		if after := next.object.reconcile(); !isDone(next.object) {
			heap.Push(a, dueObject{clock.Now().Add(after), next.object})
		}
	}
}

// runFor reconciles each object when it is due, for some time.
func (a *dueQueue) runFor(d time.Duration) {
	clock := (*a)[0].object.clock
	end := clock.Now().Add(d)
	for (*a)[0].at.Before(end) {
		next := heap.Pop(a).(dueObject) //nolint:errcheck // only dueObjects are pushed
		if next.at.After(clock.Now()) {
			clock.SetTime(next.at)
		}
		heap.Push(a, dueObject{clock.Now().Add(next.object.reconcile()), next.object})
	}
	clock.SetTime(end)
}

// newFleet has many objects in one process, with the cloud and the clock of the first one. The edits depend on the number
// of the object.
func newFleet(t *testing.T, size int, knobs fakecloud.Knobs, edits ...func(int, *v1beta1.SecureStorage)) []*fixture {
	t.Helper()
	first := newFixture(t, knobs)
	shared := cloud.New(cloud.Config{Cloud: fakecloud.CloudAt("https://fake.test"), Transport: first, Clock: first.clock})
	fleet := []*fixture{first}
	for range size - 1 {
		member := *first
		fleet = append(fleet, &member)
	}
	for i, f := range fleet {
		f.storage = first.storage.DeepCopy()
		f.storage.UID, f.storage.Name = types.UID(fmt.Sprintf("uid-%d", i)), fmt.Sprintf("s%d", i)
		for _, edit := range edits {
			edit(i, f.storage)
		}
		f.Gomega = NewWithT(reporter{t, f})
		f.start(shared)
	}
	return fleet
}

// A thousand SecureStorages are created together, with the request limits and delays of Azure, in the
// time of the fake clock.
func TestThousandObjectsUseTheWholeRequestLimit(t *testing.T) {
	// given delays that are short compared to the time that the request limits take
	const size, slack = 1000, 1.3
	knobs := fastCloud()
	knobs.Writes, knobs.Reads, knobs.Deletes = realistic().Writes, realistic().Reads, realistic().Deletes
	fleet := newFleet(t, size, knobs)
	clock, server := fleet[0].clock, fleet[0].server
	began := clock.Now()
	// when
	newDueQueue(fleet).run((*fixture).isReady)
	// then
	g := NewWithT(t)
	total := server.Total("")
	reads := (float64(total.Reads) - knobs.Reads.Capacity) / knobs.Reads.PerSecond
	writes := (float64(total.Writes) - knobs.Writes.Capacity) / knobs.Writes.PerSecond
	took := clock.Since(began).Seconds()
	t.Logf("%d reads (%.0f s), %d writes (%.0f s), %d throttled, %d early, took %.0f s", total.Reads, reads, total.Writes, writes, total.Throttled, total.EarlyRetries, took)
	g.Expect(total.EarlyRetries).To(BeZero())
	g.Expect(took).To(BeNumerically("<=", slack*max(reads, writes)))
	g.Expect(total.Calls()).To(BeNumerically("<=", 25*size))
	g.Expect(server.Created("/storageaccounts/")).To(Equal(size))
}
