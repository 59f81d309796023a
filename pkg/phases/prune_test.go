package phases_test

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

func TestPruneOrder(t *testing.T) {
	cases := map[string]struct {
		order phases.PruneOrder
		want  []string
	}{
		"in order: when its phase comes": {
			order: phases.PruneInOrder,
			want:  []string{"update Gear axle", "delete Wheel brake", "status", "update Gear hub", "status"},
		},
		"first: before any phase acts": {
			order: phases.PruneFirst,
			want:  []string{"delete Wheel brake", "update Gear axle", "status", "update Gear hub", "status"},
		},
		"last: when nothing uses it any more": {
			order: phases.PruneLast,
			want:  []string{"update Gear axle", "update Gear hub", "delete Wheel brake", "status", "status"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a wheel between two gears, which takes a tick to go
			brake := wheelOf("Brake")
			brake.Prune = c.order
			shop := settledToy(t, map[string]string{"Axle": "red", "Brake": "red", "Hub": "red"}, gearOf("Axle"), brake, gearOf("Hub"))
			shop.goesAfter["brake"] = 1

			// When it is no longer wanted, and the gears are to be others
			shop.editToy(func(toy *Toy) { toy.Spec = map[string]string{"Axle": "blue", "Hub": "blue"} })
			planned := shop.plan(t)
			shop.settle(t)

			// Then it goes in its turn, once, and the plan of the first pass said what that did
			g.Expect(shop.writes).To(Equal(c.want))
			g.Expect(changesOf(planned)).To(HaveLen(len(firstPass(c.want))))
			g.Expect(shop.states()).To(ContainElements("Ready=True/Ready", "BrakeReady=True/NotConfigured"))
		})
	}
}

// firstPass is what was written before the first status.
func firstPass(writes []string) []string {
	for i, write := range writes {
		if write == "status" {
			return writes[:i]
		}
	}
	return writes
}

func TestWhatIsKeptWhileItIsUsedSaysSo(t *testing.T) {
	g := NewWithT(t)
	// Given a wheel that goes last, and a gear after it that takes a tick to turn
	brake := wheelOf("Brake")
	brake.Prune = phases.PruneLast
	shop := settledToy(t, map[string]string{"Brake": "red", "Hub": "red"}, brake, gearOf("Hub"))
	shop.turnsAfter["hub"], shop.goesAfter["brake"] = 1, 1

	// When the wheel is no longer wanted and the gear is to be another
	shop.editToy(func(toy *Toy) { toy.Spec = map[string]string{"Hub": "blue"} })
	shop.mustPass(t)

	// Then it gates nothing while the gear changes
	g.Expect(shop.states()).To(ContainElements("BrakeReady=True/Pruning", "HubReady=False/NotTurning"))
	g.Expect(shop.part("Wheel", "brake")).NotTo(BeNil())

	// When the gear is done, it goes, and the Toy is Ready when it is gone
	shop.tick()
	shop.mustPass(t)
	g.Expect(shop.states()).To(ContainElements("Ready=False/Pruning", "BrakeReady=False/Pruning", "HubReady=True/Ready"))
	shop.settle(t)
	g.Expect(shop.states()).To(ContainElements("Ready=True/Ready", "BrakeReady=True/NotConfigured"))
}

func TestAPruneThatFailsIsThatOfItsPhase(t *testing.T) {
	for name, order := range map[string]phases.PruneOrder{"first": phases.PruneFirst, "in order": phases.PruneInOrder, "last": phases.PruneLast} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a wheel that is no longer wanted and cannot be deleted
			brake := wheelOf("Brake")
			brake.Prune = order
			shop := settledToy(t, map[string]string{"Axle": "red", "Brake": "red"}, gearOf("Axle"), brake)
			refusal := &ssa.Error{Reason: ssa.ReasonForbidden, Object: "Wheel brake", Message: "grant the permission"}
			shop.refuse = func(what string) error {
				if what == "delete Wheel brake" {
					return refusal
				}
				return nil
			}
			shop.editToy(func(toy *Toy) { delete(toy.Spec, "Brake") })

			// When a pass is made
			_, err := shop.pass(t)

			// Then it is retried, and it is its own condition that says why
			g.Expect(err).To(MatchError(refusal))
			g.Expect(shop.states()).To(ContainElements("Ready=False/Forbidden", "BrakeReady=False/Forbidden"))
			g.Expect(shop.condition(t, "Ready").Message).To(HavePrefix("Brake: "))
		})
	}
}

