package bridge

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/internal/peers/peerstest"
)

// refusal is a response with its reason. It shows a second response, which a client does not.
type refusal struct {
	*httptest.ResponseRecorder
	reason string
}

// SetRefusal implements [callrecord.Refuser].
func (r *refusal) SetRefusal(reason string) { r.reason = reason }

func TestRefusals(t *testing.T) {
	w := newTestBridge(t, tinyServer())
	id := w.session()
	ping := `{"jsonrpc":"2.0","id":7,"method":"ping"}`
	cases := map[string]struct {
		method, body string
		headers      []string
		status, code int
		message      string
	}{
		"not JSON":                  {"POST", "hello", []string{headerSession, id}, 400, codeParse, "not one JSON-RPC message"},
		"a batch":                   {"POST", "[" + ping + "]", []string{headerSession, id}, 400, codeParse, "batches"},
		"neither call nor answer":   {"POST", `{"jsonrpc":"2.0"}`, []string{headerSession, id}, 400, codeParse, "not one JSON-RPC message"},
		"no session":                {"POST", ping, nil, 400, codeInvalidRequest, "Mcp-Session-Id is missing"},
		"initialize without an id":  {"POST", `{"jsonrpc":"2.0","method":"initialize"}`, nil, 400, codeInvalidRequest, "Mcp-Session-Id is missing"},
		"unknown session":           {"POST", ping, []string{headerSession, "other"}, 404, codeSessionNotFound, "initialize again"},
		"unknown version":           {"POST", ping, []string{headerSession, id, headerVersion, "1999-01-01"}, 400, codeInvalidRequest, "not a supported version with sessions"},
		"another content type":      {"POST", ping, []string{headerSession, id, "Content-Type", "text/plain"}, 415, codeInvalidRequest, "application/json"},
		"no events accepted":        {"POST", ping, []string{headerSession, id, "Accept", "application/json"}, 406, codeInvalidRequest, "text/event-stream"},
		"another method":            {"PUT", ping, []string{headerSession, id}, 405, codeInvalidRequest, "GET, POST or DELETE"},
		"stream without a session":  {"GET", "", nil, 400, codeInvalidRequest, "Mcp-Session-Id is missing"},
		"stream without events":     {"GET", "", []string{headerSession, id, "Accept", "application/json"}, 406, codeInvalidRequest, "Accept must contain text/event-stream"},
		"stateless stream of one":   {"GET", "", []string{headerSession, id, headerVersion, "2026-07-28"}, 400, codeInvalidRequest, "not a supported version with sessions"},
		"stateless stream":          {"GET", "", []string{headerVersion, "2026-07-28"}, 405, codeInvalidRequest, "subscriptions/listen"},
		"end of no session":         {"DELETE", "", nil, 400, codeInvalidRequest, "Mcp-Session-Id is missing"},
		"end of unknown session":    {"DELETE", "", []string{headerSession, "other"}, 404, codeSessionNotFound, "session not found"},
		"sessionless server":        {"POST", statelessCall, statelessHeaders, 400, -32022, "this server requires a session"}, // for which clients initialize
		"method header missing":     {"POST", statelessCall, []string{headerVersion, "2026-07-28"}, 400, codeHeaderMismatch, "Mcp-Method"},
		"name header differs":       {"POST", statelessCall, []string{headerVersion, "2026-07-28", headerMethod, "tools/call", headerName, "other"}, 400, codeHeaderMismatch, "Mcp-Name"},
		"method differs in session": {"POST", ping, []string{headerSession, id, headerMethod, "tools/list"}, 400, codeHeaderMismatch, "Mcp-Method"},
		"body of a stream":          {"GET", "{}", []string{headerSession, id}, 400, codeInvalidRequest, "only POST has a body"},
		"body of an end":            {"DELETE", "{}", []string{headerSession, id}, 400, codeInvalidRequest, "only POST has a body"},
		"long id":                   {"POST", `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", MaxID) + `","method":"ping"}`, []string{headerSession, id}, 400, codeInvalidRequest, "use shorter ones"},
		"version header missing":    {"POST", statelessCall, nil, 400, codeHeaderMismatch, "Mcp-Protocol-Version is missing"},
		"version header differs":    {"POST", statelessCall, []string{headerVersion, "2026-07-29", headerMethod, "tools/call", headerName, "echo"}, 400, codeHeaderMismatch, "2026-07-29"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := httptest.NewRequestWithContext(t.Context(), c.method, w.url, strings.NewReader(c.body))
			setHeaders(r, c.headers...)
			resp := &refusal{ResponseRecorder: httptest.NewRecorder()}

			w.bridge.Handler().ServeHTTP(resp, r)

			body := resp.Body.String()
			g.Expect(resp.Code).To(Equal(c.status), body)
			g.Expect(body).To(And(ContainSubstring(c.message), ContainSubstring(`"code":%d,`, c.code)))
			g.Expect(strings.Count(body, "jsonrpc")).To(Equal(1), "there is one response")
			if c.status == http.StatusMethodNotAllowed {
				g.Expect(resp.Header().Get("Allow")).To(Equal(map[string]string{"PUT": "GET, POST, DELETE", "GET": "POST"}[c.method]))
			}
			connection := ""
			if c.message == "only POST has a body" {
				connection = "close" // the body is not read
			}
			g.Expect(resp.Header().Get("Connection")).To(Equal(connection))
			reason := reasonInvalid
			if c.status == http.StatusNotFound {
				reason = reasonNoSession
			}
			g.Expect(resp.reason).To(Equal(reason))
		})
	}
	w.Expect(w.metric("refused_requests_total", "")).To(BeZero(), "those without a reason are errors of clients")
}

