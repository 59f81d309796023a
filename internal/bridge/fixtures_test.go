package bridge

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
)

func notify(c chan<- os.Signal, signals ...os.Signal) { signal.Notify(c, signals...) }

// testBridge is a bridge under test with its log.
type testBridge struct {
	*WithT
	t      *testing.T
	bridge *Bridge
	http   *httptest.Server
	url    string
	logs   *logs
}

// logs collects log lines.
type logs struct {
	mu    sync.Mutex
	lines []string
}

func (l *logs) add(prefix, args string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, prefix+" "+args)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

// newTestBridge starts a bridge, and checks for leaks at the end of the test.
func newTestBridge(t *testing.T, command []string, change ...func(*Options)) *testBridge {
	t.Helper()
	pprof.SetGoroutineLabels(pprof.WithLabels(t.Context(), pprof.Labels(goroutinesOf, t.Name())))
	collected := &logs{}
	opts := DefaultOptions()
	opts.Command = command
	opts.StopGrace = 5 * time.Second
	opts.DrainTimeout = time.Minute
	opts.IOTimeout = testTimeout
	opts.Log = funcr.New(collected.add, funcr.Options{})
	for _, c := range change {
		c(&opts)
	}
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(testTimeout)
	b, err := New(opts)
	g.Expect(err).NotTo(HaveOccurred())
	// On a busy machine, even a server or client that works may take longer than the product allows.
	b.times.bodyGrace, b.times.discover, b.times.shutdown = testTimeout, testTimeout, testTimeout
	if slices.Contains(command, "deaf-to-discover") {
		b.times.discover = 100 * time.Millisecond
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", b.Handler())
	mux.Handle("/", b.AdminHandler())
	w := &testBridge{WithT: g, t: t, bridge: b, http: httptest.NewServer(mux), logs: collected}
	w.url = w.http.URL + "/mcp"
	openBridges(t.Name(), 1)
	t.Cleanup(w.closeAndCheckLeaks)
	return w
}

// limit changes limits of the bridge. A test that does so after it opened its sessions can open them on a busy machine.
func (w *testBridge) limit(change func(*Bridge)) {
	handler := w.http.Config.Handler
	w.http.Close() // after the last handler, which reads the limits
	change(w.bridge)
	w.http = httptest.NewServer(handler)
	w.url = w.http.URL + "/mcp"
}

// goroutinesOf labels the goroutines of a test with its name. They inherit it from the goroutine that
// starts them, so that tests with a bridge can run in parallel.
const goroutinesOf = "test"

// closeAndCheckLeaks closes the bridge, and checks for leaked processes and goroutines.
func (w *testBridge) closeAndCheckLeaks() {
	w.bridge.Close()
	w.http.CloseClientConnections()
	w.http.Close()
	http.DefaultClient.CloseIdleConnections()
	w.Expect(w.metric("children")).To(BeZero())
	w.Expect(w.metric("sessions")).To(BeZero())
	w.Expect(w.metric("requests_in_flight")).To(BeZero())
	if openBridges(w.t.Name(), -1) == 0 {
		w.Eventually(w.goroutines).Should(BeEmpty(), "goroutines are left")
	}
	if w.t.Failed() {
		w.t.Logf("the bridge's log:\n%s", w.logs)
	}
}

// bridgesOf counts the bridges of tests. Those of one test share its label, so that only the last one can check for
// goroutines.
var bridgesOf = struct {
	sync.Mutex
	open map[string]int
}{open: map[string]int{}}

// openBridges changes the number of bridges of a test, and returns it.
func openBridges(test string, by int) int {
	bridgesOf.Lock()
	defer bridgesOf.Unlock()
	bridgesOf.open[test] += by
	return bridgesOf.open[test]
}

// goroutines are the stacks of the goroutines that the test started and that are left. Those that
// signal.Notify started stay.
func (w *testBridge) goroutines() (left []string) {
	var all strings.Builder
	w.Expect(pprof.Lookup("goroutine").WriteTo(&all, 1)).To(Succeed())
	for stack := range strings.SplitSeq(all.String(), "\n\n") {
		isOfTest := strings.Contains(stack, fmt.Sprintf("%q:%q", goroutinesOf, w.t.Name()))
		if isOfTest && !strings.Contains(stack, "testing.tRunner") && !strings.Contains(stack, "os/signal.loop") {
			left = append(left, stack)
		}
	}
	return left
}

// metric is the sum over all labels of one of the bridge's metrics.
func (w *testBridge) metric(name string, labels ...string) float64 {
	families, err := w.bridge.metrics.registry.Gather()
	w.Expect(err).NotTo(HaveOccurred())
	var sum float64
	for _, f := range families {
		if f.GetName() != "fixpoint_bridge_"+name {
			continue
		}
		for _, m := range f.Metric {
			if labelled(m, labels) {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

func labelled(m *dto.Metric, values []string) bool {
	for _, v := range values {
		found := false
		for _, l := range m.Label {
			found = found || l.GetValue() == v
		}
		if !found {
			return false
		}
	}
	return true
}

// client is the official SDK's client.
type client struct {
	version   string
	options   mcp.ClientOptions
	quiet     bool
	transport http.RoundTripper
}

// connect opens a session with the SDK's client; it is closed with the test.
func (w *testBridge) connect(c client) *mcp.ClientSession {
	w.t.Helper()
	s, err := w.tryConnect(c)
	w.Expect(err).NotTo(HaveOccurred())
	w.t.Cleanup(func() { _ = s.Close() })
	return s
}

func (w *testBridge) tryConnect(c client) (*mcp.ClientSession, error) {
	return mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &c.options).Connect(w.t.Context(),
		&mcp.StreamableClientTransport{
			Endpoint: w.url, MaxRetries: -1, DisableStandaloneSSE: c.quiet,
			HTTPClient: &http.Client{Transport: c.transport},
		},
		&mcp.ClientSessionOptions{ProtocolVersion: c.version})
}

// callTool calls a tool and returns the text of its result.
func callTool(ctx context.Context, s *mcp.ClientSession, name string, in toolInput) (string, error) {
	res, err := s.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: in})
	if err != nil {
		return "", err
	}
	var said strings.Builder
	for _, c := range res.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			said.WriteString(t.Text)
		}
	}
	if res.IsError {
		return "", fmt.Errorf("the tool failed: %s", said.String())
	}
	return said.String(), nil
}

