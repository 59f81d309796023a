package bridge

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	. "github.com/onsi/gomega"
)

func TestRequestsWithoutASessionAreLimited(t *testing.T) {
	q := newQuiet(t, func(o *Options) { o.MaxRequests = 2 })
	s := q.bridge.shared
	q.Expect(s.pending()).To(BeZero())
	q.Expect(s.usedWithin(time.Hour)).To(BeFalse())
	q.Expect(s.enter(honestAddress)).To(BeNil())
	q.Expect(s.enter(honestAddress)).To(BeNil())
	f := s.enter(honestAddress)
	q.Expect(f).To(MatchError("too many requests are in flight"))
	q.Expect([]int{f.Status, f.Code, f.RetryAfter}).To(Equal([]int{http.StatusTooManyRequests, codeRefused, 1}))
	q.Expect(f.Reason).To(Equal(reasonTooManyRequests))
	q.Expect(q.metric("requests_in_flight")).To(Equal(2.0))
	q.Expect(s.pending()).To(Equal(2))
	q.Expect(s.usedWithin(0)).To(BeTrue())
	s.leave(honestAddress)
	q.Expect(q.bridge.changed).To(Receive(), "a drain continues")
	q.Expect(s.enter(honestAddress)).To(BeNil())
	s.leave(honestAddress)
	s.leave(honestAddress)
	q.Expect(q.metric("requests_in_flight")).To(BeZero())
	q.Expect(s.usedWithin(time.Hour)).To(BeTrue())
	q.Expect(s.usedWithin(0)).To(BeFalse())

	s.close()
	q.Expect(s.enter(honestAddress)).To(HaveField("Reason", reasonDraining))
	_, f = s.get(t.Context())
	q.Expect(f).To(HaveField("Reason", reasonDraining))
}

// Otherwise one client could keep all others from a server without sessions, such as by requests that never end.
func TestOneCallerDoesNotGetAllRequestsWithoutASession(t *testing.T) {
	q := newQuiet(t, func(o *Options) { o.MaxRequests = 10 })
	s := q.bridge.shared
	for range 9 {
		q.Expect(s.enter(hostileAddress)).To(BeNil())
	}
	q.Expect(s.enter(hostileAddress)).To(And(HaveField("Reason", reasonTooManyRequests), HaveField("Message", ContainSubstring("the limit of 9 requests without a session per caller"))))
	q.Expect(s.enter(honestAddress)).To(BeNil())
	q.Expect(s.enter(honestAddress)).To(HaveField("Reason", reasonTooManyRequests), "the limit of all")
	s.leave(honestAddress)
	s.leave(hostileAddress)
	q.Expect(s.enter(hostileAddress)).To(BeNil())
	for range 9 {
		s.leave(hostileAddress)
	}
	q.Expect(s.perCaller).To(BeEmpty(), "callers without requests are forgotten")
}

// A server that exits at once must not be started in a loop.
func TestStartsOfAServerThatExitsAreDelayed(t *testing.T) {
	q := newQuiet(t)
	s := q.bridge.shared
	expectDelay := func(delay time.Duration, why string) {
		t.Helper()
		before := time.Now()
		s.gone(q.worker, true)
		q.Expect(s.nextStart).To(And(BeTemporally(">=", before.Add(delay)), BeTemporally("<=", time.Now().Add(delay))), why)
	}
	for _, seconds := range []int{1, 2, 4, 8, 16, 30, 30, 30, 30, 30, 30, 30} {
		s.worker = q.worker
		expectDelay(time.Duration(seconds)*time.Second, "it doubles")
		q.Expect(s.worker).To(BeNil())
	}
	s.quickExits = 100
	expectDelay(30*time.Second, "it does not overflow")
	_, f := s.get(t.Context())
	q.Expect(f).To(MatchError("the MCP server process exits repeatedly; retry later"))
	q.Expect(f.Status).To(Equal(http.StatusServiceUnavailable))
	q.Expect(f.RetryAfter).To(BeNumerically("~", 30, 5))
	q.Expect(f.Reason).To(Equal(reasonStartFailed))

	another := newWorker(s, q.worker.child, q.worker.log)
	another.end(drainFailure())
	s.worker = another
	q.worker.child.started = time.Now().Add(-10 * time.Second)
	s.gone(q.worker, true)
	q.Expect(s.worker).To(BeIdenticalTo(another), "the next one stays")
	q.worker.child.started = time.Now()
	expectDelay(time.Second, "one that ran for long counts as another beginning")
	s.gone(q.worker, false)
	expectDelay(time.Second, "so does one that was stopped")
	s.worker = nil
}

