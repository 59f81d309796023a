package bridge

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
)

// The server could not tell which of the two a response is to.
func TestIDsOfRequestsInFlightAreUnique(t *testing.T) {
	q := newQuiet(t)
	q.begin("1", "")
	q.begin(`"1"`, "")
	f := q.session.add(&call{id: json.RawMessage("1.0"), key: idKey(json.RawMessage("1.0")), begun: time.Now(), stream: newRecorded().stream})
	q.Expect(f).To(MatchError("request id 1.0 is used by another request in flight"))
	q.Expect([]int{f.Status, f.Code}).To(Equal([]int{http.StatusBadRequest, codeInvalidRequest}))
	q.Expect(q.metric("requests_in_flight")).To(Equal(2.0))

	q.session.fromServer([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`))
	q.begin("1", "")
}

// A request whose id is used again must not end the later one.
func TestLeavingEndsTheRequestItself(t *testing.T) {
	q := newQuiet(t)
	first := &call{id: json.RawMessage("1"), key: "1", begun: time.Now(), stream: newRecorded().stream}
	q.Expect(q.session.add(first)).To(BeNil())
	q.session.leave(first)
	q.Expect(q.metric("requests_in_flight")).To(BeZero())
	second := q.begin("1", "")
	q.session.leave(first)
	q.Expect(q.metric("requests_in_flight")).To(Equal(1.0))
	q.session.fromServer([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`))
	q.Expect(second.messages()).To(HaveLen(1))
}

// The server may respond before the bridge ends the request, and the client may use the id again then.
func TestCancellationEndsTheRequestItself(t *testing.T) {
	q := newQuiet(t)
	q.begin("1", "")
	first := q.session.cancellable("1")
	q.session.fromServer([]byte(`{"jsonrpc":"2.0","id":1,"error":{"code":0,"message":"cancelled"}}`))
	second := q.begin("1", "")

	q.session.cancel(first)

	q.session.fromServer([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`))
	q.Expect(second.messages()).To(Equal([]string{`{"jsonrpc":"2.0","id":1,"result":{}}`}))
}

func TestEndOfASessionEndsItsRequestsAndStreams(t *testing.T) {
	q := newQuiet(t)
	begun := q.begin("1", "")
	q.Expect(begun.send([]byte(`{"jsonrpc":"2.0","method":"m"}`))).To(Succeed())
	fresh, standalone := q.begin(`"b"`, ""), q.openStandalone()
	why := ended(reasonServerExited, "the server is gone")

	q.session.end(why)
	q.session.end(ended(reasonIdle, "another reason"))

	for _, stream := range []*recorded{begun, fresh, standalone} {
		q.Eventually(stream.done).Should(BeClosed())
	}
	q.Expect(begun.messages()).To(HaveLen(2))
	q.Expect(fresh.messages()).To(HaveExactElements(MatchJSON(
		`{"jsonrpc":"2.0","id":"b","error":{"code":-32603,"message":"the server is gone","data":{"reason":"ServerExited"}}}`)))
	q.Expect(standalone.messages()).To(BeEmpty())
	q.Eventually(q.session.stopped).Should(BeClosed())
	q.Expect(q.session.ended()).To(BeIdenticalTo(why), "the first reason stays")
	q.Expect(q.session.add(&call{id: json.RawMessage("3"), key: "3"})).To(BeIdenticalTo(why))
	q.Expect(q.session.why()).To(MatchError("the server is gone"))
	q.Expect(q.session.why().Status).To(Equal(http.StatusNotFound), "the client initializes again")
	q.Expect(q.metric("requests_in_flight")).To(BeZero())
	q.Expect(q.metric("sessions_ended_total")).To(Equal(1.0))
	q.Expect(q.metric("session_duration_seconds")).To(Equal(1.0))
	q.Expect(q.metric("child_crashes_total")).To(Equal(1.0))
	q.Eventually(q.bridge.noSessions).Should(BeTrue(), "its place is free")
}

func TestSlowClientsDoNotDelayTheEndOfTheirSession(t *testing.T) {
	q, slow := newQuiet(t), slowClient{httptest.NewRecorder(), make(chan struct{})}
	defer close(slow.reads)
	q.Expect(q.session.add(&call{id: json.RawMessage("1"), key: "1", begun: time.Now(), stream: newStream(slow, time.Second)})).To(BeNil())
	q.returns(func() {
		q.session.end(ended(reasonDeleted, ""))
		<-q.session.stopped
	})
}

func TestIdleSessionsAreCheckedWhenTheirTimeIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := NewWithT(t), &session{initialized: true, begun: time.Now(), idle: time.Hour, idleTimer: time.NewTimer(time.Hour)}
		s.setUnused(50 * time.Minute)
		checked := time.Now()
		s.checkIdle()
		<-s.idleTimer.C
		g.Expect(time.Since(checked)).To(Equal(10 * time.Minute))
	})
}

// setUnused makes it so long ago that the session was used.
func (s *session) setUnused(since time.Duration) {
	s.lastUse.Store(int64(time.Since(s.begun) - since))
}

// The wall clock of a node may be set, which neither ends sessions nor keeps them.
func TestIdleTimeOfASessionIsNotOfTheWallClock(t *testing.T) {
	q := newQuiet(t)
	q.session.touch()
	q.Expect(time.Duration(q.session.lastUse.Load())).To(BeNumerically("<", time.Hour), "it counts from the beginning of the session")
}

func TestIdleTimeOfASession(t *testing.T) {
	const timeout = time.Hour
	for name, c := range map[string]struct {
		initialized, pending bool
		idle                 time.Duration
		ends                 bool
	}{
		"idle for longer":                {true, false, 2 * timeout, true},
		"used a moment ago":              {true, false, timeout - time.Minute, false},
		"a request is in flight":         {true, true, 2 * timeout, false},
		"the server has not started yet": {false, false, 2 * timeout, false},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQuiet(t, func(o *Options) { o.IdleTimeout = timeout })
			q.session.initialized = c.initialized
			if c.pending {
				q.begin("1", "")
			}
			q.session.setUnused(c.idle)
			q.Expect(q.session.idleTimer.Stop()).To(BeTrue())

			q.session.checkIdle()

			if c.ends {
				q.Expect(q.session.ended()).To(HaveField("Reason", reasonIdle))
				q.Expect(q.session.idleTimer.Stop()).To(BeFalse())
			} else {
				q.Expect(q.session.ended()).To(BeNil())
				q.Expect(q.session.idleTimer.Stop()).To(BeTrue(), "it is checked again")
			}
		})
	}
}

// A request in flight is use until its end.
func TestIdleTimeOfASessionBeginsWithTheEndOfARequest(t *testing.T) {
	for name, end := range map[string]func(*session, *call){
		"it has a response":         func(s *session, _ *call) { s.fromServer([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`)) },
		"its response is too large": func(s *session, _ *call) { s.tooLarge(&oversize{id: []byte("1")}) },
		"its client has left":       func(s *session, c *call) { s.leave(c) },
		"its stream broke":          func(s *session, c *call) { s.abandon(c.stream) },
	} {
		t.Run(name, func(t *testing.T) {
			q := newQuiet(t, func(o *Options) { o.IdleTimeout = time.Hour })
			q.session.initialized = true
			q.begin("1", "")
			q.session.setUnused(2 * time.Hour)

			end(q.session, q.session.order[0])
			q.session.checkIdle()

			q.Expect(q.session.ended()).To(BeNil())
			q.Expect(q.session.resident().pending).To(BeFalse())
			q.Expect(q.session.resident().idle).To(BeNumerically("<", time.Hour))
		})
	}
}

