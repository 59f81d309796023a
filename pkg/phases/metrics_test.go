package phases_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// engines counts the engines with metrics.
var engines atomic.Int64

// countAlone gives the engine a name of its own, since all engines of the process count in one registry.
func (h *harness) countAlone() {
	h.definition.Controller = fmt.Sprintf("machine-%d", engines.Add(1))
}

// gather gathers the metrics of the engine.
func (h *harness) gather() ([]*dto.MetricFamily, error) {
	families, err := ctrlmetrics.Registry.Gather()
	for _, family := range families {
		var own []*dto.Metric
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "controller" && label.GetValue() == h.definition.Controller {
					own = append(own, metric)
				}
			}
		}
		family.Metric = own
	}
	return families, err
}

// compare compares metrics of the engine with a text, in which its controller is called "machine".
func (h *harness) compare(text string, names ...string) error {
	text = strings.ReplaceAll(text, `controller="machine"`, fmt.Sprintf("controller=%q", h.definition.Controller))
	return testutil.GatherAndCompare(prometheus.GathererFunc(h.gather), strings.NewReader(text), names...)
}

func TestMetricsCountOutcomesTransitionsAndDrifts(t *testing.T) {
	g := NewWithT(t)
	// Given a Machine whose disk drifts once, and whose IP fails
	cluster := newFakeCluster()
	h := newHarness(cluster, diskOf("Boot"), fails("Address", errors.New("down")))
	h.countAlone()
	cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})
	_, err := h.reconcile(t)
	g.Expect(err).To(HaveOccurred())
	cluster.modify("Disk", "boot", func(d device) { d.device().Spec["class"] = "slow" })
	_, err = h.reconcile(t)
	g.Expect(err).To(HaveOccurred())

	// When it is planned, too
	h.plan(t)

	// Then the reconciles are counted, by controller, phase and outcome, and the plan is not
	g.Expect(h.compare(`
# HELP fixpoint_phases_outcomes_total Phases run, by controller, phase and outcome: done, wait, stalled or error.
# TYPE fixpoint_phases_outcomes_total counter
fixpoint_phases_outcomes_total{controller="machine",outcome="done",phase="Boot"} 2
fixpoint_phases_outcomes_total{controller="machine",outcome="error",phase="Boot"} 0
fixpoint_phases_outcomes_total{controller="machine",outcome="stalled",phase="Boot"} 0
fixpoint_phases_outcomes_total{controller="machine",outcome="wait",phase="Boot"} 0
fixpoint_phases_outcomes_total{controller="machine",outcome="done",phase="Address"} 0
fixpoint_phases_outcomes_total{controller="machine",outcome="error",phase="Address"} 2
fixpoint_phases_outcomes_total{controller="machine",outcome="stalled",phase="Address"} 0
fixpoint_phases_outcomes_total{controller="machine",outcome="wait",phase="Address"} 0
# HELP fixpoint_phases_drifts_corrected_total Managed fields that were changed by another field manager and reverted.
# TYPE fixpoint_phases_drifts_corrected_total counter
fixpoint_phases_drifts_corrected_total{controller="machine"} 1
# HELP fixpoint_phases_transitions_total Conditions whose status or reason changed, by controller, condition and new status.
# TYPE fixpoint_phases_transitions_total counter
fixpoint_phases_transitions_total{condition="BootReady",controller="machine",status="True"} 1
fixpoint_phases_transitions_total{condition="AddressReady",controller="machine",status="False"} 1
fixpoint_phases_transitions_total{condition="Ready",controller="machine",status="False"} 1
`, "fixpoint_phases_outcomes_total", "fixpoint_phases_drifts_corrected_total", "fixpoint_phases_transitions_total")).To(Succeed())
	g.Expect(testutil.GatherAndCount(prometheus.GathererFunc(h.gather), "fixpoint_phases_duration_seconds")).To(Equal(2))
}