func TestStatelessErrorsHaveTheirStatus(t *testing.T) {
	w := newTestBridge(t, server("sdk"))
	unknown := strings.Replace(statelessCall, "tools/call", "vendor/unknown", 1)
	reply := w.post(unknown, headerVersion, "2026-07-28", headerMethod, "vendor/unknown")
	w.Expect(reply.Status).To(Equal(http.StatusNotFound))
	w.Expect(reply.Body).To(ContainSubstring(`"id":"x"`))
	encoded := w.post(statelessCall, headerVersion, "2026-07-28", headerMethod, "tools/call", headerName, "=?base64?ZWNobw==?=")
	w.Expect(encoded.Status).To(Equal(http.StatusOK))
}

func TestServersWithoutSessionsHaveNoInitialize(t *testing.T) {
	w := newTestBridge(t, server("stateless-only"))
	legacy := []string{headerVersion, "2025-11-25"}
	expectMessage := func(reply httpReply, id, status, code int, data string) {
		t.Helper()
		w.Expect(reply.Status).To(Equal(status), reply.Body)
		w.Expect(reply.Body).To(And(ContainSubstring(`"id":%d,`, id), ContainSubstring(`"code":%d,`, code), ContainSubstring(data)))
	}
	// Before the bridge knows what the server speaks, the server responds.
	expectMessage(w.post(initMessage), 1, 404, codeMethodNotFound, "unknown method")

	w.Expect(w.bridge.Check(t.Context())).To(Succeed())
	started := w.metric("child_starts_total")

	expectMessage(w.post(initMessage), 1, 404, codeMethodNotFound, `"supported":["2027-01-15","2026-07-28"]`)
	expectMessage(w.post(initMessage), 1, 404, codeMethodNotFound, "no sessions and no initialize: use a client for 2027-01-15, 2026-07-28")
	list := `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`
	expectMessage(w.post(list, legacy...), 3, 400, codeUnsupportedVersion, `"requested":"2025-11-25"`)
	expectMessage(w.post(list), 3, 400, codeHeaderMismatch, "Mcp-Protocol-Version is missing")
	w.Expect(w.metric("child_starts_total")).To(Equal(started), "nothing is started for them")

	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		resp := w.open(method, "", headerSession, "x")
		resp.Body.Close()
		w.Expect(resp.StatusCode).To(Equal(http.StatusMethodNotAllowed))
		w.Expect(resp.Header.Get("Allow")).To(Equal("POST"))
	}
	reply := w.post(statelessCall, append([]string{headerSession, "ignored"}, statelessHeaders...)...)
	w.Expect(reply.Status).To(Equal(http.StatusOK), reply.Body)
	w.Expect(reply.Header).NotTo(HaveKey(headerSession))
}