func TestIdleTimeoutIsOnlyShortened(t *testing.T) {
	q := newQuiet(t, func(o *Options) { o.IdleTimeout = time.Hour })
	q.session.shortenIdleTimeout(2 * time.Hour)
	q.Expect(q.session.idle).To(Equal(time.Hour))
	q.session.shortenIdleTimeout(time.Minute)
	q.Expect(q.session.idle).To(Equal(time.Minute))
	q.Eventually(q.session.idleTimer.C).Should(Receive(), "it is checked now")
	q.session.end(ended(reasonDeleted, ""))
	q.session.shortenIdleTimeout(time.Second)
	q.Expect(q.session.idleTimer.Stop()).To(BeFalse(), "a session that has ended is not checked")
}

func TestStartTimeOfASession(t *testing.T) {
	q := newQuiet(t)
	q.session.checkStart()
	q.Expect(q.session.ended()).To(MatchError("the MCP server process did not respond to initialize within 1m0s"))
	q.Expect(q.session.ended().Reason).To(Equal(reasonStartTimeout))
	q.Expect(q.metric("child_crashes_total")).To(BeZero())
}

func TestSessionsAreDescribedForAdmission(t *testing.T) {
	q := newQuiet(t)
	q.session.setUnused(time.Hour)
	r := q.session.resident()
	q.Expect(r.idle).To(BeNumerically("~", time.Hour, time.Minute))
	r.idle = 0
	q.Expect(r).To(Equal(resident{caller: honestAddress}))
	q.session.used.Store(true)
	q.begin("1", "")
	r = q.session.resident()
	r.idle = 0
	q.Expect(r).To(Equal(resident{caller: honestAddress, used: true, pending: true}))
}

// Its place was free when its process exited, which may be before it is registered.
func TestSessionsThatHaveEndedBeforeTheyAreRegisteredHaveNoPlace(t *testing.T) {
	q := newQuiet(t, func(o *Options) { o.MaxSessions = 1 })
	q.session.end(ended(reasonServerExited, "the server is gone"))
	q.Eventually(q.bridge.noSessions).Should(BeTrue())
	q.bridge.sessions[q.session.id] = q.session
	q.Expect(q.bridge.reserve(honestAddress)).To(BeNil())

	replaced, f := q.bridge.reserve(honestAddress)
	q.bridge.admission.total = 0 // before the test can fail, because Close waits for it
	q.bridge.forget(q.session)

	q.Expect(f).To(HaveField("Reason", reasonTooManySessions))
	q.Expect(replaced).To(BeNil())
}
