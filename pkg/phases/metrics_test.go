package phases_test

import (
	"errors"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

func TestMetricsCountOutcomesTransitionsAndDrifts(t *testing.T) {
	g := NewWithT(t)
	// Given a Machine whose disk drifts once, and whose IP fails
	registry := prometheus.NewRegistry()
	metrics, err := phases.NewMetrics(registry)
	g.Expect(err).NotTo(HaveOccurred())
	cluster := newFakeCluster()
	h := newHarness(cluster, diskOf("Boot"), fails("Address", errors.New("down")))
	h.dependencies.Metrics = metrics
	cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})
	_, err = h.reconcile(t)
	g.Expect(err).To(HaveOccurred())
	cluster.modify("Disk", "boot", func(d device) { d.device().Spec["class"] = "slow" })
	_, err = h.reconcile(t)
	g.Expect(err).To(HaveOccurred())

	// When it is planned, too
	h.plan(t)

	// Then the reconciles are counted, by controller, phase and outcome, and the plan is not
	g.Expect(testutil.GatherAndCompare(registry, strings.NewReader(`
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
`), "fixpoint_phases_outcomes_total", "fixpoint_phases_drifts_corrected_total", "fixpoint_phases_transitions_total")).To(Succeed())
	g.Expect(testutil.CollectAndCount(registry, "fixpoint_phases_duration_seconds")).To(Equal(2))
}

func TestMetricsAreRegisteredOnce(t *testing.T) {
	g := NewWithT(t)
	registry := prometheus.NewRegistry()
	first, err := phases.NewMetrics(registry)
	g.Expect(err).NotTo(HaveOccurred())

	second, err := phases.NewMetrics(registry)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(second).To(Equal(first))
}

func TestMetricsOfTheSameNameAndAnotherTypeAreAnError(t *testing.T) {
	g := NewWithT(t)
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "fixpoint_phases_outcomes_total"}))

	_, err := phases.NewMetrics(registry)

	g.Expect(err).To(MatchError(ContainSubstring("registering the engine's metrics")))
}

func TestMetricsDoNotCountAReconcileThatBeginsAgain(t *testing.T) {
	g := NewWithT(t)
	// Given a disk to create for a Machine that the cache shows as it was
	registry := prometheus.NewRegistry()
	metrics, err := phases.NewMetrics(registry)
	g.Expect(err).NotTo(HaveOccurred())
	h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
	h.dependencies.Metrics = metrics
	before := h.machine()
	h.lags = true
	h.editMachine(func(*Machine) {})
	delete(h.objects, ref{"Disk", "boot"})
	h.showOnlyTheMachineAsItWas(before)

	// When it is reconciled
	h.mustReconcile(t)

	// Then it has one outcome, which is no error
	g.Expect(testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP fixpoint_phases_outcomes_total Phases run, by controller, phase and outcome: done, wait, stalled or error.
# TYPE fixpoint_phases_outcomes_total counter
fixpoint_phases_outcomes_total{controller="machine",outcome="done",phase="Boot"} 1
fixpoint_phases_outcomes_total{controller="machine",outcome="error",phase="Boot"} 0
fixpoint_phases_outcomes_total{controller="machine",outcome="stalled",phase="Boot"} 0
fixpoint_phases_outcomes_total{controller="machine",outcome="wait",phase="Boot"} 0
`), "fixpoint_phases_outcomes_total")).To(Succeed())
}
