package bridge

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestTooManySessions(t *testing.T) {
	w := newTestBridge(t, tinyServer(), func(o *Options) { o.MaxSessions = 2 })
	first, second := w.session(), w.session()
	for _, id := range []string{first, second} { // sessions that are not used could be evicted
		w.Expect(w.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, headerSession, id).Status).To(Equal(http.StatusAccepted))
	}

	reply := w.post(initMessage)
	w.Expect(reply.Status).To(Equal(http.StatusServiceUnavailable))
	w.Expect(reply.Header.Get("Retry-After")).To(Equal("5"))
	w.Expect(reply.Body).To(MatchJSON(`{"jsonrpc":"2.0","id":1,"error":{"code":-32000,
		"message":"the limit of 2 sessions is reached; try again later",
		"data":{"reason":"TooManySessions"}}}`))
	w.Eventually(func() float64 { return w.metric("refused_requests_total", reasonTooManySessions) }).Should(Equal(1.0))

	w.open(http.MethodDelete, "", headerSession, first).Body.Close()
	w.Eventually(func() int { return w.post(initMessage).Status }).Should(Equal(http.StatusOK))
}

func TestTooManyRequests(t *testing.T) {
	w := newTestBridge(t, server("deaf-to-discover"), func(o *Options) { o.MaxRequests = 1 })
	id := w.session()
	first := make(chan *http.Response, 1)
	go func() {
		first <- w.open(http.MethodPost, `{"jsonrpc":"2.0","id":2,"method":"never/answered"}`, headerSession, id)
	}()
	w.Eventually(func() float64 { return w.metric("requests_in_flight") }).Should(Equal(1.0))

	reply := w.post(`{"jsonrpc":"2.0","id":3,"method":"ping"}`, headerSession, id)
	w.Expect(reply.Status).To(Equal(http.StatusTooManyRequests))
	w.Expect(reply.Header.Get("Retry-After")).To(Equal("1"))

	w.open(http.MethodDelete, "", headerSession, id).Body.Close()
	resp := <-first
	defer resp.Body.Close()
	line, err := bufio.NewReader(resp.Body).ReadString('}')
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(line).To(ContainSubstring("the client ended the session"))
}

func TestIdleSessionsEnd(t *testing.T) {
	w := newTestBridge(t, tinyServer(), func(o *Options) { o.IdleTimeout = time.Millisecond }) // shorter than the start
	id := w.session()
	w.Eventually(func() float64 { return w.metric("sessions_ended_total", reasonIdle) }).Should(Equal(1.0))
	w.Expect(w.post(`{"jsonrpc":"2.0","id":3,"method":"ping"}`, headerSession, id).Status).To(Equal(http.StatusNotFound))
}

// The idle timer runs from the start of the process, before initialize is registered.
func TestSessionsThatStartAreNotIdle(t *testing.T) {
	w := newTestBridge(t, tinyServer())
	s, f := w.bridge.begin(t.Context(), honestAddress)
	w.Expect(f).To(BeNil())
	s.setUnused(time.Hour)
	s.checkIdle()
	w.Expect(s.ended()).To(BeNil())
}

func TestRequestsInFlightKeepASession(t *testing.T) {
	t.Parallel()
	w := newTestBridge(t, server("deaf-to-discover"))
	id := w.session()
	resp := make(chan *http.Response, 1)
	go func() {
		resp <- w.open(http.MethodPost, `{"jsonrpc":"2.0","id":2,"method":"never"}`, headerSession, id)
	}()
	w.Eventually(func() float64 { return w.metric("requests_in_flight") }).Should(Equal(1.0))
	w.bridge.lookup(id).shortenIdleTimeout(10 * time.Millisecond) // not before, so that the request finds the session
	w.Consistently(func() float64 { return w.metric("sessions") }, "2500ms").Should(Equal(1.0))
	w.open(http.MethodDelete, "", headerSession, id).Body.Close()
	(<-resp).Body.Close()
}

func TestIdleSharedServerEnds(t *testing.T) {
	t.Parallel()
	w := newTestBridge(t, server("sdk"), func(o *Options) { o.IdleTimeout = time.Second })
	w.Expect(w.post(statelessCall, statelessHeaders...).Status).To(Equal(http.StatusOK))
	w.Eventually(func() float64 { return w.metric("children") }).Should(BeZero())
	w.Expect(w.post(statelessCall, statelessHeaders...).Body).To(ContainSubstring(`"text":"hi"`))
	w.Expect(w.metric("child_crashes_total")).To(BeZero())
}

