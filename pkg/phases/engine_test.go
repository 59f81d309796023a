package phases_test

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

func TestAPhaseGatesItsSuccessors(t *testing.T) {
	g := NewWithT(t)
	// Given a gear that takes two ticks to turn, and a wheel and a thing that come after it
	w := newWorld()
	w.turnsAfter["axle"] = 2
	shop := newWorkshop(w, gearOf("Axle"), wheelOf("Rim"), thingOf(w, "Rail"))
	w.createToy(&Toy{Spec: map[string]string{"Axle": "red", "Rim": "blue", "Rail": "long"}})

	// When the first pass is made
	result := shop.mustPass(t)

	// Then only the gear is made, and what it waits for is said
	g.Expect(w.writes).To(Equal([]string{"finalize", "create Gear axle", "status"}))
	g.Expect(result).To(Equal(reconcile.Result{RequeueAfter: 5 * time.Second}))
	g.Expect(shop.states()).To(Equal([]string{
		"Ready=False/NotTurning",
		"AxleReady=False/NotTurning",
		"RimReady=Unknown/Blocked",
		"RailReady=Unknown/Blocked",
		"Reconciling=True/NotTurning",
	}))
	g.Expect(shop.condition(t, "RimReady").Message).To(Equal("not looked at before Axle is done"))

	// When it turns, the others follow in their order
	shop.settle(t)
	g.Expect(w.writes).To(Equal([]string{
		"finalize", "create Gear axle", "status",
		"create Wheel rim", "make thing rail", "status", "status",
	}))
	g.Expect(shop.states()).To(Equal([]string{
		"Ready=True/Ready", "AxleReady=True/Ready", "RimReady=True/Ready", "RailReady=True/Ready",
	}))
}

func TestPhasesHandOnWhatTheyFound(t *testing.T) {
	g := NewWithT(t)
	// Given a phase after a gear that looks at what the gear has found
	w := newWorld()
	var found []string
	after := step{Name: "After", Observe: func(_ context.Context, s *scope) (phases.Verdict, error) {
		found = s.seen
		return phases.Done("seen"), nil
	}}
	shop := newWorkshop(w, gearOf("Axle"), after)
	w.createToy(&Toy{Spec: map[string]string{"Axle": "red"}})

	// When all is settled
	shop.settle(t)

	// Then it has seen the gear through the scope
	g.Expect(found).To(Equal([]string{"axle"}))
}

