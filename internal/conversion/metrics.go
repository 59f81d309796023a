package conversion

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fixpoint-dev/fixpoint/internal/register"
)

// Results of requests.
const (
	// resultConverted means that all objects are converted.
	resultConverted = "converted"
	// resultFailed means that an object cannot be converted. The response names the field.
	resultFailed = "failed"
	// resultRefused means that the request is not a ConversionReview, as API servers send none.
	resultRefused = "refused"
)

// Metrics are the metrics of the webhook.
type Metrics struct {
	duration *prometheus.HistogramVec
}

// NewMetrics registers the metrics. A second registration returns those of the first one.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	duration, err := register.Metric(registry, "conversions", prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "fixpoint_conversion_duration_seconds",
		Help:    "Time that conversions between API versions take, from the complete request to the response.",
		Buckets: []float64{0.0001, 0.001, 0.005, 0.025, 0.1, 1},
	}, []string{"result"}))
	if err != nil {
		return nil, err
	}
	for _, result := range []string{resultConverted, resultFailed, resultRefused} {
		duration.WithLabelValues(result) // a rate of failures needs the zero before the first one
	}
	return &Metrics{duration: duration}, nil
}

func (m *Metrics) observe(result string, duration time.Duration) {
	if m != nil {
		m.duration.WithLabelValues(result).Observe(duration.Seconds())
	}
}
