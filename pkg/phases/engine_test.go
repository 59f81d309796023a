package phases_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

func TestPhaseGatesItsSuccessors(t *testing.T) {
	g := NewWithT(t)
	// Given a disk that takes two ticks to be attached, and a NIC and an IP after it
	cluster := newFakeCluster()
	cluster.attachedAfter["boot"] = 2
	h := newHarness(cluster, diskOf("Boot"), nicOf("Uplink"), ipOf(cluster, "Address"))
	cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast", "Uplink": "cheap", "Address": "static"}})

	// When it is reconciled for the first time
	result := h.mustReconcile(t)

	// Then only the disk is created, and the status says what it waits for
	g.Expect(cluster.writes).To(Equal([]string{"finalize", "create Disk boot", "status"}))
	g.Expect(result).To(Equal(reconcile.Result{RequeueAfter: 5 * time.Second}))
	g.Expect(h.states()).To(Equal([]string{
		"Ready=False/NotAttached",
		"BootReady=False/NotAttached",
		"UplinkReady=Unknown/Blocked",
		"AddressReady=Unknown/Blocked",
		"Reconciling=True/NotAttached",
	}))
	g.Expect(h.condition(t, "UplinkReady").Message).To(Equal("waiting for phase Boot"))

	// When it is attached, the others follow in their order
	h.settle(t)
	g.Expect(cluster.writes).To(Equal([]string{
		"finalize", "create Disk boot", "status",
		"create Nic uplink", "allocate ip address", "status", "status",
	}))
	g.Expect(h.states()).To(Equal([]string{
		"Ready=True/Ready", "BootReady=True/Ready", "UplinkReady=True/Ready", "AddressReady=True/Ready",
	}))
}

func TestPhasesHandWhatTheyObserveToTheirSuccessors(t *testing.T) {
	g := NewWithT(t)
	// Given a step after a disk that reads what the disk's phase has observed
	cluster := newFakeCluster()
	var found []string
	after := step{Name: "After", Observe: func(_ context.Context, s *scope) (phases.Observation, error) {
		found = s.seen
		return phases.Done("seen"), nil
	}}
	h := newHarness(cluster, diskOf("Boot"), after)
	cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})

	// When it is settled
	h.settle(t)

	// Then it has seen the disk through the scope
	g.Expect(found).To(Equal([]string{"boot"}))
}

