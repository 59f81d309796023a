package lease

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fixpoint-dev/fixpoint/internal/register"
)

// Metrics are the metrics of guards. Several guards can share them.
type Metrics struct {
	refusals *prometheus.CounterVec
	leading  prometheus.Gauge
}

// NewMetrics registers the metrics of the guard, or returns the existing ones.
//
// fixpoint_lease_refused_writes_total counts refused writes by reason. fixpoint_lease_held is 1 from the
// election of this replica until the Lease is released, lost, or not renewed in time.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	const owner = "the lease guard"
	refusals, err := register.Metric(registerer, owner, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fixpoint_lease_refused_writes_total",
		Help: "Number of writes to Kubernetes or the cloud that were refused because this replica could not prove that it is the leader, by reason.",
	}, []string{"reason"}))
	if err != nil {
		return nil, err
	}
	// All reasons are initialized to 0, so that the first refusal is an increase.
	for reason := range explanations {
		refusals.WithLabelValues(string(reason))
	}
	leading, err := register.Metric(registerer, owner, prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "fixpoint_lease_held",
		Help: "1 if this replica is provably the leader, else 0.",
	}))
	if err != nil {
		return nil, err
	}
	return &Metrics{refusals: refusals, leading: leading}, nil
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
