package phases_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// settledToy is a workshop with a Toy that is settled, and nothing written since.
func settledToy(t *testing.T, spec map[string]string, list ...phase) *workshop {
	t.Helper()
	w := newWorld()
	shop := newWorkshop(w, list...)
	w.createToy(&Toy{Spec: spec})
	shop.settle(t)
	w.writes = nil
	shop.events.take()
	return shop
}

func TestNothingIsWrittenAtTheFixedPoint(t *testing.T) {
	g := NewWithT(t)
	shop := settledToy(t, map[string]string{"Axle": "red", "Rim": "blue"}, gearOf("Axle"), wheelOf("Rim"), wheelOf("Spare"))

	for range 3 {
		result := shop.mustPass(t)
		g.Expect(result).To(Equal(reconcile.Result{}))
	}

	g.Expect(shop.writes).To(BeEmpty())
	g.Expect(shop.events.take()).To(BeEmpty())
}

func TestAChildIsNamedAfterItsOwner(t *testing.T) {
	g := NewWithT(t)
	axle := gearOf("Axle")
	axle.ChildName = nil
	axle.Desired = func(s *scope) (*partConfiguration, error) { return gear(s.toy.Name).with("colour", "red"), nil }
	axle.Ready = nil

	shop := settledToy(t, nil, axle)

	g.Expect(shop.part("Gear", toyName)).NotTo(BeNil())
	g.Expect(shop.condition(t, "AxleReady").Message).To(Equal("Gear train is applied"), "without Ready, to exist is to be ready")
}

func TestAChildThatIsNoLongerWantedIsPruned(t *testing.T) {
	g := NewWithT(t)
	// Given a gear that takes a tick to go
	shop := settledToy(t, map[string]string{"Axle": "red", "Rim": "blue"}, gearOf("Axle"), wheelOf("Rim"))
	shop.goesAfter["axle"] = 1

	// When the Toy no longer asks for it
	shop.editToy(func(toy *Toy) { delete(toy.Spec, "Axle") })
	result := shop.mustPass(t)

	// Then it is deleted once, and the phase waits for it to be gone
	g.Expect(shop.writes).To(Equal([]string{"delete Gear axle", "status"}))
	g.Expect(result.RequeueAfter).To(Equal(phases.SafetyNet))
	g.Expect(shop.states()).To(ContainElements("AxleReady=False/Pruning", "RimReady=Unknown/Blocked"))
	shop.mustPass(t)
	g.Expect(shop.writes).To(HaveLen(2))

	// When it is gone
	shop.settle(t)
	g.Expect(shop.states()).To(ContainElements("Ready=True/Ready", "AxleReady=True/NotConfigured"))
	g.Expect(shop.condition(t, "AxleReady").Message).To(Equal("spec.Axle is not set"))
}

func TestAChildThatSomebodyDeletedIsMadeAnew(t *testing.T) {
	g := NewWithT(t)
	// Given a gear that somebody deletes, and that takes a tick to go
	shop := settledToy(t, map[string]string{"Axle": "red"}, gearOf("Axle"))
	shop.goesAfter["axle"] = 1
	shop.remove(ref{"Gear", "axle"}, metav1.FinalizerDeleteDependents)
	shop.under("go", "Gear axle", "axle", shop.goesAfter)

	// When a pass finds it on its way out
	shop.mustPass(t)

	// Then it says so and waits, and makes it anew when it is gone
	g.Expect(shop.writes).To(Equal([]string{"status"}))
	g.Expect(shop.states()).To(ContainElement("AxleReady=False/Recreating"))
	shop.settle(t)
	g.Expect(shop.writes).To(ContainElement("create Gear axle"))
	g.Expect(shop.states()).To(ContainElement("Ready=True/Ready"))
	g.Expect(shop.events.take()).To(ContainElement("Warning DriftCorrected (Correct): Gear axle: somebody deleted it; put back"))
}