func TestResultSaysWhenToReconcileAgain(t *testing.T) {
	permanent := &ssa.Error{Reason: ssa.ReasonInvalid, Object: "Disk boot", Message: "class: no such class"}
	transient := &ssa.Error{Reason: ssa.ReasonQuotaExceeded, Object: "Disk boot", Message: "no room"}
	staleness := &ssa.Error{Reason: ssa.ReasonStale, Object: "Disk boot", Transient: true}
	other := errors.New("the cloud is down")

	cases := map[string]struct {
		phases  []phase
		after   time.Duration
		failure error
		ready   string
		// message is that of Ready, where it matters.
		message string
	}{
		"all phases are done: not again": {
			phases: []phase{observes("A", phases.Done("")), observes("B", phases.Done(""))},
			ready:  "Ready=True/Ready",
		},
		"a wait says how long": {
			phases: []phase{observes("A", phases.Wait("Soon", "soon", 7*time.Second))},
			after:  7 * time.Second,
			ready:  "Ready=False/Soon",
		},
		"a wait that gives no time has the safety net": {
			phases: []phase{observes("A", phases.Wait("Watched", "watched", 0))},
			after:  phases.SafetyNet,
			ready:  "Ready=False/Watched",
		},
		"a wait whose time has passed has it too": {
			phases: []phase{observes("A", phases.Wait("Late", "late", -time.Minute))},
			after:  phases.SafetyNet,
			ready:  "Ready=False/Late",
		},
		"the smallest wait wins: of a phase that is done": {
			phases: []phase{observes("A", phases.Done("").RecheckAfter(2*time.Second)), observes("B", phases.Wait("Soon", "", 7*time.Second))},
			after:  2 * time.Second,
			ready:  "Ready=False/Soon",
		},
		"the smallest wait wins: of the phase that gates": {
			phases: []phase{observes("A", phases.Done("").RecheckAfter(time.Hour)), observes("B", phases.Wait("Soon", "", 7*time.Second))},
			after:  7 * time.Second,
			ready:  "Ready=False/Soon",
		},
		"the smallest of several phases that are done": {
			phases: []phase{observes("A", phases.Done("").RecheckAfter(time.Hour)), observes("B", phases.Done("").RecheckAfter(time.Minute))},
			after:  time.Minute,
			ready:  "Ready=True/Ready",
		},
		"a recheck whose time has passed is soon": {
			phases: []phase{observes("A", phases.Done("").RecheckAfter(-time.Minute))},
			after:  time.Second,
			ready:  "Ready=True/Ready",
		},
		"a phase that is not reached does not count": {
			phases: []phase{observes("A", phases.Wait("Soon", "", time.Hour)), observes("B", phases.Wait("Sooner", "", time.Second))},
			after:  time.Hour,
			ready:  "Ready=False/Soon",
		},
		"stalled: not again": {
			phases: []phase{observes("A", phases.Stalled("BadClass", "no such class"))},
			ready:  "Ready=False/BadClass",
		},
		"stalled, with a recheck": {
			phases: []phase{observes("A", phases.Stalled("BadClass", "no such class").RecheckAfter(time.Minute))},
			after:  time.Minute,
			ready:  "Ready=False/BadClass",
		},
		"a permanent error stalls": {
			phases: []phase{fails("A", permanent)},
			ready:  "Ready=False/Invalid",
		},
		"a terminal error of controller-runtime stalls": {
			phases:  []phase{fails("A", fmt.Errorf("reading the class: %w", reconcile.TerminalError(other)))},
			ready:   "Ready=False/Failed",
			message: "A: reading the class: the cloud is down",
		},
		"a terminal error with a reason stalls": {
			phases: []phase{fails("A", reconcile.TerminalError(transient))},
			ready:  "Ready=False/QuotaExceeded",
		},
		"an error is retried with backoff": {
			phases:  []phase{fails("A", other)},
			failure: other,
			ready:   "Ready=False/Failed",
		},
		"an error with a reason is retried, and the condition has the reason": {
			phases:  []phase{observes("A", phases.Done("").RecheckAfter(time.Second)), fails("B", transient)},
			failure: transient,
			ready:   "Ready=False/QuotaExceeded",
		},
		"a phase that stays stale is reconciled again soon, without a status": {
			phases: []phase{fails("A", staleness)},
			after:  50 * time.Millisecond,
		},
		"no observation is a bug in the operator": {
			phases: []phase{observes("A", nil)},
			ready:  "Ready=False/Failed",
		},
		"the zero value of a verdict is a bug in the operator": {
			phases:  []phase{observes("A", phases.DoneVerdict{})},
			ready:   "Ready=False/Failed",
			message: "A: phase A gave no verdict and no error (a function returned nil, or the zero value of a verdict): this is a bug in the operator",
		},
		"the zero value of a wait is one, too": {
			phases: []phase{observes("A", phases.WaitVerdict{})},
			ready:  "Ready=False/Failed",
		},
		"a step that observes Missing without an Ensure": {
			phases:  []phase{observes("A", phases.Missing("IPMissing", "allocate an IP"))},
			failure: errors.New("the step A observed that it has to allocate an IP, and has no Ensure"),
			ready:   "Ready=False/Failed",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a Machine with these phases
			cluster := newFakeCluster()
			h := newHarness(cluster, c.phases...)
			cluster.createMachine(&Machine{})

			// When it is reconciled
			result, err := h.reconcile(t)

			// Then the result says when to reconcile again, and the status why
			if c.failure == nil {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(c.failure.Error())))
			}
			g.Expect(result).To(Equal(reconcile.Result{RequeueAfter: c.after}))
			if c.ready != "" {
				g.Expect(h.states()).To(ContainElement(c.ready))
			} else {
				g.Expect(h.states()).To(BeEmpty())
			}
			if c.message != "" {
				g.Expect(h.states()).To(ContainElement("Stalled=True/Failed"))
				g.Expect(h.condition(t, "Ready").Message).To(Equal(c.message))
			}
		})
	}
}

func TestErrorsThatDifferInVolatilePartsAreWrittenOnce(t *testing.T) {
	g := NewWithT(t)
	// Given a step whose error names another request each time
	cluster := newFakeCluster()
	try := 0
	h := newHarness(cluster, step{Name: "Address", Observe: func(context.Context, *scope) (phases.Observation, error) {
		try++
		requests := []string{"7d444840-9dc0-11d1-b245-5ffdce74fad2", "0f8fad5b-d9cb-469f-a165-70867728950e"}
		ports := []string{"40110", "51234"}
		return nil, errors.New("read tcp 10.1.2.3:" + ports[try%2] + "->10.0.0.1:443: request " + requests[try%2] + " timed out")
	}})
	cluster.createMachine(&Machine{})
	_, err := h.reconcile(t)
	g.Expect(err).To(HaveOccurred())
	writes := len(cluster.writes)

	// When it fails again
	_, err = h.reconcile(t)

	// Then it is an error again, and the status is not written again
	g.Expect(err).To(HaveOccurred())
	g.Expect(cluster.writes).To(HaveLen(writes))
	g.Expect(h.condition(t, "AddressReady").Message).To(Equal("read tcp …10.0.0.1:443: request … timed out"))
}

