package securestorage

import (
	"container/heap"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// turnOf is when an object is due.
type turnOf struct {
	at     time.Time
	object *world
}

type agenda []turnOf

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a agenda) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)        { *a = append(*a, x.(turnOf)) } //nolint:errcheck // it is only given turns
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

// newFleet is many objects of one process, on one cloud with the clock of the first.
func newFleet(t *testing.T, size int, knobs fakecloud.Knobs) []*world {
	t.Helper()
	first := newWorld(t, knobs)
	shared := cloud.New(cloud.Config{Cloud: fakecloud.CloudAt("https://fake.test"), Transport: first, Clock: first.clock})
	fleet := make([]*world, size)
	for i := range fleet {
		w := *first
		w.storage = first.storage.DeepCopy()
		w.storage.UID, w.storage.Name = types.UID(fmt.Sprintf("uid-%d", i)), fmt.Sprintf("s%d", i)
		w.Gomega = NewWithT(reporter{t, &w})
		fleet[i] = &w
		fleet[i].begin(shared)
	}
	return fleet
}

// A thousand SecureStorages that begin together, against the limits and the delays of the real cloud,
// in the time of the clock: what this machine can do has no part in it.
func TestAThousandTakeWhatTheThrottleAllows(t *testing.T) {
	// given delays that are short beside the time that the throttle takes
	const size, slack = 1000, 1.3
	knobs := quick()
	knobs.Writes, knobs.Reads, knobs.Deletes = realistic().Writes, realistic().Reads, realistic().Deletes
	fleet := newFleet(t, size, knobs)
	clock, server := fleet[0].clock, fleet[0].server
	began := clock.Now()
	due := agenda{}
	for _, w := range fleet {
		heap.Push(&due, turnOf{began, w})
	}
	// when each comes back when it is told to
	for due.Len() > 0 {
		next := heap.Pop(&due).(turnOf) //nolint:errcheck // it holds only turns
		if next.at.After(clock.Now()) {
			clock.SetTime(next.at)
		}
		if after := next.object.pass(); !next.object.isReady() {
			heap.Push(&due, turnOf{clock.Now().Add(after), next.object})
		}
	}
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
