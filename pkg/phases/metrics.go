package phases

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// What engines count, in the registry of controller-runtime, which every manager serves.
var (
	outcomes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fixpoint_phases_outcomes_total",
		Help: "Phases run, by controller, phase and outcome: done, wait, stalled or error.",
	}, []string{"controller", "phase", "outcome"})
	durations = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "fixpoint_phases_duration_seconds",
		Help:    "Time that one run of a phase took.",
		Buckets: []float64{.0001, .0005, .001, .005, .01, .05, .1, .5, 1, 5},
	}, []string{"controller", "phase"})
	transitions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fixpoint_phases_transitions_total",
		Help: "Conditions whose status or reason changed, by controller, condition and new status.",
	}, []string{"controller", "condition", "status"})
	driftsCorrected = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fixpoint_phases_drifts_corrected_total",
		Help: "Managed fields that were changed by another field manager and reverted.",
	}, []string{"controller"})
)

func init() { metrics.Registry.MustRegister(outcomes, durations, transitions, driftsCorrected) }

// phaseMetrics are the metrics of one phase, looked up once and not in every reconcile. All outcomes
// exist from the start, so that the first failure is an increase and not a new series.
type phaseMetrics struct {
	outcomes map[verdictKind]prometheus.Counter
	duration prometheus.Observer
}

func metricsOf(controller, phase string) phaseMetrics {
	m := phaseMetrics{map[verdictKind]prometheus.Counter{}, durations.WithLabelValues(controller, phase)}
	for _, kind := range []verdictKind{kindDone, kindWait, kindStalled, kindError} {
		m.outcomes[kind] = outcomes.WithLabelValues(controller, phase, string(kind))
	}
	m.outcomes[kindNotConfigured] = m.outcomes[kindDone]
	return m
}

func (m phaseMetrics) observe(verdict Verdict, err error, took time.Duration) {
	kind := kindError
	if err == nil {
		kind = verdict.data().kind
	}
	m.outcomes[kind].Inc()
	m.duration.Observe(took.Seconds())
}
