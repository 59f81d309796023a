package ssa

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// mainEndpoint is where everything but the status is written.
const mainEndpoint = "main"

// Metrics counts what appliers do. One value can serve several appliers.
type Metrics struct {
	applies *prometheus.CounterVec
}

// NewMetrics registers the applier's metrics, or finds them if they are registered already, as
// they are when a process runs one manager after another.
//
// fixpoint_ssa_applies_total counts outcomes by kind of object, endpoint (main or status) and
// result: an [Action] or the [Reason] of an error. None is an apply that was not sent because it
// would have changed nothing.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	applies := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fixpoint_ssa_applies_total",
		Help: "Outcomes of applies and deletes by kind, endpoint and result. None: not sent, because nothing would have changed.",
	}, []string{"kind", "endpoint", "result"})
	if err := registerer.Register(applies); err != nil {
		var already prometheus.AlreadyRegisteredError
		if !errors.As(err, &already) {
			return nil, fmt.Errorf("registering the applier's metrics: %w", err)
		}
		existing, ok := already.ExistingCollector.(*prometheus.CounterVec)
		if !ok {
			return nil, fmt.Errorf("registering the applier's metrics: %w", err)
		}
		applies = existing
	}
	return &Metrics{applies: applies}, nil
}

func (m *Metrics) observe(kind, endpoint string, action Action, err error) {
	if m == nil {
		return
	}
	result := string(action)
	var typed *Error
	switch {
	case errors.As(err, &typed):
		result = string(typed.Reason)
	case err != nil:
		result = string(ReasonFailed)
	}
	m.applies.WithLabelValues(kind, endpoint, result).Inc()
}
