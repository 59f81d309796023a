package bridge

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/internal/requestbody"
)

func TestStreamOfASessionThatHasEnded(t *testing.T) {
	q := newQuiet(t)
	q.session.end(ended(reasonServerExited, "the server is gone"))
	response := httptest.NewRecorder()
	q.session.listen(response, requestWith(t, nil))
	q.Expect(response.Code).To(Equal(http.StatusNotFound), "the client initializes again")
	q.Expect(response.Body.String()).To(ContainSubstring("the server is gone"))
}

func TestStreamOfASessionEndsWithItsClient(t *testing.T) {
	q := newQuiet(t)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	response := httptest.NewRecorder()
	q.session.listen(response, requestWith(t, nil).WithContext(ctx))
	q.Expect(response.Body.String()).To(Equal(openEvent))
	q.Expect(q.session.standalone).To(BeNil())
	q.Expect(q.session.resident().used).To(BeTrue())

	q.session.listen(&brokenWriter{httptest.NewRecorder(), 0}, requestWith(t, nil))
	q.Expect(q.session.standalone).To(BeNil(), "a client that is gone has no stream")

	timed := &timedWriter{ResponseRecorder: httptest.NewRecorder()}
	q.session.listen(timed, requestWith(t, nil).WithContext(ctx))
	q.Expect(timed.deadlines).NotTo(BeEmpty())
	q.Expect(timed.deadlines[0]).To(BeTemporally("~", time.Now().Add(q.bridge.opts.IOTimeout), testTimeout))
}

// writeHook calls a function at the first write.
type writeHook struct {
	*httptest.ResponseRecorder
	first func()
}

func (w *writeHook) Write(data []byte) (int, error) {
	if first := w.first; first != nil {
		w.first = nil
		first()
	}
	return w.ResponseRecorder.Write(data)
}

// Otherwise a request of the server would wait until the client sends something.
func TestMessagesArriveWhileAStreamOpens(t *testing.T) {
	q := newQuiet(t)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	q.session.fromServer([]byte(`{"jsonrpc":"2.0","method":"notifications/1"}`))
	response := &writeHook{httptest.NewRecorder(), func() {
		q.session.fromServer([]byte(`{"jsonrpc":"2.0","method":"notifications/2"}`))
	}}
	q.session.listen(response, requestWith(t, nil).WithContext(ctx))
	q.Expect(response.Body.String()).To(And(ContainSubstring("notifications/1"), ContainSubstring("notifications/2")))
}

