package telemetry

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fixpoint-dev/fixpoint/internal/callrecord"
)

const (
	scope = "github.com/fixpoint-dev/fixpoint/internal/telemetry"
	// exportTimeout is that of one export, with retries.
	exportTimeout = 10 * time.Second
	// maxQueuedSpans is how many spans wait for an export. Others are dropped.
	maxQueuedSpans = 2048
	// maxNames is how many tools and prompts are distinguished.
	maxNames = 100
	// other stands for values beyond the bounds, as the semantic conventions have it.
	other = "_OTHER"
)

// durationBuckets are those of the semantic conventions for the Model Context Protocol.
var durationBuckets = []float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300}

// otlp exports spans and metrics, after the semantic conventions of OpenTelemetry for the Model Context Protocol:
// https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md
type otlp struct {
	spans    *sdktrace.TracerProvider
	metrics  *sdkmetric.MeterProvider
	tracer   trace.Tracer
	duration metric.Float64Histogram
	counts   *Metrics
	names    names
}

func newOTLP(opts *Options) (*otlp, error) {
	client, err := newClient(opts.OTLP, opts.Log)
	if err != nil {
		return nil, err
	}
	otel.SetErrorHandler(&errorLog{log: opts.Log})
	// The explicit options have precedence over variables such as OTEL_EXPORTER_OTLP_HEADERS, which may be those of the server.
	base := strings.TrimSuffix(opts.OTLP.Endpoint, "/")
	toSpans, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL(base+"/v1/traces"), otlptracehttp.WithHTTPClient(client),
		otlptracehttp.WithHeaders(map[string]string{}), otlptracehttp.WithTimeout(exportTimeout), otlptracehttp.WithCompression(otlptracehttp.GzipCompression),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: exportTimeout, MaxElapsedTime: exportTimeout}))
	if err != nil {
		return nil, fmt.Errorf("configuring the export of spans: %w", err)
	}
	toMetrics, err := otlpmetrichttp.New(context.Background(), otlpmetrichttp.WithEndpointURL(base+"/v1/metrics"), otlpmetrichttp.WithHTTPClient(client),
		otlpmetrichttp.WithHeaders(map[string]string{}), otlpmetrichttp.WithTimeout(exportTimeout), otlpmetrichttp.WithCompression(otlpmetrichttp.GzipCompression),
		otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: exportTimeout, MaxElapsedTime: exportTimeout}))
	if err != nil {
		return nil, fmt.Errorf("configuring the export of metrics: %w", err)
	}
	of := resourceOf(opts)
	o := &otlp{counts: opts.Metrics, names: names{max: maxNames, known: map[string]struct{}{}}}
	o.spans = sdktrace.NewTracerProvider(
		sdktrace.WithResource(of),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(float64(opts.OTLP.SamplePercent)/100))),
		sdktrace.WithBatcher(&countedSpans{toSpans, opts.Metrics}, sdktrace.WithMaxQueueSize(maxQueuedSpans),
			sdktrace.WithBatchTimeout(opts.OTLP.spanDelay), sdktrace.WithExportTimeout(exportTimeout)),
	)
	o.metrics = sdkmetric.NewMeterProvider(
		sdkmetric.WithResource(of),
		sdkmetric.WithReader(sdkmetric.NewPeriodicReader(toMetrics, sdkmetric.WithInterval(opts.OTLP.MetricsInterval), sdkmetric.WithTimeout(exportTimeout))),
	)
	o.tracer = o.spans.Tracer(scope)
	o.duration, err = o.metrics.Meter(scope).Float64Histogram("mcp.server.operation.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of requests and notifications, from their arrival to the end of the response."),
		metric.WithExplicitBucketBoundaries(durationBuckets...))
	if err != nil {
		return nil, fmt.Errorf("creating the histogram of durations: %w", err)
	}
	return o, nil
}

func resourceOf(opts *Options) *resource.Resource {
	attributes := []attribute.KeyValue{attribute.String("service.name", opts.Server), attribute.String("service.instance.id", opts.instance)}
	for name, value := range map[string]string{"service.namespace": opts.Namespace, "k8s.namespace.name": opts.Namespace, "k8s.pod.name": opts.Pod} {
		if value != "" {
			attributes = append(attributes, attribute.String(name, value))
		}
	}
	return resource.NewSchemaless(attributes...)
}