func TestServersInUseAreNotDismissed(t *testing.T) {
	q := newQuiet(t)
	s := q.bridge.shared
	s.worker, s.quickExits = q.worker, 3
	q.Expect(s.enter(honestAddress)).To(BeNil())
	q.Expect(s.dismiss(q.worker)).To(BeFalse())
	q.Expect(s.worker).To(BeIdenticalTo(q.worker))
	s.countUnawaited(1)
	another := newWorker(s, q.worker.child, q.worker.log)
	another.end(drainFailure())
	q.Expect(s.dismiss(another)).To(BeTrue())
	q.Expect(s.worker).To(BeIdenticalTo(q.worker))
	q.Expect(s.quickExits).To(Equal(3))
	q.Expect(s.dismiss(q.worker)).To(BeTrue(), "no client waits for the request")
	q.Expect(s.worker).To(BeNil())
	q.Expect(s.quickExits).To(BeZero())
	s.countUnawaited(-1)
	s.leave(honestAddress)
}

func TestStartOfTheSharedServerFails(t *testing.T) {
	w := newTestBridge(t, []string{"/no/such/server"})
	w.bridge.shared.quickExits = 8 // so that the next start is not due at once
	_, f := w.bridge.shared.get(t.Context())
	w.Expect(f).To(MatchError("the MCP server process could not be started"))
	w.Expect([]int{f.Status, f.RetryAfter}).To(Equal([]int{http.StatusServiceUnavailable, 5}))
	_, f = w.bridge.shared.get(t.Context())
	w.Expect(f).To(MatchError(ContainSubstring("exits repeatedly")))
	w.Expect(f.RetryAfter).To(BeNumerically("~", 30, 5))
}

// lateContext is that of a request which goes on late.
type lateContext struct {
	context.Context
	wait func()
}

func (c lateContext) Done() <-chan struct{} {
	c.wait()
	return c.Context.Done()
}

// A server may exit before the request for which it was started goes on.
func TestServerThatExitsAtOnceHasAnError(t *testing.T) {
	for name, failedBefore := range map[string]bool{"the first start": false, "after a start that failed": true} {
		t.Run(name, func(t *testing.T) {
			w := newTestBridge(t, []string{"/no/such/server"})
			s := w.bridge.shared
			if failedBefore {
				_, f := s.get(t.Context())
				w.Expect(f).To(HaveField("Reason", reasonStartFailed))
				s.nextStart = time.Time{}
			}
			w.bridge.launcher.command = []string{"sh", "-c", "exit 7"}
			isGone := func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return w.metric("child_crashes_total") == 1 && s.worker == nil && s.starting == nil
			}

			started, f := s.get(lateContext{t.Context(), func() { w.Eventually(isGone).Should(BeTrue()) }})

			w.Expect(f).To(BeNil())
			w.Expect(started).NotTo(BeNil())
			_, f = started.add(newSharedCall(&envelope{}))
			w.Expect(f).To(MatchError("the MCP server process exited: exit status 7"))
			w.Expect(f.Reason).To(Equal(reasonServerExited))
		})
	}
}

func TestClientsLeaveWhileTheSharedServerStarts(t *testing.T) {
	q := newQuiet(t)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	starting := &start{done: make(chan struct{})}
	q.bridge.shared.starting = starting
	_, f := q.bridge.shared.get(ctx)
	q.Expect(f).To(HaveField("Reason", reasonClientLeft))
	q.bridge.shared.mu.Lock()
	current := q.bridge.shared.starting
	q.bridge.shared.mu.Unlock()
	q.Expect(current).To(BeIdenticalTo(starting), "no other one is started")
	close(starting.done)
}

