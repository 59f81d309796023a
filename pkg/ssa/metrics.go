package ssa

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// registerMetrics finds the metrics if they are registered already, as they are when a process has
// several appliers, or runs one manager after another.
func registerMetrics(registerer prometheus.Registerer) (*prometheus.CounterVec, error) {
	if registerer == nil {
		return nil, nil
	}
	applies := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fixpoint_ssa_applies_total",
		Help: "Outcomes of applies and deletes by kind, endpoint and result. None: not sent, because nothing would have changed.",
	}, []string{"kind", "endpoint", "result"})
	err := registerer.Register(applies)
	if already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if existing, ok := already.ExistingCollector.(*prometheus.CounterVec); ok {
			return existing, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("registering the applier's metrics: %w", err)
	}
	return applies, nil
}

// count counts an action, or the reason of the error with which it failed.
func (a *Applier) count(t target, action Action, err error) {
	if a.applies == nil {
		return
	}
	result := string(action)
	if typed, ok := errors.AsType[*Error](err); ok {
		result = string(typed.Reason)
	} else if err != nil {
		result = string(ReasonFailed)
	}
	a.applies.WithLabelValues(t.id.gvk.Kind, cmp.Or(t.subresource, "main"), result).Inc()
}
