package callpolicy

import (
	"io"
	"net/http"
	"net/http/httptest"
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
	synctest.Test(t, func(t *testing.T) {
		network := pipetest.Listen()
		transport := &http.Transport{DialContext: network.Dial}
		f := &fixture{WithT: NewWithT(t), url: "http://front.test", client: transport}
		front := &http.Server{Handler: f.protected(Options{CallTimeout: 50 * time.Millisecond}, server)}
		go func() { _ = front.Serve(network) }()
		defer func() {
			transport.CloseIdleConnections()
			_ = front.Close()
		}()
		test(f)
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
		"a stream": {func(w http.ResponseWriter, late <-chan struct{}) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, ": open\n\n")
			_ = http.NewResponseController(w).Flush()
			<-late
		}, ": open\n\nevent: message\ndata: " + timedOut + "\n\n", "text/event-stream"},
		"a stream that is aborted": {func(w http.ResponseWriter, late <-chan struct{}) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: {}\r\n\r\n")
			_ = http.NewResponseController(w).Flush()
			<-late
			panic(http.ErrAbortHandler)
		}, "data: {}\r\n\r\nevent: message\ndata: " + timedOut + "\n\n", "text/event-stream"},
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
