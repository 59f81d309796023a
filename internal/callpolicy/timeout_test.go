package callpolicy

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/internal/pipetest"
)

func recorder() *httptest.ResponseRecorder { return httptest.NewRecorder() }

func message(body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	return r
}

// inBubble runs a test in a bubble, with a server behind a policy that has a timeout.
func inBubble(t *testing.T, server http.HandlerFunc, test func(*fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { testPolicy(t, Options{CallTimeout: 50 * time.Millisecond}, server, test) })
}

// testPolicy runs a test of a server behind a policy. It is called in a bubble.
func testPolicy(t *testing.T, opts Options, server http.HandlerFunc, test func(*fixture)) {
	t.Helper()
	f := &fixture{WithT: NewWithT(t), url: "http://front.test"}
	transport, end := serveHTTP(f.protected(opts, server))
	defer end()
	f.client = transport
	test(f)
}

// serveHTTP serves a handler in a bubble. Requests by the transport reach it at each address.
func serveHTTP(handler http.Handler) (transport *http.Transport, end func()) {
	network := pipetest.Listen()
	transport = &http.Transport{DialContext: network.Dial}
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(network) }()
	return transport, func() {
		transport.CloseIdleConnections()
		_ = server.Close()
	}
}

// behindReverseProxy runs a test in a bubble, with a policy in front of a reverse proxy that forwards to a server.
func behindReverseProxy(t *testing.T, opts Options, server http.HandlerFunc, test func(*fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		transport, end := serveHTTP(server)
		defer end()
		proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "server.test"})
		proxy.Transport, proxy.ErrorLog = transport, log.New(io.Discard, "", 0)
		testPolicy(t, opts, proxy.ServeHTTP, test)
	})
}

const timedOut = `{"jsonrpc":"2.0","id":7,"error":{"code":-32000,"message":"the call took longer than the limit of 50ms of this MCP server","data":{"reason":"CallTimeout"}}}`

func TestCallsThatTakeTooLong(t *testing.T) {
	for name, c := range map[string]struct {
		// server responds after the timeout, unless it responds before.
		server func(w http.ResponseWriter, late <-chan struct{})
		want   string
		kind   string
	}{
		"no response": {func(_ http.ResponseWriter, late <-chan struct{}) { <-late }, timedOut, "application/json"},
		"a late response": {func(w http.ResponseWriter, late <-chan struct{}) {
			<-late
			w.Header().Set("Content-Type", "text/html")
			w.Header().Set("Content-Length", "4")
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, "late")
		}, timedOut, "application/json"},
		"in time": {func(w http.ResponseWriter, _ <-chan struct{}) { _, _ = io.WriteString(w, "{}") }, "{}", "text/plain; charset=utf-8"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w http.ResponseWriter, r *http.Request) { c.server(w, r.Context().Done()) }, func(f *fixture) {
				response := f.post(call("slow"))
				f.Expect(response.StatusCode).To(Equal(http.StatusOK))
				f.Expect(response.Header.Get("Content-Type")).To(Equal(c.kind))
				f.Expect(f.text(response)).To(Equal(c.want))
			})
		})
	}
}

// responseEvent is the response to a call.
const responseEvent = "event: message\r\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"content\":[]}}\r\n\r\n"

// The error follows unless the response was sent before.
func TestStreamsOfCallsThatTakeTooLong(t *testing.T) {
	const failed = "event: message\ndata: " + timedOut + "\n\n"
	for name, c := range map[string]struct {
		sent, want string
		aborts     bool
	}{
		"a comment":                {": open\n\n", ": open\n\n" + failed, false},
		"an aborted stream":        {"data: {}\r\n\r\n", "data: {}\r\n\r\n" + failed, true},
		"a request of the server":  {"data: {\"id\":1,\"method\":\"ping\"}\n\n", "data: {\"id\":1,\"method\":\"ping\"}\n\n" + failed, true},
		"the response":             {responseEvent, responseEvent, false},
		"the response, and more":   {responseEvent + "data: {}\n\n", responseEvent + "data: {}\n\n", true},
		"the response, and a part": {responseEvent + "data: {", responseEvent + "data: {", true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, c.sent)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				if c.aborts {
					panic(http.ErrAbortHandler)
				}
			}, func(f *fixture) {
				response := f.post(call("slow"))
				f.Expect(response.Header.Get("Content-Type")).To(Equal("text/event-stream"))
				f.Expect(f.text(response)).To(Equal(c.want))
			})
		})
	}
}