// Requests fail with the error after which clients try another replica, and no process stays.
func TestCloseEndsTheSharedServer(t *testing.T) {
	for name, isStarting := range map[string]bool{"it runs": false, "it starts": true} {
		t.Run(name, func(t *testing.T) {
			q := newQuiet(t)
			s := q.bridge.shared
			c, _ := q.call(`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`)
			starting := &start{done: make(chan struct{})}
			if isStarting {
				s.starting = starting
			} else {
				s.worker = q.worker
			}
			isClosed := func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.closed
			}
			closed := make(chan struct{})

			go func() {
				defer close(closed)
				s.close()
			}()

			q.Eventually(isClosed).Should(BeTrue())
			starting.worker = q.worker
			close(starting.done)
			q.Eventually(closed).Should(BeClosed())
			q.Expect(c.failed).To(Equal(drainFailure()))
			q.Expect(q.worker.child.send([]byte("{}"))).To(MatchError(os.ErrClosed), "the process is asked to exit")
		})
	}
}

// A process that serves no requests any more may still write what it has in memory.
func TestCloseWaitsForSharedServersThatAreBeingStopped(t *testing.T) {
	for name, c := range map[string]struct {
		command string
		stop    func(*worker)
	}{
		"it has closed its output": {"trap '' TERM; exec sleep 3600 >&-", func(*worker) {}},
		"it was idle":              {"trap '' TERM; exec sleep 3600", func(w *worker) { go w.becomeIdle() }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestBridge(t, []string{"sh", "-c", c.command}, func(o *Options) { o.StopGrace = 200 * time.Millisecond })
			s := w.bridge.shared
			stopping, f := s.get(t.Context())
			w.Expect(f).To(BeNil())
			c.stop(stopping)
			w.Eventually(func() *worker { s.mu.Lock(); defer s.mu.Unlock(); return s.worker }).Should(BeNil())

			w.bridge.Close()

			w.Expect(stopping.child.exited).To(BeClosed())
			w.Expect(w.metric("children")).To(BeZero())
		})
	}
}

func TestSubscriptionsEndForADrain(t *testing.T) {
	q := newQuiet(t)
	listens, number := q.call(`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}`)
	calls, other := q.call(`{"jsonrpc":"2.0","id":2,"method":"tools/call"}`)
	q.bridge.shared.worker = q.worker

	q.bridge.shared.stopListening()

	q.Expect(listens.failed).To(HaveField("Reason", reasonDraining))
	q.Expect(calls.failed).To(BeNil())
	q.Eventually(q.toWorker).Should(Receive(MatchJSON(
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + number + `,"reason":"the server is shutting down"}}`)))
	q.Expect(q.worker.lookup(other)).To(BeIdenticalTo(calls))

	q.bridge.draining = true
	_, f := q.worker.add(listens)
	q.Expect(f).To(HaveField("Reason", reasonDraining))
	_, f = q.worker.add(newSharedCall(&envelope{}))
	q.Expect(f).To(BeNil(), "other requests are served")
	q.bridge.shared.worker = nil
}

func TestEndOfTheSharedServerFailsItsRequests(t *testing.T) {
	q := newQuiet(t)
	one, number := q.call(`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`)
	two, _ := q.call(`{"jsonrpc":"2.0","id":2,"method":"tools/call"}`)
	q.Expect(number).NotTo(Equal("0"))
	why := ended(reasonServerExited, "the server is gone")
	q.Expect(q.worker.end(why)).To(BeTrue())
	q.Expect(q.worker.end(drainFailure())).To(BeFalse(), "it ends once")
	for _, c := range []*sharedCall{one, two} {
		_, ok, failed := c.take()
		q.Expect(ok).To(BeFalse())
		q.Expect(failed).To(BeIdenticalTo(why))
	}
	_, f := q.worker.add(one)
	q.Expect(f).To(BeIdenticalTo(why))
	q.worker.cancel(number, "it has no such request")
	q.Expect(q.toWorker).NotTo(Receive())
}

