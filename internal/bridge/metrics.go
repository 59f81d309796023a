package bridge

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Directions of messages.
const (
	toServer = "to_server"
	toClient = "to_client"
)

// metrics of one bridge. No label has a value that a client chooses.
type metrics struct {
	registry      *prometheus.Registry
	sessions      prometheus.Gauge
	children      prometheus.Gauge
	started       prometheus.Counter
	ended         *prometheus.CounterVec
	lifetime      prometheus.Histogram
	starts        prometheus.Counter
	startFailures prometheus.Counter
	startTime     prometheus.Histogram
	crashes       prometheus.Counter
	refused       *prometheus.CounterVec
	messages      *prometheus.CounterVec
	bytes         *prometheus.CounterVec
	dropped       *prometheus.CounterVec
	requests      *prometheus.HistogramVec
	inFlight      prometheus.Gauge
	draining      prometheus.Gauge
}

func newMetrics() *metrics {
	m := &metrics{
		registry:      prometheus.NewRegistry(),
		sessions:      gauge("sessions", "Sessions that clients have now."),
		children:      gauge("children", "Server processes that run now."),
		started:       counter("sessions_started_total", "Sessions that were begun."),
		ended:         counters("sessions_ended_total", "Sessions that have ended, by why.", "reason"),
		lifetime:      histogram("session_duration_seconds", "How long sessions lasted.", prometheus.ExponentialBuckets(1, 4, 9)),
		starts:        counter("child_starts_total", "Server processes that were started."),
		startFailures: counter("child_start_failures_total", "Attempts to start a server process that failed."),
		startTime:     histogram("child_start_duration_seconds", "From the start of a server process to its first answer.", prometheus.ExponentialBuckets(0.005, 2, 14)),
		crashes:       counter("child_crashes_total", "Server processes that ended although the bridge had not asked them to."),
		refused:       counters("refused_total", "HTTP requests that were refused, by why.", "reason"),
		messages:      counters("messages_total", "Messages that were relayed.", "direction"),
		bytes:         counters("message_bytes_total", "Bytes of messages that were relayed.", "direction"),
		dropped:       counters("dropped_messages_total", "Messages of servers that reached no client, by why.", "reason"),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "fixpoint", Subsystem: "bridge", Name: "request_duration_seconds",
			Help:    "From a client's request to the server's response.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 12),
		}, []string{"mode"}),
		inFlight: gauge("requests_in_flight", "Requests that wait for a response."),
		draining: gauge("draining", "1 while the bridge drains."),
	}
	m.registry.MustRegister(
		m.sessions, m.children, m.started, m.ended, m.lifetime, m.starts, m.startFailures, m.startTime,
		m.crashes, m.refused, m.messages, m.bytes, m.dropped, m.requests, m.inFlight, m.draining,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// relayed counts one message.
func (m *metrics) relayed(direction string, size int) {
	m.messages.WithLabelValues(direction).Inc()
	m.bytes.WithLabelValues(direction).Add(float64(size))
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "fixpoint", Subsystem: "bridge", Name: name, Help: help})
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "fixpoint", Subsystem: "bridge", Name: name, Help: help})
}

func counters(name, help, label string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "fixpoint", Subsystem: "bridge", Name: name, Help: help}, []string{label})
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "fixpoint", Subsystem: "bridge", Name: name, Help: help, Buckets: buckets})
}