func TestReasonThatTheAPIServerRefusesIsReplaced(t *testing.T) {
	g := NewWithT(t)
	// Given a phase with a reason that no condition may have
	cluster := newFakeCluster()
	h := newHarness(cluster, observes("Address", phases.Wait("Storage.AccountNotFound", "the account does not exist", 0)))
	cluster.createMachine(&Machine{})

	// When it is reconciled
	h.mustReconcile(t)

	// Then the status is written, with the reason in the message
	address := h.condition(t, "AddressReady")
	g.Expect(address.Reason).To(Equal(phases.ReasonFailed))
	g.Expect(address.Message).To(Equal("Storage.AccountNotFound the account does not exist"))
}

func TestSuspensionChangesNothingButTheStatus(t *testing.T) {
	g := NewWithT(t)
	// Given a settled Machine whose disk drifts and whose spec changes, and which is suspended
	cluster := newFakeCluster()
	h := newHarness(cluster, diskOf("Boot"), ipOf(cluster, "Address"))
	cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast", "Address": "static"}})
	h.settle(t)
	cluster.editMachine(func(machine *Machine) { machine.Suspend, machine.Spec["Address"] = true, "dynamic" })
	cluster.modify("Disk", "boot", func(d device) { d.device().Spec["class"] = "slow" })
	cluster.writes = nil

	// When it is reconciled repeatedly
	result := h.mustReconcile(t)
	h.mustReconcile(t)

	// Then nothing is changed but the status, once, which says so for this generation
	g.Expect(result).To(Equal(reconcile.Result{}))
	g.Expect(cluster.writes).To(Equal([]string{"status"}))
	g.Expect(cluster.device("Disk", "boot").Spec).To(HaveKeyWithValue("class", "slow"))
	g.Expect(h.states()).To(Equal([]string{
		"Ready=Unknown/Suspended", "BootReady=Unknown/Suspended", "AddressReady=Unknown/Suspended", "Suspended=True/Suspended",
	}))
	g.Expect(cluster.machine().Status.ObservedGeneration).To(Equal(int64(2)))
	g.Expect(h.plan(t).Changes()).To(BeEmpty())

	// When it is no longer suspended, all phases run again
	cluster.editMachine(func(machine *Machine) { machine.Suspend = false })
	h.settle(t)
	g.Expect(cluster.device("Disk", "boot").Spec).To(HaveKeyWithValue("class", "fast"))
	g.Expect(cluster.ips).To(HaveKeyWithValue("address", "dynamic"))
	g.Expect(h.states()).To(ContainElement("Ready=True/Ready"))

	// When it is suspended and deleted, it is torn down
	cluster.editMachine(func(machine *Machine) { machine.Suspend = true })
	cluster.deleteMachine()
	h.settle(t)
	g.Expect(cluster.machine()).To(BeNil())
	g.Expect(cluster.left()).To(BeEmpty())
}

func TestPhasesOfASuspendedObjectReportNoDrift(t *testing.T) {
	g := NewWithT(t)
	// Given the policy Report, and a phase that goes by it when it observes
	var policy ssa.DriftPolicy
	h := newHarness(newFakeCluster(), declared{phases.Declaration[*scope]{
		Next: func(context.Context, phases.Reconcile[*scope]) (phases.Next, error) { return phases.Done(""), nil },
		Observe: func(_ context.Context, pass phases.Reconcile[*scope]) (phases.Next, error) {
			policy = pass.Policies.Drift
			return nil, nil
		},
	}})
	reportsDrift(h)
	h.createMachine(&Machine{Suspend: true})

	// When the Machine is suspended
	h.mustReconcile(t)

	// Then the policy is another one
	g.Expect(policy).To(Equal(ssa.CorrectDrift))
}

func TestNewObjectThatIsSuspendedGetsNoFinalizer(t *testing.T) {
	g := NewWithT(t)
	cluster := newFakeCluster()
	h := newHarness(cluster, diskOf("Boot"))
	cluster.createMachine(&Machine{Suspend: true, Spec: map[string]string{"Boot": "fast"}})

	h.mustReconcile(t)

	g.Expect(cluster.writes).To(Equal([]string{"status"}))
}

func TestMissingObjectIsIgnored(t *testing.T) {
	g := NewWithT(t)
	cluster := newFakeCluster()
	h := newHarness(cluster, diskOf("Boot"))

	result := h.mustReconcile(t)

	g.Expect(result).To(Equal(reconcile.Result{}))
	g.Expect(cluster.writes).To(BeEmpty())
}