func TestIdleTimeOfTheSharedServer(t *testing.T) {
	q := newQuiet(t, func(o *Options) { o.IdleTimeout = time.Hour })
	q.Expect(q.worker.idle.Stop()).To(BeTrue())
	q.worker.checkIdle()
	q.Expect(q.worker.over).To(BeNil(), "it was used a moment ago")
	q.Expect(q.worker.idle.Stop()).To(BeTrue(), "it is checked again")

	q.Expect(q.bridge.shared.enter(honestAddress)).To(BeNil())
	q.worker.becomeIdle()
	q.Expect(q.worker.over).To(BeNil(), "a request is in flight")
	q.Expect(q.worker.idle.Stop()).To(BeTrue(), "it is checked again")
	q.bridge.shared.leave(honestAddress)

	q.worker.becomeIdle()
	q.Expect(q.worker.over).To(MatchError("the server process was stopped after the idle timeout; try again"))
	q.Expect([]int{q.worker.over.Status, q.worker.over.RetryAfter}).To(Equal([]int{http.StatusServiceUnavailable, 1}))
	q.Expect(q.worker.over.Reason).To(Equal(reasonIdle))
	q.worker.checkIdle()
	q.Expect(q.worker.idle.Stop()).To(BeFalse(), "a server that has ended is not checked")
}

// The requests of the bridge itself, such as for the list of tools.
func TestRequestsOfTheBridgeToTheSharedServer(t *testing.T) {
	for name, c := range map[string]struct {
		response, want, problem string
	}{
		"a result":          {`"result":{"tools":[]}`, `{"tools":[]}`, ""},
		"an unknown method": {`"error":{"code":-32601,"message":"no"}`, "", ""},
		"another error":     {`"error":{"code":-32603,"message":"no"}`, "", "the server responded with error -32603"},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQuiet(t)
			go func() {
				request := <-q.toWorker
				e, _ := parse([]byte(request))
				id := string(e.ID)
				q.worker.fromServer([]byte(`{"jsonrpc":"2.0","method":"notifications/x","params":{"requestId":` + id + `}}`))
				q.worker.fromServer([]byte(`{"jsonrpc":"2.0","id":` + id + `,` + c.response + `}`))
			}()
			result, err := q.worker.listTools(t.Context(), "")
			if c.problem == "" {
				q.Expect(err).NotTo(HaveOccurred())
			} else {
				q.Expect(err).To(MatchError(c.problem))
			}
			q.Expect(string(result)).To(Equal(c.want))
			q.Expect(q.worker.calls).To(BeEmpty())
		})
	}
}

func TestRequestsOfTheBridgeAreCancelled(t *testing.T) {
	q := newQuiet(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := q.worker.listTools(ctx, `the "next" page`)
		failed <- err
	}()
	var sent string
	q.Eventually(q.toWorker).Should(Receive(&sent))
	q.Expect(sent).To(MatchJSON(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"the \"next\" page","_meta":{` + statelessMeta + `}}}`))
	cancel(errListTimeout)
	q.Eventually(failed).Should(Receive(MatchError(errListTimeout)))
	q.Eventually(q.toWorker).Should(Receive(MatchJSON(
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"the bridge does not wait any longer"}}`)))

	q.worker.end(drainFailure())
	_, err := q.worker.listTools(t.Context(), "")
	q.Expect(err).To(HaveField("Reason", reasonDraining))
}