// reply is an HTTP response for tests without the SDK.
type httpReply struct {
	Status int
	Header http.Header
	Body   string
}

// post sends a raw message.
func (w *testBridge) post(body string, headers ...string) httpReply {
	w.t.Helper()
	resp := w.open(http.MethodPost, body, headers...)
	defer resp.Body.Close()
	var out bytes.Buffer
	_, err := io.Copy(&out, resp.Body)
	w.Expect(err).NotTo(HaveOccurred())
	return httpReply{resp.StatusCode, resp.Header, out.String()}
}

// open sends a request; the test reads the body of the response.
func (w *testBridge) open(method, body string, headers ...string) *http.Response {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.url, strings.NewReader(body))
	w.Expect(err).NotTo(HaveOccurred())
	setHeaders(req, headers...)
	resp, err := http.DefaultClient.Do(req)
	w.Expect(err).NotTo(HaveOccurred())
	return resp
}

// setHeaders sets the headers of a client, and those of the test: names and values in turn.
func setHeaders(r *http.Request, headers ...string) {
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
}

const initMessage = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`

// session sends initialize without the SDK and returns the session id.
func (w *testBridge) session() string {
	w.t.Helper()
	reply := w.post(initMessage)
	w.Expect(reply.Status).To(Equal(http.StatusOK), reply.Body)
	id := reply.Header.Get(headerSession)
	w.Expect(id).NotTo(BeEmpty())
	return id
}

// alive reports whether a process exists and is not a zombie.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
