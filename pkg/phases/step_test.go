package phases_test

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

func TestStepThatIsNotConfiguredIsNotObserved(t *testing.T) {
	g := NewWithT(t)
	// Given a step that observes only, and that the Machine does not ask for
	address := fails("Address", errors.New("observed"))
	address.Configured = func(s *scope) bool { return s.machine.Spec["Address"] != "" }
	cluster := newFakeCluster()
	h := newHarness(cluster, address)
	cluster.createMachine(&Machine{})

	// When it is reconciled, it has no condition
	h.mustReconcile(t)
	g.Expect(h.states()).To(Equal([]string{"Ready=True/Ready"}))

	// When it is configured, it is observed
	h.editMachine(func(machine *Machine) { machine.Spec = map[string]string{"Address": "static"} })
	_, err := h.reconcile(t)
	g.Expect(err).To(MatchError("phase Address: observed"))
	g.Expect(h.states()).To(ContainElement("AddressReady=False/Failed"))

	// When it is no longer configured, nothing is left of it
	h.editMachine(func(machine *Machine) { machine.Spec = nil })
	h.mustReconcile(t)
	g.Expect(h.states()).To(Equal([]string{"Ready=True/Ready"}))
}

func TestObservationBesideAnErrorDoesNotCount(t *testing.T) {
	g := NewWithT(t)
	h := newHarness(newFakeCluster(), step{Name: "Address", Observe: func(context.Context, *scope) (phases.Observation, error) {
		return phases.Done("allocated"), errDown
	}})
	h.createMachine(&Machine{})

	_, err := h.reconcile(t)

	g.Expect(err).To(MatchError(errDown))
	g.Expect(h.states()).To(ContainElement("AddressReady=False/Failed"))
}

func TestStepThatIsNotConfiguredHasNoConditionWhileItIsBlocked(t *testing.T) {
	g := NewWithT(t)
	cluster := newFakeCluster()
	h := newHarness(cluster, observes("Quota", phases.Wait("Pending", "", 0)), optionalIPOf(cluster, "Address"))
	h.createMachine(&Machine{})

	h.mustReconcile(t)

	g.Expect(h.states()).NotTo(ContainElement(HavePrefix("AddressReady")))
}

func TestStepThatCanBePlannedIsEnsuredInAReconcile(t *testing.T) {
	g := NewWithT(t)
	cluster := newFakeCluster()
	address := ipOf(cluster, "Address")
	address.Planned = func(*scope) phases.Verdict { return phases.Done("as if it were allocated") }
	h := newHarness(cluster, address)
	h.createMachine(&Machine{Spec: map[string]string{"Address": "static"}})

	h.settle(t)

	g.Expect(h.ips).To(HaveKeyWithValue("address", "static"))
}

func TestStepThatIsTurnedOffIsUndone(t *testing.T) {
	g := NewWithT(t)
	// Given an IP that takes two ticks to be released, before a disk
	cluster := newFakeCluster()
	cluster.goneAfter["address"] = 2
	h := newHarness(cluster, optionalIPOf(cluster, "Address"), diskOf("Boot"))
	cluster.createMachine(&Machine{Spec: map[string]string{"Address": "static", "Boot": "fast"}})
	h.settle(t)
	g.Expect(h.states()).To(Equal([]string{"Ready=True/Ready", "AddressReady=True/Ready", "BootReady=True/Ready"}))
	h.writes = nil

	// When the Machine no longer asks for it
	h.editMachine(func(machine *Machine) { machine.Spec = map[string]string{"Boot": "cheap"} })
	result := h.mustReconcile(t)

	// Then it is undone, and gates until nothing is left of it
	g.Expect(h.writes).To(Equal([]string{"release ip address", "status"}))
	g.Expect(result.RequeueAfter).To(Equal(3 * time.Second))
	g.Expect(h.states()).To(ContainElements("Ready=False/IPReleasing", "AddressReady=False/IPReleasing", "BootReady=Unknown/Blocked"))
	h.mustReconcile(t)
	g.Expect(h.writes).To(HaveLen(2))

	// When it is gone, so is its condition
	h.settle(t)
	g.Expect(h.writes[2:]).To(Equal([]string{"update Disk boot", "status"}))
	g.Expect(h.states()).To(Equal([]string{"Ready=True/Ready", "BootReady=True/Ready"}))
	g.Expect(h.ips).To(BeEmpty())

	// When it is reconciled again, the step is left alone
	undone := 0
	undo, ok := h.definition.Phases[0].(step)
	g.Expect(ok).To(BeTrue())
	undo.Undo = func(context.Context, *scope) (phases.Verdict, error) {
		undone++
		return phases.Done(""), nil
	}
	h.definition.Phases[0] = undo
	h.mustReconcile(t)
	g.Expect(undone).To(BeZero())

	// When it is deleted, nothing is left to undo
	h.writes = nil
	h.deleteMachine()
	h.settle(t)
	g.Expect(h.writes).To(Equal([]string{"delete Disk boot", "unfinalize"}))
}

func TestStepThatIsTurnedOffWhileBlockedKeepsItsCondition(t *testing.T) {
	g := NewWithT(t)
	// Given a step that is turned off behind a phase that gates
	cluster := newFakeCluster()
	h := newHarness(cluster, optionalIPOf(cluster, "Address"))
	cluster.createMachine(&Machine{Spec: map[string]string{"Address": "static"}})
	h.settle(t)
	h.definition.Phases = append([]phase{observes("Quota", phases.Wait("Pending", "", 0))}, h.definition.Phases...)
	h.editMachine(func(machine *Machine) { machine.Spec = nil })

	// When it is reconciled, its IP exists, and so does its condition
	h.mustReconcile(t)
	g.Expect(h.ips).NotTo(BeEmpty())
	g.Expect(h.states()).To(ContainElement("AddressReady=Unknown/Blocked"))

	// When the gate opens, both are removed
	h.definition.Phases = h.definition.Phases[1:]
	h.settle(t)
	g.Expect(h.ips).To(BeEmpty())
	g.Expect(h.states()).To(Equal([]string{"Ready=True/Ready"}))
}