func TestAChildThatIsMadeForTheFirstTimeIsNoDrift(t *testing.T) {
	g := NewWithT(t)
	// Given a gear that is turned off, and on again
	shop := settledToy(t, map[string]string{"Axle": "red"}, gearOf("Axle"))
	shop.editToy(func(toy *Toy) { delete(toy.Spec, "Axle") })
	shop.settle(t)
	shop.editToy(func(toy *Toy) { toy.Spec["Axle"] = "red" })

	// When it is made again
	shop.settle(t)

	// Then nobody had deleted it
	g.Expect(shop.events.take()).NotTo(ContainElement(ContainSubstring("DriftCorrected")))
}

func TestDriftIsPutBack(t *testing.T) {
	g := NewWithT(t)
	// Given a gear whose colour somebody has changed
	shop := settledToy(t, map[string]string{"Axle": "red"}, gearOf("Axle"))
	shop.meddle("Gear", "axle", func(c child) { c.part().Spec["colour"] = "green" })

	// When a pass is made
	shop.mustPass(t)

	// Then it is as declared, and status and Event say who had changed what
	g.Expect(shop.part("Gear", "axle").Spec).To(HaveKeyWithValue("colour", "red"))
	g.Expect(shop.writes).To(Equal([]string{"correct Gear axle", "status"}))
	g.Expect(shop.toy().Status.Drifts).To(Equal([]string{"Gear axle: somebody changed .spec.colour from red to green"}))
	g.Expect(shop.events.take()).To(Equal([]string{
		"Warning DriftCorrected (Correct): Gear axle: somebody changed .spec.colour from red to green; put back",
	}))
}

func TestDriftIsReportedAndLeft(t *testing.T) {
	g := NewWithT(t)
	// Given a Toy that wants drift to be reported, and a gear that has drifted
	shop := settledToy(t, map[string]string{"Axle": "red"}, gearOf("Axle"))
	shop.definition.Policies = func(*Toy) (ssa.AdoptionPolicy, ssa.DriftPolicy) { return ssa.AdoptNever, ssa.ReportDrift }
	shop.meddle("Gear", "axle", func(c child) { c.part().Spec["colour"] = "green" })

	// When passes are made
	shop.mustPass(t)
	shop.mustPass(t)

	// Then nothing is changed, and status, condition and one Event say it for as long as it stands
	const drift = "Gear axle: somebody changed .spec.colour from red to green"
	g.Expect(shop.part("Gear", "axle").Spec).To(HaveKeyWithValue("colour", "green"))
	g.Expect(shop.writes).To(Equal([]string{"status"}))
	g.Expect(shop.toy().Status.Drifts).To(Equal([]string{drift}))
	g.Expect(shop.states()).To(Equal([]string{"Ready=True/Ready", "AxleReady=True/Ready", "Drifted=True/Drifted"}))
	g.Expect(shop.events.take()).To(Equal([]string{
		"Warning Drifted (Drifted): Drifted is True: " + drift + "; it is left as it is, since the drift policy is Report",
	}))

	// When the Toy asks for something else besides, it is applied around the drift
	bigger := gearOf("Axle")
	bigger.Desired = func(*scope) (*partConfiguration, error) {
		return gear("axle").with("colour", "red").with("size", "big"), nil
	}
	shop.definition.Phases = []phase{bigger}
	shop.mustPass(t)
	g.Expect(shop.part("Gear", "axle").Spec).To(Equal(map[string]string{"colour": "green", "size": "big"}))
	g.Expect(shop.states()).To(ContainElement("Drifted=True/Drifted"))

	// When a pass does not get as far as the gear, the drift stands all the same
	shop.definition.Phases = []phase{says("Rail", phases.Wait("Pending", "", 0)), bigger}
	shop.mustPass(t)
	g.Expect(shop.states()).To(ContainElement("Drifted=True/Drifted"))
	g.Expect(shop.toy().Status.Drifts).To(Equal([]string{drift}))
	shop.definition.Phases = []phase{bigger}
	shop.mustPass(t)
	g.Expect(shop.events.take()).NotTo(ContainElement(ContainSubstring("Drifted")))

	// When it is gone, that is said
	shop.meddle("Gear", "axle", func(c child) { c.part().Spec["colour"] = "red" })
	shop.mustPass(t)
	g.Expect(shop.states()).To(Equal([]string{"Ready=True/Ready", "AxleReady=True/Ready"}))
	g.Expect(shop.toy().Status.Drifts).To(BeEmpty())
	g.Expect(shop.events.take()).To(ContainElement("Normal DriftedOver (Drifted): Drifted is over"))
}

