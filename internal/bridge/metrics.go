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

// metrics of one bridge. Clients cannot choose label values.
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
	forwarded     *prometheus.CounterVec
}

func newMetrics(others ...prometheus.Collector) *metrics {
	m := &metrics{
		registry:      prometheus.NewRegistry(),
		sessions:      gauge("sessions", "Number of open sessions."),
		children:      gauge("children", "Number of running server processes."),
		started:       counter("sessions_started_total", "Number of sessions started."),
		ended:         counters("sessions_ended_total", "Number of sessions ended, by reason.", "reason"),
		lifetime:      histogram("session_duration_seconds", "Duration of sessions.", prometheus.ExponentialBuckets(1, 4, 9)),
		starts:        counter("child_starts_total", "Number of server processes started."),
		startFailures: counter("child_start_failures_total", "Number of failed attempts to start a server process."),
		startTime:     histogram("child_start_duration_seconds", "Time from the start of a server process to its first response.", prometheus.ExponentialBuckets(0.005, 2, 14)),
		crashes:       counter("child_crashes_total", "Number of server processes that exited unexpectedly."),
		refused:       counters("refused_requests_total", "Number of HTTP requests refused, by reason.", "reason"),
		messages:      counters("messages_total", "Number of messages relayed.", "direction"),
		bytes:         counters("message_bytes_total", "Size of messages relayed, in bytes.", "direction"),
		dropped:       counters("dropped_messages_total", "Number of server messages that were not delivered to a client, by reason.", "reason"),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "fixpoint", Subsystem: "bridge", Name: "request_duration_seconds",
			Help:    "Time from the request of a client to the response of the server.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 12),
		}, []string{"mode"}),
		inFlight:  gauge("requests_in_flight", "Number of requests waiting for a response."),
		draining:  gauge("draining", "1 while the bridge is draining, else 0."),
		forwarded: counters("forwarded_requests_total", "Number of requests forwarded to the replica that has the session, by outcome.", "outcome"),
	}
	m.registry.MustRegister(
		m.sessions, m.children, m.started, m.ended, m.lifetime, m.starts, m.startFailures, m.startTime,
		m.crashes, m.refused, m.messages, m.bytes, m.dropped, m.requests, m.inFlight, m.draining, m.forwarded,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	m.registry.MustRegister(others...)
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