func TestStepThatCannotBeUndoneIsReported(t *testing.T) {
	cases := map[string]struct {
		verdict phases.Verdict
		failure error
		state   string
	}{
		"a stall":                   {verdict: phases.Stalled("Locked", "remove the lock"), state: "AddressReady=False/Locked"},
		"an error":                  {failure: errors.New("the cloud is down"), state: "AddressReady=False/Failed"},
		"no verdict":                {state: "AddressReady=False/Failed"},
		"an error beside a verdict": {verdict: phases.Done("released"), failure: errors.New("the cloud is down"), state: "AddressReady=False/Failed"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a step that was done, and cannot be undone
			cluster := newFakeCluster()
			address := optionalIPOf(cluster, "Address")
			address.Undo = func(context.Context, *scope) (phases.Verdict, error) { return c.verdict, c.failure }
			h := newHarness(cluster, address, diskOf("Boot"))
			cluster.createMachine(&Machine{Spec: map[string]string{"Address": "static", "Boot": "fast"}})
			h.settle(t)

			// When it is turned off
			h.editMachine(func(machine *Machine) { machine.Spec = map[string]string{"Boot": "cheap"} })
			_, err := h.reconcile(t)

			// Then the status says why, and the phases after it wait

			if c.failure != nil {
				g.Expect(err).To(MatchError(c.failure))
			} else {
				g.Expect(err).NotTo(HaveOccurred())
			}
			g.Expect(h.states()).To(ContainElements(c.state, "BootReady=Unknown/Blocked"))
		})
	}
}

func TestStepThatWasDoneReportsItsDrift(t *testing.T) {
	drift := ssa.Drift{Path: "kind", Manager: "portal", Desired: "static", Actual: "dynamic"}
	newDrifting := func(t *testing.T, ensured phases.Verdict, failure error) (*harness, func(phases.Observation)) {
		t.Helper()
		observation := phases.Observation(phases.Done("allocated"))
		h := settled(t, nil, step{
			Name:    "Address",
			Observe: func(context.Context, *scope) (phases.Observation, error) { return observation, nil },
			Ensure:  func(context.Context, *scope) (phases.Verdict, error) { return ensured, failure },
		})
		return h, func(o phases.Observation) { observation = o }
	}
	missing := phases.Missing("IPMissing", "allocate a static IP").Drifted(drift)
	const event = "Warning DriftCorrected (Correct): allocate a static IP: portal changed kind from dynamic to static"

	t.Run("and that it is reverted", func(t *testing.T) {
		g := NewWithT(t)
		h, observe := newDrifting(t, phases.Done("allocated"), nil)
		observe(missing)
		h.mustReconcile(t)
		g.Expect(h.events.take()).To(ContainElement(And(HavePrefix("Warning DriftCorrected (Correct): "), HaveSuffix("; reverted"))), event)
	})
	t.Run("and that it is being reverted", func(t *testing.T) {
		g := NewWithT(t)
		h, observe := newDrifting(t, phases.Wait("IPPending", "allocating", 0), nil)
		observe(missing)
		h.mustReconcile(t)
		g.Expect(h.events.take()).To(ContainElement(And(HavePrefix("Warning DriftCorrected (Correct): "), HaveSuffix("; reverting"))), event)
	})
	t.Run("and that it is being reverted, if that failed", func(t *testing.T) {
		g := NewWithT(t)
		h, observe := newDrifting(t, nil, errors.New("the cloud is down"))
		observe(missing)
		_, err := h.reconcile(t)
		g.Expect(err).To(MatchError(ContainSubstring("the cloud is down")))
		g.Expect(h.events.take()).To(ContainElement(And(HavePrefix("Warning DriftCorrected (Correct): "), HaveSuffix("; reverting"))), event)
	})
	t.Run("but not for a new generation, which may be why", func(t *testing.T) {
		g := NewWithT(t)
		h, observe := newDrifting(t, phases.Done("allocated"), nil)
		observe(missing)
		h.editMachine(func(*Machine) {})
		h.mustReconcile(t)
		g.Expect(h.events.take()).NotTo(ContainElement(ContainSubstring("DriftCorrected")))
	})
	t.Run("but not if it was not done", func(t *testing.T) {
		g := NewWithT(t)
		h, observe := newDrifting(t, phases.Done("allocated"), nil)
		observe(phases.Wait("IPPending", "allocating", 0))
		h.mustReconcile(t)
		observe(missing)
		h.mustReconcile(t)
		g.Expect(h.events.take()).NotTo(ContainElement(ContainSubstring("DriftCorrected")))
	})
	t.Run("but not if nothing was done about it, since something has changed", func(t *testing.T) {
		g := NewWithT(t)
		h, observe := newDrifting(t, nil, stale("the IP"))
		observe(missing)
		h.mustReconcile(t)
		g.Expect(h.events.take()).To(BeEmpty())
	})
	t.Run("but not if the owner turns out to have changed, for which nothing was done", func(t *testing.T) {
		g := NewWithT(t)
		h, observe := newDrifting(t, phases.Done("allocated"), nil)
		observe(missing)
		before := h.machine()
		h.lags = true
		h.editMachine(func(*Machine) {})
		h.showOnlyTheMachineAsItWas(before)
		h.mustReconcile(t)
		g.Expect(h.events.take()).NotTo(ContainElement(ContainSubstring("DriftCorrected")))
	})
}
