package lease

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts what guards refuse. One value can serve several guards.
type Metrics struct {
	refusals *prometheus.CounterVec
	leading  prometheus.Gauge
}

// NewMetrics registers the guard's metrics, or finds them if they are registered already.
//
// fixpoint_lease_refused_writes_total counts by reason. fixpoint_lease_held is 1 from the election of
// this replica until its Lease is given up, lost, or not renewed in time.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	refusals, err := register(registerer, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fixpoint_lease_refused_writes_total",
		Help: "Writes to Kubernetes or the cloud that were refused because this replica could not prove that it is the leader, by reason.",
	}, []string{"reason"}))
	if err != nil {
		return nil, err
	}
	// All reasons are there from the start, so that the first refusal is an increase.
	for reason := range explanations {
		refusals.WithLabelValues(string(reason))
	}
	leading, err := register(registerer, prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "fixpoint_lease_held",
		Help: "Whether this replica is provably the leader.",
	}))
	if err != nil {
		return nil, err
	}
	return &Metrics{refusals: refusals, leading: leading}, nil
}

func register[C prometheus.Collector](registerer prometheus.Registerer, collector C) (C, error) {
	err := registerer.Register(collector)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(C); ok {
			return existing, nil
		}
	}
	if err != nil {
		return collector, fmt.Errorf("registering the guard's metrics: %w", err)
	}
	return collector, nil
}

func (m *Metrics) refused(reason Reason) {
	if m != nil {
		m.refusals.WithLabelValues(string(reason)).Inc()
	}
}

func (m *Metrics) held(held bool) {
	if m == nil {
		return
	}
	if held {
		m.leading.Set(1)
		return
	}
	m.leading.Set(0)
}