// The bridge does not interpret methods.
func TestUnknownMethodsAreRelayed(t *testing.T) {
	w := newTestBridge(t, tinyServer())
	id := w.session()
	reply := w.post("{\n \"jsonrpc\":\"2.0\",\r\n \"id\":4, \"method\":\"tasks/get\"\n}", headerSession, id)
	w.Expect(reply.Status).To(Equal(http.StatusOK))
	w.Expect(reply.Body).To(ContainSubstring(`"id":4`))
	w.Expect(w.post(`{"jsonrpc":"2.0","method":"notifications/vendor"}`, headerSession, id).Status).To(Equal(http.StatusAccepted))
}

func TestTheNewestStandaloneStreamWins(t *testing.T) {
	w := newTestBridge(t, tinyServer())
	id := w.session()
	first := w.open(http.MethodGet, "", headerSession, id)
	defer first.Body.Close()
	second := w.open(http.MethodGet, "", headerSession, id)
	defer second.Body.Close()
	events, err := io.ReadAll(first.Body)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(string(events)).To(ContainSubstring("\nretry: 1000\n\n"), "two streams of one client do not close each other in a loop")
}

func TestKeepAlive(t *testing.T) {
	w := newTestBridge(t, tinyServer(), func(o *Options) { o.KeepAlive = 10 * time.Millisecond })
	resp := w.open(http.MethodGet, "", headerSession, w.session())
	defer resp.Body.Close()
	buf := make([]byte, 64)
	w.Eventually(func() string { n, _ := resp.Body.Read(buf); return string(buf[:n]) }).Should(ContainSubstring(": keep-alive"))
}

// served is a bridge that serves like cmd/mcp-bridge.
type served struct {
	*testBridge
	mcp   net.Listener
	admin string
	stop  context.CancelFunc
	force context.CancelFunc
	done  chan error
}

func (w *testBridge) serve() *served { return w.serveWith(Listeners{}) }

// serveWith opens the listeners of clients and of health.
func (w *testBridge) serveWith(l Listeners) *served {
	for _, listener := range []*net.Listener{&l.MCP, &l.Admin} {
		var err error
		*listener, err = net.Listen("tcp", "127.0.0.1:0")
		w.Expect(err).NotTo(HaveOccurred())
	}
	ctx, stop := context.WithCancel(w.t.Context())
	force, forced := context.WithCancel(w.t.Context())
	s := &served{testBridge: w, mcp: l.MCP, admin: "http://" + l.Admin.Addr().String(), stop: stop, force: forced, done: make(chan error, 1)}
	w.url = "http://" + l.MCP.Addr().String() + "/mcp"
	go func() { s.done <- w.bridge.Serve(ctx, force, l) }()
	w.t.Cleanup(func() { stop(); forced() })
	return s
}