// Clients without a session cancel by closing the response. Ids of clients may collide, so a cancellation that is sent
// might end the request of another one.
func TestNotificationsWithoutASession(t *testing.T) {
	q := newQuiet(t)
	for message, relayed := range map[string]bool{
		`{"jsonrpc":"2.0","method":"notifications/x","params":{"a":1}}`:                 true,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`: false,
	} {
		in := &incoming{release: func() {}}
		q.Expect(in.parse([]byte(message))).To(BeNil())
		response := httptest.NewRecorder()
		q.worker.notifyChild(response, in)
		q.Expect(response.Code).To(Equal(http.StatusAccepted))
		if relayed {
			q.Eventually(q.toWorker).Should(Receive(MatchJSON(message)))
		}
	}
	q.Expect(q.metric("messages_total", toServer)).To(Equal(1.0))
	q.Expect(q.bridge.shared.unawaited).To(BeZero())
}

// serveCall serves a call until its response is complete or the context is done.
func serveCall(ctx context.Context, c *sharedCall, mails ...mail) (*httptest.ResponseRecorder, bool) {
	for _, m := range mails {
		c.put(m, math.MaxInt)
	}
	response := httptest.NewRecorder()
	complete := c.serve(ctx, newStream(response, time.Second), time.Hour)
	return response, complete
}

func TestResponsesWithoutASession(t *testing.T) {
	g := NewWithT(t)
	call := func() *sharedCall { return newSharedCall(&envelope{ID: json.RawMessage("1")}) }

	received := call()
	events, complete := serveCall(t.Context(), received, mail{message: []byte(`{"n":1}`)}, mail{message: []byte(`{"r":1}`), last: true, status: http.StatusOK})
	g.Expect(complete).To(BeTrue())
	g.Expect(events.Body.String()).To(Equal("event: message\ndata: {\"n\":1}\n\nevent: message\ndata: {\"r\":1}\n\n"))
	g.Expect(received.held).To(BeZero(), "what was sent no longer counts")

	failure, complete := serveCall(t.Context(), call(), mail{message: []byte(`{"e":1}`), last: true, status: http.StatusNotFound})
	g.Expect(complete).To(BeTrue())
	g.Expect(failure.Code).To(Equal(http.StatusNotFound))
	g.Expect(failure.Body.String()).To(Equal(`{"e":1}`))

	failed := call()
	failed.fail(tooManyRequests())
	refusal, complete := serveCall(t.Context(), failed)
	g.Expect(complete).To(BeTrue())
	g.Expect(refusal.Code).To(Equal(http.StatusTooManyRequests))
	g.Expect(refusal.Body.String()).To(ContainSubstring(`"id":1,`))

	gone, leave := context.WithCancel(t.Context())
	leave()
	_, complete = serveCall(gone, call())
	g.Expect(complete).To(BeFalse())

	broken := newStream(&brokenWriter{httptest.NewRecorder(), 1}, time.Second)
	g.Expect(call().serve(t.Context(), broken, time.Millisecond)).To(BeFalse(), "a keep-alive shows that the client is gone")
	broken = newStream(&brokenWriter{httptest.NewRecorder(), 0}, time.Second)
	undelivered := call()
	undelivered.put(mail{message: []byte(`{"n":1}`)}, math.MaxInt)
	g.Expect(undelivered.serve(t.Context(), broken, time.Hour)).To(BeFalse())
}

// A request whose client has left counts as one that no client waits for until it ends.
func TestRequestsOfClientsThatLeftAreCountedUntilTheyEnd(t *testing.T) {
	q := newQuiet(t)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	message, err := parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	q.Expect(err).NotTo(HaveOccurred())

	q.worker.request(httptest.NewRecorder(), requestWith(t, nil).WithContext(ctx), &incoming{envelope: message, release: func() {}})

	q.Eventually(func() int {
		q.bridge.shared.mu.Lock()
		defer q.bridge.shared.mu.Unlock()
		return q.bridge.shared.unawaited
	}).Should(BeZero())
}

// A client that repeats its request at once must not find the process that has exited.
func TestServerThatExitedIsRemovedBeforeItsRequestsFail(t *testing.T) {
	q := newQuiet(t)
	s := q.bridge.shared
	s.worker = q.worker
	c, _ := q.call(`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`)
	close(q.worker.child.stderr.done)
	c.mu.Lock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		q.worker.childGone()
	}()
	isRemoved := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.worker == nil
	}
	q.Eventually(isRemoved).WithTimeout(10 * time.Second).Should(BeTrue())
	c.mu.Unlock()
	q.Eventually(ended).Should(BeClosed())
	q.Expect(c.failed).To(HaveField("Reason", reasonServerExited))
}

// A request in flight is use until its end.
func TestIdleTimeOfTheSharedServerBeginsWithTheEndOfARequest(t *testing.T) {
	q := newQuiet(t, func(o *Options) { o.IdleTimeout = time.Hour })
	for name, end := range map[string]func(number string){
		"it has a response": func(number string) {
			q.worker.answer(&envelope{ID: json.RawMessage(number), Result: json.RawMessage("{}")})
		},
		"its client has left": func(number string) { q.worker.cancel(number, "the client closed the connection") },
	} {
		_, number := q.call(`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`)
		q.worker.mu.Lock()
		q.worker.lastUse = time.Now().Add(-2 * time.Hour)
		q.worker.mu.Unlock()

		end(number)
		q.worker.checkIdle()

		q.Expect(q.worker.over).To(BeNil(), name)
	}
}

// leavingWriter is a client that leaves once it receives something.
type leavingWriter struct {
	*timedWriter
	leave func()
}

func (w *leavingWriter) Write(data []byte) (int, error) {
	defer w.leave()
	return w.timedWriter.Write(data)
}

// Proxies close silent responses, and a client that does not read must not keep its request for long.
func TestResponsesWithoutASessionHaveTheTimesOfTheOptions(t *testing.T) {
	q := newQuiet(t, func(o *Options) { o.KeepAlive = time.Millisecond })
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	client := &leavingWriter{&timedWriter{ResponseRecorder: httptest.NewRecorder()}, leave}
	message, err := parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"vendor/slow"}`))
	q.Expect(err).NotTo(HaveOccurred())
	served := make(chan struct{})

	go func() {
		defer close(served)
		q.worker.request(client, requestWith(t, nil).WithContext(ctx), &incoming{envelope: message, release: func() {}})
	}()

	q.Eventually(served).Should(BeClosed())
	q.Expect(client.Body.String()).To(HavePrefix(": keep-alive"))
	q.Expect(client.deadlines[0]).To(BeTemporally("~", time.Now().Add(q.bridge.opts.IOTimeout), testTimeout))
	q.Expect(q.metric("request_duration_seconds", "stateless")).To(Equal(1.0))
}

