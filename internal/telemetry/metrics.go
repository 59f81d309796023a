package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Layers that refuse requests.
const (
	ByAuthorization = "authorization"
	ByPolicy        = "policy"
)

// Results of lines and spans.
const (
	resultWritten  = "written"
	resultDropped  = "dropped"
	resultUntold   = "untold"
	resultEnded    = "ended"
	resultExported = "exported"
	resultFailed   = "failed"
)

// Metrics are those that Prometheus reads from the bridge and the proxy. Clients cannot choose label values.
type Metrics struct {
	refused *prometheus.CounterVec
	lines   *prometheus.CounterVec
	spans   *prometheus.CounterVec
}

// NewMetrics returns metrics, which count from 0.
func NewMetrics() *Metrics {
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "fixpoint", Subsystem: "endpoint", Name: name, Help: help}, labels)
	}
	return &Metrics{
		refused: counters("refused_requests_total", "Number of requests refused for their token, or by limits and selected tools, by layer and reason.", "by", "reason"),
		lines:   counters("audit_lines_total", "Number of audit lines, by result: written, dropped, or untold, which are requests that were served before their number was written.", "result"),
		spans:   counters("spans_total", "Number of sampled spans, by result: ended, exported, or failed to export. Others are queued, or dropped because the queue is full.", "result"),
	}
}

// Collectors are for a registry.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.refused, m.lines, m.spans}
}

// Refused returns a function that counts refusals by a layer.
func (m *Metrics) Refused(by string) func(reason string) {
	return func(reason string) { m.refused.WithLabelValues(by, reason).Inc() }
}