func (s *served) status(path string) int {
	resp, err := http.Get(s.admin + path)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func TestReadiness(t *testing.T) {
	w := newTestBridge(t, server("sdk")).serve()
	w.Eventually(func() int { return w.status(readyPath) }).Should(Equal(http.StatusOK))
	w.Expect(w.status(healthPath)).To(Equal(http.StatusOK))
	w.Expect(w.status(metricsPath)).To(Equal(http.StatusOK))
	w.stop()
	w.Eventually(w.done).Should(Receive(BeNil()))
}

func TestNotReadyBeforeTheServerResponds(t *testing.T) {
	w := newTestBridge(t, server("silent"), func(o *Options) { o.StopGrace = 50 * time.Millisecond }).serve()
	w.Eventually(func() int { return w.status(healthPath) }).Should(Equal(http.StatusOK))
	w.Expect(w.status(readyPath)).To(Equal(http.StatusServiceUnavailable))
	w.stop()
	w.Eventually(w.done).Should(Receive(BeNil()))
}

func TestServeFailsWithABadCommand(t *testing.T) {
	w := newTestBridge(t, []string{"no-such-server"}).serve()
	w.Eventually(w.done).Should(Receive(MatchError(ContainSubstring("was not found in the image"))))
	_, f := w.bridge.begin(t.Context(), honestAddress)
	w.Expect(f).To(HaveField("Reason", reasonDraining), "nothing would end a session that starts now")
}

// Otherwise the pod would stay ready without serving clients.
func TestServeEndsWithAFailedListener(t *testing.T) {
	w := newTestBridge(t, tinyServer()).serveWith(Listeners{SkipCheck: true})
	w.session()

	w.Expect(w.mcp.Close()).To(Succeed())

	w.Eventually(w.done, "20s").Should(Receive(MatchError(HavePrefix("serving: "))))
	w.Expect(w.metric("children")).To(BeZero(), "no process is left")
}

func TestDrainLetsRequestsFinish(t *testing.T) {
	w := newTestBridge(t, tinyServer(), func(o *Options) { o.DrainIdleTimeout = time.Hour }).serve()
	id := w.session()
	w.Eventually(func() int { return w.status(readyPath) }).Should(Equal(http.StatusOK))
	w.stop()
	w.Eventually(func() int { return w.status(readyPath) }).Should(Equal(http.StatusServiceUnavailable))

	// No new sessions start; the old one continues.
	reply := w.post(initMessage)
	w.Expect(reply.Status).To(Equal(http.StatusServiceUnavailable))
	w.Expect(reply.Body).To(ContainSubstring(reasonDraining))
	resp := w.open(http.MethodPost, ping, headerSession, id)
	defer resp.Body.Close()
	w.Expect(io.ReadAll(resp.Body)).To(ContainSubstring(`"id":7`))
	w.Expect(resp.Close).To(BeFalse(), "another connection would reach a pod that does not have the session")
	w.Expect(w.metric("sessions_started_total")).To(Equal(1.0), "no session is evicted for one that is refused")
	w.Expect(w.done).NotTo(Receive())

	w.open(http.MethodDelete, "", headerSession, id).Body.Close()
	w.Eventually(w.done).Should(Receive(BeNil()))
}

func TestDrainEndsIdleSessions(t *testing.T) {
	w := newTestBridge(t, tinyServer(), func(o *Options) { o.DrainIdleTimeout = 50 * time.Millisecond }).serve()
	w.session()
	w.stop()
	w.Eventually(w.done).Should(Receive(BeNil()))
	w.Eventually(func() float64 { return w.metric("sessions_ended_total", reasonIdle) }).Should(Equal(1.0))
}

func TestDrainTimeoutEndsRequestsWithAnError(t *testing.T) {
	t.Parallel()
	w := newTestBridge(t, server("deaf-to-discover"), func(o *Options) {
		o.StopGrace = 500 * time.Millisecond
		o.DrainTimeout = 1500 * time.Millisecond
		o.DrainIdleTimeout = time.Hour
	}).serve()
	w.pendingRequestEnds(func() {
		w.stop()
		w.Eventually(w.done).Should(Receive(BeNil()))
	})
	w.Expect(w.logs.String()).To(ContainSubstring("Drain timed out"))
}

func TestSecondSignalSkipsTheDrain(t *testing.T) {
	w := newTestBridge(t, server("deaf-to-discover"), func(o *Options) { o.DrainTimeout = time.Hour }).serve()
	w.pendingRequestEnds(func() {
		w.stop()
		w.force()
		w.Eventually(w.done).Should(Receive(BeNil()))
	})
}

// The bridge cannot tell a server that does not read that a subscription is cancelled, and must not wait for it.
func TestServerThatDoesNotReadDoesNotDelayTheDrain(t *testing.T) {
	for name, end := range map[string]struct {
		timeout time.Duration
		isLate  bool
	}{"a second signal": {time.Hour, false}, "the timeout": {time.Second, true}} {
		t.Run(name, func(t *testing.T) {
			w := newTestBridge(t, []string{"sleep", "3600"}, func(o *Options) {
				o.StopGrace, o.DrainTimeout = 50*time.Millisecond, end.timeout
			}).serveWith(Listeners{SkipCheck: true})
			w.bridge.speaks.Store(&generations{stateless: []string{"2026-07-28"}})
			listen := strings.Replace(statelessCall, "tools/call", "subscriptions/listen", 1)
			_, listened := w.postBlocked(listen, headerVersion, "2026-07-28", headerMethod, "subscriptions/listen")
			w.Eventually(func() float64 { return w.metric("messages_total", toServer) }).Should(Equal(1.0))
			large := strings.NewReplacer(`"id":"x",`, "", "tools/call", "notifications/x", "hi", strings.Repeat("x", 1<<20)).Replace(statelessCall)
			_, notified := w.postBlocked(large, headerVersion, "2026-07-28", headerMethod, "notifications/x")
			child, f := w.bridge.shared.get(t.Context())
			w.Expect(f).To(BeNil())
			w.Eventually(func() (isBlocked bool) {
				if isBlocked = !child.child.writing.TryLock(); !isBlocked {
					child.child.writing.Unlock()
				}
				return isBlocked && w.metric("messages_total", toServer) == 2
			}).Should(BeTrue())

			w.stop()

			w.Eventually(listened).Should(BeClosed(), "the subscription ends")
			if !end.isLate {
				w.force()
			}
			w.Eventually(w.done).Should(Receive(BeNil()))
			w.Eventually(notified).Should(BeClosed())
		})
	}
}

// pendingRequestEnds runs a function while a request is in flight.
func (s *served) pendingRequestEnds(do func()) {
	id := s.session()
	answer := make(chan string, 1)
	go func() { answer <- s.post(`{"jsonrpc":"2.0","id":2,"method":"never"}`, headerSession, id).Body }()
	s.Eventually(func() float64 { return s.metric("requests_in_flight") }).Should(Equal(1.0))
	do()
	s.Eventually(answer).Should(Receive(And(ContainSubstring(`"id":2`), ContainSubstring(reasonDraining))))
}

// Clients send requests on one connection continuously: without a session, or in one of another replica. No request fails
// until the response tells the client to close the connection.
func TestDrainFailsNoRequestOnKeptConnections(t *testing.T) {
	t.Parallel()
	slow := func(o *Options) { o.DrainIdleTimeout = time.Hour }
	for name, connect := range map[string]func(*testing.T) (w *served, body string, headers []string){
		"without a session": func(t *testing.T) (*served, string, []string) {
			return newTestBridge(t, server("sdk"), slow).serve(), statelessCall, statelessHeaders
		},
		"in a session of another replica": func(t *testing.T) (*served, string, []string) {
			keys := peerstest.Keys(t, time.Now().Add(-time.Hour))
			id := newReplica(t, tinyServer(), keys, "a").session()
			return newReplica(t, tinyServer(), keys, "a", slow), ping, []string{headerSession, id}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, body, headers := connect(t)
			w.bridge.times.lastRequest = time.Hour // the client may be slow
			answered := func() (closes bool) {
				resp := w.open(http.MethodPost, body, headers...)
				defer resp.Body.Close()
				answer, err := io.ReadAll(resp.Body)
				w.Expect(err).NotTo(HaveOccurred())
				w.Expect(resp.StatusCode).To(Equal(http.StatusOK), "%s", answer)
				return resp.Close
			}
			w.Expect(answered()).To(BeFalse())

			w.stop()

			w.Eventually(answered).Should(BeTrue(), "the response asks to close the connection")
			w.Expect(w.done).NotTo(Receive(), "the drain waits for the last request of other connections")
			w.force()
			w.Eventually(w.done).Should(Receive(BeNil()))
		})
	}
}

