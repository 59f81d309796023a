package securestorage

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

// saved is a fixture at one time, without its process.
type saved struct {
	fixture *fixture
	cloud   []byte
	knobs   fakecloud.Knobs
}

// save copies what survives a crash. Exported objects are not copied: a fixture that has some cannot be saved.
func (f *fixture) save() saved {
	f.t.Helper()
	f.Expect(f.storage.Spec.Export).To(BeNil(), "a fixture with exported objects cannot be saved")
	f.Expect(f.onGrant == nil && f.onRequest == nil && f.transport == f).To(BeTrue(), "a fixture with hooks, or of a fleet, cannot be saved")
	cloud, err := f.server.Snapshot()
	f.Expect(err).NotTo(HaveOccurred())
	c := &fixture{
		clock: clocktesting.NewFakeClock(f.clock.Now()), demo: f.demo, ambient: f.ambient,
		storage: f.storage.DeepCopy(), deleted: f.deleted, secrets: map[string]*corev1.Secret{},
		events: slices.Clone(f.events), statuses: slices.Clone(f.statuses), calls: f.calls,
		unprotected: slices.Clone(f.unprotected), unrecorded: slices.Clone(f.unrecorded),
		staleUntil: f.staleUntil, stale: f.stale,
	}
	for key, secret := range f.secrets {
		c.secrets[key] = secret.DeepCopy()
	}
	return saved{c, cloud, f.server.Knobs()}
}

// equal says whether two processes that start now do the same.
func (s saved) equal(other saved) bool {
	a, b := s.fixture, other.fixture
	return bytes.Equal(s.cloud, other.cloud) && reflect.DeepEqual(s.knobs, other.knobs) && a.clock.Now().Equal(b.clock.Now()) && a.deleted == b.deleted &&
		a.staleUntil.Equal(b.staleUntil) && a.stale == b.stale &&
		reflect.DeepEqual(a.storage, b.storage) && reflect.DeepEqual(a.secrets, b.secrets) &&
		slices.Equal(a.events, b.events) && reflect.DeepEqual(a.statuses, b.statuses) &&
		slices.Equal(a.unprotected, b.unprotected) && slices.Equal(a.unrecorded, b.unrecorded)
}

// open returns a fixture that goes on from what was saved, with a new process. It can be called many times.
func (s saved) open(t *testing.T) *fixture {
	t.Helper()
	f := *s.fixture
	f.t, f.transport = t, &f
	f.Gomega = NewWithT(reporter{t, &f})
	f.clock = clocktesting.NewFakeClock(s.fixture.clock.Now())
	for _, limit := range []fakecloud.Bucket{s.knobs.Reads, s.knobs.Writes, s.knobs.Deletes, s.knobs.AccountLists} {
		f.Expect(limit.Capacity).To(BeZero(), "request limits in use are not saved")
	}
	f.server = fakecloud.New(fakecloud.Options{Clock: f.clock, Knobs: s.knobs, Seed: fixtureSeed, Snapshot: s.cloud})
	f.storage = s.fixture.storage.DeepCopy()
	f.secrets = maps.Clone(s.fixture.secrets)
	for key, secret := range f.secrets {
		f.secrets[key] = secret.DeepCopy()
	}
	f.events, f.statuses = slices.Clone(f.events), slices.Clone(f.statuses)
	f.unprotected, f.unrecorded = slices.Clone(f.unprotected), slices.Clone(f.unrecorded)
	f.children = ssatest.NewServer(testScheme(), ssatest.Options{Clock: f.clock})
	f.cached = f.children.Cache()
	f.restart()
	return &f
}

// crashed is what a crash of the process at a call leaves.
type crashed struct {
	// call is the number of the call, and the side of its effect, and at is the number.
	call string
	at   int
	saved
	// survivor is the fixture whose process has not crashed, and nil for a crash.
	survivor *fixture
}

// afterCrash is when the object is reconciled again after a crash.
const afterCrash = time.Second

// open returns a fixture whose process restarts immediately.
func (c crashed) open(t *testing.T) *fixture {
	t.Helper()
	if f := c.survivor; f != nil {
		f.t, f.Gomega = t, NewWithT(reporter{t, f})
		return f
	}
	return c.saved.open(t)
}

// restart returns a fixture whose process restarts some time after the crash, as reconcile does it.
func (c crashed) restart(t *testing.T) *fixture {
	t.Helper()
	f := c.open(t)
	f.crashed = c.survivor == nil
	return f
}

// crashesUntil is crashesDuring, with this fixture as the last one, whose process has not crashed.
func (f *fixture) crashesUntil(do func(), sidesOfCall ...bool) []crashed {
	f.t.Helper()
	return append(f.crashesDuring(do, sidesOfCall...), crashed{call: "no crash", survivor: f})
}

// crashesDuring returns what a crash at each call to the cloud and to the API server leaves, before or after the call takes
// effect, while do runs. A process that crashes loses its memory and nothing else, so a copy that is made at the call, with
// a new process, is what crashAt leaves: TestCopyIsWhatACrashLeaves. A crash after a call and one before the next call are
// one, if nothing else changes in between.
func (f *fixture) crashesDuring(do func(), sidesOfCall ...bool) []crashed {
	f.t.Helper()
	if len(sidesOfCall) == 0 {
		sidesOfCall = []bool{false, true}
	}
	var crashes []crashed
	calls := map[bool]int{}
	f.onStep = func(after bool) {
		calls[after]++
		if !slices.Contains(sidesOfCall, after) {
			return
		}
		c := crashed{call: fmt.Sprintf("%s call %d", sides[after], calls[after]), at: calls[after], saved: f.save()}
		if len(crashes) > 0 && crashes[len(crashes)-1].equal(c.saved) {
			crashes[len(crashes)-1].call += ", " + c.call
			return
		}
		crashes = append(crashes, c)
	}
	do()
	f.onStep = nil
	f.Expect(crashes).NotTo(BeEmpty())
	return crashes
}

// A process that crashes in the middle of a reconcile leaves what a copy from the same call has, from the creation to the
// deletion.
func TestCopyIsWhatACrashLeaves(t *testing.T) {
	const share = 7
	for access := range accesses {
		for after, side := range sides {
			isCrashed := true
			for at := 1; isCrashed; at += share {
				isCrashed = false // a test that fails, or does not run with -failfast, is the last one
				t.Run(fmt.Sprintf("%s/%s call %d", access, side, at), func(t *testing.T) {
					// given
					f := newFixtureFor(t, access)
					f.crashAt = &crashPoint{at: at, after: after}
					var copied saved
					f.onStep = func(step bool) {
						if step == after && f.crashAt != nil && f.crashAt.at == 1 {
							copied = f.save()
						}
					}
					// when
					f.runUntil("crashed or ready", func() bool { return f.crashAt == nil || f.isReady() })
					if f.crashAt != nil {
						f.delete()
						f.runUntil("crashed or gone", func() bool { return f.crashAt == nil || f.deleted })
					}
					isCrashed = f.crashAt == nil
					// then
					if isCrashed {
						f.Expect(f.save().equal(copied)).To(BeTrue())
					}
				})
			}
		}
	}
}
