package ssa

import (
	"cmp"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// applies is in the registry of controller-runtime, which every manager serves. Its results are an [Action]
// or the [Reason] of an error.
var applies = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "fixpoint_ssa_applies_total",
	Help: "Outcomes of applies and deletes by kind, endpoint and result. None: not sent, because nothing would have changed.",
}, []string{"kind", "endpoint", "result"})

func init() { metrics.Registry.MustRegister(applies) }

// count counts an action, or the reason of the error with which it failed.
func (a *Applier) count(t target, action Action, err error) {
	if a.dryRun {
		return
	}
	result := string(action)
	if typed, ok := errors.AsType[*Error](err); ok {
		result = string(typed.Reason)
	} else if err != nil {
		result = string(ReasonFailed)
	}
	applies.WithLabelValues(t.id.gvk.Kind, cmp.Or(t.subresource, "main"), result).Inc()
}
