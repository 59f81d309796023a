package ha_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

// warmly is how long after its election a leader must send no list request: its caches are full.
const warmly = 2 * time.Second

// fault happens to the leader. It returns the moment from which the takeover is timed.
type fault struct {
	name string
	// reads is how often the next leader may read the Lease before it takes it. The times are only logged: they depend
	// on the machine.
	reads  func(durations) int
	happen func(f *fleet, leader *replica) time.Time
	// cold says that the next leader has to be started first.
	cold bool
}

// leaseExpires is for a Lease that is no longer renewed: a standby sees the last renewal at one read, and takes the Lease
// at the first read after the lease duration. It reads the Lease at least a retry period after the last read. Another
// standby can be the first to try, and fail.
func leaseExpires(d durations) int { return 1 + int((d.lease+d.retry-1)/d.retry) + 1 }

// leaseReleased is for a Lease without a holder: the first read shows it.
func leaseReleased(durations) int { return 1 }

// faults are what can happen to a leader, in groups that happen side by side, each to a fleet of its own.
var faults = map[string][]fault{
	"ends": {
		{name: "killed", reads: leaseExpires, happen: killed},
		{name: "stopped", reads: leaseReleased, happen: stopped},
		{name: "killed with all others", reads: leaseExpires, happen: killedWithAll, cold: true},
	},
	"freezes": {
		{name: "frozen", reads: leaseExpires, happen: frozen},
	},
	"loses the network": {
		{name: "cut off", reads: leaseExpires, happen: cutOff(false, false)},
		// What it sends arrives, the renewals of its Lease among it, until it gives up.
		{name: "deaf", reads: leaseExpires, happen: cutOff(true, false)},
		{name: "dumb", reads: leaseExpires, happen: cutOff(false, true)},
	},
}

func killed(f *fleet, leader *replica) time.Time { return f.kill(leader) }

func stopped(f *fleet, leader *replica) time.Time {
	leader.stopping = true
	at := time.Now()
	leader.signal(f.t, syscall.SIGTERM)
	f.ends(leader)
	f.Expect(leader.count("Released the Lease")).To(Equal(1), "a leader that is asked to end gives the Lease up")
	return at
}

// frozen stops the leader until another one works, and then lets it go on.
func frozen(f *fleet, leader *replica) time.Time {
	at := time.Now()
	leader.signal(f.t, syscall.SIGSTOP)
	f.taken(at, leader)
	leader.signal(f.t, syscall.SIGCONT)
	f.ends(leader)
	return at
}

// cutOff cuts the ways of the leader to and from the API server, until another one works. The cloud is
// within its reach all the time.
func cutOff(up, down bool) func(*fleet, *replica) time.Time {
	return func(f *fleet, leader *replica) time.Time {
		at := time.Now()
		leader.link.set(up, down)
		f.taken(at, leader)
		leader.link.set(true, true)
		f.ends(leader)
		return at
	}
}

// taken waits until another replica works, and returns its first write.
func (f *fleet) taken(after time.Time, former ...*replica) act {
	f.t.Helper()
	var first act
	f.Eventually(func() bool {
		var found bool
		first, found = f.firstActAfter(after, former...)
		return found
	}).Should(BeTrue(), "nobody took over")
	return first
}

func TestLeadersNeverOverlap(t *testing.T) {
	for name, group := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			happen(t, group)
		})
	}
}