// A client that sent its last request a minute ago may be sending the next one.
func TestDrainWaitsForClientsWhoseConnectionsAreKept(t *testing.T) {
	for used, want := range map[time.Duration]time.Duration{keepAlive - time.Second: lastRequestTime, keepAlive: 0} {
		synctest.Test(t, func(t *testing.T) {
			b := &Bridge{opts: Options{DrainIdleTimeout: time.Hour}, times: times{lastRequest: lastRequestTime}}
			b.shared = &shared{bridge: b, used: time.Now().Add(-used)}
			begun := time.Now()

			b.waitForLastRequests(t.Context())

			NewWithT(t).Expect(time.Since(begun)).To(Equal(want), "used %s ago", used)
		})
	}
}

// The shared child counts: a request without a session that is pending gets its response.
func TestDrainWaitsForRequestsWithoutASession(t *testing.T) {
	t.Parallel()
	w := newTestBridge(t, server("sdk"), func(o *Options) { o.DrainIdleTimeout = time.Millisecond }).serve()
	pending := make(chan httpReply, 1)
	go func() {
		call := strings.Replace(statelessCall, `"name":"echo"`, `"name":"wait-for-release"`, 1)
		pending <- w.post(call, headerVersion, "2026-07-28", headerMethod, "tools/call", headerName, "wait-for-release")
	}()
	w.Eventually(w.logs.String).Should(ContainSubstring("waiting for release"))

	w.stop()

	w.Eventually(func() float64 { return w.metric("draining") }).Should(Equal(1.0))
	// Without the request nothing delays the end of the drain but sending the last responses.
	w.Consistently(pending, 2*shutdownGrace).ShouldNot(Receive())
	release := w.post(strings.Replace(statelessCall, `"name":"echo"`, `"name":"release"`, 1),
		headerVersion, "2026-07-28", headerMethod, "tools/call", headerName, "release")
	w.Expect(release.Body).To(ContainSubstring("done"))
	var reply httpReply
	w.Eventually(pending).Should(Receive(&reply))
	w.Expect(reply.Body).To(ContainSubstring("released"))
	w.Eventually(w.done).Should(Receive(BeNil()))
}

