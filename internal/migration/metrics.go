package migration

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the metrics of migrations.
type Metrics struct {
	objects *prometheus.GaugeVec
}

// NewMetrics registers the metrics. A second registration returns those of the first one.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	objects := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fixpoint_migration_objects",
		Help: "Objects that the present migration to the stored version of the API has migrated, or failed to migrate.",
	}, []string{"resource", "result"})
	err := registry.Register(objects)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(*prometheus.GaugeVec); ok {
			return &Metrics{objects: existing}, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("registering the metrics of migrations: %w", err)
	}
	return &Metrics{objects: objects}, nil
}

func (m *Metrics) observe(kind Kind, migrated, failed int) {
	m.objects.WithLabelValues(kind.Resource, "migrated").Set(float64(migrated))
	m.objects.WithLabelValues(kind.Resource, "failed").Set(float64(failed))
}
