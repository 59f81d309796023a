package releases

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

type metrics struct{ refused prometheus.Gauge }

// newMetrics registers the metrics, or returns the existing ones.
func newMetrics() (*metrics, error) {
	refused := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "fixpoint_releases_refused_namespaces",
		Help: "Number of namespaces that this release selects but does not reconcile, because another release has claimed them; 1 if it selects all namespaces.",
	})
	err := ctrlmetrics.Registry.Register(refused)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(prometheus.Gauge); ok {
			return &metrics{existing}, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("registering the metrics of claims: %w", err)
	}
	return &metrics{refused}, nil
}