// A part of a message cannot be taken back, so the connection ends.
func TestPartOfAMessageBeforeTheTimeout(t *testing.T) {
	for _, kind := range []string{"text/event-stream", "application/json"} {
		t.Run(kind, func(t *testing.T) {
			inBubble(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", kind)
				_, _ = io.WriteString(w, "data: {\"id\"")
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				panic(http.ErrAbortHandler)
			}, func(f *fixture) {
				response := f.post(call("slow"))
				defer response.Body.Close()
				body, err := io.ReadAll(response.Body)
				f.Expect(err).To(HaveOccurred())
				f.Expect(string(body)).To(Equal("data: {\"id\""))
			})
		})
	}
}

// Servers should end the stream after the response, but need not. The call has ended in time.
func TestStreamThatStaysOpenAfterTheResponse(t *testing.T) {
	for name, body := range map[string]string{"result": responseEvent, "error": "data: {\"id\":7,\"error\":{\"code\":-32602}}\n\n: open\n\n"} {
		t.Run(name, func(t *testing.T) {
			var refused []string
			opts := Options{CallTimeout: 50 * time.Millisecond, Refused: func(reason string) { refused = append(refused, reason) }}
			behindReverseProxy(t, opts, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, body)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}, func(f *fixture) {
				f.Expect(f.text(f.post(call("fast"), "Mcp-Session-Id", "s"))).To(Equal(body))
				f.Expect(f.requests.Load()).To(BeEquivalentTo(1), "a call that has ended is not cancelled")
				f.Expect(refused).To(BeEmpty())
			})
		})
	}
}

func TestServerOfASessionLearnsThatACallIsCancelled(t *testing.T) {
	notices := make(chan *http.Request, 1)
	f := newFixture(t, Options{CallTimeout: 50 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "slow") {
			<-r.Context().Done()
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		notices <- r
		w.WriteHeader(http.StatusAccepted)
	})
	f.Expect(f.text(f.post(call("slow"), "Mcp-Session-Id", "s", "Mcp-Method", "tools/call", "Mcp-Name", "slow", "Mcp-Param-A", "b", "User", "ann"))).To(Equal(timedOut))
	var notice *http.Request
	f.Eventually(notices, testTimeout).Should(Receive(&notice))
	body, err := io.ReadAll(notice.Body)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(body).To(MatchJSON(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"the call took too long"}}`))
	f.Expect(notice.ContentLength).To(BeEquivalentTo(len(body)))
	f.Expect(notice.Header).To(And(HaveKeyWithValue("Mcp-Session-Id", []string{"s"}), HaveKeyWithValue("Mcp-Method", []string{"notifications/cancelled"}),
		HaveKeyWithValue("User", []string{"ann"}), Not(HaveKey("Mcp-Name")), Not(HaveKey("Mcp-Param-A"))))
	f.Expect(f.text(f.post(call("slow")))).To(Equal(timedOut))
	f.Expect(notices).To(BeEmpty(), "without a session, the end of the connection cancels the call")
}

func TestOtherRequestsHaveNoTimeout(t *testing.T) {
	f := newFixture(t, Options{CallTimeout: time.Nanosecond}, func(w http.ResponseWriter, r *http.Request) {
		_, deadline := r.Context().Deadline()
		NewWithT(t).Expect(deadline).To(BeFalse())
		echo(w, r)
	})
	f.Expect(f.text(f.post(ping))).To(Equal(ping))
	response, err := http.Get(f.url)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(f.text(response)).To(BeEmpty())
}

func TestAbortedResponsesStayAborted(t *testing.T) {
	g := NewWithT(t)
	policy, err := New(Options{CallTimeout: testTimeout})
	g.Expect(err).NotTo(HaveOccurred())
	for _, failure := range []any{http.ErrAbortHandler, "a bug"} {
		g.Expect(func() {
			policy.Protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(failure) })).ServeHTTP(recorder(), message(call("get")))
		}).To(PanicWith(failure))
	}
}