func TestResult(t *testing.T) {
	permanent := &ssa.Error{Reason: ssa.ReasonInvalid, Object: "Gear axle", Message: "colour: no such colour"}
	transient := &ssa.Error{Reason: ssa.ReasonQuotaExceeded, Object: "Gear axle", Message: "no room"}
	staleness := &ssa.Error{Reason: ssa.ReasonStale, Object: "Gear axle", Transient: true}
	other := errors.New("the cloud is down")

	cases := map[string]struct {
		phases  []phase
		after   time.Duration
		failure error
		ready   string
	}{
		"all done: nothing to come back for": {
			phases: []phase{says("A", phases.Done("")), says("B", phases.Done(""))},
			ready:  "Ready=True/Ready",
		},
		"a wait says how long": {
			phases: []phase{says("A", phases.Wait("Soon", "soon", 7*time.Second))},
			after:  7 * time.Second,
			ready:  "Ready=False/Soon",
		},
		"a wait that does not say how long has a safety net": {
			phases: []phase{says("A", phases.Wait("Watched", "watched", 0))},
			after:  phases.SafetyNet,
			ready:  "Ready=False/Watched",
		},
		"a wait whose time has come already has one too": {
			phases: []phase{says("A", phases.Wait("Late", "late", -time.Minute))},
			after:  phases.SafetyNet,
			ready:  "Ready=False/Late",
		},
		"the smallest wait wins: a done phase that looks again": {
			phases: []phase{says("A", phases.Done("").LookAgainAfter(2*time.Second)), says("B", phases.Wait("Soon", "", 7*time.Second))},
			after:  2 * time.Second,
			ready:  "Ready=False/Soon",
		},
		"the smallest wait wins: the phase that gates": {
			phases: []phase{says("A", phases.Done("").LookAgainAfter(time.Hour)), says("B", phases.Wait("Soon", "", 7*time.Second))},
			after:  7 * time.Second,
			ready:  "Ready=False/Soon",
		},
		"done, and to be looked at again": {
			phases: []phase{says("A", phases.NotConfigured("").LookAgainAfter(time.Hour)), says("B", phases.Done("").LookAgainAfter(time.Minute))},
			after:  time.Minute,
			ready:  "Ready=True/Ready",
		},
		"to be looked at again at a time that has come already": {
			phases: []phase{says("A", phases.Done("").LookAgainAfter(-time.Minute))},
			after:  time.Second,
			ready:  "Ready=True/Ready",
		},
		"a phase that is not reached does not count": {
			phases: []phase{says("A", phases.Wait("Soon", "", time.Hour)), says("B", phases.Wait("Sooner", "", time.Second))},
			after:  time.Hour,
			ready:  "Ready=False/Soon",
		},
		"stalled: not looked at again": {
			phases: []phase{says("A", phases.Stalled("BadColour", "no such colour"))},
			ready:  "Ready=False/BadColour",
		},
		"a permanent error stalls": {
			phases: []phase{fails("A", permanent)},
			ready:  "Ready=False/Invalid",
		},
		"an error is retried with backoff": {
			phases:  []phase{fails("A", other)},
			failure: other,
			ready:   "Ready=False/Failed",
		},
		"an error with a reason is retried and gives it": {
			phases:  []phase{says("A", phases.Done("").LookAgainAfter(time.Second)), fails("B", transient)},
			failure: transient,
			ready:   "Ready=False/QuotaExceeded",
		},
		"a phase that is stale is repeated at once and nothing is said": {
			phases: []phase{fails("A", staleness)},
			after:  50 * time.Millisecond,
		},
		"no verdict is a bug, and said so": {
			phases: []phase{says("A", phases.Verdict{})},
			ready:  "Ready=False/Failed",
		},
		"a step that is missing something and cannot make it": {
			phases:  []phase{says("A", phases.Missing("Absent", "make it"))},
			failure: errors.New("the step A observed that it has to make it, and has no Ensure"),
			ready:   "Ready=False/Failed",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a Toy with these phases
			w := newWorld()
			shop := newWorkshop(w, c.phases...)
			w.createToy(&Toy{})

			// When a pass is made
			result, err := shop.pass(t)

			// Then the result says when to come again, and the status says the truth
			if c.failure == nil {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(c.failure.Error())))
			}
			g.Expect(result).To(Equal(reconcile.Result{RequeueAfter: c.after}))
			if c.ready != "" {
				g.Expect(shop.states()).To(ContainElement(c.ready))
			} else {
				g.Expect(shop.states()).To(BeEmpty())
			}
		})
	}
}

func TestAnErrorInAConditionIsTheSameFromTryToTry(t *testing.T) {
	g := NewWithT(t)
	// Given a step whose error reads differently at each try
	w := newWorld()
	try := 0
	shop := newWorkshop(w, step{Name: "Rail", Observe: func(context.Context, *scope) (phases.Verdict, error) {
		try++
		requests := []string{"7d444840-9dc0-11d1-b245-5ffdce74fad2", "0f8fad5b-d9cb-469f-a165-70867728950e"}
		ports := []string{"40110", "51234"}
		return phases.Verdict{}, errors.New("read tcp 10.1.2.3:" + ports[try%2] + "->10.0.0.1:443: request " + requests[try%2] + " timed out")
	}})
	w.createToy(&Toy{})
	_, err := shop.pass(t)
	g.Expect(err).To(HaveOccurred())
	writes := len(w.writes)

	// When it fails again
	_, err = shop.pass(t)

	// Then it is an error again, and the status is not written again
	g.Expect(err).To(HaveOccurred())
	g.Expect(w.writes).To(HaveLen(writes))
	g.Expect(shop.condition(t, "RailReady").Message).To(Equal("read tcp …10.0.0.1:443: request … timed out"))
}

