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

func TestMetrics(t *testing.T) {
	g := NewWithT(t)
	// Given a Toy whose gear drifts once, and whose rail fails
	registry := prometheus.NewRegistry()
	metrics, err := phases.NewMetrics(registry)
	g.Expect(err).NotTo(HaveOccurred())
	w := newWorld()
	shop := newWorkshop(w, gearOf("Axle"), fails("Rail", errors.New("down")))
	shop.dependencies.Metrics = metrics
	w.createToy(&Toy{Spec: map[string]string{"Axle": "red"}})
	_, err = shop.pass(t)
	g.Expect(err).To(HaveOccurred())
	w.meddle("Gear", "axle", func(c child) { c.part().Spec["colour"] = "green" })
	_, err = shop.pass(t)
	g.Expect(err).To(HaveOccurred())

	// When a plan is made besides
	shop.plan(t)

	// Then the passes are counted, by controller, phase and outcome, and the plan is not
	g.Expect(testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP fixpoint_phases_outcomes_total Phases run, by controller, phase and outcome: done, wait, stalled or error.
# TYPE fixpoint_phases_outcomes_total counter
fixpoint_phases_outcomes_total{controller="toy",outcome="done",phase="Axle"} 2
fixpoint_phases_outcomes_total{controller="toy",outcome="error",phase="Axle"} 0
fixpoint_phases_outcomes_total{controller="toy",outcome="stalled",phase="Axle"} 0
fixpoint_phases_outcomes_total{controller="toy",outcome="wait",phase="Axle"} 0
fixpoint_phases_outcomes_total{controller="toy",outcome="done",phase="Rail"} 0
fixpoint_phases_outcomes_total{controller="toy",outcome="error",phase="Rail"} 2
fixpoint_phases_outcomes_total{controller="toy",outcome="stalled",phase="Rail"} 0
fixpoint_phases_outcomes_total{controller="toy",outcome="wait",phase="Rail"} 0
# HELP fixpoint_phases_drifts_corrected_total Fields of ours that somebody had changed and that were put back.
# TYPE fixpoint_phases_drifts_corrected_total counter
fixpoint_phases_drifts_corrected_total{controller="toy"} 1
# HELP fixpoint_phases_transitions_total Conditions whose status or reason changed, by controller, condition and new status.
# TYPE fixpoint_phases_transitions_total counter
fixpoint_phases_transitions_total{condition="AxleReady",controller="toy",status="True"} 1
fixpoint_phases_transitions_total{condition="RailReady",controller="toy",status="False"} 1
fixpoint_phases_transitions_total{condition="Ready",controller="toy",status="False"} 1
`), "fixpoint_phases_outcomes_total", "fixpoint_phases_drifts_corrected_total", "fixpoint_phases_transitions_total")).To(Succeed())
	g.Expect(testutil.CollectAndCount(registry, "fixpoint_phases_duration_seconds")).To(Equal(2))
}

func TestMetricsAreOfTheProcessAndNotOfOneManager(t *testing.T) {
	g := NewWithT(t)
	registry := prometheus.NewRegistry()
	first, err := phases.NewMetrics(registry)
	g.Expect(err).NotTo(HaveOccurred())

	second, err := phases.NewMetrics(registry)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(second).To(Equal(first))
}

func TestMetricsOfTheSameNameByOthersAreAnError(t *testing.T) {
	g := NewWithT(t)
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "fixpoint_phases_outcomes_total"}))

	_, err := phases.NewMetrics(registry)

	g.Expect(err).To(MatchError(ContainSubstring("registering the engine's metrics")))
}