func TestDrainEndsSubscriptions(t *testing.T) {
	t.Parallel()
	w := newTestBridge(t, server("sdk")).serve()
	listen := strings.NewReplacer("tools/call", "subscriptions/listen",
		`"name":"echo","arguments":{"text":"hi"}`, `"notifications":{"toolsListChanged":true}`).Replace(statelessCall)
	resp := w.open(http.MethodPost, listen, headerVersion, "2026-07-28", headerMethod, "subscriptions/listen")
	defer resp.Body.Close()
	w.stop()
	body, err := io.ReadAll(resp.Body)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(string(body)).To(And(ContainSubstring("acknowledged"), ContainSubstring(`subscriptionId":"x"`), ContainSubstring(reasonDraining)))
	w.Eventually(w.done).Should(Receive(BeNil()))
}

// Otherwise a client that subscribes again on the same connection would delay the end of the drain.
func TestNoSubscriptionsStartDuringTheDrain(t *testing.T) {
	unhurried := newTestBridge(t, server("sdk"), func(o *Options) { o.DrainIdleTimeout = time.Hour })
	unhurried.bridge.times.lastRequest = time.Hour
	w := unhurried.serve()
	w.Expect(w.post(statelessCall, statelessHeaders...).Status).To(Equal(http.StatusOK))
	w.stop()
	w.Eventually(func() float64 { return w.metric("draining") }).Should(Equal(1.0))
	listen := strings.NewReplacer("tools/call", "subscriptions/listen",
		`"name":"echo","arguments":{"text":"hi"}`, `"notifications":{"toolsListChanged":true}`).Replace(statelessCall)

	resp := w.open(http.MethodPost, listen, headerVersion, "2026-07-28", headerMethod, "subscriptions/listen")

	defer resp.Body.Close()
	w.Expect(resp.StatusCode).To(Equal(http.StatusServiceUnavailable))
	w.Expect(resp.Close).To(BeTrue(), "the next request should reach another pod")
	w.Expect(w.post(statelessCall, statelessHeaders...).Status).To(Equal(http.StatusOK), "calls are served")
	w.force()
	w.Eventually(w.done).Should(Receive(BeNil()))
}