func TestAReasonThatTheAPIServerRefusesIsReplaced(t *testing.T) {
	g := NewWithT(t)
	// Given a phase with a reason that no condition may have
	w := newWorld()
	shop := newWorkshop(w, says("Rail", phases.Wait("Storage.AccountNotFound", "there is no account", 0)))
	w.createToy(&Toy{})

	// When a pass is made
	shop.mustPass(t)

	// Then the status can be written, and says it in the message
	rail := shop.condition(t, "RailReady")
	g.Expect(rail.Reason).To(Equal(phases.ReasonFailed))
	g.Expect(rail.Message).To(Equal("Storage.AccountNotFound there is no account"))
}

func TestSuspended(t *testing.T) {
	g := NewWithT(t)
	// Given a settled Toy, one of whose parts is changed and which is then suspended
	w := newWorld()
	shop := newWorkshop(w, gearOf("Axle"), thingOf(w, "Rail"))
	w.createToy(&Toy{Spec: map[string]string{"Axle": "red", "Rail": "long"}})
	shop.settle(t)
	w.editToy(func(toy *Toy) { toy.Suspend, toy.Spec["Rail"] = true, "short" })
	w.meddle("Gear", "axle", func(c child) { c.part().Spec["colour"] = "green" })
	w.writes = nil

	// When passes are made
	result := shop.mustPass(t)
	shop.mustPass(t)

	// Then nothing is changed but the status, once, which says so for this generation
	g.Expect(result).To(Equal(reconcile.Result{}))
	g.Expect(w.writes).To(Equal([]string{"status"}))
	g.Expect(w.part("Gear", "axle").Spec).To(HaveKeyWithValue("colour", "green"))
	g.Expect(shop.states()).To(Equal([]string{
		"Ready=Unknown/Suspended", "AxleReady=Unknown/Suspended", "RailReady=Unknown/Suspended", "Suspended=True/Suspended",
	}))
	g.Expect(w.toy().Status.ObservedGeneration).To(Equal(int64(2)))
	g.Expect(shop.plan(t).Changes()).To(BeEmpty())

	// When it is no longer suspended, everything is caught up with
	w.editToy(func(toy *Toy) { toy.Suspend = false })
	shop.settle(t)
	g.Expect(w.part("Gear", "axle").Spec).To(HaveKeyWithValue("colour", "red"))
	g.Expect(w.things).To(HaveKeyWithValue("rail", "short"))
	g.Expect(shop.states()).To(ContainElement("Ready=True/Ready"))

	// When it is suspended and deleted, it still goes
	w.editToy(func(toy *Toy) { toy.Suspend = true })
	w.deleteToy()
	shop.settle(t)
	g.Expect(w.toy()).To(BeNil())
	g.Expect(w.left()).To(BeEmpty())
}

func TestASuspendedToyThatIsNewGetsNoFinalizer(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	shop := newWorkshop(w, gearOf("Axle"))
	w.createToy(&Toy{Suspend: true, Spec: map[string]string{"Axle": "red"}})

	shop.mustPass(t)

	g.Expect(w.writes).To(Equal([]string{"status"}))
}

func TestAnObjectThatIsNotThereIsNothingToDo(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	shop := newWorkshop(w, gearOf("Axle"))

	result := shop.mustPass(t)

	g.Expect(result).To(Equal(reconcile.Result{}))
	g.Expect(w.writes).To(BeEmpty())
}

func TestAnObjectThatChangedUnderThePassIsReadAgain(t *testing.T) {
	g := NewWithT(t)
	// Given a cache that lags behind an edit of the Toy
	w := newWorld()
	w.lags = true
	shop := newWorkshop(w, gearOf("Axle"))
	w.createToy(&Toy{Spec: map[string]string{"Axle": "red"}})
	w.sync()
	w.editToy(func(toy *Toy) { toy.Spec["Axle"] = "blue" })
	finalized := w.toy()
	finalized.Finalizers = []string{toyFinalizer}
	w.cache[ref{"Toy", toyName}].SetFinalizers([]string{toyFinalizer})
	w.put(finalized)

	// When a pass works on what the cache shows
	result := shop.mustPass(t)

	// Then its status is refused, nothing is said about that, and the object is read again soon
	g.Expect(result).To(Equal(reconcile.Result{RequeueAfter: 50 * time.Millisecond}))
	g.Expect(shop.states()).To(BeEmpty())
	g.Expect(shop.events.take()).To(BeEmpty())

	w.sync()
	shop.mustPass(t)
	g.Expect(w.part("Gear", "axle").Spec).To(HaveKeyWithValue("colour", "blue"))
}

