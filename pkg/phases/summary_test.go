package phases_test

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

func TestSummarySaysHowTheObjectIs(t *testing.T) {
	boot := func(h *harness) { h.editMachine(func(machine *Machine) { machine.Spec["Boot"] = "slow" }) }
	staying := observes("Boot", phases.Done(""))
	staying.Ensure = func(context.Context, *scope) (phases.Verdict, error) { return phases.Done(""), nil }
	staying.Undo = func(context.Context, *scope) (phases.Verdict, error) { return phases.Wait("Leaving", "", 0), nil }
	for name, c := range map[string]struct {
		phase  phase
		change func(*harness)
		want   phases.Summary
	}{
		"ready":     {diskOf("Boot"), boot, phases.Summary{Ready: true, ReadyReason: phases.ReasonReady}},
		"waiting":   {observes("Boot", phases.Wait("Pending", "", 0)), boot, phases.Summary{ReadyReason: "Pending"}},
		"stalled":   {observes("Boot", phases.Stalled("Wrong", "")), boot, phases.Summary{Stalled: true, ReadyReason: "Wrong"}},
		"suspended": {diskOf("Boot"), func(h *harness) { h.editMachine(func(machine *Machine) { machine.Suspend = true }) }, phases.Summary{Suspended: true, ReadyReason: phases.ReasonSuspended}},
		"deleting":  {staying, (*harness).deleteMachine, phases.Summary{Deleting: true, ReadyReason: "Leaving"}},
		"deleting while suspended": {staying, func(h *harness) {
			h.editMachine(func(machine *Machine) { machine.Suspend = true })
			h.deleteMachine()
		}, phases.Summary{Deleting: true, ReadyReason: "Leaving"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
			h.definition.Phases = []phase{c.phase}
			var last phases.Summary
			status := h.definition.Status
			h.definition.Status = func(s *scope, summary phases.Summary) ssa.Configuration {
				last = summary
				return status(s, summary)
			}
			c.change(h)
			h.sync()
			h.mustReconcile(t)
			g.Expect(phases.Summary{
				Ready: last.Ready, ReadyReason: last.ReadyReason, Stalled: last.Stalled, Deleting: last.Deleting, Suspended: last.Suspended,
			}).To(Equal(c.want))
		})
	}
}

// related keeps what Events relate to.
type related struct{ objects []runtime.Object }

func (r *related) Eventf(_, about runtime.Object, _, _, _, _ string, _ ...any) {
	r.objects = append(r.objects, about)
}

// Otherwise the recorder would take the Events about two drifts for one.
func TestEventOfADriftRelatesToItsField(t *testing.T) {
	g := NewWithT(t)
	h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
	recorder := &related{}
	h.dependencies.Recorder = recorder
	h.modify("Disk", "boot", func(d device) { d.device().Spec["class"] = "slow" })
	h.sync()
	h.mustReconcile(t)
	g.Expect(recorder.objects).To(ContainElement(&corev1.ObjectReference{Kind: "Disk", Namespace: machineNamespace, Name: "boot", FieldPath: ".spec.class"}))
}

func TestEventOfAConditionRelatesToNothing(t *testing.T) {
	g := NewWithT(t)
	h := newHarness(newFakeCluster(), observes("Address", phases.Done("")))
	recorder := &related{}
	h.dependencies.Recorder = recorder
	h.createMachine(&Machine{})

	h.mustReconcile(t)

	g.Expect(recorder.objects).To(HaveLen(1))
	g.Expect(recorder.objects[0] == nil).To(BeTrue(), "the recorder reads what is no nil interface")
}

func TestMissingObservationSaysWhatEnsureHasToDo(t *testing.T) {
	g := NewWithT(t)
	drift := ssa.Drift{Path: ".spec.class"}
	missing := phases.Missing("IPMissing", "allocate an IP").Drifted(drift)
	g.Expect(missing.Reason()).To(Equal("IPMissing"))
	g.Expect(missing.Message()).To(Equal("allocate an IP"))
	g.Expect(missing.Drifts()).To(ConsistOf(drift))
}