// A tool may take longer than the timeout of the server to send a response, and a stream is open for hours.
func TestResponsesMayBeginAfterTheTimeoutOfTheServer(t *testing.T) {
	early := []string{"sed", "-u", "-n",
		`s/.*"id":\([0-9]*\).*/{"jsonrpc":"2.0","id":\1,"result":{}}\n{"jsonrpc":"2.0","method":"notifications\/early"}/p`}
	keys := peerstest.Keys(t, time.Now().Add(-time.Hour))
	for name, isForwarded := range map[string]bool{"in a session": false, "in a session of another replica": true} {
		t.Run(name, func(t *testing.T) {
			w := newReplica(t, early, keys, "a").testBridge
			owner := w
			if isForwarded {
				owner = newReplica(t, early, keys, "a").testBridge
			}
			id := owner.session()
			w.http.Close()
			w.http = httptest.NewUnstartedServer(w.bridge.Handler())
			w.http.Config.WriteTimeout = time.Nanosecond
			w.http.Start()
			w.url = w.http.URL + "/mcp"

			w.Expect(w.post(ping, headerSession, id).Body).To(ContainSubstring(`"id":7`))
			w.Expect(w.post(`{"jsonrpc":"2.0","method":"notifications/x"}`, headerSession, id).Status).To(Equal(http.StatusAccepted))
			w.Expect(w.post(strings.Replace(ping, "7", `"`+strings.Repeat("<", MaxID-2)+`"`, 1)).Status).To(Equal(http.StatusBadRequest))
			stream := w.open(http.MethodGet, "", headerSession, id)
			defer stream.Body.Close()
			lines := bufio.NewReader(stream.Body)
			w.Eventually(func() string { line, _ := lines.ReadString('\n'); return line }).Should(ContainSubstring("notifications/early"))
			end := w.open(http.MethodDelete, "", headerSession, id)
			w.Expect(end.Body.Close()).To(Succeed())
			w.Expect(end.StatusCode).To(Equal(http.StatusNoContent))
			w.Eventually(func() error { _, err := lines.ReadString('\n'); return err }).Should(MatchError("EOF"))
			w.bridge.speaks.Store(&generations{stateless: []string{"2026-07-28"}})
			w.Expect(w.post(statelessCall, statelessHeaders...).Body).To(ContainSubstring(`"id":"x"`))
		})
	}
}

func TestClientsCannotHoldConnections(t *testing.T) {
	g, s := NewWithT(t), newServer(http.NotFoundHandler(), time.Second)
	g.Expect(s.ReadHeaderTimeout).To(Equal(10 * time.Second))
	g.Expect(s.WriteTimeout).To(Equal(time.Second))
	g.Expect(s.IdleTimeout).To(Equal(2 * time.Minute))
	g.Expect(s.MaxHeaderBytes).To(Equal(64 << 10))

	peer := newReplica(t, tinyServer(), peerstest.Keys(t, time.Now()), "a").bridge.peers.Server(http.NotFoundHandler())
	g.Expect(peer.ReadHeaderTimeout).To(Equal(10*time.Second), "it is also that of the handshake, which anybody can begin")
	g.Expect(peer.IdleTimeout).To(Equal(2 * time.Minute))
	g.Expect(peer.MaxHeaderBytes).To(BeNumerically(">", s.MaxHeaderBytes), "replicas add headers")
}
