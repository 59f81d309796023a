package telemetry

import (
	"compress/gzip"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	metricsv1 "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/fixpoint-dev/fixpoint/internal/callrecord"
)

// collector is an OpenTelemetry collector that keeps what it receives.
type collector struct {
	t       *testing.T
	mu      sync.Mutex
	spans   []*tracev1.Span
	metrics []*metricsv1.Metric
	of      []*commonv1.KeyValue
	headers []http.Header
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g := NewWithT(c.t)
	body := r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		var err error
		body, err = gzip.NewReader(r.Body)
		g.Expect(err).NotTo(HaveOccurred())
	}
	raw, err := io.ReadAll(body)
	g.Expect(err).NotTo(HaveOccurred())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.headers = append(c.headers, r.Header)
	switch r.URL.Path {
	case "/otlp/v1/traces":
		var request collectortrace.ExportTraceServiceRequest
		g.Expect(proto.Unmarshal(raw, &request)).To(Succeed())
		for _, of := range request.ResourceSpans {
			c.of = of.Resource.Attributes
			for _, scope := range of.ScopeSpans {
				c.spans = append(c.spans, scope.Spans...)
			}
		}
	case "/otlp/v1/metrics":
		var request collectormetrics.ExportMetricsServiceRequest
		g.Expect(proto.Unmarshal(raw, &request)).To(Succeed())
		for _, of := range request.ResourceMetrics {
			for _, scope := range of.ScopeMetrics {
				c.metrics = scope.Metrics // cumulative
			}
		}
	default:
		w.WriteHeader(http.StatusNotFound)
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func newCollector(t *testing.T) (*collector, *OTLP) {
	t.Helper()
	c := &collector{t: t}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	return c, &OTLP{Endpoint: server.URL + "/otlp/", SamplePercent: 100}
}

// attributesOf are attributes as texts.
func attributesOf(all []*commonv1.KeyValue) map[string]string {
	found := map[string]string{}
	for _, one := range all {
		switch value := one.Value.Value.(type) {
		case *commonv1.AnyValue_StringValue:
			found[one.Key] = value.StringValue
		case *commonv1.AnyValue_IntValue:
			found[one.Key] = fmt.Sprint(value.IntValue)
		}
	}
	return found
}

const (
	traceOfMeta   = "0af7651916cd43dd8448eb211c80319c"
	spanOfMeta    = "b7ad6b7169203331"
	traceOfHeader = "4bf92f3577b34da6a3ce929d0e0e4736"
)

func TestSpansContinueTheTraceOfTheClient(t *testing.T) {
	const meta = `"_meta":{"traceparent":"00-` + traceOfMeta + `-` + spanOfMeta + `-01","tracestate":"a=b"}`
	call := func(inParams string) string {
		return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"get",` + inParams + `}}`
	}
	header := []string{"Traceparent", "00-" + traceOfHeader + "-00f067aa0ba902b7-01"}
	for name, c := range map[string]struct {
		message string
		headers []string
		trace   string
		parent  string
	}{
		"of the message":               {call(meta), nil, traceOfMeta, spanOfMeta},
		"of the message over headers":  {call(meta), header, traceOfMeta, spanOfMeta},
		"of the headers":               {call(`"arguments":{}`), header, traceOfHeader, "00f067aa0ba902b7"},
		"of headers with a bad _meta":  {call(`"_meta":{"traceparent":"00-x"}`), header, traceOfHeader, "00f067aa0ba902b7"},
		"a new one":                    {call(`"arguments":{}`), nil, "", ""},
		"a new one with a bad message": {call(`"_meta":{"traceparent":1}`), nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			collected, to := newCollector(t)
			var got http.Header
			var body string
			lines := &output{}
			recorder, url, _ := recorded(t, Options{OTLP: to, Lines: lines}, nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				raw, _ := io.ReadAll(r.Body)
				got, body = r.Header, string(raw)
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, okBody)
			}))
			post(g, url, c.message, append(c.headers, "Mcp-Session-Id", "secret-session", "Mcp-Protocol-Version", "2025-11-25")...)
			g.Expect(recorder.end(t.Context())).To(Succeed())

			g.Expect(body).To(Equal(c.message), "the message is unchanged")
			g.Expect(collected.spans).To(HaveLen(1))
			span := collected.spans[0]
			id := fmt.Sprintf("%x", span.TraceId)
			if c.trace != "" {
				g.Expect(id).To(Equal(c.trace))
			}
			g.Expect(fmt.Sprintf("%x", span.ParentSpanId)).To(Equal(c.parent))
			g.Expect(got.Get("Traceparent")).To(Equal(fmt.Sprintf("00-%s-%x-01", id, span.SpanId)), "the server continues the trace")
			g.Expect(lines.requests(g)[0].TraceID).To(Equal(id))
			g.Expect(span.Name).To(Equal("tools/call get"))
			g.Expect(span.Kind).To(Equal(tracev1.Span_SPAN_KIND_SERVER))
			g.Expect(span.EndTimeUnixNano).To(BeNumerically(">", span.StartTimeUnixNano))
			attributes := attributesOf(span.Attributes)
			for name, value := range map[string]string{
				"mcp.method.name": "tools/call", "gen_ai.tool.name": "get", "gen_ai.operation.name": "execute_tool", "jsonrpc.request.id": "7",
				"mcp.protocol.version": "2025-11-25", "network.transport": "tcp", "network.protocol.name": "http", "http.response.status_code": "200",
			} {
				g.Expect(attributes).To(HaveKeyWithValue(name, value))
			}
			g.Expect(attributes["mcp.session.id"]).To(And(HaveLen(16), Equal(lines.requests(g)[0].Session)))
			g.Expect(fmt.Sprint(span)).NotTo(ContainSubstring("secret-session"))
			g.Expect(attributesOf(collected.of)).To(And(HaveKeyWithValue("service.name", "tools"), HaveKeyWithValue("k8s.pod.name", "tools-1")))
		})
	}
}

func TestTraceOfTheRecordIsItsSpan(t *testing.T) {
	g := NewWithT(t)
	collected, to := newCollector(t)
	var parent, state string
	recorder, url, _ := recorded(t, Options{OTLP: to}, nil, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		parent, state = callrecord.Trace(r.Context())
	}))
	post(g, url, toolCall("get", "{}"), "Traceparent", "00-"+traceOfHeader+"-00f067aa0ba902b7-01", "Tracestate", "a=b")
	g.Expect(recorder.end(t.Context())).To(Succeed())
	g.Expect(collected.spans).To(HaveLen(1))
	g.Expect(parent).To(Equal(fmt.Sprintf("00-%s-%x-01", traceOfHeader, collected.spans[0].SpanId)))
	g.Expect(state).To(Equal("a=b"))
}

func TestRecordWithoutACollectorHasNoTrace(t *testing.T) {
	g := NewWithT(t)
	parent := "unset"
	_, url, _ := recorded(t, Options{}, nil, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		parent, _ = callrecord.Trace(r.Context())
	}))
	post(g, url, toolCall("get", "{}"))
	g.Expect(parent).To(BeEmpty())
}

// points are the counts of calls by the values of attributes.
func (c *collector) points(g Gomega, names ...string) map[string]uint64 {
	g.Expect(c.metrics).To(HaveLen(1))
	g.Expect(c.metrics[0].Name).To(Equal("mcp.server.operation.duration"))
	g.Expect(c.metrics[0].Unit).To(Equal("s"))
	found := map[string]uint64{}
	for _, point := range c.metrics[0].GetHistogram().DataPoints {
		g.Expect(point.ExplicitBounds).To(Equal(durationBuckets))
		attributes := attributesOf(point.Attributes)
		var values []string
		for _, name := range names {
			values = append(values, attributes[name])
		}
		found[strings.Join(values, " ")] += point.Count
	}
	return found
}

// Clients can choose names, but not how many values attributes of metrics have.
func TestAttributesOfMetricsAreBounded(t *testing.T) {
	g := NewWithT(t)
	collected, to := newCollector(t)
	recorder, url, _ := recorded(t, Options{OTLP: to}, nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		switch text := string(raw); {
		case strings.Contains(text, "unknown"):
			_, _ = io.WriteString(w, `{"id":1,"error":{"code":-32602}}`)
		case strings.Contains(text, "accepted"):
			w.WriteHeader(http.StatusAccepted)
		case strings.Contains(text, "fail"):
			_, _ = io.WriteString(w, `{"id":1,"result":{"isError":true}}`)
		default:
			_, _ = io.WriteString(w, okBody)
		}
	}))
	for i := range 20 {
		post(g, url, toolCall(fmt.Sprintf("unknown-%d", i), "{}"))
	}
	for i := range maxNames {
		post(g, url, fmt.Sprintf(`{"method":"tools/call","params":{"name":"accepted-%d"}}`, i))
	}
	for i := range maxNames + 20 {
		post(g, url, toolCall(fmt.Sprintf("tool-%d", i), "{}"), "Mcp-Protocol-Version", fmt.Sprintf("2025-11-%d", i+10))
	}
	post(g, url, toolCall("fail", "{}"))
	post(g, url, `{"id":1,"method":"own/method"}`)
	post(g, url, `{"id":1,"method":"ping"}`)
	g.Expect(recorder.end(t.Context())).To(Succeed())

	byMethod := collected.points(g, "mcp.method.name", "error.type")
	g.Expect(byMethod).To(Equal(map[string]uint64{
		"tools/call ": 2*maxNames + 20, "tools/call -32602": 20, "tools/call tool_error": 1, other + " ": 1, "ping ": 1,
	}))
	byTool := collected.points(g, "gen_ai.tool.name")
	g.Expect(byTool).To(HaveLen(maxNames + 2))
	g.Expect(byTool).To(And(HaveKeyWithValue("tool-0", uint64(1)), HaveKeyWithValue(other, uint64(20+maxNames+20+1)), Not(HaveKey("unknown-0"))))
	g.Expect(collected.points(g, "mcp.protocol.version")).To(HaveLen(2), "one is known")
}

func TestHeadersForTheCollector(t *testing.T) {
	g := NewWithT(t)
	collected, to := newCollector(t)
	to.HeadersFile = filepath.Join(t.TempDir(), "headers")
	g.Expect(os.WriteFile(to.HeadersFile, []byte("Authorization: Bearer a:b\r\n\n# no header\nX-Tenant:acme\n"), 0o600)).To(Succeed())
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-of-the-server=1")
	recorder, url, _ := recorded(t, Options{OTLP: to}, nil, answering(okBody))
	post(g, url, toolCall("get", "{}"))
	g.Expect(recorder.end(t.Context())).To(Succeed())
	g.Expect(collected.headers).To(HaveLen(2), "spans and metrics")
	for _, header := range collected.headers {
		g.Expect(header.Get("Authorization")).To(Equal("Bearer a:b"))
		g.Expect(header.Get("X-Tenant")).To(Equal("acme"))
		g.Expect(header).NotTo(HaveKey("X-Of-The-Server"))
	}
}

// Exports may fail without the certificates, which must not end the server.
func TestCAFileWithoutACertificateIsLogged(t *testing.T) {
	g := NewWithT(t)
	secure := httptest.NewTLSServer(nil)
	defer secure.Close()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	file := filepath.Join(t.TempDir(), "ca.crt")
	logged := func(content []byte) string {
		g.Expect(os.WriteFile(file, content, 0o600)).To(Succeed())
		var log string
		_, err := newClient(&OTLP{CAFile: file}, funcr.New(func(_, args string) { log += args }, funcr.Options{}))
		g.Expect(err).NotTo(HaveOccurred())
		return log
	}
	g.Expect(logged(certificate)).To(BeEmpty())
	g.Expect(logged([]byte("none"))).To(And(ContainSubstring("no certificate in PEM format"), ContainSubstring(file)))
}

func TestShareOfTraces(t *testing.T) {
	g := NewWithT(t)
	collected, to := newCollector(t)
	to.SamplePercent = 0
	recorder, url, _ := recorded(t, Options{OTLP: to}, nil, answering(okBody))
	post(g, url, toolCall("get", "{}"))
	post(g, url, toolCall("get", "{}"), "Traceparent", "00-"+traceOfHeader+"-00f067aa0ba902b7-01")
	g.Expect(recorder.end(t.Context())).To(Succeed())
	g.Expect(collected.spans).To(HaveLen(1), "the client decides about its trace")
	g.Expect(collected.points(g, "mcp.method.name")).To(Equal(map[string]uint64{"tools/call": 2}), "metrics are those of all requests")
}

// A collector that is missing fails no request, delays none, and takes no memory.
func TestMissingCollectors(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-stop:
		case <-r.Context().Done():
		}
	}))
	defer slow.CloseClientConnections()
	refusing := httptest.NewServer(http.NotFoundHandler())
	defer refusing.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for name, endpoint := range map[string]string{"slow": slow.URL, "refusing": refusing.URL, "gone": gone.URL, "without an address": "http://no-such-host.invalid:4318"} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			lines, metrics := &output{}, NewMetrics()
			recorder, err := New(Options{
				Server: "tools", Lines: lines, Metrics: metrics, maxWait: testTimeout,
				OTLP: &OTLP{Endpoint: endpoint, SamplePercent: 100, MetricsInterval: 10 * time.Millisecond, spanDelay: time.Millisecond},
			})
			g.Expect(err).NotTo(HaveOccurred())
			handler := recorder.Protect(recorder.Forward(answering(okBody)))
			call := func() {
				w := httptest.NewRecorder()
				r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(toolCall("get", "{}")))
				r.Header.Set("Content-Type", "application/json")
				handler.ServeHTTP(w, r)
				g.Expect(w.Code).To(Equal(http.StatusOK))
			}
			const fill, calls = maxQueuedSpans + 600, 2000 // one batch may be on its way
			for range fill {
				call()
			}
			before := heap()
			for range calls {
				call()
			}
			lines.mu.Lock()
			size := int64(lines.text.Cap())
			lines.mu.Unlock()
			g.Expect(heap()-before-size).To(BeNumerically("<", 4<<20), "the queue is full, and does not grow")
			g.Expect(testutil.ToFloat64(metrics.spans.WithLabelValues(resultEnded))).To(BeEquivalentTo(fill + calls))
			failed := func() float64 { return testutil.ToFloat64(metrics.spans.WithLabelValues(resultFailed)) }
			failedBefore := failed()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				_ = recorder.Close(ctx) // It cannot export.
			}()
			g.Eventually(closed, testTimeout).Should(BeClosed())
			if name == "slow" {
				g.Expect(failed()-failedBefore).To(BeNumerically("<", maxQueuedSpans), "it does not wait for the whole queue")
			}
		})
	}
}

func heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc) //nolint:gosec // it is no such size
}

// The cost of records for each call, beside that of the server.
func BenchmarkRecord(b *testing.B) {
	collected := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer collected.Close()
	pipe, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer pipe.Close()
	to := &OTLP{Endpoint: collected.URL, SamplePercent: 100}
	message := toolCall("get", `{"a":"`+strings.Repeat("x", 200)+`"}`)
	for name, opts := range map[string]*Options{"off": nil, "audit": {Lines: pipe}, "otlp": {OTLP: to}, "both": {Lines: pipe, OTLP: to}} {
		b.Run(name, func(b *testing.B) {
			handler := answering(okBody)
			if opts != nil {
				recorder, err := New(*opts)
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = recorder.Close(context.Background()) }()
				handler = recorder.Protect(recorder.Forward(handler))
			}
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(message))
				r.Header.Set("Content-Type", "application/json")
				handler.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
}
