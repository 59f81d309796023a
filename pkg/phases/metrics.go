package phases

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Metrics count what engines do. One value can serve several engines.
type Metrics struct {
	outcomes    *prometheus.CounterVec
	durations   *prometheus.HistogramVec
	transitions *prometheus.CounterVec
	drifts      *prometheus.CounterVec
}

// NewMetrics registers the engine's metrics, or finds them if they are registered already, as they
// are when a process runs one manager after another.
//
//   - fixpoint_phases_outcomes_total by controller, phase and outcome (done, wait, stalled, error)
//   - fixpoint_phases_duration_seconds by controller and phase
//   - fixpoint_phases_transitions_total by controller, condition and status
//   - fixpoint_phases_drifts_corrected_total by controller
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fixpoint_phases_outcomes_total",
			Help: "Phases run, by controller, phase and outcome: done, wait, stalled or error.",
		}, []string{"controller", "phase", "outcome"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "fixpoint_phases_duration_seconds",
			Help:    "Time that one run of a phase took.",
			Buckets: []float64{.0001, .0005, .001, .005, .01, .05, .1, .5, 1, 5},
		}, []string{"controller", "phase"}),
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fixpoint_phases_transitions_total",
			Help: "Conditions whose status or reason changed, by controller, condition and new status.",
		}, []string{"controller", "condition", "status"}),
		drifts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fixpoint_phases_drifts_corrected_total",
			Help: "Managed fields that were changed by another field manager and reverted.",
		}, []string{"controller"}),
	}
	var err error
	if m.outcomes, err = register(registerer, m.outcomes); err != nil {
		return nil, err
	}
	if m.durations, err = register(registerer, m.durations); err != nil {
		return nil, err
	}
	if m.transitions, err = register(registerer, m.transitions); err != nil {
		return nil, err
	}
	m.drifts, err = register(registerer, m.drifts)
	return m, err
}

func register[C prometheus.Collector](registerer prometheus.Registerer, collector C) (C, error) {
	err := registerer.Register(collector)
	if err == nil {
		return collector, nil
	}
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(C); ok {
			return existing, nil
		}
	}
	return collector, fmt.Errorf("registering the engine's metrics: %w", err)
}

// phaseMetrics are the metrics of one phase, looked up once and not in every reconcile. All outcomes
// exist from the start, so that the first failure is an increase and not a new series.
type phaseMetrics struct {
	done, wait, stalled, failed prometheus.Counter
	duration                    prometheus.Observer
}

func (m *Metrics) ofPhase(controller, phase string) *phaseMetrics {
	if m == nil {
		return nil
	}
	return &phaseMetrics{
		done:     m.outcomes.WithLabelValues(controller, phase, "done"),
		wait:     m.outcomes.WithLabelValues(controller, phase, "wait"),
		stalled:  m.outcomes.WithLabelValues(controller, phase, "stalled"),
		failed:   m.outcomes.WithLabelValues(controller, phase, "error"),
		duration: m.durations.WithLabelValues(controller, phase),
	}
}

func (m *phaseMetrics) observe(verdict Verdict, err error, took time.Duration) {
	m.outcome(verdict, err).Inc()
	m.duration.Observe(took.Seconds())
}

func (m *phaseMetrics) outcome(verdict Verdict, err error) prometheus.Counter {
	switch {
	case err != nil:
		return m.failed
	case verdict.IsDone():
		return m.done
	case verdict.IsStalled():
		return m.stalled
	default:
		return m.wait
	}
}

func (m *Metrics) observeTransition(controller string, c metav1.Condition) {
	if m != nil {
		m.transitions.WithLabelValues(controller, c.Type, string(c.Status)).Inc()
	}
}

func (m *Metrics) observeDrift(controller string) {
	if m != nil {
		m.drifts.WithLabelValues(controller).Inc()
	}
}