func TestSummaryTellsCorrectedDriftFromDriftThatIsLeft(t *testing.T) {
	for policy, corrected := range map[ssa.DriftPolicy]bool{ssa.CorrectDrift: true, ssa.ReportDrift: false} {
		t.Run(string(policy), func(t *testing.T) {
			g := NewWithT(t)
			shop := settledToy(t, map[string]string{"Axle": "red"}, gearOf("Axle"))
			shop.definition.Policies = func(*Toy) (ssa.AdoptionPolicy, ssa.DriftPolicy) { return ssa.AdoptNever, policy }
			var seen phases.Summary
			status := shop.definition.Status
			shop.definition.Status = func(s *scope, summary phases.Summary) ssa.Configuration {
				seen = summary
				return status(s, summary)
			}
			shop.meddle("Gear", "axle", func(c child) { c.part().Spec["colour"] = "green" })

			shop.mustPass(t)

			g.Expect(seen.Drifts).To(Equal([]phases.ObservedDrift{{
				Drift:     ssa.Drift{Path: ".spec.colour", Manager: "somebody", Desired: "red", Actual: "green"},
				Child:     "Gear axle",
				Corrected: corrected,
			}}))
			g.Expect(seen.Phase("Axle").Type).To(Equal("AxleReady"))
			g.Expect(seen.Phase("Hub")).To(BeNil())
		})
	}
}

func TestADriftThatWasPutBackIsSaidEvenIfTheStatusCannotBeWritten(t *testing.T) {
	g := NewWithT(t)
	// Given a gear that has drifted, and a Toy that changes during the pass
	shop := settledToy(t, map[string]string{"Axle": "red"}, gearOf("Axle"))
	shop.meddle("Gear", "axle", func(c child) { c.part().Spec["colour"] = "green" })
	shop.refuse = func(what string) error {
		if what == "status" {
			return stale("Toy")
		}
		return nil
	}

	// When a pass is made
	shop.mustPass(t)

	// Then the drift, which no later pass can see, has its Event
	g.Expect(shop.events.take()).To(ConsistOf(ContainSubstring("DriftCorrected")))
}

func TestAStatusThatComesTooLateForgetsNothingOfTheNewerOne(t *testing.T) {
	g := NewWithT(t)
	// Given a gear that has drifted, and a Toy whose status remembers what earlier ones said
	shop := settledToy(t, map[string]string{"Axle": "red"}, gearOf("Axle"))
	shop.meddle("Gear", "axle", func(c child) { c.part().Spec["colour"] = "green" })
	shop.definition.Status = func(s *scope, summary phases.Summary) ssa.Configuration {
		status := toyStatus(s.toy.Name, summary)
		status.Status.Drifts = append(status.Status.Drifts, s.toy.Status.Drifts...)
		return status
	}
	// And a status that comes about while a pass puts the gear back, which has seen the one before
	shop.refuse = func(what string) error {
		if what == "apply Gear axle" {
			toy := shop.toy()
			toy.Status.Drifts = []string{"what the newer status says"}
			shop.put(toy)
		}
		return nil
	}

	// When that pass is made
	shop.mustPass(t)

	// Then the status tells of the drift, and still of what it said
	g.Expect(shop.toy().Status.Drifts).To(HaveExactElements(ContainSubstring("green"), "what the newer status says"))
	g.Expect(shop.states()).To(ContainElement("Ready=True/Ready"))
	g.Expect(shop.events.take()).To(ConsistOf(ContainSubstring("DriftCorrected")), "once")
}

