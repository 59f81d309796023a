package phases_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// The property: whatever the list of phases, whatever users and other controllers do meanwhile, however
// far the caches lag, and at whatever requests the engine is stopped, a fresh engine reaches the state
// that an undisturbed one reaches, and writes nothing on the way that the newest spec does not ask for.
//
// A failure prints a seed and a file to replay it with:
//
//	go test ./pkg/phases -run TestCrash -rapid.seed=... (or -rapid.failfile=...)

// phaseCase is one phase of a random list, and how it behaves over time.
type phaseCase struct {
	name string
	// sort is "disk", "nic", "disks" (a set), "ip" or "optional ip".
	sort  string
	prune phases.PruneOrder
	// attachedAfter and goneAfter are ticks.
	attachedAfter, goneAfter int
	// fault is what the phase comes to until a tick: "", "error", "permanent", "stalled" or "wait".
	fault      string
	faultUntil int
}

// devices are the names of all devices or IPs that the phase may have.
func (p phaseCase) devices() []string {
	lower := strings.ToLower(p.name)
	if p.sort == "disks" {
		return []string{lower + "-x", lower + "-y", lower + "-z"}
	}
	return []string{lower}
}

func (p phaseCase) kind() string {
	return map[string]string{"disk": "Disk", "disks": "Disk", "nic": "Nic", "ip": "ip", "optional ip": "ip"}[p.sort]
}

// spec asks for these members with a class; of a single device, members is not used.
func (p phaseCase) spec(members []bool, class string) string {
	if p.sort != "disks" {
		return class
	}
	var listed []string
	for i, name := range p.devices() {
		if members[i] {
			listed = append(listed, name+"="+class)
		}
	}
	return strings.Join(listed, " ")
}

// interference is what a user does at a tick.
type interference struct {
	at    int
	phase int
	// what is "edit", "disable" (the phase is no longer configured), "suspend" (until the horizon),
	// "drift" or "delete" (of a device). Drift that is not reverted happens when the device exists and
	// all else is over: the end depends on it, and must not depend on when the device was created.
	what string
	// members and class are for an edit; member is for drift and delete.
	members []bool
	class   string
	member  int
}

type scenario struct {
	list          []phaseCase
	interferences []interference
	drift         ssa.DriftPolicy
	// lag says for each kind every how many ticks the cache is in sync; 1 is never out of it.
	lag map[string]int
	// crashes before and during the teardown, each counted in requests since the one before.
	crashes, teardownCrashes []crash
}

// horizon is the tick by which everything that is going to happen has begun.
const horizon = 12

func scenarios() *rapid.Generator[scenario] {
	return rapid.Custom(func(t *rapid.T) scenario {
		s := scenario{
			drift: rapid.SampledFrom([]ssa.DriftPolicy{ssa.CorrectDrift, ssa.ReportDrift}).Draw(t, "drift"),
			lag:   map[string]int{},
		}
		for _, kind := range []string{"Machine", "Disk", "Nic"} {
			s.lag[kind] = rapid.SampledFrom([]int{1, 1, 2, 3, 5}).Draw(t, "lag of "+kind)
		}
		for i := range rapid.IntRange(1, 6).Draw(t, "phases") {
			s.list = append(s.list, phaseCase{
				name:          string(rune('A'+i)) + "part",
				sort:          rapid.SampledFrom([]string{"disk", "nic", "disks", "ip", "optional ip"}).Draw(t, "sort"),
				prune:         rapid.SampledFrom([]phases.PruneOrder{phases.PruneInOrder, phases.PruneFirst, phases.PruneLast}).Draw(t, "prune"),
				attachedAfter: rapid.IntRange(0, 3).Draw(t, "attachedAfter"),
				goneAfter:     rapid.IntRange(0, 3).Draw(t, "goneAfter"),
				fault:         rapid.SampledFrom([]string{"", "", "error", "permanent", "stalled", "wait"}).Draw(t, "fault"),
				faultUntil:    rapid.IntRange(0, horizon).Draw(t, "faultUntil"),
			})
		}
		for range rapid.IntRange(0, 6).Draw(t, "interferences") {
			s.interferences = append(s.interferences, interference{
				at:      rapid.IntRange(0, horizon).Draw(t, "at"),
				phase:   rapid.IntRange(0, len(s.list)-1).Draw(t, "phase"),
				what:    rapid.SampledFrom([]string{"edit", "edit", "disable", "drift", "delete", "suspend"}).Draw(t, "what"),
				members: rapid.SliceOfN(rapid.Bool(), 3, 3).Draw(t, "members"),
				class:   rapid.SampledFrom([]string{"fast", "slow", "cheap"}).Draw(t, "class"),
				member:  rapid.IntRange(0, 2).Draw(t, "member"),
			})
		}
		crashes := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) crash {
			return crash{
				at:     rapid.IntRange(1, 25).Draw(t, "request"),
				landed: rapid.Bool().Draw(t, "landed"),
				panics: rapid.Bool().Draw(t, "panics"),
			}
		}), 1, 8)
		s.crashes, s.teardownCrashes = crashes.Draw(t, "crashes"), crashes.Draw(t, "teardownCrashes")
		return s
	})
}