// A slow tool must not hold the message of the call: it counts only until it was sent.
func TestPendingCallsDoNotKeepTheirMessage(t *testing.T) {
	g := NewWithT(t)
	message := []byte(`{"jsonrpc":"2.0","id":"x","method":"m","params":{"_meta":{"progressToken":"y"},"large":"` + strings.Repeat("x", 1000) + `"}}`)
	kept := weak.Make(&message[0])
	e, err := parse(message)
	g.Expect(err).NotTo(HaveOccurred())

	pending := newSharedCall(&e)

	g.Eventually(func() bool { runtime.GC(); return kept.Value() == nil }, testTimeout).Should(BeTrue())
	g.Expect(string(pending.id)).To(Equal(`"x"`))
	g.Expect(string(pending.token)).To(Equal(`"y"`))
}

// A slow tool must not hold the place of the message of the call. While the server does not read, the message is held.
func TestPlaceOfAMessageIsFreeOnceItWasSent(t *testing.T) {
	q := newQuiet(t)
	for name, c := range map[string]struct {
		child   *child
		request func(http.ResponseWriter, *http.Request, *incoming)
	}{
		"in a session":      {q.session.child, q.session.request},
		"without a session": {q.worker.child, q.worker.request},
	} {
		ctx, leave := context.WithCancel(t.Context())
		message, err := parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"vendor/slow"}`))
		q.Expect(err).NotTo(HaveOccurred())
		in := &incoming{envelope: message, message: []byte(`{"jsonrpc":"2.0","id":1,"method":"vendor/slow"}`)}
		released, served := make(chan struct{}), make(chan struct{})
		in.release = sync.OnceFunc(func() { close(released) })
		sent := func() float64 { return q.metric("messages_total", toServer) }
		before := sent()
		c.child.writing.Lock()
		go func() {
			defer close(served)
			c.request(httptest.NewRecorder(), requestWith(t, nil).WithContext(ctx), in)
		}()
		q.Eventually(sent).Should(Equal(before+1), name)
		q.Expect(released).NotTo(BeClosed(), name)

		c.child.writing.Unlock()

		q.Eventually(released).Should(BeClosed(), name)

		q.Expect(served).NotTo(BeClosed(), name)
		leave()
		q.Eventually(served).Should(BeClosed(), name)
	}
}