// A request has the shared child before it is one of its calls.
func TestRequestsInFlightKeepTheSharedServer(t *testing.T) {
	w := newTestBridge(t, tinyServer())
	w.Expect(w.bridge.shared.enter(honestAddress)).To(BeNil())
	child, f := w.bridge.shared.get(t.Context())
	w.Expect(f).To(BeNil())
	child.becomeIdle()
	number, f := child.add(newSharedCall(&envelope{}))
	w.Expect(f).To(BeNil())
	child.take(number)
	w.bridge.shared.leave(honestAddress)
	child.becomeIdle()
	w.Eventually(func() float64 { return w.metric("children") }).Should(BeZero())
}

// becomeIdle checks whether the child is idle, as if it had not been used for an hour.
func (w *worker) becomeIdle() {
	w.mu.Lock()
	w.lastUse = time.Now().Add(-time.Hour)
	w.mu.Unlock()
	w.checkIdle()
}

func TestNotificationsDoNotKeepASharedServerThatDoesNotRead(t *testing.T) {
	w := newTestBridge(t, []string{"sleep", "3600"}, func(o *Options) { o.StopGrace = 50 * time.Millisecond })
	w.bridge.speaks.Store(&generations{stateless: []string{"2026-07-28"}})
	status := make(chan int, 1)
	go func() {
		large := strings.NewReplacer(`"id":"x",`, "", "tools/call", "notifications/x", "hi", strings.Repeat("x", 1<<20)).Replace(statelessCall)
		status <- w.post(large, headerVersion, "2026-07-28", headerMethod, "notifications/x").Status
	}()
	w.Eventually(func() float64 { return w.metric("messages_total", toServer) }).Should(Equal(1.0))
	child, f := w.bridge.shared.get(t.Context())
	w.Expect(f).To(BeNil())
	child.becomeIdle()
	w.Eventually(status).Should(Receive(Equal(http.StatusAccepted)))
	w.Eventually(func() float64 { return w.metric("children") }).Should(BeZero())
}

// Otherwise a client that leaves would keep a session whose server does not read, and the place of its message.
func TestRequestsOfClientsThatLeftDoNotKeepASession(t *testing.T) {
	w := newTestBridge(t, server("stops-reading"), func(o *Options) { o.StopGrace = 50 * time.Millisecond })
	id := w.session()
	s := w.bridge.lookup(id)
	leave, left := w.postBlocked(`{"jsonrpc":"2.0","id":2,"method":"ping","params":{"text":"`+strings.Repeat("x", 1<<20)+`"}}`, headerSession, id)
	w.Eventually(func() float64 { return w.metric("messages_total", toServer) }).Should(Equal(2.0))
	w.Expect(s.resident().pending).To(BeTrue())

	leave()

	w.Eventually(left).Should(BeClosed())
	w.Eventually(func() bool { return s.resident().pending }).Should(BeFalse())
	s.setUnused(time.Hour)
	s.checkIdle()
	w.Expect(s.ended()).To(HaveField("Reason", reasonIdle))
	w.Eventually(w.bridge.places.Held).Should(BeZero())
}

func TestSessionThatWaitsForAPlaceWhileADrainBeginsIsEnded(t *testing.T) {
	q := newQuiet(t, func(o *Options) { o.MaxSessions, o.Command = 2, tinyServer() })
	// Given one that has ended, and whose child has not exited
	before, err := newSession(q.bridge, honestAddress)
	q.Expect(err).NotTo(HaveOccurred())
	q.bridge.admission.add(honestAddress)
	before.over = drainFailure()
	q.bridge.stopping[before] = struct{}{}
	locked := func(do func()) {
		q.bridge.mu.Lock()
		defer q.bridge.mu.Unlock()
		do()
	}
	failed := make(chan *failure, 1)
	go func() {
		_, f := q.bridge.begin(t.Context(), honestAddress)
		failed <- f
	}()
	q.Eventually(func() (waits bool) { locked(func() { waits = before.evicted }); return waits }).Should(BeTrue())

	locked(func() { q.bridge.draining = true })
	q.bridge.stopped(before)

	q.Eventually(failed).Should(Receive(Equal(drainFailure())))
	q.Expect(q.bridge.all()).To(BeEmpty())
	q.Eventually(func() float64 { return q.metric("children") }).Should(BeZero())
}