func TestReconcileBeginsAgainWithTheObjectAsItIsNow(t *testing.T) {
	g := NewWithT(t)
	// Given a cache that lags behind an edit of the Machine
	cluster := newFakeCluster()
	cluster.lags = true
	cluster.attachedAfter["boot"] = 1
	h := newHarness(cluster, diskOf("Boot"))
	cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})
	cluster.sync()
	cluster.editMachine(func(machine *Machine) { machine.Spec["Boot"] = "cheap" })
	finalized := cluster.machine()
	finalized.Finalizers = []string{machineFinalizer}
	cluster.cache[ref{"Machine", machineName}].SetFinalizers([]string{machineFinalizer})
	cluster.store(finalized)

	// When it is reconciled from what the cache shows
	result := h.mustReconcile(t)

	// Then only what the newest spec asks for is created, in the same reconcile
	g.Expect(result).To(Equal(reconcile.Result{RequeueAfter: 5 * time.Second}))
	g.Expect(cluster.writes).To(Equal([]string{"create Disk boot", "status"}))
	g.Expect(cluster.device("Disk", "boot").Spec).To(HaveKeyWithValue("class", "cheap"))
	g.Expect(cluster.machine().Status.ObservedGeneration).To(Equal(cluster.machine().Generation))
}

func TestReconcileOfAnObjectThatKeepsChangingIsRepeatedSoon(t *testing.T) {
	g := NewWithT(t)
	// Given a Machine that changes whenever its status is about to be written
	cluster := newFakeCluster()
	h := newHarness(cluster, observes("Address", phases.Wait("Pending", "", time.Hour)))
	cluster.createMachine(&Machine{})
	attempts := 0
	cluster.fail = func(what string) error {
		if what == "status" {
			attempts++
			cluster.editMachine(func(*Machine) {})
		}
		return nil
	}

	// When it is reconciled
	result := h.mustReconcile(t)

	// Then it is tried three times, nothing is reported, and it is reconciled again soon
	g.Expect(attempts).To(Equal(3))
	g.Expect(result).To(Equal(reconcile.Result{RequeueAfter: 50 * time.Millisecond}))
	g.Expect(h.states()).To(BeEmpty())
	g.Expect(h.events.take()).To(BeEmpty())

	// When it no longer changes
	cluster.fail = nil
	g.Expect(h.mustReconcile(t)).To(Equal(reconcile.Result{RequeueAfter: time.Hour}))
	g.Expect(h.states()).To(ContainElement("Ready=False/Pending"))
}

func TestFinalizerThatCannotBeAddedBlocksAllPhases(t *testing.T) {
	g := NewWithT(t)
	// Given a cluster that refuses the finalizer, and a Machine with one of two disks
	cluster := newFakeCluster()
	refusal := &ssa.Error{Reason: ssa.ReasonForbidden, Object: "Machine vm1", Message: "grant the permission"}
	cluster.fail = func(what string) error {
		if what == "finalize" {
			return refusal
		}
		return nil
	}
	h := newHarness(cluster, diskOf("Boot"), diskOf("Data"))
	cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})

	// When it is reconciled
	_, err := h.reconcile(t)

	// Then nothing is created, the error is retried, and it is no phase that failed
	g.Expect(err).To(MatchError(refusal))
	g.Expect(cluster.writes).To(Equal([]string{"status"}))
	const message = "adding the finalizer: Machine vm1: grant the permission"
	g.Expect(h.states()).To(Equal([]string{"Ready=False/Forbidden", "BootReady=Unknown/Blocked", "Reconciling=True/Forbidden"}))
	g.Expect(h.condition(t, "Ready").Message).To(Equal(message))
	g.Expect(h.condition(t, "BootReady").Message).To(Equal(message))
}

func TestFinalizerThatIsRefusedForGoodIsNotRetried(t *testing.T) {
	g := NewWithT(t)
	h := newHarness(newFakeCluster(), diskOf("Boot"))
	h.fail = func(what string) error {
		if what == "finalize" {
			return &ssa.Error{Reason: ssa.ReasonInvalid, Object: "Machine vm1", Message: "a webhook refuses it"}
		}
		return nil
	}
	h.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})

	result := h.mustReconcile(t)

	g.Expect(result).To(Equal(reconcile.Result{}))
	g.Expect(h.states()).To(ContainElements("Ready=False/Invalid", "Stalled=True/Invalid"))
}