// begin begins the span of a call, with what samplers may need.
func (o *otlp) begin(c *call) trace.Span {
	m := c.main()
	_, span := o.tracer.Start(c.parent(), o.spanName(c, &m), trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(c.begun))
	return span
}

func (o *otlp) spanName(c *call, m *message) string {
	method := knownMethod(m.Method)
	switch {
	case method == "":
		return knownHTTPMethod(c.request.Method)
	case m.Tool != "":
		return method + " " + o.names.bounded("tool", m.Tool)
	case m.Prompt != "":
		return method + " " + o.names.bounded("prompt", m.Prompt)
	default:
		return method
	}
}

// end ends the span of a call, and counts the call.
func (o *otlp) end(c *call, span trace.Span, r result, end time.Time) {
	m := c.main()
	if r.outcome == outcomeOK && r.answered {
		// Only names that servers know take up the bound, because clients can choose others: servers accept them in
		// notifications.
		o.names.add("tool", m.Tool)
		o.names.add("prompt", m.Prompt)
	}
	errorType := r.errorType()
	if span.IsRecording() {
		span.SetName(o.spanName(c, &m))
		span.SetAttributes(o.spanAttributes(c, &m, r, errorType)...)
		if errorType != "" {
			span.SetStatus(codes.Error, "")
		}
		o.counts.spans.WithLabelValues(resultEnded).Inc()
	}
	span.End(trace.WithTimestamp(end))
	o.duration.Record(context.Background(), end.Sub(c.begun).Seconds(), metric.WithAttributes(o.metricAttributes(c, &m, errorType)...))
}

func (o *otlp) spanAttributes(c *call, m *message, r result, errorType string) []attribute.KeyValue {
	attributes := []attribute.KeyValue{
		attribute.String("network.transport", "tcp"), attribute.String("network.protocol.name", "http"),
		attribute.String("client.address", callrecord.ClientAddress(c.request)), attribute.String("fixpoint.outcome", r.outcome),
	}
	set := func(name, value string) {
		if value != "" {
			attributes = append(attributes, attribute.String(name, value))
		}
	}
	set("mcp.method.name", m.Method)
	set("mcp.protocol.version", c.version())
	set("mcp.session.id", c.session(r.outcome == outcomeInterrupted))
	set("jsonrpc.request.id", m.id)
	set("gen_ai.tool.name", m.Tool)
	set("gen_ai.prompt.name", m.Prompt)
	set("mcp.resource.uri", m.Resource)
	if m.Tool != "" {
		set("gen_ai.operation.name", "execute_tool")
	}
	set("error.type", errorType)
	if r.code != nil {
		set("rpc.response.status_code", strconv.Itoa(*r.code))
	}
	if r.status != 0 {
		attributes = append(attributes, attribute.Int("http.response.status_code", r.status))
	}
	return attributes
}

// metricAttributes have few values, whatever clients send.
func (o *otlp) metricAttributes(c *call, m *message, errorType string) []attribute.KeyValue {
	attributes := []attribute.KeyValue{attribute.String("network.transport", "tcp")}
	set := func(name, value string) {
		if value != "" {
			attributes = append(attributes, attribute.String(name, value))
		}
	}
	set("mcp.method.name", knownMethod(m.Method))
	if m.Tool != "" {
		set("gen_ai.tool.name", o.names.bounded("tool", m.Tool))
		set("gen_ai.operation.name", "execute_tool")
	}
	if m.Prompt != "" {
		set("gen_ai.prompt.name", o.names.bounded("prompt", m.Prompt))
	}
	if version := c.version(); slices.Contains(knownVersions, version) {
		set("mcp.protocol.version", version)
	}
	set("error.type", errorType)
	return attributes
}

// errorType is the error of a result; empty for a success. It has few values.
func (r *result) errorType() string {
	switch r.outcome {
	case outcomeOK, outcomeNoResponse:
		return ""
	case outcomeToolError:
		return "tool_error"
	case outcomeRPCError:
		if r.code != nil && slices.Contains(knownCodes, *r.code) {
			return strconv.Itoa(*r.code)
		}
		return other
	case outcomeRefused, outcomeServerFailed:
		switch {
		case r.reason != "":
			return r.reason
		case r.status >= http.StatusBadRequest && r.status < 600:
			return strconv.Itoa(r.status)
		}
	}
	return r.outcome
}

