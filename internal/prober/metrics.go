package prober

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fixpoint-dev/fixpoint/internal/register"
)

// metrics count probes. Labels name no objects, because their number is unbounded.
type metrics struct {
	probes   *prometheus.CounterVec
	duration prometheus.Histogram
	delay    prometheus.Histogram
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		probes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fixpoint_mcp_probes_total",
			Help: "Number of MCP server probes by result: Answering, or the kind of failure. Probes that are repeated because another one needed their slot do not count.",
		}, []string{"result"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "fixpoint_mcp_probe_duration_seconds",
			Help:    "Duration of MCP server probes, at most 30 seconds and the time to close the session.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "fixpoint_mcp_probe_queue_delay_seconds",
			Help:    "Delay between the due time and the start of MCP server probes. Probes that take longer than a second wait for slots of their own.",
			Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60},
		}),
	}
	if registerer == nil {
		return m, nil
	}
	const owner = "the prober"
	var err error
	if m.probes, err = register.Metric(registerer, owner, m.probes); err != nil {
		return nil, err
	}
	if m.duration, err = register.Metric(registerer, owner, m.duration); err != nil {
		return nil, err
	}
	m.delay, err = register.Metric(registerer, owner, m.delay)
	return m, err
}

func (m *metrics) observe(err *Error, took time.Duration) {
	result := string(Answering)
	if err != nil {
		result = string(err.Kind)
	}
	m.probes.WithLabelValues(result).Inc()
	m.duration.Observe(took.Seconds())
}