func TestDriftIsReportedAlsoIfTheFinalizerCannotBeAdded(t *testing.T) {
	g := NewWithT(t)
	// Given a disk that has drifted, and a Machine whose finalizer a user has removed
	h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
	reportsDrift(h)
	h.modify("Disk", "boot", func(d device) { d.device().Spec["class"] = "slow" })
	machine := h.machine()
	machine.Finalizers = nil
	h.store(machine)
	h.fail = func(what string) error {
		if what == "finalize" {
			return errDown
		}
		return nil
	}

	// When it is reconciled
	_, err := h.reconcile(t)

	// Then the status has both
	g.Expect(err).To(MatchError(errDown))
	g.Expect(h.states()).To(ContainElements("Ready=False/Failed", "Drifted=True/Drifted"))
	g.Expect(h.machine().Status.Drifts).To(HaveLen(1))
}

func TestObjectThatCannotBeReadAgainIsAnError(t *testing.T) {
	g := NewWithT(t)
	// Given a Machine that has changed, and cannot be read past the cache
	h := newHarness(newFakeCluster(), observes("Address", phases.Done("")))
	h.createMachine(&Machine{})
	h.fail = func(what string) error {
		if what == "status" {
			return stale("Machine")
		}
		return nil
	}
	reads := 0
	h.dependencies.Uncached = countingReader{Reader: h.dependencies.Uncached, machines: &reads, fail: errDown}

	// When it is reconciled
	_, err := h.reconcile(t)

	// Then it is retried with backoff
	g.Expect(err).To(MatchError(errDown))
	g.Expect(reads).To(Equal(1))
}

// named is a phase of another package, with a name of its own.
type named struct {
	declared

	name string
}

func (n named) PhaseName() string { return n.name }

func TestPhasesAreAskedFirstAndLastInReverse(t *testing.T) {
	g := NewWithT(t)
	var asked []string
	ask := func(what string, answer phases.Next) phases.Question[*scope] {
		return func(context.Context, phases.Reconcile[*scope]) (phases.Next, error) {
			asked = append(asked, what)
			return answer, nil
		}
	}
	of := func(name string) phase {
		return named{declared{phases.Declaration[*scope]{
			First: ask("first "+name, nil), Next: ask(name, phases.Done("")), Last: ask("last "+name, phases.Done("")),
		}}, name}
	}
	h := newHarness(newFakeCluster(), of("Boot"), of("Data"))
	h.createMachine(&Machine{})

	h.mustReconcile(t)

	g.Expect(asked).To(Equal([]string{"first Data", "first Boot", "Boot", "Data", "last Data", "last Boot"}))
}

func TestPhaseThatFailedKeepsItsConditionWhateverItObserves(t *testing.T) {
	g := NewWithT(t)
	h := newHarness(newFakeCluster(), declared{phases.Declaration[*scope]{
		Next: func(context.Context, phases.Reconcile[*scope]) (phases.Next, error) {
			return phases.Do{Action: phases.ActionUndo, What: "release", Func: func(context.Context) (phases.Verdict, error) { return nil, errDown }}, nil
		},
		Observe: func(context.Context, phases.Reconcile[*scope]) (phases.Next, error) {
			return phases.NotConfigured(), nil
		},
	}})
	h.createMachine(&Machine{})

	_, err := h.reconcile(t)

	g.Expect(err).To(MatchError(errDown))
	g.Expect(h.states()).To(ContainElement("DeclaredReady=False/Failed"))
}

func TestStatusThatCannotBeWrittenIsAnErrorWithoutEvents(t *testing.T) {
	g := NewWithT(t)
	cluster := newFakeCluster()
	refusal := &ssa.Error{Reason: ssa.ReasonAPIUnavailable, Object: "Machine vm1", Message: "try again"}
	cluster.fail = func(what string) error {
		if what == "status" {
			return refusal
		}
		return nil
	}
	other := errors.New("the cloud is down")
	h := newHarness(cluster, fails("Address", other))
	cluster.createMachine(&Machine{})

	_, err := h.reconcile(t)

	g.Expect(err).To(MatchError(refusal))
	g.Expect(err).To(MatchError(other))
	g.Expect(h.events.take()).To(BeEmpty(), "an Event tells of a transition that has been written")
}

