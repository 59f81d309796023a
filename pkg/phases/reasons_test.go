package phases_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

func TestReasonThatTheAPIServerAcceptsIsKept(t *testing.T) {
	for _, reason := range []string{"A", "Z", "a", "z", "Z09az", "A_b", "A,b:c"} {
		t.Run(reason, func(t *testing.T) {
			h := newHarness(newFakeCluster(), observes("Address", phases.Wait(reason, "not yet", 0)))
			h.createMachine(&Machine{})

			h.mustReconcile(t)

			NewWithT(t).Expect(h.condition(t, "AddressReady")).To(And(HaveField("Reason", reason), HaveField("Message", "not yet")))
		})
	}
}

func TestReasonThatTheAPIServerRefusesMovesToTheMessage(t *testing.T) {
	for name, c := range map[string]struct {
		verdict phases.Verdict
		status  metav1.ConditionStatus
		reason  string
	}{
		"done":    {phases.DoneBecause("no word", "allocated"), metav1.ConditionTrue, phases.ReasonReady},
		"waiting": {phases.Wait("no word", "allocated", 0), metav1.ConditionFalse, phases.ReasonFailed},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(newFakeCluster(), observes("Address", c.verdict))
			h.createMachine(&Machine{})

			h.mustReconcile(t)

			NewWithT(t).Expect(h.condition(t, "AddressReady")).To(And(
				HaveField("Status", c.status), HaveField("Reason", c.reason), HaveField("Message", "no word allocated")))
		})
	}
}

func TestEveryConditionOfASuspendedObjectSaysSo(t *testing.T) {
	h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
	h.editMachine(func(machine *Machine) { machine.Suspend = true })

	h.mustReconcile(t)

	for _, conditionType := range []string{phases.ConditionReady, phases.ConditionSuspended, "BootReady"} {
		NewWithT(t).Expect(h.condition(t, conditionType)).To(And(
			HaveField("Reason", phases.ReasonSuspended), HaveField("Message", "reconciliation is suspended")))
	}
}

func TestPlanNamesTheStepThatIsTurnedOff(t *testing.T) {
	g := NewWithT(t)
	cluster := newFakeCluster()
	h := newHarness(cluster, optionalIPOf(cluster, "Address"))
	cluster.createMachine(&Machine{Spec: map[string]string{"Address": "public"}})
	h.settle(t)
	cluster.editMachine(func(machine *Machine) { delete(machine.Spec, "Address") })

	plan := h.plan(t)

	g.Expect(plan.Changes()).To(ConsistOf(phases.Change{Phase: "Address", Action: phases.ActionUndo, Object: "Address", Pending: true}))
	g.Expect(plan.Phases[0].Verdict.Reason()).To(Equal(phases.ReasonPruning))

	// When the Machine is deleted, the plan names it, too
	cluster.deleteMachine()
	plan = h.plan(t)
	g.Expect(plan.Changes()).To(ConsistOf(phases.Change{Phase: "Address", Action: phases.ActionUndo, Object: "Address", Pending: true}))
	g.Expect(plan.Phases[0].Verdict.Reason()).To(Equal(phases.ReasonTerminating))
}

func TestTimeThatHasPassedIsRecheckedSoon(t *testing.T) {
	for _, after := range []time.Duration{-time.Minute, 0} {
		NewWithT(t).Expect(phases.Done("").RecheckAfter(after).After()).To(Equal(time.Second))
		NewWithT(t).Expect(phases.Stalled("Gone", "").RecheckAfter(after).After()).To(Equal(time.Second))
	}
}