func TestLeftoversArePruned(t *testing.T) {
	g := NewWithT(t)
	// Given gears that an earlier version has named otherwise, and others that are not the Toy's
	shop := settledToy(t, map[string]string{"Axle": "red"}, gearOf("Axle"))
	owned := []metav1.OwnerReference{ssa.ControllerReference(shop.toy(), toyGroup.WithKind("Toy"))}
	other := []metav1.OwnerReference{ssa.ControllerReference(&Toy{ObjectMeta: metav1.ObjectMeta{Name: toyName, UID: "another"}}, toyGroup.WithKind("Toy"))}
	put := func(name string, owners []metav1.OwnerReference) {
		shop.put(&Gear{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: toyNamespace, OwnerReferences: owners}})
	}
	put("old-axle", owned)
	put("anothers", other)
	put("nobodys", nil)
	shop.put(&Wheel{ObjectMeta: metav1.ObjectMeta{Name: "rim", Namespace: toyNamespace, OwnerReferences: owned}})
	shop.goesAfter["old-axle"] = 1

	// When a pass is made
	shop.mustPass(t)

	// Then what is the Toy's and of the phase's kind goes, and the phase waits for it
	g.Expect(shop.writes).To(Equal([]string{"delete Gear old-axle", "status"}))
	g.Expect(shop.states()).To(ContainElement("AxleReady=False/Pruning"))
	shop.settle(t)
	g.Expect(shop.part("Gear", "old-axle")).To(BeNil())
	g.Expect(shop.part("Gear", "anothers")).NotTo(BeNil())
	g.Expect(shop.part("Gear", "nobodys")).NotTo(BeNil())
	g.Expect(shop.part("Wheel", "rim")).NotTo(BeNil(), "no phase is of this kind")
	g.Expect(shop.states()).To(ContainElement("Ready=True/Ready"))
}

func TestLeftoversGoInTheTeardownToo(t *testing.T) {
	g := NewWithT(t)
	shop := settledToy(t, map[string]string{"Axle": "red"}, gearOf("Axle"))
	shop.put(&Gear{ObjectMeta: metav1.ObjectMeta{Name: "old-axle", Namespace: toyNamespace,
		OwnerReferences: []metav1.OwnerReference{ssa.ControllerReference(shop.toy(), toyGroup.WithKind("Toy"))}}})

	shop.deleteToy()
	shop.settle(t)

	g.Expect(shop.toy()).To(BeNil())
	g.Expect(shop.left()).To(BeEmpty())
}

func TestTwoPhasesOfOneKind(t *testing.T) {
	g := NewWithT(t)
	// Given two gears and a wheel between them
	shop := settledToy(t, map[string]string{"Axle": "red", "Rim": "blue", "Hub": "grey"}, gearOf("Axle"), wheelOf("Rim"), gearOf("Hub"))

	// Then neither prunes the other
	g.Expect(shop.part("Gear", "axle").Spec).To(HaveKeyWithValue("colour", "red"))
	g.Expect(shop.part("Gear", "hub").Spec).To(HaveKeyWithValue("colour", "grey"))

	// When one is turned off, the other stays
	shop.editToy(func(toy *Toy) { delete(toy.Spec, "Axle") })
	shop.settle(t)
	g.Expect(shop.part("Gear", "axle")).To(BeNil())
	g.Expect(shop.part("Gear", "hub")).NotTo(BeNil())

	// When the Toy goes, each goes in its turn
	shop.editToy(func(toy *Toy) { toy.Spec["Axle"] = "red" })
	shop.settle(t)
	shop.writes = nil
	shop.deleteToy()
	shop.settle(t)
	g.Expect(shop.writes).To(Equal([]string{
		"delete Gear hub", "status", "delete Wheel rim", "status", "delete Gear axle", "status", "unfinalize",
	}))
}

func TestAdoptionPassesThrough(t *testing.T) {
	cases := map[string]struct {
		policy ssa.AdoptionPolicy
		owner  string
		ready  string
		colour string
	}{
		"never":                            {ssa.AdoptNever, "", "Ready=False/NotOwned", "green"},
		"if unowned":                       {ssa.AdoptIfUnowned, "", "Ready=True/Ready", "red"},
		"if unowned, but owned by another": {ssa.AdoptIfUnowned, "another", "Ready=False/OwnedByAnother", "green"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a gear of the name that is there already
			w := newWorld()
			shop := newWorkshop(w, gearOf("Axle"))
			shop.definition.Policies = func(*Toy) (ssa.AdoptionPolicy, ssa.DriftPolicy) { return c.policy, ssa.CorrectDrift }
			found := &Gear{ObjectMeta: metav1.ObjectMeta{Name: "axle", Namespace: toyNamespace}, Part: Part{Spec: map[string]string{"colour": "green"}}}
			if c.owner != "" {
				owner := &Toy{ObjectMeta: metav1.ObjectMeta{Name: c.owner, UID: "another"}}
				found.OwnerReferences = []metav1.OwnerReference{ssa.ControllerReference(owner, toyGroup.WithKind("Toy"))}
			}
			w.put(found)
			w.createToy(&Toy{Spec: map[string]string{"Axle": "red"}})

			// When all is settled
			shop.settle(t)

			// Then it is adopted if it may be, and the status says it if not
			g.Expect(shop.states()).To(ContainElement(c.ready))
			g.Expect(w.part("Gear", "axle").Spec).To(HaveKeyWithValue("colour", c.colour))
		})
	}
}