func TestRequestsOfClientsThatLeftDoNotKeepTheSharedServer(t *testing.T) {
	w := newTestBridge(t, []string{"sleep", "3600"}, func(o *Options) { o.StopGrace = 50 * time.Millisecond })
	w.bridge.speaks.Store(&generations{stateless: []string{"2026-07-28"}})
	large := strings.NewReplacer("tools/call", "vendor/x", "hi", strings.Repeat("x", 1<<20)).Replace(statelessCall)
	leave, left := w.postBlocked(large, headerVersion, "2026-07-28", headerMethod, "vendor/x")
	w.Eventually(func() float64 { return w.metric("messages_total", toServer) }).Should(Equal(1.0))
	child, f := w.bridge.shared.get(t.Context())
	w.Expect(f).To(BeNil())
	child.becomeIdle()
	w.Expect(w.metric("children")).To(Equal(1.0), "the client waits")

	leave()

	w.Eventually(left).Should(BeClosed())
	w.Eventually(func() float64 { child.becomeIdle(); return w.metric("children") }).Should(BeZero())
}

// postBlocked sends a message until leave is called. Then left is closed.
func (w *testBridge) postBlocked(body string, headers ...string) (leave context.CancelFunc, left <-chan struct{}) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = w.tryPost(ctx, http.DefaultClient, body, headers...)
	}()
	return cancel, done
}

func TestMessageSizes(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			w := newTestBridge(t, server("sdk"), func(o *Options) { o.MaxMessageBytes = 1 << 20 })
			s := w.connect(client{version: version})
			// within the limit, larger than all buffers
			big := strings.Repeat("y", 900<<10)
			w.Expect(callTool(t.Context(), s, "echo", toolInput{Text: big})).To(Equal(big))
			// The response is too large: only the request fails.
			_, err := callTool(t.Context(), s, "big", toolInput{Count: 3 << 20})
			w.Expect(err).To(MatchError(ContainSubstring("the limit of 1048576")))
			w.Expect(callTool(t.Context(), s, "echo", toolInput{Text: "goes on"})).To(Equal("goes on"))
			w.Eventually(func() float64 { return w.metric("dropped_messages_total", reasonTooLarge) }).Should(Equal(1.0))
		})
	}
}

func TestMessageOfTheClientTooLarge(t *testing.T) {
	w := newTestBridge(t, tinyServer(), func(o *Options) { o.MaxMessageBytes = 1 << 10 })
	reply := w.post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":"` + strings.Repeat("x", 2<<10) + `"}`)
	w.Expect(reply.Status).To(Equal(http.StatusRequestEntityTooLarge))
	w.Expect(reply.Body).To(ContainSubstring(reasonTooLarge))
	w.Expect(w.metric("child_starts_total")).To(BeZero())
}

// A client that does not read blocks its child, and nothing accumulates in
// between; when the client reads, the child continues.
func TestSlowClientBlocksItsChild(t *testing.T) {
	t.Parallel()
	w := newTestBridge(t, server("chatty"), func(o *Options) { o.StderrLinesPerSecond, o.StopGrace = 1<<20, 50*time.Millisecond })
	id := w.session()
	w.Expect(w.logs.String()).To(ContainSubstring("a line that is not a JSON-RPC message"))
	resp := w.open(http.MethodPost, `{"jsonrpc":"2.0","id":2,"method":"flood"}`, headerSession, id)
	defer resp.Body.Close()

	relayed := func() float64 { return w.metric("messages_total", toClient) }
	var halted float64
	w.Eventually(func() bool {
		before := relayed()
		halted = before
		select {
		case <-time.After(300 * time.Millisecond):
		case <-t.Context().Done():
		}
		return before > 2 && relayed() == before
	}).Should(BeTrue())
	// Only as much as fits into the socket buffers was relayed.
	w.Expect(halted*10).To(BeNumerically("<", 20<<10), "KiB were relayed to a client that does not read")

	lines := bufio.NewReaderSize(resp.Body, 64<<10)
	for range int(halted) * 3 {
		_, err := lines.ReadString('\n')
		w.Expect(err).NotTo(HaveOccurred())
	}
	w.Eventually(relayed).Should(BeNumerically(">", halted))
}