func TestTheStatusIsTheTruthEvenIfThereIsNoFinalizer(t *testing.T) {
	g := NewWithT(t)
	// Given a world that refuses the finalizer
	w := newWorld()
	refusal := &ssa.Error{Reason: ssa.ReasonForbidden, Object: "Toy train", Message: "grant the permission"}
	w.refuse = func(what string) error {
		if what == "finalize" {
			return refusal
		}
		return nil
	}
	shop := newWorkshop(w, gearOf("Axle"), gearOf("Hub"))
	w.createToy(&Toy{Spec: map[string]string{"Axle": "red"}})

	// When a pass is made
	_, err := shop.pass(t)

	// Then nothing is made, the error is retried, and the status says what is wrong
	g.Expect(err).To(MatchError(refusal))
	g.Expect(w.writes).To(Equal([]string{"status"}))
	g.Expect(shop.condition(t, "Ready").Reason).To(Equal("Forbidden"))
	g.Expect(shop.condition(t, "Ready").Message).To(Equal("Axle: adding the finalizer: Toy train: grant the permission"))
}

func TestAStatusThatCannotBeWrittenIsAnErrorAndSaysNothing(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	refusal := &ssa.Error{Reason: ssa.ReasonAPIUnavailable, Object: "Toy train", Message: "try again"}
	w.refuse = func(what string) error {
		if what == "status" {
			return refusal
		}
		return nil
	}
	other := errors.New("the cloud is down")
	shop := newWorkshop(w, fails("Rail", other))
	w.createToy(&Toy{})

	_, err := shop.pass(t)

	g.Expect(err).To(MatchError(refusal))
	g.Expect(err).To(MatchError(other))
	g.Expect(shop.events.take()).To(BeEmpty(), "an Event tells of a transition that has been written")
}

