package migration

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fixpoint-dev/fixpoint/internal/register"
)

// Metrics are the metrics of migrations.
type Metrics struct {
	objects *prometheus.GaugeVec
}

// NewMetrics registers the metrics. A second registration returns those of the first one.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	objects, err := register.Metric(registry, "migrations", prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fixpoint_migration_objects",
		Help: "Objects that the present migration to the stored version of the API has migrated, or failed to migrate.",
	}, []string{"resource", "result"}))
	if err != nil {
		return nil, err
	}
	return &Metrics{objects: objects}, nil
}

func (m *Metrics) observe(kind Kind, migrated, failed int) {
	m.objects.WithLabelValues(kind.Resource, "migrated").Set(float64(migrated))
	m.objects.WithLabelValues(kind.Resource, "failed").Set(float64(failed))
}