// play is a scenario that is being played.
type play struct {
	*harness
	scenario
	crashes []crash
	// late are the interferences that wait until all else is over.
	late []interference
}

// start creates a Machine that asks for every phase, and of each set for the first two members.
func start(s scenario, crashes []crash) *play {
	cluster := newFakeCluster()
	cluster.lags = true
	list := make([]phase, 0, len(s.list))
	spec := map[string]string{}
	for _, p := range s.list {
		for _, name := range p.devices() {
			cluster.attachedAfter[name], cluster.goneAfter[name] = p.attachedAfter, p.goneAfter
		}
		spec[p.name] = p.spec([]bool{true, true, false}, "fast")
		list = append(list, phaseOf(cluster, p))
	}
	h := newHarness(cluster, list...)
	h.definition.Policies = func(*Machine) phases.Policies { return phases.Policies{Adoption: ssa.AdoptNever, Drift: s.drift} }
	cluster.createMachine(&Machine{Spec: spec})
	cluster.sync()
	started := &play{harness: h, scenario: s, crashes: crashes}
	started.interferences = nil
	for _, i := range s.interferences {
		if i.what == "drift" && s.drift == ssa.ReportDrift {
			started.late = append(started.late, i)
		} else {
			started.interferences = append(started.interferences, i)
		}
	}
	cluster.check = started.checkWrite
	return started
}

// checkWrite fails a write that the newest spec does not ask for.
func (s *play) checkWrite(verb, _, name string) error {
	machine := s.machine()
	if machine.DeletionTimestamp != nil {
		return nil // that only deletions land then is checked by the cluster
	}
	i := slices.IndexFunc(s.list, func(p phaseCase) bool { return slices.Contains(p.devices(), name) })
	value, configured := machine.Spec[s.list[i].name]
	if s.list[i].sort == "disks" {
		configured = slices.ContainsFunc(strings.Fields(value), func(m string) bool { return strings.HasPrefix(m, name+"=") })
	}
	switch isDelete := verb == "delete" || verb == "release"; {
	case machine.Suspend:
		return errors.New("the Machine is suspended")
	case isDelete && configured:
		return errors.New("it is desired")
	case !isDelete && !configured:
		return errors.New("it is not desired")
	}
	return nil
}

// phaseOf is a phase that has its fault until the given tick.
func phaseOf(cluster *fakeCluster, p phaseCase) phase {
	fault := func() (phases.Verdict, error) {
		if cluster.now >= p.faultUntil {
			return nil, nil
		}
		switch p.fault {
		case "error":
			return nil, errors.New("the backend is down")
		case "permanent":
			return nil, &ssa.Error{Reason: ssa.ReasonInvalid, Object: p.name, Message: "no such device"}
		case "stalled":
			return phases.Stalled("Locked", "unlock it"), nil
		case "wait":
			return phases.Wait("Pending", "not yet", 0), nil
		}
		return nil, nil
	}
	switch p.sort {
	case "ip", "optional ip":
		ip := ipOf(cluster, p.name)
		if p.sort == "optional ip" {
			ip = optionalIPOf(cluster, p.name)
		}
		observe := ip.Observe
		ip.Observe = func(ctx context.Context, s *scope) (phases.Observation, error) {
			if verdict, err := fault(); err != nil || verdict != nil {
				return verdict, err
			}
			return observe(ctx, s)
		}
		return ip
	case "nic":
		nic := nicOf(p.name)
		nic.Prune = p.prune
		nic.Desired, nic.Ready = failing(nic.Desired, fault), withFault[*Nic](fault)
		return nic
	case "disks":
		disks := disksOf(p.name)
		disks.Prune = p.prune
		disks.Desired, disks.Ready = failing(disks.Desired, fault), withFault[*Disk](fault)
		return disks
	default:
		disk := diskOf(p.name)
		disk.Prune = p.prune
		disk.Desired, disk.Ready = failing(disk.Desired, fault), withFault[*Disk](fault)
		return disk
	}
}