// A client that stops reading loses its connection, not its session.
func TestClientThatStopsReadingLosesItsConnection(t *testing.T) {
	t.Parallel()
	w := newTestBridge(t, server("chatty"), func(o *Options) { o.StopGrace = 50 * time.Millisecond })
	id := w.session()
	w.limit(func(b *Bridge) { b.opts.IOTimeout = 200 * time.Millisecond })
	resp := w.open(http.MethodPost, `{"jsonrpc":"2.0","id":2,"method":"flood"}`, headerSession, id)
	defer resp.Body.Close()
	w.Eventually(func() float64 { return w.metric("dropped_messages_total", reasonNoStream) }).Should(BeNumerically(">", 0))
	w.Expect(w.metric("sessions")).To(Equal(1.0))
}

func TestMessagesAreParkedUntilAStreamOpens(t *testing.T) {
	w := newTestBridge(t, []string{"sed", "-u", "-n",
		`s/.*"id":\([0-9]*\).*/{"jsonrpc":"2.0","id":\1,"result":{}}\n{"jsonrpc":"2.0","method":"notifications\/early"}/p`})
	id := w.session()
	w.Eventually(func() float64 { return w.metric("messages_total", toClient) }).Should(Equal(2.0))
	resp := w.open(http.MethodGet, "", headerSession, id)
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	w.Eventually(func() string { line, _ := lines.ReadString('\n'); return line }).Should(ContainSubstring("notifications/early"))
}

// brokenWriter is a client that leaves after some writes.
type brokenWriter struct {
	*httptest.ResponseRecorder
	writes int
}

func (b *brokenWriter) Write(data []byte) (int, error) {
	if b.writes == 0 {
		return 0, io.ErrClosedPipe
	}
	b.writes--
	return b.ResponseRecorder.Write(data)
}

func TestParkedMessagesAreKeptIfTheirStreamBreaks(t *testing.T) {
	w := newTestBridge(t, []string{"sh", "-c", `read first; echo '{"jsonrpc":"2.0","id":1,"result":{}}'
		for n in 1 2 3; do echo '{"jsonrpc":"2.0","id":"parked '$n'","method":"roots/list"}'; done; while read more; do :; done`})
	id := w.session()
	s := w.bridge.lookup(id)
	w.Eventually(func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.parked.messages)
	}).Should(Equal(3))
	in := &incoming{release: func() {}}
	w.Expect(in.parse([]byte(ping))).To(BeNil())
	broken := &brokenWriter{httptest.NewRecorder(), 3} // an event has three writes

	s.request(broken, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", http.NoBody), in)

	w.Expect(broken.Body.String()).To(And(ContainSubstring("parked 1"), Not(ContainSubstring("parked 2"))))
	w.Expect(s.resident().pending).To(BeFalse(), "no client waits for the response")
	resp := w.open(http.MethodGet, "", headerSession, id)
	defer resp.Body.Close()
	var received []string
	for lines := bufio.NewScanner(resp.Body); len(received) < 2 && lines.Scan(); {
		if _, message, ok := strings.Cut(lines.Text(), "parked "); ok {
			received = append(received, message[:1])
		}
	}
	w.Expect(received).To(Equal([]string{"2", "3"}))
}

func TestFiveHundredSessions(t *testing.T) {
	const count = 500
	w := newTestBridge(t, tinyServer(), func(o *Options) { o.MaxSessions, o.MaxSessionsPerCaller = count, count })
	ids := make([]string, count)
	var all sync.WaitGroup
	reserved := make(chan struct{}, 20)
	for i := range count {
		all.Go(func() {
			reserved <- struct{}{}
			defer func() { <-reserved }()
			ids[i] = w.session()
		})
	}
	all.Wait()
	w.Expect(w.metric("children")).To(Equal(float64(count)))
	for i, id := range ids {
		all.Go(func() {
			reserved <- struct{}{}
			defer func() { <-reserved }()
			reply := w.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i), headerSession, id)
			NewWithT(t).Expect(reply.Body).To(ContainSubstring(fmt.Sprintf(`"id":%d,`, i)))
		})
	}
	all.Wait()
	w.Expect(w.metric("messages_total", toServer)).To(Equal(2.0 * count))
	w.Expect(w.metric("child_crashes_total")).To(BeZero())
}