// send sends a message of a client that leaves at once.
func (q *quiet) send(message string) *httptest.ResponseRecorder {
	ctx, leave := context.WithCancel(q.t.Context())
	leave()
	response := httptest.NewRecorder()
	q.session.post(response, httptest.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/mcp", strings.NewReader(message)))
	return response
}

func TestSessionsOutliveTheClientsOfRequests(t *testing.T) {
	q := newQuiet(t)
	q.send(ping)
	q.Eventually(q.toSession).Should(Receive(Equal(ping)))
	q.Expect(q.session.ended()).To(BeNil())
}

// cancellationOf is the message that cancels the request with an id.
func cancellationOf(id string) string {
	return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`
}

// A server should not respond to them, so that they would keep their places and their session.
func TestCancelledRequestsEndWithoutAResponse(t *testing.T) {
	q := newQuiet(t)
	const asked = `{"jsonrpc":"2.0","id":"a","method":"tools/call"}`
	response, answered := httptest.NewRecorder(), make(chan struct{})
	go func() {
		defer close(answered)
		q.session.post(response, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp", strings.NewReader(asked)))
	}()
	q.Eventually(q.toSession).Should(Receive(Equal(asked)))

	cancellation := cancellationOf(`"\u0061"`)
	q.Expect(q.send(cancellation).Code).To(Equal(http.StatusAccepted))

	q.Expect(q.got(q.session.child, q.toSession)).To(Equal([]string{cancellation}))
	q.Expect(q.session.resident().pending).To(BeFalse())
	q.Expect(q.metric("requests_in_flight")).To(BeZero())
	q.Eventually(answered).Should(BeClosed())
	q.Expect(q.session.inFlight.Load()).To(BeZero())
	q.Expect(response.Code).To(Equal(http.StatusOK))
	q.Expect(response.Header().Get("Content-Type")).To(Equal(eventType))
	q.Expect(response.Body.String()).To(Equal(": cancelled\n\n"), "no message, and no delay after which the client should come back")
}

func TestCancelledRequestsHaveTheMessagesBeforeTheirEnd(t *testing.T) {
	q := newQuiet(t)
	out := q.begin("1", `"t"`)
	const progress = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t"}}`
	q.session.fromServer([]byte(progress))
	q.Expect(q.send(cancellationOf("1")).Code).To(Equal(http.StatusAccepted))
	q.Expect(out.done).To(BeClosed())
	q.Expect(out.messages()).To(Equal([]string{progress}))
}

// Some servers respond nevertheless, and some clients use an id again.
func TestResponsesToCancelledRequestsReachNoOtherRequest(t *testing.T) {
	for name, late := range map[string]func(*quiet){
		"a response": func(q *quiet) {
			q.session.fromServer([]byte(`{"jsonrpc":"2.0","id":7,"error":{"code":0,"message":"cancelled"}}`))
		},
		"one that is too long": func(q *quiet) { q.session.tooLarge(&oversize{bytes: 11, id: []byte("7")}) },
	} {
		t.Run(name, func(t *testing.T) {
			q := newQuiet(t)
			first := q.begin("7", "")
			q.Expect(q.send(cancellationOf("7")).Code).To(Equal(http.StatusAccepted))
			refused := q.send(ping)
			q.Expect(refused.Code).To(Equal(http.StatusBadRequest))
			q.Expect(refused.Body.String()).To(ContainSubstring("request id 7 is that of a cancelled request"))

			late(q)

			q.Expect(first.messages()).To(BeEmpty())
			q.Expect(q.metric("dropped_messages_total")).To(Equal(1.0))
			second := q.begin("7", "")
			q.session.fromServer([]byte(`{"jsonrpc":"2.0","id":7,"result":{}}`))
			q.Expect(second.messages()).To(Equal([]string{`{"jsonrpc":"2.0","id":7,"result":{}}`}))
		})
	}
}

// Servers need not respond to them, and clients can cancel any number.
func TestIDsOfCancelledRequestsAreBounded(t *testing.T) {
	q := newQuiet(t)
	for i := range cancelledIDs + 1 {
		q.begin(strconv.Itoa(i), "")
		q.Expect(q.send(cancellationOf(strconv.Itoa(i))).Code).To(Equal(http.StatusAccepted))
	}
	q.Expect(q.session.cancelled).To(HaveLen(cancelledIDs))
	q.begin("0", "")
	q.Expect(q.session.add(&call{id: []byte("1"), key: "1"})).To(HaveField("Status", http.StatusBadRequest))
}

func TestNotificationsThatCancelNothing(t *testing.T) {
	for name, c := range map[string]struct {
		message    string
		initialize bool
	}{
		"another request":          {cancellationOf("2"), false},
		"that of a text":           {cancellationOf(`"1"`), false},
		"no request":               {`{"jsonrpc":"2.0","method":"notifications/cancelled"}`, false},
		"another notification":     {`{"jsonrpc":"2.0","method":"notifications/x","params":{"requestId":1}}`, false},
		"the start of the session": {cancellationOf("1"), true},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQuiet(t)
			out := newRecorded()
			q.Expect(q.session.add(&call{id: []byte("1"), key: "1", initialize: c.initialize, begun: time.Now(), stream: out.stream})).To(BeNil())

			q.Expect(q.send(c.message).Code).To(Equal(http.StatusAccepted))

			q.Expect(q.got(q.session.child, q.toSession)).To(Equal([]string{c.message}), "the server gets it")
			q.Expect(q.session.resident().pending).To(BeTrue())
			q.session.fromServer([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`))
			q.Expect(out.messages()).To(HaveLen(1))
		})
	}
}

// Ids are those of a session, and one whose requests are cancelled does not delay the drain.
func TestCancellationEndsRequestsOfItsSession(t *testing.T) {
	w := newTestBridge(t, []string{"sh", "-c", `read -r first; echo '{"jsonrpc":"2.0","id":1,"result":{}}'; exec cat >/dev/null`}, func(o *Options) {
		o.DrainIdleTimeout = 50 * time.Millisecond
	}).serveWith(Listeners{SkipCheck: true})
	id, other := w.session(), w.session()
	replies := make(chan httpReply, 1)
	go func() {
		reply, _ := w.tryPost(t.Context(), http.DefaultClient, ping, headerSession, id)
		replies <- reply
	}()
	w.Eventually(func() float64 { return w.metric("requests_in_flight") }).Should(Equal(1.0))

	w.Expect(w.post(cancellationOf("7"), headerSession, other).Status).To(Equal(http.StatusAccepted))
	w.Expect(w.metric("requests_in_flight")).To(Equal(1.0))
	w.Expect(w.post(cancellationOf("7"), headerSession, id).Status).To(Equal(http.StatusAccepted))
	w.Expect(w.metric("requests_in_flight")).To(BeZero())

	var reply httpReply
	w.Eventually(replies).Should(Receive(&reply))
	w.Expect(reply.Status).To(Equal(http.StatusOK))
	w.Expect(reply.Header.Get("Content-Type")).To(Equal(eventType))
	w.Expect(reply.Body).NotTo(ContainSubstring("data:"))
	w.stop()
	w.Eventually(w.done).Should(Receive(BeNil()))
	w.Expect(w.metric("sessions_ended_total", reasonIdle)).To(Equal(2.0))
}

// The tool would run twice, and the second response could reach the first request.
func TestRequestsWhoseIDIsInUseAreNotSent(t *testing.T) {
	q := newQuiet(t)
	q.begin("7", "")
	q.Expect(q.send(ping).Code).To(Equal(http.StatusBadRequest))
	q.Expect(q.send(`{"jsonrpc":"2.0","method":"notifications/x"}`).Code).To(Equal(http.StatusAccepted))
	var first string
	q.Eventually(q.toSession).Should(Receive(&first))
	q.Expect(first).To(ContainSubstring("notifications/x"))
}

func TestNotificationsThatCannotBeSentAreRefused(t *testing.T) {
	q := newQuiet(t)
	q.Expect(q.session.child.stdin.Close()).To(Succeed())
	q.Expect(q.send(`{"jsonrpc":"2.0","method":"notifications/x"}`).Code).To(Equal(http.StatusNotFound))
}

func TestProgressReachesTheRequestThatHasItsToken(t *testing.T) {
	q := newQuiet(t, func(o *Options) { o.KeepAlive = time.Millisecond })
	response, answered := httptest.NewRecorder(), make(chan struct{})
	go func() {
		defer close(answered)
		q.session.post(response, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp",
			strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":"t1"}}}`)))
	}()
	q.Eventually(q.toSession).Should(Receive())
	q.begin("2", "")
	q.session.mu.Lock()
	older := q.session.order[0].stream
	q.session.mu.Unlock()
	q.session.fromServer([]byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t1"}}`))
	q.Eventually(func() string {
		older.mu.Lock()
		defer older.mu.Unlock()
		return response.Body.String()
	}, "20s").Should(ContainSubstring(": keep-alive"), "proxies do not close it as idle")
	q.session.fromServer([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`))
	q.Eventually(answered).Should(BeClosed())
	q.Expect(response.Body.String()).To(ContainSubstring("notifications/progress"))
}

// failingFlush is a client that leaves before the rest of the response is sent.
type failingFlush struct{ *httptest.ResponseRecorder }

func (failingFlush) FlushError() error { return io.ErrClosedPipe }

// Nobody could use or end it, because its client has not received the id.
func TestSessionEndsIfTheResponseToInitializeCannotBeSent(t *testing.T) {
	for name, client := range map[string]http.ResponseWriter{
		"a part of it": &brokenWriter{httptest.NewRecorder(), 1},
		"the rest":     failingFlush{httptest.NewRecorder()},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestBridge(t, tinyServer())
			s, f := w.bridge.begin(t.Context(), honestAddress)
			w.Expect(f).To(BeNil())
			in := &incoming{release: func() {}}
			w.Expect(in.parse([]byte(initMessage))).To(BeNil())

			s.request(client, requestWith(t, nil), in)

			w.Expect(s.ended()).To(HaveField("Reason", reasonClientLeft))
			w.Eventually(func() float64 { return w.metric("children") }).Should(BeZero())
		})
	}
}

// Some clients initialize again with the session that they have. What the server thinks of it is up to the server.
func TestInitializeInASessionDoesNotEndIt(t *testing.T) {
	const response = `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"already initialized"}}`
	w := newTestBridge(t, []string{"sh", "-c", `read -r first; echo '{"jsonrpc":"2.0","id":1,"result":{}}'; while read -r next; do echo '` + response + `'; done`})
	id := w.session()

	again := w.post(initMessage, headerSession, id)

	w.Expect(again.Status).To(Equal(http.StatusOK))
	w.Expect(again.Body).To(ContainSubstring(response))
	w.Expect(w.post(initMessage, headerSession, id).Status).To(Equal(http.StatusOK))
	w.Expect(w.metric("sessions_ended_total")).To(BeZero())
	w.Expect(w.metric("child_start_duration_seconds")).To(Equal(1.0))
}

// Whoever learns the id of a session of another caller must not use it.
// Behind an Ingress, all callers have one address.
func TestCallersOfOneAddressHaveSharesOfTheirOwn(t *testing.T) {
	const headerCaller = "Test-Caller"
	w := newTestBridge(t, tinyServer(), func(o *Options) {
		o.MaxSessionsPerCaller, o.MaxRequests = 1, 2
		o.Caller = func(r *http.Request) string { return r.Header.Get(headerCaller) }
	})
	id := w.post(initMessage, headerCaller, "ann").Header.Get(headerSession)
	w.Expect(w.post(ping, headerSession, id, headerCaller, "ann").Status).To(Equal(http.StatusOK), "so that the session is in use")
	w.Expect(w.post(initMessage, headerCaller, "ann")).To(And(HaveField("Status", http.StatusServiceUnavailable),
		HaveField("Body", ContainSubstring("the limit of 1 sessions per caller is reached"))))
	w.Expect(w.post(initMessage, headerCaller, "bob").Status).To(Equal(http.StatusOK))

	request := func(caller string) *http.Request {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp", http.NoBody)
		r.Header.Set(headerCaller, caller)
		return r
	}
	for range w.bridge.opts.largeMessages() / 2 {
		release, ok := w.bridge.placeFor(request("ann"))(t.Context())
		w.Expect(ok).To(BeTrue())
		defer release()
	}
	release, ok := w.bridge.placeFor(request("bob"))(t.Context())
	w.Expect(ok).To(BeTrue(), "half of the places for large messages are left")
	release()
}

func TestSessionsServeTheirCaller(t *testing.T) {
	const headerCaller = "Test-Caller"
	w := newTestBridge(t, tinyServer(), func(o *Options) {
		o.Caller = func(r *http.Request) string { return r.Header.Get(headerCaller) }
	})
	id := w.post(initMessage, headerCaller, "ann").Header.Get(headerSession)
	for caller, status := range map[string]int{"ann": http.StatusOK, "bob": http.StatusNotFound, "": http.StatusNotFound} {
		w.Expect(w.post(ping, headerSession, id, headerCaller, caller).Status).To(Equal(status), caller)
	}
	resp := w.open(http.MethodDelete, "", headerSession, id, headerCaller, "bob")
	resp.Body.Close()
	w.Expect(resp.StatusCode).To(Equal(http.StatusNotFound))
	w.Expect(w.post(ping, headerSession, id, headerCaller, "ann").Status).To(Equal(http.StatusOK))
}

func TestRefusalsOfRequestsThatAreNotInASession(t *testing.T) {
	w := newTestBridge(t, tinyServer(), func(o *Options) { o.MaxRequests = 1 })
	reply := w.post(initMessage, headerMethod, "tools/list")
	w.Expect(reply.Status).To(Equal(http.StatusBadRequest), "the headers of initialize match it")
	w.Expect(reply.Body).To(ContainSubstring(`"id":1,"error":{"code":-32020,`))
	w.Expect(w.metric("sessions_started_total")).To(BeZero())

	resp := w.open(http.MethodGet, "", headerSession, "x", "Accept", jsonType)
	resp.Body.Close()
	w.Expect(resp.StatusCode).To(Equal(http.StatusNotAcceptable))

	w.Expect(w.bridge.shared.enter(honestAddress)).To(BeNil())
	reply = w.post(statelessCall, statelessHeaders...)
	w.Expect(reply.Status).To(Equal(http.StatusTooManyRequests))
	w.Expect(reply.Body).To(ContainSubstring(`"id":"x",`))
	w.bridge.shared.leave(honestAddress)
}

// The place of a session that is evicted is that of the next one, also while its process exits.
func TestEvictedSessionsAreReplacedOnce(t *testing.T) {
	w := newTestBridge(t, tinyServer(), func(o *Options) { o.MaxSessions = 1 })
	first := w.session()
	second := w.session()
	w.Expect(second).NotTo(Equal(first))
	w.Expect(w.post(ping, headerSession, first).Status).To(Equal(http.StatusNotFound))
	w.Expect(w.post(ping, headerSession, second).Status).To(Equal(http.StatusOK))
	w.Expect(w.metric("sessions_ended_total", reasonEvicted)).To(Equal(1.0))
	w.Expect(w.metric("sessions")).To(Equal(1.0))
	w.bridge.lookup(second).touch()
	reply := w.post(initMessage)
	w.Expect(reply.Status).To(Equal(http.StatusServiceUnavailable), "a session in use is not evicted")
	w.Expect(reply.Header.Get("Retry-After")).To(Equal("5"))
}

// The place of a session whose process exits is free in a moment, whoever had it.
func TestPlaceOfASessionThatHasEndedIsGivenFirst(t *testing.T) {
	q := newQuiet(t, func(o *Options) { o.MaxSessions = 2 })
	q.bridge.admission.add("another")
	q.bridge.stopping[q.session] = struct{}{}
	defer delete(q.bridge.stopping, q.session)

	replaced, f := q.bridge.reserve("another")
	counts := maps.Clone(q.bridge.admission.counts)
	q.bridge.release("another") // before the test can fail, because Close waits for it
	q.bridge.release("another")

	q.Expect(f).To(BeNil())
	q.Expect(replaced).To(BeIdenticalTo(q.session))
	q.Expect(counts).To(Equal(map[string]int{"another": 2}), "it counts for the caller that has it now")
}

// A client that starts another session at once must not be refused.
func TestPlaceOfASessionIsGivenWhileItsProcessExits(t *testing.T) {
	q := newQuiet(t, func(o *Options) { o.MaxSessions = 1 })
	exited := make(chan struct{})
	q.session.child.exited = exited
	q.session.end(ended(reasonDeleted, ""))
	replaced, f := q.bridge.reserve(honestAddress)
	close(exited)
	q.Eventually(q.session.stopped).Should(BeClosed())
	if f == nil {
		q.bridge.release(honestAddress)
	}
	q.Expect(f).To(BeNil())
	q.Expect(replaced).To(BeIdenticalTo(q.session))
}

// Otherwise more processes than the limit would run.
func TestPlaceThatAClientLeavesIsFreeAfterTheProcessHasExited(t *testing.T) {
	q := newQuiet(t, func(o *Options) { o.MaxSessions = 1 })
	exited := make(chan struct{})
	q.session.child.exited = exited
	q.session.end(ended(reasonDeleted, ""))
	ctx, leave := context.WithCancel(t.Context())
	leave()
	_, f := q.bridge.begin(ctx, honestAddress)
	isFree := q.bridge.noSessions()
	close(exited)
	q.Expect(f).To(HaveField("Reason", reasonClientLeft))
	q.Expect(isFree).To(BeFalse())
	q.Eventually(q.bridge.noSessions).Should(BeTrue())
}

// A session has one place for large messages, which must not be lost when the bridge has none.
func TestPlaceOfASessionIsGivenBackWithoutAPlaceOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, all := NewWithT(t), requestbody.NewPlaces(2)
		s := &session{bridge: &Bridge{places: all}, caller: "a", large: make(chan struct{}, 1)}
		releaseOther, _ := all.Take(t.Context(), "b")
		_, _ = all.Take(t.Context(), "c")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, ok := s.takePlace(ctx)
		g.Expect(ok).To(BeFalse())
		g.Expect(s.large).To(BeEmpty())

		releaseOther()
		release, ok := s.takePlace(t.Context())
		g.Expect(ok).To(BeTrue())
		g.Expect(s.large).To(HaveLen(1))
		release()
		g.Expect(s.large).To(BeEmpty())
		g.Expect(all.Held()).To(Equal(1), "that of the third caller")
	})
}

// They have no response that would count as use.
func TestNotificationsAreUseOfASession(t *testing.T) {
	q := newQuiet(t, func(o *Options) { o.MaxRequests = 1 })
	q.session.setUnused(time.Hour)
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp", strings.NewReader(`{"jsonrpc":"2.0","method":"notifications/x"}`))
	response := httptest.NewRecorder()
	q.session.post(response, request)
	q.Expect(response.Code).To(Equal(http.StatusAccepted))
	q.Eventually(q.toSession).Should(Receive())
	q.Expect(q.session.resident().idle).To(BeNumerically("<", time.Hour))
	q.Expect(q.session.resident().used).To(BeTrue())
	q.Expect(q.send(`{"jsonrpc":"2.0","method":"notifications/x"}`).Code).To(Equal(http.StatusAccepted), "it is in flight no more")
}

// Otherwise the sessions of one client could take the places of all others.
func TestSessionsHaveThePlacesOfTheirCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, b := NewWithT(t), &Bridge{places: requestbody.NewPlaces(4)}
		takes := func(caller string) bool {
			s := &session{bridge: b, caller: caller, large: make(chan struct{}, 1)}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, ok := s.takePlace(ctx)
			return ok
		}
		g.Expect([]bool{takes("a"), takes("a"), takes("a")}).To(Equal([]bool{true, true, false}), "half of all")
		g.Expect(takes("b")).To(BeTrue())
	})
}

// Otherwise more sessions than the limit would run.
func TestPlaceOfASessionIsGivenOnce(t *testing.T) {
	for name, isStopping := range map[string]bool{"one that has ended": true, "one that is about to end": false} {
		t.Run(name, func(t *testing.T) {
			q := newQuiet(t, func(o *Options) { o.MaxSessions = 2 })
			q.bridge.admission.add(honestAddress)
			if isStopping {
				q.bridge.stopping[q.session] = struct{}{}
				defer delete(q.bridge.stopping, q.session)
			} else {
				q.bridge.sessions[q.session.id] = q.session
				defer delete(q.bridge.sessions, q.session.id)
			}

			replaced, f := q.bridge.reserve("another")
			refused := map[string]*failure{}
			for _, address := range []string{honestAddress, "another", "third"} {
				_, refused[address] = q.bridge.reserve(address)
			}
			for q.bridge.admission.total > 0 { // before the test can fail, because Close waits for it
				q.bridge.release("another")
			}

			q.Expect(f).To(BeNil())
			q.Expect(replaced).To(BeIdenticalTo(q.session))
			for address, why := range refused {
				q.Expect(why).To(HaveField("Reason", reasonTooManySessions), address)
			}
		})
	}
}