// failing is Desired with the errors of the fault, and withFault is Ready with its verdicts.
func failing[C any](desired func(*scope) (C, error), fault func() (phases.Verdict, error)) func(*scope) (C, error) {
	return func(s *scope) (C, error) {
		if _, err := fault(); err != nil {
			var none C
			return none, err
		}
		return desired(s)
	}
}

func withFault[L device](fault func() (phases.Verdict, error)) func(context.Context, *scope, L) phases.Verdict {
	return func(_ context.Context, _ *scope, live L) phases.Verdict {
		if verdict, err := fault(); err == nil && verdict != nil {
			return verdict
		}
		return isAttached(live)
	}
}

// interfere does what users do at this tick.
func (s *play) interfere() {
	for _, i := range s.interferences {
		if i.at == s.now {
			s.do(i)
		}
	}
	if s.now == horizon+1 && s.machine().Suspend {
		s.editMachine(func(machine *Machine) { machine.Suspend = false })
	}
}

func (s *play) do(i interference) {
	p := s.list[i.phase]
	devices := p.devices()
	at := ref{p.kind(), devices[i.member%len(devices)]}
	switch {
	case i.what == "edit":
		s.editMachine(func(machine *Machine) { machine.Spec[p.name] = p.spec(i.members, i.class) })
	case i.what == "disable":
		s.editMachine(func(machine *Machine) { delete(machine.Spec, p.name) })
	case i.what == "suspend":
		s.editMachine(func(machine *Machine) { machine.Suspend = true })
	case s.objects[at] == nil:
	case i.what == "drift":
		s.modify(at.kind, at.name, func(d device) { d.device().Spec["class"] = "broken" })
	case i.what == "delete" && s.objects[at].GetDeletionTimestamp() == nil:
		s.remove(at, "example.com/slow")
		s.due["vanish "+at.String()] = s.now + p.goneAfter
	}
}

// syncCaches brings the caches up to date whose turn it is.
func (s *play) syncCaches() {
	for kind, lag := range s.lag {
		if s.now%lag == 0 {
			s.syncKind(kind)
		}
	}
}

// run reconciles with a fresh engine, which the next crash may stop.
func (s *play) run(t *rapid.T) (err error) {
	engine, err := s.engine()
	if err != nil {
		t.Fatal(err)
	}
	if s.crash == nil && len(s.crashes) > 0 {
		s.calls, s.crash, s.crashes = 0, &s.crashes[0], s.crashes[1:]
	}
	defer func() {
		if stopped := recover(); stopped != nil {
			if _, ok := stopped.(crashed); !ok {
				panic(stopped)
			}
			err = errors.New("the engine was stopped")
		}
		if s.crash != nil && s.calls >= s.crash.at {
			s.crash = nil
		}
		if len(s.violations) > 0 {
			t.Fatalf("%v; writes: %v", s.violations, s.writes)
		}
	}()
	_, err = engine.Reconcile(context.Background(), machineRequest)
	return err
}

// live plays until nothing happens any more.
func (s *play) live(t *rapid.T) {
	for range 40 * horizon {
		s.interfere()
		s.syncCaches()
		writes := len(s.writes)
		err := s.run(t)
		quiet := err == nil && len(s.writes) == writes && len(s.due) == 0 && s.crash == nil && len(s.crashes) == 0
		if quiet && s.now > horizon+1 && maps.Equal(s.cache, s.objects) {
			if len(s.late) == 0 {
				return
			}
			s.do(s.late[0])
			s.late = s.late[1:]
		}
		if len(s.crashes) > 0 && s.now > 3*horizon {
			s.crashes = nil // a quiet engine does not send enough requests to be stopped at
			s.crash = nil
		}
		s.tick()
	}
	t.Fatalf("no fixed point; writes: %v; conditions: %v", s.writes, s.states())
}

// die plays the teardown until the Machine is gone.
func (s *play) die(t *rapid.T, crashes []crash) {
	s.crashes, s.crash = crashes, nil
	s.deleteMachine()
	for range 120 {
		if s.machine() == nil {
			return
		}
		s.syncCaches()
		_ = s.run(t)
		s.tick()
	}
	t.Fatalf("the Machine still exists; writes: %v; conditions: %v", s.writes, s.states())
}

