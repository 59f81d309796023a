package phases_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// TestPlanIsWhatThenHappens plans in a situation, and then makes the pass: the one says what the
// other does.
func TestPlanIsWhatThenHappens(t *testing.T) {
	spec := map[string]string{"Axle": "red", "Rail": "long", "Rim": "blue"}
	cases := map[string]struct {
		situation func(*workshop)
		policy    ssa.DriftPolicy
		plan      []string
		writes    []string
	}{
		"at the fixed point": {
			situation: func(*workshop) {},
		},
		"create": {
			situation: func(w *workshop) { w.editToy(func(toy *Toy) { toy.Spec["Spare"] = "black" }) },
			plan:      []string{"Spare: Create Wheel spare"},
			writes:    []string{"create Wheel spare"},
		},
		"create, with a predecessor in the way": {
			situation: func(w *workshop) {
				w.editToy(func(toy *Toy) { toy.Spec["Spare"], toy.Spec["Rail"] = "black", "short" })
			},
			plan:   []string{"Rail: Ensure make the thing short"},
			writes: []string{"make thing rail"},
		},
		"update, and its successors wait": {
			situation: func(w *workshop) {
				w.turnsAfter["axle"] = 1
				w.editToy(func(toy *Toy) { toy.Spec["Axle"], toy.Spec["Rim"] = "green", "green" })
			},
			plan:   []string{"Axle: Update Gear axle"},
			writes: []string{"update Gear axle"},
		},
		"prune": {
			situation: func(w *workshop) {
				w.goesAfter["rim"] = 1
				w.editToy(func(toy *Toy) { delete(toy.Spec, "Rim") })
			},
			plan:   []string{"Rim: Delete Wheel rim"},
			writes: []string{"delete Wheel rim"},
		},
		"prune a leftover": {
			situation: func(w *workshop) {
				w.goesAfter["old-rim"] = 1
				w.put(&Wheel{ObjectMeta: metav1.ObjectMeta{Name: "old-rim", Namespace: toyNamespace,
					OwnerReferences: []metav1.OwnerReference{ssa.ControllerReference(w.toy(), toyGroup.WithKind("Toy"))}}})
			},
			plan:   []string{"Rim: Delete Wheel old-rim"},
			writes: []string{"delete Wheel old-rim"},
		},
		"correct drift": {
			situation: func(w *workshop) {
				w.turnsAfter["axle"] = 1
				w.meddle("Gear", "axle", func(c child) { c.part().Spec["colour"] = "green" })
			},
			plan:   []string{"Axle: Correct Gear axle (somebody changed .spec.colour from red to green)"},
			writes: []string{"correct Gear axle"},
		},
		"report drift": {
			situation: func(w *workshop) {
				w.meddle("Gear", "axle", func(c child) { c.part().Spec["colour"] = "green" })
			},
			policy: ssa.ReportDrift,
			plan:   []string{"Axle: Report Gear axle (somebody changed .spec.colour from red to green)"},
		},
		"blocked": {
			situation: func(w *workshop) {
				w.editToy(func(toy *Toy) { toy.Spec["Spare"] = "black" })
				w.meddle("Gear", "axle", func(c child) { c.part().Turns = false })
			},
		},
		"suspended": {
			situation: func(w *workshop) {
				w.editToy(func(toy *Toy) { toy.Suspend, toy.Spec["Spare"] = true, "black" })
			},
		},
		"teardown": {
			situation: func(w *workshop) {
				w.goesAfter["rim"] = 1
				w.deleteToy()
			},
			plan:   []string{"Rim: Delete Wheel rim"},
			writes: []string{"delete Wheel rim"},
		},
		"teardown of a step": {
			situation: func(w *workshop) {
				w.goesAfter["rail"] = 1
				delete(w.objects, ref{"Wheel", "rim"})
				w.sync()
				w.deleteToy()
			},
			plan:   []string{"Rail: Undo Rail"},
			writes: []string{"unmake thing rail"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a settled Toy, to which something happens
			w := newWorld()
			shop := newWorkshop(w, gearOf("Axle"), thingOf(w, "Rail"), wheelOf("Rim"), wheelOf("Spare"))
			shop.definition.Policies = func(*Toy) (ssa.AdoptionPolicy, ssa.DriftPolicy) { return ssa.AdoptNever, c.policy }
			w.createToy(&Toy{Spec: maps.Clone(spec)})
			shop.settle(t)
			c.situation(shop)
			w.writes = nil
			shop.events.take()

			// When a plan is made
			plan := shop.plan(t)

			// Then it says what would be done, and nothing has been
			g.Expect(changesOf(plan)).To(Equal(c.plan))
			g.Expect(w.writes).To(BeEmpty())
			g.Expect(shop.events.take()).To(BeEmpty())

			// When the pass is made, just that is done
			shop.mustPass(t)
			var done []string
			for _, write := range w.writes {
				if write != "status" {
					done = append(done, write)
				}
			}
			g.Expect(done).To(Equal(c.writes))
		})
	}
}

func changesOf(plan phases.Plan) []string {
	var changes []string
	for _, change := range plan.Changes() {
		changes = append(changes, change.String())
	}
	return changes
}

func TestAPlanOfANewToy(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	w.turnsAfter["rim"] = 1
	shop := newWorkshop(w, gearOf("Spare"), wheelOf("Rim"), thingOf(w, "Rail"))
	w.createToy(&Toy{Spec: map[string]string{"Rim": "blue", "Rail": "long"}})

	plan := shop.plan(t)

	g.Expect(w.writes).To(BeEmpty(), "not even the finalizer")
	g.Expect(plan.String()).To(Equal(strings.Join([]string{
		"Spare: done (NotConfigured: spec.Spare is not set)",
		"Rim: wait (NotTurning: it does not turn yet)",
		"  Rim: Create Wheel rim",
		"Rail: not reached",
		"",
	}, "\n")))
}

func TestAPlanSaysWhatWouldFail(t *testing.T) {
	down := errors.New("the cloud is down")
	cases := map[string]func(*workshop){
		"a phase": func(w *workshop) { w.definition.Phases = []phase{gearOf("Axle"), fails("Rail", down), gearOf("Hub")} },
		"a teardown": func(w *workshop) {
			w.deleteToy()
			w.refuse = func(string) error { return down }
			w.definition.Phases = []phase{says("Spare", phases.Done("")), wheelOf("Rim"), says("Rail", phases.Done(""))}
		},
	}
	for name, situation := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			shop := settledToy(t, map[string]string{"Axle": "red", "Rim": "blue"}, gearOf("Axle"), wheelOf("Rim"))
			situation(shop)

			plan := shop.plan(t)

			g.Expect(plan.Phases).To(HaveLen(3))
			g.Expect(plan.Phases[0].Err).NotTo(HaveOccurred())
			g.Expect(plan.Phases[1].Err).To(MatchError(down))
			g.Expect(plan.Phases[2].Err).NotTo(HaveOccurred())
		})
	}
}

func TestWithoutAPlannerThereAreNoPlans(t *testing.T) {
	g := NewWithT(t)
	shop := newWorkshop(newWorld(), gearOf("Axle"))
	shop.dependencies.Planner = nil
	engine, err := shop.engine()
	g.Expect(err).NotTo(HaveOccurred())

	_, err = engine.Plan(t.Context(), &Toy{})

	g.Expect(err).To(MatchError(ContainSubstring("the engine has no Planner")))
}