func happen(t *testing.T, faults []fault) {
	election := chosenDurations()
	rounds := chosenRounds(t)
	f := newFleet(t, election, managerProgram)
	traffic := startTraffic(f, newSeed(t))
	f.taken(time.Time{})
	measured := &timings{}

	for round := range rounds {
		for _, each := range faults {
			// Given a leader at work, and two that stand by
			leader := f.eventuallyWorks()

			// When it happens
			at := each.happen(f, leader)

			// Then the next one takes the Lease as soon as it can, and works out of full caches.
			first := f.taken(at, leader)
			took := first.at.Sub(at)
			measured.add(each.name, took)
			t.Logf("round %d, leader %s: %s took over after %s", round+1, each.name, first.who, took.Round(time.Millisecond))
			f.Expect(len(f.readsBeforeTaking(first.who))).To(BeNumerically("<=", each.reads(election)), "%s took the Lease late", first.who)
			if !each.cold {
				f.Expect(f.lists(first.who, warmly)).To(BeEmpty(), "%s has to fill its caches first", first.who)
			}
			f.Expect(overlaps(f.acts())).To(BeEmpty(), "a former leader wrote")
		}
	}

	f.eventuallyWhole()
	traffic.stop()
	traffic.eventuallyRight()
	f.nothingAmiss()
	t.Log(f.summary(measured, traffic))
}

// eventuallyWorks waits until there are as many replicas as there should be, and the one that leads, which
// it returns, has written something more. It may be another one by then.
func (f *fleet) eventuallyWorks() *replica {
	f.t.Helper()
	var leader *replica
	var since time.Time
	f.Eventually(func() bool {
		if found := f.eventuallyWhole(); found != leader {
			leader, since = found, time.Now()
		}
		others := slices.DeleteFunc(f.replicas(), func(r *replica) bool { return r == leader })
		_, found := f.firstActAfter(since, others...)
		return found
	}).Should(BeTrue(), "no leader works")
	return leader
}

// killedWithAll takes all replicas at once. Those that come instead have to wait for the Lease as well.
func killedWithAll(f *fleet, _ *replica) time.Time {
	at := f.kill(f.replicas()...)
	f.replaceEnded()
	return at
}

// TestSurvivesRestartOfTheAPIServer takes the API server away, and with it all that a leader could prove.
func TestSurvivesRestartOfTheAPIServer(t *testing.T) {
	rounds := chosenRounds(t)
	f := newFleet(t, chosenDurations(), managerProgram)
	traffic := startTraffic(f, newSeed(t))
	f.taken(time.Time{})

	for range rounds {
		f.eventuallyWorks()
		f.Expect(shared.RestartPart(f.ctx, cluster.APIServer)).To(Succeed())
		at := time.Now()
		f.eventuallyWhole()
		f.taken(at)
		f.Expect(overlaps(f.acts())).To(BeEmpty(), "a former leader wrote")
	}

	traffic.stop()
	traffic.eventuallyRight()
	f.nothingAmiss()
	t.Log(f.summary(&timings{}, traffic))
}

// nothingAmiss is what has to hold whatever happened.
func (f *fleet) nothingAmiss() {
	f.t.Helper()
	f.Expect(overlaps(f.acts())).To(BeEmpty(), "a leader wrote after its successor had begun to")
	f.Expect(f.leases.wipes(f.hasReleased)).To(BeEmpty(), "a leader lost its Lease to nobody")
	for _, r := range f.everyone() {
		f.Expect(r.count("panic")).To(BeZero(), "%s:\n%s", r, r.tail(50))
	}
}

func (f *fleet) summary(measured *timings, traffic *traffic) string {
	var b strings.Builder
	acts := f.acts()
	leaders, refused := map[string]bool{}, 0
	for _, a := range acts {
		leaders[a.who] = true
	}
	for _, r := range f.everyone() {
		refused += r.count("Stopped the reconcile because a write was refused")
	}
	fmt.Fprintf(&b, "%d writes by %d leaders out of %d replicas, %d overlapping; %d edits; %d passes given up; Lease %s, %s, %s\n",
		len(acts), len(leaders), len(f.everyone()), len(overlaps(acts)), traffic.count, refused, f.election.lease, f.election.renew, f.election.retry)
	for _, name := range slices.Sorted(maps.Keys(measured.took)) {
		took := measured.took[name]
		slices.Sort(took)
		fmt.Fprintf(&b, "%-22s %3d times: %8s to %8s, median %8s\n", name, len(took),
			took[0].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond), took[len(took)/2].Round(time.Millisecond))
	}
	return b.String()
}