func TestConstruction(t *testing.T) {
	cases := map[string]struct {
		spoil func(*workshop)
		want  string
	}{
		"no phases": {
			spoil: func(w *workshop) { w.definition.Phases = nil },
			want:  "the list of phases is empty",
		},
		"a nil phase": {
			spoil: func(w *workshop) { w.definition.Phases = []phase{gearOf("Axle"), nil} },
			want:  "phase 2 is nil",
		},
		"a nil pointer to a phase": {
			spoil: func(w *workshop) { w.definition.Phases = []phase{(*step)(nil)} },
			want:  "phase 1 is nil",
		},
		"a name twice": {
			spoil: func(w *workshop) { w.definition.Phases = []phase{gearOf("Axle"), thingOf(w.world, "Axle")} },
			want:  `phase 2: the name "Axle" is there twice`,
		},
		"no name": {
			spoil: func(w *workshop) { w.definition.Phases = []phase{says("", phases.Done(""))} },
			want:  `phase 1: the name "" makes no condition type`,
		},
		"a name that makes no condition type": {
			spoil: func(w *workshop) { w.definition.Phases = []phase{says("front-axle", phases.Done(""))} },
			want:  `phase 1: the name "front-axle" makes no condition type`,
		},
		"a child without Desired": {
			spoil: func(w *workshop) { w.definition.Phases = []phase{gearPhase{Name: "Axle"}} },
			want:  "phase Axle: Desired is nil",
		},
		"a child of a type that is not in the scheme": {
			spoil: func(w *workshop) {
				w.definition.Phases = []phase{phases.Child[*scope, *partConfiguration, *Stranger]{
					Name: "Axle", Desired: func(*scope) (*partConfiguration, error) { return nil, nil },
				}}
			},
			want: "phase Axle: the child's type: *phases_test.Stranger is not in the scheme",
		},
		"a child whose list is not in the scheme": {
			spoil: func(w *workshop) {
				w.definition.Phases = []phase{phases.Child[*scope, *partConfiguration, *Loner]{
					Name: "Axle", Desired: func(*scope) (*partConfiguration, error) { return nil, nil },
				}}
			},
			want: "phase Axle: the child's type: its list LonerList, by which leftovers are found, is not in the scheme",
		},
		"a child of no type of its own": {
			spoil: func(w *workshop) {
				w.definition.Phases = []phase{phases.Child[*scope, *partConfiguration, client.Object]{
					Name: "Axle", Desired: func(*scope) (*partConfiguration, error) { return nil, nil },
				}}
			},
			want: "Object is not a pointer to a Go type of one kind",
		},
		"two children of one kind and name": {
			spoil: func(w *workshop) {
				axle, hub := gearOf("Axle"), gearOf("Hub")
				axle.ChildName, hub.ChildName = nil, nil
				w.definition.Phases = []phase{axle, hub}
			},
			want: "phase Hub: its child is the same Gear as that of phase Axle: give one of them a ChildName",
		},
		"a step without Observe": {
			spoil: func(w *workshop) { w.definition.Phases = []phase{step{Name: "Rail"}} },
			want:  "phase Rail: Observe is nil",
		},
		"a step that undoes what it does not do": {
			spoil: func(w *workshop) {
				s := says("Rail", phases.Done(""))
				s.Undo = s.Observe
				w.definition.Phases = []phase{s}
			},
			want: "phase Rail: it has an Undo and no Ensure",
		},
		"no controller": {
			spoil: func(w *workshop) { w.definition.Controller = "" },
			want:  "the controller has no name",
		},
		"a finalizer without a domain": {
			spoil: func(w *workshop) { w.definition.Finalizer = "teardown" },
			want:  `the finalizer "teardown" is not a qualified name`,
		},
		"a finalizer that the API server refuses": {
			spoil: func(w *workshop) { w.definition.Finalizer = "Example/tear down" },
			want:  `the finalizer "Example/tear down" is not a qualified name`,
		},
		"no scope": {
			spoil: func(w *workshop) { w.definition.Scope = nil },
			want:  "Scope, Conditions and Status are needed",
		},
		"no status": {
			spoil: func(w *workshop) { w.definition.Status = nil },
			want:  "Scope, Conditions and Status are needed",
		},
		"no applier": {
			spoil: func(w *workshop) { w.dependencies.Applier = nil },
			want:  "the Applier is missing",
		},
		"no reader": {
			spoil: func(w *workshop) { w.dependencies.Uncached = nil },
			want:  "Reader and Uncached are needed",
		},
		"no scheme": {
			spoil: func(w *workshop) { w.dependencies.Scheme = nil },
			want:  "the Scheme is missing",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a right definition that is spoilt in one place
			shop := newWorkshop(newWorld(), gearOf("Axle"))
			c.spoil(shop)

			// When an engine is made of it
			_, err := shop.engine()

			// Then it fails here, and says in what
			g.Expect(err).To(MatchError(And(HavePrefix("making the engine of"), ContainSubstring(c.want))))
		})
	}
}

func TestConstructionListsAllThatIsWrong(t *testing.T) {
	g := NewWithT(t)
	shop := newWorkshop(newWorld(), step{Name: "Rail"}, gearPhase{Name: "Axle"})
	shop.definition.Finalizer = ""

	_, err := shop.engine()

	g.Expect(err).To(MatchError(And(
		ContainSubstring("the finalizer"), ContainSubstring("phase Rail"), ContainSubstring("phase Axle"))))
}

func TestTheObjectsTypeMustBeKnown(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	_, err := phases.New(phases.Definition[client.Object, *scope]{
		Controller: "toy",
		Finalizer:  toyFinalizer,
		Phases:     []phase{gearOf("Axle")},
		Scope:      func(client.Object) *scope { return nil },
		Conditions: func(client.Object) []metav1.Condition { return nil },
		Status:     func(*scope, phases.Summary) ssa.Configuration { return nil },
	}, newWorkshop(w).dependencies)

	g.Expect(err).To(MatchError(ContainSubstring("Object is not a pointer")))
}
