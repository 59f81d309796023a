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
	done, wait, stalled, failed prometheus.Counter
	duration                    prometheus.Observer
}

func metricsOf(controller, phase string) phaseMetrics {
	return phaseMetrics{
		done:     outcomes.WithLabelValues(controller, phase, "done"),
		wait:     outcomes.WithLabelValues(controller, phase, "wait"),
		stalled:  outcomes.WithLabelValues(controller, phase, "stalled"),
		failed:   outcomes.WithLabelValues(controller, phase, "error"),
		duration: durations.WithLabelValues(controller, phase),
	}
}

func (m phaseMetrics) observe(verdict Verdict, err error, took time.Duration) {
	m.duration.Observe(took.Seconds())
	switch {
	case err != nil:
		m.failed.Inc()
	case verdict.IsDone():
		m.done.Inc()
	case verdict.IsStalled():
		m.stalled.Inc()
	default:
		m.wait.Inc()
	}
}
