package phases_test

import (
	"context"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// scope is what the phases of a toy hand each other.
type scope struct {
	toy *Toy
	// seen are the parts that phases have observed.
	seen []string
}

type (
	phase      = phases.Phase[*scope]
	step       = phases.Step[*scope]
	gearPhase  = phases.Child[*scope, *partConfiguration, *Gear]
	wheelPhase = phases.Child[*scope, *partConfiguration, *Wheel]
)

// gearOf is a phase whose child is a Gear of the phase's name, which is ready when it turns.
func gearOf(name string) gearPhase {
	return gearPhase{
		Name: name,
		Desired: func(s *scope) (*partConfiguration, error) {
			return desiredPart(s, name, gear(strings.ToLower(name))), nil
		},
		ChildName: func(*scope) string { return strings.ToLower(name) },
		Absent:    "spec." + name + " is not set",
		Ready:     turns[*Gear],
		Observed:  func(s *scope, live *Gear) { s.seen = append(s.seen, live.Name) },
	}
}

func wheelOf(name string) wheelPhase {
	return wheelPhase{
		Name: name,
		Desired: func(s *scope) (*partConfiguration, error) {
			return desiredPart(s, name, wheel(strings.ToLower(name))), nil
		},
		ChildName: func(*scope) string { return strings.ToLower(name) },
		Absent:    "spec." + name + " is not set",
		Ready:     turns[*Wheel],
	}
}

// desiredPart is the part with the colour that the Toy asks for, or nil if it asks for none.
func desiredPart(s *scope, phase string, part *partConfiguration) *partConfiguration {
	colour, wanted := s.toy.Spec[phase]
	if !wanted {
		return nil
	}
	return part.with("colour", colour)
}

func turns[L child](live L) phases.Verdict {
	if live.part().Turns {
		return phases.Done("it turns")
	}
	return phases.Wait("NotTurning", "it does not turn yet", 5*time.Second)
}

// says is a step that always comes to this verdict.
func says(name string, verdict phases.Verdict) step {
	return step{Name: name, Observe: func(context.Context, *scope) (phases.Verdict, error) { return verdict, nil }}
}

// fails is a step that always comes to this error.
func fails(name string, err error) step {
	return step{Name: name, Observe: func(context.Context, *scope) (phases.Verdict, error) { return phases.Verdict{}, err }}
}

// thingOf is a step that makes a thing in the world, of the value that the Toy asks for.
func thingOf(w *world, name string) step {
	lower := strings.ToLower(name)
	return step{
		Name: name,
		Observe: func(_ context.Context, s *scope) (phases.Verdict, error) {
			want, wanted := s.toy.Spec[name]
			value, exists, underway, err := w.thing(lower)
			switch {
			case err != nil:
				return phases.Verdict{}, err
			case !wanted && !exists:
				return phases.NotConfigured("spec." + name + " is not set"), nil
			case !wanted || !exists || value != want:
				return phases.Missing("ThingMissing", "make the thing "+want), nil
			case underway:
				return phases.Wait("ThingPending", "the thing is not ready yet", 3*time.Second), nil
			}
			return phases.Done("the thing is there"), nil
		},
		Ensure: func(_ context.Context, s *scope) (phases.Verdict, error) {
			want, wanted := s.toy.Spec[name]
			if !wanted {
				return phases.Wait("ThingPending", "the thing is being unmade", 3*time.Second), w.unmake(lower)
			}
			return phases.Wait("ThingPending", "the thing is being made", 3*time.Second), w.make(lower, want)
		},
		Undo: func(context.Context, *scope) (phases.Verdict, error) {
			_, exists, _, err := w.thing(lower)
			if err != nil || !exists {
				return phases.Done(""), err
			}
			return phases.Wait("ThingGoing", "waiting for the thing to be gone", 3*time.Second), w.unmake(lower)
		},
	}
}

// workshop is an engine in a world, as a test wants it.
type workshop struct {
	*world
	definition   phases.Definition[*Toy, *scope]
	dependencies phases.Dependencies
	events       *recorder
}

func newWorkshop(w *world, list ...phase) *workshop {
	events := &recorder{}
	return &workshop{
		world:  w,
		events: events,
		definition: phases.Definition[*Toy, *scope]{
			Controller: "toy",
			Finalizer:  toyFinalizer,
			Phases:     list,
			Scope:      func(toy *Toy) *scope { return &scope{toy: toy} },
			Conditions: func(toy *Toy) []metav1.Condition { return toy.Status.Conditions },
			Status: func(s *scope, summary phases.Summary) ssa.Configuration {
				return toyStatus(s.toy.Name, summary)
			},
			Suspended: func(toy *Toy) bool { return toy.Suspend },
		},
		dependencies: phases.Dependencies{
			Reader:   reader{world: w, cached: true},
			Uncached: reader{world: w},
			Applier:  applier{world: w},
			Planner:  applier{world: w, dryRun: true},
			Scheme:   toyScheme(),
			Recorder: events,
			Clock:    w.clock,
		},
	}
}

// engine is a fresh one each time, as after a restart.
func (w *workshop) engine() (*phases.Engine[*Toy, *scope], error) {
	return phases.New(w.definition, w.dependencies)
}

// pass makes one pass with a fresh engine.
func (w *workshop) pass(t testing.TB) (reconcile.Result, error) {
	t.Helper()
	engine, err := w.engine()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return engine.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: toyNamespace, Name: toyName}})
}

// mustPass makes one pass, which has to succeed.
func (w *workshop) mustPass(t testing.TB) reconcile.Result {
	t.Helper()
	result, err := w.pass(t)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(w.broken).To(BeEmpty())
	return result
}

// settle makes passes, and lets time pass between them, until nothing happens any more.
func (w *workshop) settle(t testing.TB) {
	t.Helper()
	for range 50 {
		writes := len(w.writes)
		w.mustPass(t)
		if len(w.writes) == writes && len(w.due) == 0 {
			return
		}
		w.tick()
	}
	t.Fatalf("no fixed point in 50 passes: %v", w.writes)
}

// plan plans with a fresh engine.
func (w *workshop) plan(t testing.TB) phases.Plan {
	t.Helper()
	engine, err := w.engine()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	plan, err := engine.Plan(t.Context(), w.toy())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return plan
}

// condition is a condition of the Toy, as it was written.
func (w *workshop) condition(t testing.TB, conditionType string) metav1.Condition {
	t.Helper()
	c := meta.FindStatusCondition(w.toy().Status.Conditions, conditionType)
	NewWithT(t).Expect(c).NotTo(BeNil(), "there is no condition %s in %v", conditionType, w.toy().Status.Conditions)
	return *c
}

// states is a short form of all conditions: "Ready=False/NotTurning".
func (w *workshop) states() []string {
	var states []string
	for _, c := range w.toy().Status.Conditions {
		states = append(states, c.Type+"="+string(c.Status)+"/"+c.Reason)
	}
	return states
}
