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

// fault happens to the leader.
type fault struct {
	name string
	// reads is how often the next leader may read the Lease before it takes it, if no request for the Lease fails. The
	// times are only logged: they depend on the machine.
	reads func(d durations, former *replica) int
	// happen returns the moment from which the takeover is timed, and false if the leader had ended by itself before.
	happen func(f *fleet, leader *replica) (time.Time, bool)
}

// leaseExpires is for a Lease that is no longer renewed: a standby sees the last renewal at one read, and takes the Lease
// at the first read after the lease duration. It reads the Lease at least a retry period after the last read. Another
// standby can be the first to try, and fail.
func leaseExpires(d durations, _ *replica) int { return 1 + int((d.lease+d.retry-1)/d.retry) + 1 }

// leaseReleased is for a Lease without a holder: the first read shows it. A Lease that could not be released expires.
func leaseReleased(d durations, former *replica) int {
	if former.couldNotRelease() {
		return leaseExpires(d, former)
	}
	return 1
}

// faults are what can happen to a leader, in groups that happen side by side, each to a fleet of its own.
var faults = map[string][]fault{
	"ends": {
		{name: "killed", reads: leaseExpires, happen: killed},
		{name: "stopped", reads: leaseReleased, happen: stopped},
		{name: "killed with all others", reads: leaseExpires, happen: killedWithAll},
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

func killed(f *fleet, leader *replica) (time.Time, bool) { return f.kill(leader) }

func stopped(f *fleet, leader *replica) (time.Time, bool) {
	leader.stopping = true
	at := time.Now()
	if !leader.signal(f.t, syscall.SIGTERM) {
		return at, false
	}
	f.ends(leader)
	if !leader.couldNotRelease() {
		f.Expect(leader.count(released)).To(Equal(1), "a leader that is asked to end gives the Lease up")
	}
	return at, true
}

// frozen stops the leader until another one works, and then lets it go on.
func frozen(f *fleet, leader *replica) (time.Time, bool) {
	at := time.Now()
	if !leader.signal(f.t, syscall.SIGSTOP) {
		return at, false
	}
	f.taken(at, leader)
	leader.signal(f.t, syscall.SIGCONT)
	f.ends(leader)
	return at, true
}

// cutOff cuts the ways of the leader to and from the API server, until another one works. The cloud is
// within its reach all the time.
func cutOff(up, down bool) func(*fleet, *replica) (time.Time, bool) {
	return func(f *fleet, leader *replica) (time.Time, bool) {
		at := time.Now()
		leader.link.set(up, down)
		if !leader.process.Running() {
			return at, false
		}
		f.taken(at, leader)
		f.hasRun(leader)
		leader.link.set(true, true)
		f.ends(leader)
		return at, true
	}
}

// hasRun waits until the replica has answered twice, or has ended. A machine that is busy can keep a leader from running
// until its successor works. Its kernel would then still deliver what it sent before, as after any partition that is
// shorter than the Lease. After the first answer the leader is awake, and by the second one it has reset its connections
// for writes, as it has to when its Lease expires.
func (f *fleet) hasRun(r *replica) {
	f.t.Helper()
	for range 2 {
		f.Eventually(func() bool { return !r.process.Running() || r.answers("/healthz") }).Should(BeTrue(), "%s neither answers nor ends", r)
	}
}

// taken waits until another replica works, and returns its first write.
func (f *fleet) taken(after time.Time, former ...*replica) act {
	f.t.Helper()
	var first act
	f.Eventually(func() bool {
		f.replaceLast(former)
		var found bool
		first, found = f.firstActAfter(after, former...)
		return found
	}).Should(BeTrue(), "nobody took over")
	return first
}

// replaceLast starts new replicas if none but the former leaders is left to take over. On a busy machine each of the others
// can take the Lease and lose it again, before it has written anything.
func (f *fleet) replaceLast(former []*replica) {
	f.t.Helper()
	others := slices.DeleteFunc(f.replicas(), func(r *replica) bool { return slices.Contains(former, r) })
	if slices.ContainsFunc(others, func(r *replica) bool { return r.process.Running() }) {
		return
	}
	for _, r := range others {
		f.Expect(r.hasLostLease()).To(BeTrue(), "%s ended although it did not lose the Lease", r)
	}
	f.replaceEnded()
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
			// Given a leader at work, and two that stand by, when it happens
			leader, at, standing := f.eventuallyHappens(each)

			// Then the next one takes the Lease as soon as it can, and works out of full caches.
			first := f.taken(at, leader)
			took := first.at.Sub(at)
			measured.add(each.name, took)
			t.Logf("round %d, leader %s: %s took over after %s", round+1, each.name, first.who, took.Round(time.Millisecond))
			allowed := each.reads(election, leader) + f.failedReads(first.who) - standing[first.who]
			f.Expect(len(f.readsBeforeTaking(first.who))).To(BeNumerically("<=", allowed), "%s took the Lease late", first.who)
			if _, stood := standing[first.who]; stood {
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

// eventuallyHappens lets a fault happen to a leader at work. It returns the leader, the moment, and the replicas that were
// there before, with the number of their failed reads. If the leader has ended by itself meanwhile, because it lost its
// Lease, the fault happens to another one.
func (f *fleet) eventuallyHappens(each fault) (leader *replica, at time.Time, standing map[string]int) {
	f.t.Helper()
	for happened := false; !happened; {
		leader, standing = f.eventuallyWorks(), map[string]int{}
		for _, r := range f.replicas() {
			standing[r.name] = f.failedReads(r.name)
		}
		at, happened = each.happen(f, leader)
	}
	return leader, at, standing
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
func killedWithAll(f *fleet, _ *replica) (time.Time, bool) {
	at, _ := f.kill(f.replicas()...)
	f.replaceEnded()
	return at, true
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
	unconfirmed := 0
	for _, r := range f.everyone() {
		// The release takes effect if only its response is late.
		unconfirmed += r.count(notReleased)
		f.Expect(r.count("panic")).To(BeZero(), "%s:\n%s", r, r.tail(50))
	}
	wiped := f.leases.wipes(f.hasReleased)
	f.Expect(len(wiped)).To(BeNumerically("<=", unconfirmed), "a leader lost its Lease to nobody: %v", wiped)
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