func TestNewRefusesWrongDefinitions(t *testing.T) {
	cases := map[string]struct {
		spoil func(*harness)
		want  string
	}{
		"no phases": {
			spoil: func(h *harness) { h.definition.Phases = nil },
			want:  "the list of phases is empty",
		},
		"a nil phase": {
			spoil: func(h *harness) { h.definition.Phases = []phase{diskOf("Boot"), nil} },
			want:  "phase 2 is nil",
		},
		"a nil pointer to a phase": {
			spoil: func(h *harness) { h.definition.Phases = []phase{(*step)(nil)} },
			want:  "phase 1 is nil",
		},
		"a name twice": {
			spoil: func(h *harness) { h.definition.Phases = []phase{diskOf("Boot"), ipOf(h.fakeCluster, "Boot")} },
			want:  `phase 2: the name "Boot" is used twice`,
		},
		"no name": {
			spoil: func(h *harness) { h.definition.Phases = []phase{observes("", phases.Done(""))} },
			want:  `phase 1: the name "" is not usable as a condition type`,
		},
		"a name that is not usable as a condition type": {
			spoil: func(h *harness) { h.definition.Phases = []phase{observes("front-boot", phases.Done(""))} },
			want:  `phase 1: the name "front-boot" is not usable as a condition type`,
		},
		"a child without Desired": {
			spoil: func(h *harness) { h.definition.Phases = []phase{diskPhase{Name: "Boot"}} },
			want:  "phase Boot: Desired is nil",
		},
		"a child of a type that is not in the scheme": {
			spoil: func(h *harness) {
				h.definition.Phases = []phase{phases.Child[*scope, *deviceConfiguration, *Unregistered]{
					Name: "Boot", Desired: func(*scope) (*deviceConfiguration, error) { return nil, nil },
				}}
			},
			want: "phase Boot: the child's type: *phases_test.Unregistered is not in the scheme",
		},
		"a child whose list is not in the scheme": {
			spoil: func(h *harness) {
				h.definition.Phases = []phase{phases.Child[*scope, *deviceConfiguration, *Listless]{
					Name: "Boot", Desired: func(*scope) (*deviceConfiguration, error) { return nil, nil },
				}}
			},
			want: "phase Boot: the child's type: its list ListlessList, by which children are found, is not in the scheme",
		},
		"a child of no type of its own": {
			spoil: func(h *harness) {
				h.definition.Phases = []phase{phases.Child[*scope, *deviceConfiguration, client.Object]{
					Name: "Boot", Desired: func(*scope) (*deviceConfiguration, error) { return nil, nil },
				}}
			},
			want: "Object is not a pointer to the Go type of one kind",
		},
		"two children of one kind and name": {
			spoil: func(h *harness) {
				boot, data := diskOf("Boot"), diskOf("Data")
				boot.ChildName, data.ChildName = nil, nil
				h.definition.Phases = []phase{boot, data}
			},
			want: "phase Data: its child is the same Disk as that of phase Boot: give one of them a ChildName",
		},
		"a step without Observe": {
			spoil: func(h *harness) { h.definition.Phases = []phase{step{Name: "Address"}} },
			want:  "phase Address: Observe is nil",
		},
		"a step with Undo and without Ensure": {
			spoil: func(h *harness) {
				s := observes("Address", phases.Done(""))
				s.Undo = func(context.Context, *scope) (phases.Verdict, error) { return phases.Done(""), nil }
				h.definition.Phases = []phase{s}
			},
			want: "phase Address: it has an Undo and no Ensure",
		},
		"a set of children without Desired": {
			spoil: func(h *harness) { h.definition.Phases = []phase{disksPhase{Name: "Volumes"}} },
			want:  "phase Volumes: Desired is nil",
		},
		"a set of children whose list is not in the scheme": {
			spoil: func(h *harness) {
				h.definition.Phases = []phase{phases.Children[*scope, *deviceConfiguration, *Listless]{
					Name: "Volumes", Desired: func(*scope) ([]*deviceConfiguration, error) { return nil, nil },
				}}
			},
			want: "phase Volumes: the child's type: its list ListlessList, by which children are found, is not in the scheme",
		},
		"a status that loses the conditions of phases": {
			spoil: func(h *harness) {
				h.definition.Status = func(_ *scope, summary phases.Summary) ssa.Configuration {
					summary.Conditions = summary.Conditions[:1]
					return machineStatus("", summary)
				}
			},
			want: "Status or Conditions loses the condition BootReady: put all of Summary.Conditions into status.conditions",
		},
		"a status that loses the generation of conditions": {
			spoil: func(h *harness) {
				h.definition.Status = func(_ *scope, summary phases.Summary) ssa.Configuration {
					summary.Conditions = slices.Clone(summary.Conditions)
					summary.Conditions[1].ObservedGeneration = 0
					return machineStatus("", summary)
				}
			},
			want: "Status loses the observedGeneration or lastTransitionTime of the condition BootReady: build the conditions with ConditionConfigurations",
		},
		"a status that loses the times of conditions": {
			spoil: func(h *harness) {
				h.definition.Status = func(_ *scope, summary phases.Summary) ssa.Configuration {
					summary.Conditions = slices.Clone(summary.Conditions)
					summary.Conditions[0].LastTransitionTime = metav1.Now()
					return machineStatus("", summary)
				}
			},
			want: "Status loses the observedGeneration or lastTransitionTime of the condition Ready: build the conditions with ConditionConfigurations",
		},
		"a status that loses the times of conditions altogether": {
			spoil: func(h *harness) {
				h.definition.Status = func(_ *scope, summary phases.Summary) ssa.Configuration {
					summary.Conditions = slices.Clone(summary.Conditions)
					summary.Conditions[0].LastTransitionTime = metav1.Time{}
					return machineStatus("", summary)
				}
			},
			want: "Status loses the observedGeneration or lastTransitionTime of the condition Ready",
		},
		"a status that cannot be serialized": {
			spoil: func(h *harness) {
				h.definition.Status = func(*scope, phases.Summary) ssa.Configuration { return rawStatus{err: errDown} }
			},
			want: "serializing the configuration that Status returns: ",
		},
		"a status whose conditions are none": {
			spoil: func(h *harness) {
				h.definition.Status = func(*scope, phases.Summary) ssa.Configuration {
					return rawStatus{json: `{"status":{"conditions":7}}`}
				}
			},
			want: "reading the configuration that Status returns as *phases_test.Machine: ",
		},
		"no status at all": {
			spoil: func(h *harness) {
				h.definition.Status = func(*scope, phases.Summary) ssa.Configuration { return nil }
			},
			want: "Status or Conditions loses the condition Ready: ",
		},
		"a status of another kind": {
			spoil: func(h *harness) {
				h.definition.Status = func(_ *scope, summary phases.Summary) ssa.Configuration {
					return ssa.StatusOf(&Machine{}, machineGroup.WithKind("Engine"), MachineStatus{Conditions: summary.Conditions})
				}
			},
			want: `Status returns a configuration of "lab.example.com/v1 Engine", and the object is of "lab.example.com/v1 Machine": build it for the kind of the object`,
		},
		"a status that the object's type does not have": {
			spoil: func(h *harness) {
				h.definition.Status = func(_ *scope, summary phases.Summary) ssa.Configuration {
					return ssa.StatusOf(&Machine{}, machineGroup.WithKind("Machine"), map[string]any{"conditions": summary.Conditions, "drifts": 7})
				}
			},
			want: "reading the configuration that Status returns as *phases_test.Machine: ",
		},
		"conditions that are not read back": {
			spoil: func(h *harness) {
				h.definition.Conditions = func(machine *Machine) []metav1.Condition {
					return slices.Clip(machine.Status.Conditions[:min(1, len(machine.Status.Conditions))])
				}
			},
			want: "Status or Conditions loses the condition BootReady: ",
		},
		"a status that cannot cope with an empty object": {
			spoil: func(h *harness) {
				h.definition.Status = func(s *scope, summary phases.Summary) ssa.Configuration {
					return machineStatus(s.machine.Finalizers[0], summary)
				}
			},
			want: "Scope, Status or Conditions panics on an empty object",
		},
		"no controller": {
			spoil: func(h *harness) { h.definition.Controller = "" },
			want:  "Controller is empty",
		},
		"a finalizer without a domain": {
			spoil: func(h *harness) { h.definition.Finalizer = "teardown" },
			want:  `Finalizer "teardown" is not a qualified name`,
		},
		"a finalizer that the API server refuses": {
			spoil: func(h *harness) { h.definition.Finalizer = "Example/tear down" },
			want:  `Finalizer "Example/tear down" is not a qualified name`,
		},
		"no scope": {
			spoil: func(h *harness) { h.definition.Scope = nil },
			want:  "Scope, Conditions and Status are required",
		},
		"no status": {
			spoil: func(h *harness) { h.definition.Status = nil },
			want:  "Scope, Conditions and Status are required",
		},
		"no applier": {
			spoil: func(h *harness) { h.dependencies.Applier = nil },
			want:  "Dependencies.Applier is required",
		},
		"no cached reader": {
			spoil: func(h *harness) { h.dependencies.Reader = nil },
			want:  "Dependencies.Reader and Uncached are required",
		},
		"no reader": {
			spoil: func(h *harness) { h.dependencies.Uncached = nil },
			want:  "Dependencies.Reader and Uncached are required",
		},
		"a field to hand over that the child does not have": {
			spoil: func(h *harness) {
				h.definition.Phases = []phase{diskPhase{Name: "Boot", Desired: diskOf("Boot").Desired, HandOver: []string{"spek"}}}
			},
			want: `phase Boot: HandOver, RemoveFields or UniqueFields: the field path "spek" does not fit`,
		},
		"a field to remove that the child does not have": {
			spoil: func(h *harness) {
				h.definition.Phases = []phase{diskPhase{Name: "Boot", Desired: diskOf("Boot").Desired, RemoveFields: []string{"spek"}}}
			},
			want: `the field path "spek" does not fit`,
		},
		"a unique field that the child does not have": {
			spoil: func(h *harness) {
				h.definition.Phases = []phase{diskPhase{Name: "Boot", Desired: diskOf("Boot").Desired, UniqueFields: []string{"spek"}}}
			},
			want: `the field path "spek" does not fit`,
		},
		"a phase that cannot be asked": {
			spoil: func(h *harness) { h.definition.Phases = []phase{declared{}} },
			want:  "phase Declared: Declaration.Next is required",
		},
		"a phase whose children have no names": {
			spoil: func(h *harness) {
				next := func(context.Context, phases.Reconcile[*scope]) (phases.Next, error) { return phases.Done(""), nil }
				h.definition.Phases = []phase{declared{phases.Declaration[*scope]{Next: next, Child: &Disk{}}}}
			},
			want: "phase Declared: Declaration.Names is required beside Child",
		},
		"a phase whose child has an unknown type": {
			spoil: func(h *harness) {
				next := func(context.Context, phases.Reconcile[*scope]) (phases.Next, error) { return phases.Done(""), nil }
				names := func(phases.Reconcile[*scope]) ([]string, error) { return nil, nil }
				h.definition.Phases = []phase{declared{phases.Declaration[*scope]{Next: next, Names: names, Child: &Unregistered{}}}}
			},
			want: "phase Declared: *phases_test.Unregistered is not in the scheme",
		},
		"no conditions": {
			spoil: func(h *harness) { h.definition.Conditions = nil },
			want:  "Scope, Conditions and Status are required",
		},
		"no scheme": {
			spoil: func(h *harness) { h.dependencies.Scheme = nil },
			want:  "Dependencies.Scheme is required",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a definition that is wrong in one place
			h := newHarness(newFakeCluster(), diskOf("Boot"))
			c.spoil(h)

			// When an engine is built from it
			_, err := h.engine()

			// Then that fails and names the place
			g.Expect(err).To(MatchError(And(HavePrefix("building the engine of controller "), ContainSubstring(c.want))))
		})
	}
}