func TestAChildThatGoesFirstAndCannotBeComputedBlocksNothingBeforeIt(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	brake := wheelOf("Brake")
	brake.Prune = phases.PruneFirst
	brake.Desired = func(*scope) (*partConfiguration, error) { return nil, errors.New("no such brake") }
	shop := newWorkshop(w, gearOf("Axle"), brake)
	w.createToy(&Toy{Spec: map[string]string{"Axle": "red"}})

	_, err := shop.pass(t)

	g.Expect(err).To(MatchError("phase Brake: no such brake"))
	g.Expect(shop.states()).To(ContainElements("AxleReady=True/Ready", "BrakeReady=False/Failed"))
}

func TestRequirementsGateBeforeTheChildIsApplied(t *testing.T) {
	g := NewWithT(t)
	// Given a gear that requires oil, of which there is none
	w := newWorld()
	oil := phases.Stalled("OilMissing", "fill it up")
	axle := gearOf("Axle")
	axle.Requires = func(context.Context, *scope) (phases.Verdict, error) { return oil, nil }
	shop := newWorkshop(w, axle)
	w.createToy(&Toy{Spec: map[string]string{"Axle": "red"}})

	// When a pass is made, nothing is applied and the status says why
	shop.mustPass(t)
	g.Expect(w.writes).To(Equal([]string{"finalize", "status"}))
	g.Expect(shop.states()).To(ContainElement("AxleReady=False/OilMissing"))

	// When there is oil, it is
	oil = phases.Done("")
	shop.settle(t)
	g.Expect(w.writes).To(ContainElement("create Gear axle"))

	// When the gear is no longer wanted, oil is not asked for
	oil = phases.Stalled("OilMissing", "fill it up")
	w.editToy(func(toy *Toy) { delete(toy.Spec, "Axle") })
	shop.settle(t)
	g.Expect(shop.states()).To(ContainElement("Ready=True/Ready"))
}

// TestWhatIsThereIsObservedWhateverGates: the status of the kind is made of what the scope has
// seen, and has to be true of children whose phases were not run, or failed.
func TestWhatIsThereIsObservedWhateverGates(t *testing.T) {
	refuseAxle := func(shop *workshop) {
		shop.refuse = func(what string) error {
			if what == "apply Gear axle" {
				return &ssa.Error{Reason: ssa.ReasonQuotaExceeded, Object: "Gear axle", Message: "no room"}
			}
			return nil
		}
		shop.editToy(func(toy *Toy) { toy.Spec["Axle"] = "blue" })
	}
	cases := map[string]func(*workshop){
		"nothing": func(*workshop) {},
		"the apply of the child is refused": func(shop *workshop) {
			refuseAxle(shop)
		},
		"the child is not ready": func(shop *workshop) {
			shop.meddle("Gear", "axle", func(c child) { c.part().Turns = false })
		},
		"an earlier phase": func(shop *workshop) {
			shop.definition.Phases = append([]phase{says("Rail", phases.Wait("Pending", "", 0))}, shop.definition.Phases...)
		},
		"suspension": func(shop *workshop) { shop.editToy(func(toy *Toy) { toy.Suspend = true }) },
		"the teardown": func(shop *workshop) {
			shop.goesAfter["hub"] = 1
			shop.deleteToy()
		},
	}
	for name, situation := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given two gears, and a situation
			shop := settledToy(t, map[string]string{"Axle": "red", "Hub": "red"}, gearOf("Axle"), gearOf("Hub"))
			situation(shop)
			var seen []string
			status := shop.definition.Status
			shop.definition.Status = func(s *scope, summary phases.Summary) ssa.Configuration {
				seen = s.seen
				return status(s, summary)
			}

			// When a pass is made
			_, _ = shop.pass(t)

			// Then both have been seen, each once
			g.Expect(seen).To(Equal([]string{"axle", "hub"}))
		})
	}
}