func TestAStrangerIsJudgedByWhatIsThere(t *testing.T) {
	g := NewWithT(t)
	// Given a stranger of the child's name that was deleted, while the cache shows it
	w := newWorld()
	shop := newWorkshop(w, gearOf("Axle"))
	w.put(&Gear{ObjectMeta: metav1.ObjectMeta{Name: "axle", Namespace: toyNamespace}})
	w.createToy(&Toy{Spec: map[string]string{"Axle": "red"}})
	w.lags = true
	w.remove(ref{"Gear", "axle"}, "")

	// When a pass is made
	shop.mustPass(t)

	// Then the child is made
	g.Expect(w.broken).To(BeEmpty())
	g.Expect(metav1.IsControlledBy(w.objects[ref{"Gear", "axle"}], w.toy())).To(BeTrue())
}

func TestExplainSaysMoreAboutAChild(t *testing.T) {
	g := NewWithT(t)
	// Given a gear that does not turn yet, and an explanation of that
	w := newWorld()
	w.turnsAfter["axle"] = 1
	axle := gearOf("Axle")
	axle.Explain = func(_ context.Context, _ *scope, live *Gear, verdict phases.Verdict) phases.Verdict {
		if verdict.IsDone() {
			return verdict.WithMessage(live.Name + " turns well")
		}
		return phases.Wait("Rusty", live.Name+" needs oil", verdict.After())
	}
	shop := newWorkshop(w, axle)
	w.createToy(&Toy{Spec: map[string]string{"Axle": "red"}})

	// When a pass is made, it is the explanation that is said
	result := shop.mustPass(t)
	g.Expect(result.RequeueAfter).To(Equal(5 * time.Second))
	g.Expect(shop.condition(t, "AxleReady").Message).To(Equal("axle needs oil"))

	// When it turns, it is the remark on that
	w.tick()
	shop.mustPass(t)
	g.Expect(shop.condition(t, "AxleReady").Message).To(Equal("axle turns well"))
	g.Expect(shop.states()).To(ContainElement("Ready=True/Ready"))
}

func TestAConfigurationThatIsNotThatOfThePhasesChildIsRefused(t *testing.T) {
	cases := map[string]struct {
		desired *partConfiguration
		want    string
	}{
		"another name":      {gear("axis"), `the configuration names the child "axis", and the phase names it "axle"`},
		"another kind":      {wheel("axle"), `the configuration is of kind "Wheel", and the phase's child is a Gear`},
		"another namespace": {inNamespace(gear("axle"), "elsewhere"), `the configuration puts the child into namespace "elsewhere", and its owner is in "shop"`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a phase that would make what it could not find again
			w := newWorld()
			axle := gearOf("Axle")
			axle.Desired = func(*scope) (*partConfiguration, error) { return c.desired, nil }
			shop := newWorkshop(w, axle)
			w.createToy(&Toy{})

			// When a pass is made
			shop.mustPass(t)

			// Then nothing is made, and it is said
			g.Expect(w.writes).To(Equal([]string{"finalize", "status"}))
			g.Expect(shop.states()).To(ContainElement("Stalled=True/Failed"))
			g.Expect(shop.condition(t, "AxleReady").Message).To(HavePrefix(c.want))
		})
	}
}

func inNamespace(c *partConfiguration, namespace string) *partConfiguration {
	c.WithNamespace(namespace)
	return c
}