// rawStatus is a configuration that serializes itself to anything.
type rawStatus struct {
	*machineConfiguration
	json string
	err  error
}

func (r rawStatus) MarshalJSON() ([]byte, error) { return []byte(r.json), r.err }

// declared is a phase of another package.
type declared struct{ declaration phases.Declaration[*scope] }

func (declared) PhaseName() string { return "Declared" }

func (d declared) Declare(*runtime.Scheme) (phases.Declaration[*scope], error) {
	return d.declaration, nil
}

func TestNewListsEverythingThatIsWrong(t *testing.T) {
	g := NewWithT(t)
	h := newHarness(newFakeCluster(), step{Name: "Address"}, diskPhase{Name: "Boot"})
	h.definition.Finalizer = ""

	_, err := h.engine()

	g.Expect(err).To(MatchError(And(
		ContainSubstring("Finalizer"), ContainSubstring("phase Address"), ContainSubstring("phase Boot"))))
}

func TestNewListsNothingThatOnlyFollows(t *testing.T) {
	g := NewWithT(t)
	// Given two phases whose children have one name and that are wrong by themselves, and no Status to ask
	wrong := declared{phases.Declaration[*scope]{Child: &Disk{}, HasOwnersName: true}}
	h := newHarness(newFakeCluster(), named{wrong, "Boot"}, named{wrong, "Data"})
	h.definition.Status = nil

	_, err := h.engine()

	g.Expect(err).To(MatchError(And(ContainSubstring("phase Boot"), ContainSubstring("phase Data"), ContainSubstring("Status are required"),
		Not(ContainSubstring("the same")), Not(ContainSubstring("panics")))))
}

func TestNewRefusesObjectsOfNoGoType(t *testing.T) {
	g := NewWithT(t)
	cluster := newFakeCluster()
	_, err := phases.New(phases.Definition[client.Object, *scope]{
		Controller: "machine",
		Finalizer:  machineFinalizer,
		Phases:     []phase{diskOf("Boot")},
		Scope:      func(client.Object) *scope { return nil },
		Conditions: func(client.Object) []metav1.Condition { return nil },
		Status:     func(*scope, phases.Summary) ssa.Configuration { return nil },
	}, newHarness(cluster).dependencies)

	g.Expect(err).To(MatchError(ContainSubstring("Object is not a pointer")))
}