func TestMetricsDoNotCountAReconcileThatBeginsAgain(t *testing.T) {
	g := NewWithT(t)
	// Given a disk to create for a Machine that the cache shows as it was
	h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
	h.countAlone()
	before := h.machine()
	h.lags = true
	h.editMachine(func(*Machine) {})
	delete(h.objects, ref{"Disk", "boot"})
	h.showOnlyTheMachineAsItWas(before)

	// When it is reconciled
	h.mustReconcile(t)

	// Then it has one outcome, which is no error
	g.Expect(h.compare(`
# HELP fixpoint_phases_outcomes_total Phases run, by controller, phase and outcome: done, wait, stalled or error.
# TYPE fixpoint_phases_outcomes_total counter
fixpoint_phases_outcomes_total{controller="machine",outcome="done",phase="Boot"} 1
fixpoint_phases_outcomes_total{controller="machine",outcome="error",phase="Boot"} 0
fixpoint_phases_outcomes_total{controller="machine",outcome="stalled",phase="Boot"} 0
fixpoint_phases_outcomes_total{controller="machine",outcome="wait",phase="Boot"} 0
`, "fixpoint_phases_outcomes_total")).To(Succeed())
}

func TestMetricsCountTransitionsToUnknownOnlyFromWhatWasKnown(t *testing.T) {
	g := NewWithT(t)
	// Given a Machine with a disk behind an address that waits, is allocated, and waits again
	var address phases.Observation
	h := newHarness(newFakeCluster(), step{Name: "Address", Observe: func(context.Context, *scope) (phases.Observation, error) { return address, nil }}, diskOf("Boot"))
	h.countAlone()
	h.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})
	wait := phases.Wait("Pending", "", 0)
	for _, address = range []phases.Observation{wait, phases.Done(""), wait} {
		h.mustReconcile(t)
	}

	// When it is suspended, the disk is as unknown as before
	h.editMachine(func(machine *Machine) { machine.Suspend = true })
	h.mustReconcile(t)

	// Then its condition became True once, and Unknown once
	g.Expect(h.compare(`
# HELP fixpoint_phases_transitions_total Conditions whose status or reason changed, by controller, condition and new status.
# TYPE fixpoint_phases_transitions_total counter
fixpoint_phases_transitions_total{condition="Ready",controller="machine",status="False"} 2
fixpoint_phases_transitions_total{condition="Ready",controller="machine",status="True"} 1
fixpoint_phases_transitions_total{condition="Ready",controller="machine",status="Unknown"} 1
fixpoint_phases_transitions_total{condition="AddressReady",controller="machine",status="False"} 2
fixpoint_phases_transitions_total{condition="AddressReady",controller="machine",status="True"} 1
fixpoint_phases_transitions_total{condition="AddressReady",controller="machine",status="Unknown"} 1
fixpoint_phases_transitions_total{condition="BootReady",controller="machine",status="True"} 1
fixpoint_phases_transitions_total{condition="BootReady",controller="machine",status="Unknown"} 1
fixpoint_phases_transitions_total{condition="Suspended",controller="machine",status="True"} 1
`, "fixpoint_phases_transitions_total")).To(Succeed())
}

func TestMetricsCountTheTimeThatAPhaseTook(t *testing.T) {
	g := NewWithT(t)
	h := newHarness(newFakeCluster())
	takes := func(name string, duration time.Duration) step {
		return step{Name: name, Observe: func(context.Context, *scope) (phases.Observation, error) {
			h.clock.SetTime(h.clock.Now().Add(duration))
			return phases.Done(""), nil
		}}
	}
	h.countAlone()
	h.definition.Phases = []phase{takes("Boot", 2*time.Second), takes("Data", 3*time.Second)}
	h.createMachine(&Machine{})

	h.mustReconcile(t)

	families, err := h.gather()
	g.Expect(err).NotTo(HaveOccurred())
	var sums []float64
	for _, family := range families {
		if family.GetName() == "fixpoint_phases_duration_seconds" {
			for _, metric := range family.GetMetric() {
				sums = append(sums, metric.GetHistogram().GetSampleSum())
			}
		}
	}
	g.Expect(sums).To(ConsistOf(2.0, 3.0))
}

func TestMetricsCountTheTimeOfEachRunOfAPhase(t *testing.T) {
	g := NewWithT(t)
	h := newHarness(newFakeCluster(), diskOf("Boot"))
	h.countAlone()
	h.createMachine(&Machine{})

	h.mustReconcile(t)
	h.mustReconcile(t)

	families, err := h.gather()
	g.Expect(err).NotTo(HaveOccurred())
	var runs uint64
	for _, family := range families {
		if family.GetName() == "fixpoint_phases_duration_seconds" && len(family.GetMetric()) > 0 {
			runs = family.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	g.Expect(runs).To(Equal(uint64(2)))
}