// state is all of the cluster that matters, without what depends on when it happened.
func (s *play) state() string {
	var lines []string
	for r, object := range s.objects {
		if d, ok := object.(device); ok {
			lines = append(lines, fmt.Sprintf("%s %v attached=%v deleting=%v", r, d.device().Spec, d.device().Attached, isDeleting(d)))
		}
	}
	for name, value := range s.ips {
		lines = append(lines, "ip "+name+" "+value)
	}
	machine := s.machine()
	lines = append(lines, fmt.Sprint("finalizers ", machine.Finalizers), fmt.Sprint("observed ", machine.Status.ObservedGeneration))
	for _, c := range machine.Status.Conditions {
		lines = append(lines, fmt.Sprintf("%s=%s %s %s %d", c.Type, c.Status, c.Reason, c.Message, c.ObservedGeneration))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func isDeleting(object client.Object) bool { return object.GetDeletionTimestamp() != nil }

// firsts lists the devices and IPs in the order in which a verb first happened to them.
func firsts(writes []string, verbs ...string) []string {
	var names []string
	for _, write := range writes {
		words := strings.Fields(write)
		if slices.Contains(verbs, words[0]) && !slices.Contains(names, words[len(words)-1]) {
			names = append(names, words[len(words)-1])
		}
	}
	return names
}

// checkTeardown fails unless what existed was torn down in the reverse of the list's order, all of one
// phase before any of the one before it, and the finalizer was removed last.
func checkTeardown(t *rapid.T, s scenario, writes []string, existed []string) {
	deleted := firsts(writes, "delete", "release")
	var reversed []string
	for _, p := range slices.Backward(s.list) {
		for _, name := range p.devices() {
			if slices.Contains(existed, name) {
				reversed = append(reversed, name)
			}
		}
	}
	if !slices.Equal(deleted, reversed) {
		t.Fatalf("deleted in the order %v, and the reverse of the list is %v; writes: %v", deleted, reversed, writes)
	}
	if last := writes[len(writes)-1]; last != "unfinalize" {
		t.Fatalf("the last write was %q, and not that of the finalizer: %v", last, writes)
	}
}

func (s *play) existing() []string {
	var names []string
	for _, left := range s.left() {
		words := strings.Fields(left)
		names = append(names, words[len(words)-1])
	}
	return names
}

func TestCrashesDoNotChangeTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Given a scenario, and how it ends if the engine is never stopped
		s := scenarios().Draw(t, "scenario")
		undisturbed := start(s, nil)
		undisturbed.live(t)
		if !slices.Contains(undisturbed.states(), "Ready=True/Ready") {
			t.Fatalf("the undisturbed Machine is not Ready: %v", undisturbed.states())
		}
		if len(s.interferences) == 0 {
			created := firsts(undisturbed.writes, "create", "allocate")
			var listed []string
			for _, p := range s.list {
				listed = append(listed, p.devices()[:min(2, len(p.devices()))]...)
			}
			if !slices.Equal(created, listed) {
				t.Fatalf("created in the order %v, and the list is %v", created, listed)
			}
		}

		// When the engine is stopped at some requests
		disturbed := start(s, s.crashes)
		disturbed.live(t)

		// Then it ends in the same state, and writes nothing there
		if got, want := disturbed.state(), undisturbed.state(); got != want {
			t.Fatalf("it ended in\n%s\nand undisturbed in\n%s", got, want)
		}
		writes := len(disturbed.writes)
		if err := disturbed.run(t); err != nil || len(disturbed.writes) != writes {
			t.Fatalf("at the fixed point it writes %v (error: %v)", disturbed.writes[writes:], err)
		}

		// When it is deleted, and the engine is stopped again, nothing is left in the end
		existed := disturbed.existing()
		disturbed.die(t, s.teardownCrashes)
		if left := disturbed.left(); len(left) > 0 {
			t.Fatalf("%v is left; writes: %v", left, disturbed.writes)
		}
		checkTeardown(t, s, disturbed.writes[writes:], existed)
	})
}

// TestMachineDeletedAtAnyTimeIsRemoved deletes it while it is created, and crashes besides.
func TestMachineDeletedAtAnyTimeIsRemoved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Given a scenario of which some ticks are played
		s := scenarios().Draw(t, "scenario")
		played := start(s, s.crashes)
		for range rapid.IntRange(0, horizon).Draw(t, "ticks") {
			played.interfere()
			played.syncCaches()
			_ = played.run(t)
			played.tick()
		}

		// When the Machine is deleted
		played.die(t, s.teardownCrashes)

		// Then nothing is left
		if left := played.left(); len(left) > 0 {
			t.Fatalf("%v is left; writes: %v", left, played.writes)
		}
	})
}