var (
	knownVersions = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"}
	// knownCodes are those of JSON-RPC, and of the specification.
	knownCodes = []int{-32700, -32600, -32601, -32602, -32603, -32000, -32001, -32002, -32020, -32021, -32022, -32042}
	// knownMethods are those that clients send.
	knownMethods = []string{
		"initialize", "ping", "server/discover", "tools/list", "tools/call", "prompts/list", "prompts/get", "completion/complete",
		"resources/list", "resources/templates/list", "resources/read", "resources/subscribe", "resources/unsubscribe", "subscriptions/listen",
		"logging/setLevel", "tasks/get", "tasks/result", "tasks/list", "tasks/cancel", "tasks/update",
		"notifications/initialized", "notifications/cancelled", "notifications/progress", "notifications/roots/list_changed", "notifications/tasks/status",
	}
)

func knownMethod(method string) string {
	if method == "" || slices.Contains(knownMethods, method) {
		return method
	}
	return other
}

func knownHTTPMethod(method string) string {
	if slices.Contains([]string{http.MethodGet, http.MethodPost, http.MethodDelete, http.MethodOptions}, method) {
		return method
	}
	return "HTTP"
}

// names are the first names of tools and prompts that were used with success.
type names struct {
	max int

	mu    sync.Mutex
	known map[string]struct{}
}

func (n *names) add(kind, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if name != "" && len(n.known) < n.max {
		n.known[kind+" "+name] = struct{}{}
	}
}

func (n *names) bounded(kind, name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.known[kind+" "+name]; ok {
		return name
	}
	return other
}

// close exports what is queued, until ctx is done.
func (o *otlp) close(ctx context.Context) error {
	var errs [2]error
	var both sync.WaitGroup
	both.Go(func() { errs[0] = o.spans.Shutdown(ctx) })
	both.Go(func() { errs[1] = o.metrics.Shutdown(ctx) })
	both.Wait()
	return errors.Join(errs[:]...)
}

// countedSpans counts the spans that are exported.
type countedSpans struct {
	sdktrace.SpanExporter
	counts *Metrics
}

// ExportSpans implements sdktrace.SpanExporter.
func (c *countedSpans) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := c.SpanExporter.ExportSpans(ctx, spans)
	outcome := resultExported
	if err != nil {
		outcome = resultFailed
	}
	c.counts.spans.WithLabelValues(outcome).Add(float64(len(spans)))
	return err
}

// errorLog logs the errors of exports, at most one per interval.
type errorLog struct {
	log logr.Logger

	mu   sync.Mutex
	last time.Time
}

const errorInterval = time.Minute

// Handle implements otel.ErrorHandler.
func (l *errorLog) Handle(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil || time.Since(l.last) < errorInterval {
		return
	}
	l.last = time.Now()
	l.log.Info("Failed to export spans or metrics; requests are not affected", "error", err.Error())
}

func newClient(o *OTLP, log logr.Logger) (*http.Client, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if o.CAFile != "" {
		switch raw, err := os.ReadFile(o.CAFile); {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return nil, fmt.Errorf("reading CA certificates: %w", err)
		case !roots.AppendCertsFromPEM(raw):
			log.Info("CAFile (-otlp-ca) has no certificate in PEM format: use a file with the CA certificates of the collector. Only those of the system are used", "file", o.CAFile)
		}
	}
	return &http.Client{
		Timeout: exportTimeout,
		Transport: &withHeaders{file: o.HeadersFile, next: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			MaxIdleConnsPerHost: 2, IdleConnTimeout: 2 * time.Minute, TLSHandshakeTimeout: exportTimeout, ForceAttemptHTTP2: true,
		}},
		// Another host must not get the headers.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// withHeaders adds the headers of a file, which may change.
type withHeaders struct {
	file string
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *withHeaders) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.file == "" {
		return t.next.RoundTrip(r)
	}
	raw, err := os.ReadFile(t.file)
	if err != nil {
		return nil, fmt.Errorf("reading the headers for the collector: %w", err)
	}
	out := r.Clone(r.Context())
	scanner := bufio.NewScanner(bytes.NewReader(raw))
	for scanner.Scan() {
		name, value, ok := strings.Cut(scanner.Text(), ":")
		if name = strings.TrimSpace(name); ok && name != "" {
			out.Header.Set(name, strings.TrimSpace(value))
		}
	}
	return t.next.RoundTrip(out)
}
