package bridge

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
)

// newHandshake is a handshake with a child that says what the test says.
func newHandshake(q *quiet) (*handshake, chan<- reply) {
	lines := make(chan reply)
	return &handshake{child: q.worker.child, lines: lines, discover: time.Hour, timeout: time.Hour}, lines
}

func says(q *quiet, line string) reply {
	e, err := parse([]byte(line))
	q.Expect(err).NotTo(HaveOccurred())
	return reply{e, []byte(line)}
}

type handshakeResult struct {
	found  *generations
	failed *HandshakeError
}

func (h *handshake) begin(ctx context.Context, first string) <-chan handshakeResult {
	result := make(chan handshakeResult, 1)
	go func() {
		found, failed := h.run(ctx, first)
		result <- handshakeResult{found, failed}
	}()
	return result
}

func TestHandshakes(t *testing.T) {
	const discover, initialize = discoverMessage, initializeMessage
	for name, c := range map[string]struct {
		first string
		// said are the lines of the server.
		said []string
		// asked are the messages that it gets.
		asked   []string
		want    *generations
		problem string
	}{
		"versions without sessions": {
			discover,
			[]string{`{"id":1,"result":{"supportedVersions":["2026-07-28","2027-01-15"]}}`},
			[]string{discover}, &generations{false, []string{"2027-01-15", "2026-07-28"}}, "",
		},
		"versions of both": {
			discover,
			[]string{`{"id":1,"result":{"supportedVersions":["2025-11-25","2026-07-28"]}}`},
			[]string{discover}, &generations{true, []string{"2026-07-28"}}, "",
		},
		"versions in an error": {
			discover,
			[]string{`{"id":1,"error":{"code":-32022,"data":{"supported":["2027-01-15"]}}}`},
			[]string{discover}, &generations{false, []string{"2027-01-15"}}, "",
		},
		"other messages before": {
			discover,
			[]string{`{"method":"notifications/x"}`, `{"id":"1","result":{}}`, `{"id":7,"result":{}}`, `{"id":1,"result":{"supportedVersions":["2026-07-28"]}}`},
			[]string{discover}, &generations{false, []string{"2026-07-28"}}, "",
		},
		"requests of the server with the ids of the bridge": {
			discover,
			[]string{`{"id":2,"method":"ping"}`, `{"id":1,"method":"ping"}`, `{"id":1,"result":{"supportedVersions":["2026-07-28"]}}`},
			[]string{discover}, &generations{false, []string{"2026-07-28"}}, "",
		},
		"a server with sessions alone": {
			discover,
			[]string{`{"id":1,"error":{"code":-32601}}`, `{"id":1,"error":{"code":-32601}}`, `{"id":2,"result":{}}`},
			[]string{discover, initialize}, &generations{sessions: true}, "",
		},
		"a response that is not of MCP": {
			discover,
			[]string{`{"id":1,"result":{"supportedVersions":"all"}}`, `{"id":2,"result":{}}`},
			[]string{discover, initialize}, &generations{sessions: true}, "",
		},
		"only older versions": {
			discover,
			[]string{`{"id":1,"result":{"supportedVersions":["2025-11-25"]}}`, `{"id":2,"result":{}}`},
			[]string{discover, initialize}, &generations{sessions: true}, "",
		},
		"initialize alone": {
			initialize,
			[]string{`{"id":2,"result":{}}`},
			[]string{initialize}, &generations{sessions: true}, "",
		},
		"initialize is rejected after a request of the server": {
			initialize,
			[]string{`{"id":2,"method":"roots/list"}`, `{"id":2,"error":{"code":-32601,"message":"no"}}`},
			[]string{initialize}, nil, `it rejected initialize: {"code":-32601,"message":"no"}`,
		},
		"initialize is rejected": {
			initialize,
			[]string{`{"id":2,"error":{"code":-32601,"message":"no"}}`},
			[]string{initialize}, nil, `it rejected initialize: {"code":-32601,"message":"no"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQuiet(t)
			h, lines := newHandshake(q)
			result := h.begin(t.Context(), c.first)
			q.Eventually(q.toWorker).Should(Receive(Equal(c.asked[0])))
			for _, line := range c.said {
				q.Eventually(lines).Should(BeSent(says(q, line)))
			}
			var got handshakeResult
			q.Eventually(result).Should(Receive(&got))
			q.Expect(got.found).To(Equal(c.want))
			if c.problem != "" {
				q.Expect(got.failed).To(Equal(&HandshakeError{Problem: c.problem, rejected: true}))
			}
			for _, message := range c.asked[1:] {
				q.Eventually(q.toWorker).Should(Receive(Equal(message)))
			}
			q.Expect(q.toWorker).NotTo(Receive())
		})
	}
}

func TestHandshakesThatEnd(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*handshake)
		problem string
	}{
		"without a response": {func(h *handshake) { h.timeout = time.Millisecond }, "no response within 1ms"},
		"with the server":    {func(h *handshake) { closed := make(chan reply); close(closed); h.lines = closed }, "it exited with exit status 0"},
		"with its output": {func(h *handshake) {
			closed := make(chan reply)
			close(closed)
			h.lines, h.child.exited, h.child.grace = closed, make(chan struct{}), time.Millisecond
		}, "it closed its standard output"},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQuiet(t)
			h, _ := newHandshake(q)
			exited := h.child.exited
			close(h.child.stderr.done)
			c.change(h)
			_, failed := h.run(t.Context(), discoverMessage)
			q.Expect(failed).To(Equal(&HandshakeError{Problem: c.problem}))
			h.child.exited = exited
		})
	}
	q := newQuiet(t)
	h, _ := newHandshake(q)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, failed := h.run(ctx, discoverMessage)
	q.Expect(failed).To(MatchError(ContainSubstring("the check was cancelled")))
}

// The last lines are the cause of the exit.
func TestEndOfAServerIsReportedAfterItsLastLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		exited := &child{grace: time.Hour, exited: make(chan struct{}), stderr: newStderrLog(logr.Discard(), 1)}
		close(exited.exited)
		end := make(chan string, 1)
		go func() { end <- (&handshake{child: exited}).end() }()
		synctest.Wait()
		g.Expect(end).NotTo(Receive())
		close(exited.stderr.done)
		g.Expect(<-end).To(Equal("it exited with exit status 0"))
	})
}

// Some servers ignore methods that they do not know.
func TestServersThatIgnoreDiscoverAreAskedToInitialize(t *testing.T) {
	q := newQuiet(t)
	h, lines := newHandshake(q)
	h.discover = time.Millisecond
	result := h.begin(t.Context(), discoverMessage)
	q.Eventually(q.toWorker).Should(Receive(Equal(discoverMessage)))
	q.Eventually(q.toWorker).Should(Receive(Equal(initializeMessage)))
	lines <- says(q, `{"id":2,"result":{}}`)
	q.Eventually(result).Should(Receive(Equal(handshakeResult{found: &generations{sessions: true}})))
}

// A server that takes long to start gets both requests at once, and may respond to the second one first.
func TestTheOrderOfResponsesDoesNotDecideTheGeneration(t *testing.T) {
	const duplicate = `{"id":2,"error":{"code":0,"message":"duplicate \"initialize\" received"}}`
	for name, c := range map[string]struct {
		said   []string
		closes bool
		want   handshakeResult
	}{
		"without sessions": {
			[]string{duplicate, `{"id":1,"result":{"supportedVersions":["2026-07-28"]}}`}, false,
			handshakeResult{found: &generations{stateless: []string{"2026-07-28"}}},
		},
		"with sessions alone": {
			[]string{`{"id":2,"result":{}}`, `{"id":1,"error":{"code":-32601}}`}, false,
			handshakeResult{found: &generations{sessions: true}},
		},
		"a server that exits before the other response": {
			[]string{`{"id":2,"result":{}}`}, true,
			handshakeResult{found: &generations{sessions: true}},
		},
		"the other response never comes": {
			[]string{duplicate}, false,
			handshakeResult{failed: &HandshakeError{Problem: `it rejected initialize: {"code":0,"message":"duplicate \"initialize\" received"}`, rejected: true}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				lines := make(chan reply)
				read, stdin, err := os.Pipe()
				g.Expect(err).NotTo(HaveOccurred())
				defer read.Close()
				defer stdin.Close()
				h := &handshake{child: &child{stdin: stdin}, lines: lines, discover: 3 * time.Second, timeout: time.Minute}
				result := h.begin(t.Context(), discoverMessage)
				<-time.After(4 * time.Second) // in a bubble, which takes no time
				for _, line := range c.said {
					e, err := parse([]byte(line))
					g.Expect(err).NotTo(HaveOccurred())
					lines <- reply{e, []byte(line)}
					<-time.After(2 * time.Second)
				}
				if c.closes {
					close(lines)
				}
				g.Expect(<-result).To(Equal(c.want))
			})
		})
	}
}

// The buffer of a line is used for the next one.
func TestRepliesOfAHandshakeAreKept(t *testing.T) {
	g := NewWithT(t)
	stdout, server, err := os.Pipe()
	g.Expect(err).NotTo(HaveOccurred())
	lines, stop := make(chan reply), make(chan struct{})
	go readReplies(&child{stdout: stdout, lines: newLineReader(stdout, 1<<10)}, lines, stop)
	said := []string{`{"id":1,"result":{"a":1}}`, `{"id":2,"result":{"b":2}}`, "no message", `{"id":3,"result":{"c":3}}`}

	_, err = server.WriteString(strings.Join(said, "\n") + "\n")
	g.Expect(err).NotTo(HaveOccurred())

	replies := []reply{<-lines, <-lines, <-lines}
	var kept []string
	for _, r := range replies {
		kept = append(kept, string(r.ID)+" "+string(r.line))
	}
	g.Expect(kept).To(Equal([]string{"1 " + said[0], "2 " + said[1], "3 " + said[3]}))
	close(stop)
	_, err = server.WriteString(said[0] + "\n")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(server.Close()).To(Succeed())
	g.Eventually(lines, testTimeout).Should(BeClosed(), "it reads to the end, so that the child can exit")
}

func TestErrorsOfCommands(t *testing.T) {
	g := NewWithT(t)
	g.Expect((&HandshakeError{Problem: "it slept"}).Error()).To(Equal("the command did not complete an MCP handshake on its standard output: it slept"))
	g.Expect((&HandshakeError{Problem: "it slept", Stderr: "zzz"}).Error()).To(HaveSuffix("it slept; stderr: zzz"))
	broken := errors.New("no memory")
	err := &CommandError{Command: "x", Err: broken}
	g.Expect(err).To(MatchError(`the command "x" cannot be run: no memory`))
	g.Expect(errors.Is(err, broken)).To(BeTrue())
}

// A client of the generation without sessions falls back to initialize by these errors.
func TestServersWithSessionsRefuseRequestsWithoutOne(t *testing.T) {
	q := newQuiet(t)
	q.bridge.speaks.Store(&generations{sessions: true})
	refusal := func(message string) *failure {
		e, err := parse([]byte(message))
		q.Expect(err).NotTo(HaveOccurred())
		return q.bridge.checkServerStateless(t.Context(), &e)
	}
	f := refusal(`{"id":1,"method":"server/discover"}`)
	q.Expect(f).To(MatchError("this server requires a session: send initialize"))
	q.Expect([]int{f.Status, f.Code}).To(Equal([]int{http.StatusNotFound, codeMethodNotFound}))

	f = refusal(statelessCall)
	q.Expect(f).To(MatchError("this server requires a session: send initialize"))
	q.Expect([]int{f.Status, f.Code}).To(Equal([]int{http.StatusBadRequest, codeUnsupportedVersion}))
	q.Expect(f.Data).To(Equal(map[string]any{"supported": sessionVersions, "requested": "2026-07-28"}))

	q.bridge.speaks.Store(&generations{sessions: true, stateless: []string{"2026-07-28"}})
	q.Expect(refusal(statelessCall)).To(BeNil())
}

func TestChecksWaitForEachOther(t *testing.T) {
	q := newQuiet(t)
	q.bridge.probing <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	q.Expect(q.bridge.Check(ctx)).To(MatchError(context.Canceled))
	<-q.bridge.probing
	q.bridge.speaks.Store(&generations{sessions: true})
	q.Expect(q.bridge.Check(t.Context())).To(Succeed(), "what is known is not asked again")
}

// stateless checks the server for a request without a session.
func (w *testBridge) stateless(ctx context.Context) <-chan *failure {
	e, err := parse([]byte(statelessCall))
	w.Expect(err).NotTo(HaveOccurred())
	result := make(chan *failure, 1)
	go func() { result <- w.bridge.checkServerStateless(ctx, &e) }()
	return result
}

func TestClientsThatLeaveDuringTheDetectionAreNoFailedStarts(t *testing.T) {
	w := newTestBridge(t, []string{"sleep", "3600"}, func(o *Options) { o.StopGrace = 50 * time.Millisecond })
	ctx, leave := context.WithCancel(t.Context())
	detects := w.stateless(ctx)
	w.Eventually(func() float64 { return w.metric("children") }).Should(Equal(1.0))
	waits := w.stateless(ctx)

	leave()

	for _, result := range []<-chan *failure{detects, waits} {
		w.Eventually(result).Should(Receive(HaveField("Reason", reasonClientLeft)))
	}
	w.Expect(w.logs.String()).NotTo(ContainSubstring("Failed to detect"))
	w.Expect(w.bridge.shared.nextStart).To(BeZero(), "the next request starts the server at once")
}

// A check of the command is no session, and Close must not leave its process behind.
func TestCloseEndsChecks(t *testing.T) {
	w := newTestBridge(t, []string{"sleep", "3600"}, func(o *Options) { o.StartTimeout, o.StopGrace = time.Hour, 50*time.Millisecond })
	detects := w.stateless(t.Context())
	w.Eventually(func() float64 { return w.metric("children") }).Should(Equal(1.0))
	waits := w.stateless(t.Context())

	w.bridge.Close()

	w.Expect(w.metric("children")).To(BeZero())
	for _, result := range []<-chan *failure{detects, waits} {
		w.Eventually(result).Should(Receive(Equal(drainFailure())))
	}
	w.Expect(w.metric("child_starts_total")).To(Equal(1.0), "none after Close")
	w.Expect(w.logs.String()).NotTo(ContainSubstring("Failed to detect"))
}

func TestNoCheckStartsAfterClose(t *testing.T) {
	w := newTestBridge(t, tinyServer())
	w.bridge.Close()

	w.Expect(<-w.stateless(t.Context())).To(Equal(drainFailure()))
	w.Expect(w.bridge.Check(t.Context())).NotTo(Succeed())
	w.Expect(w.metric("child_starts_total")).To(BeZero())
}

// A server that fails must not be started for each request.
func TestRequestsShareAFailedDetection(t *testing.T) {
	w := newTestBridge(t, []string{"false"})
	s := w.bridge.shared
	s.quickExits = 8 // so that the delay is long enough for a busy machine
	w.bridge.probing <- struct{}{}
	replies := make(chan httpReply, 3)
	for range cap(replies) {
		go func() { replies <- w.post(statelessCall, statelessHeaders...) }()
	}
	w.Eventually(func() float64 { return w.metric("requests_in_flight") }).Should(Equal(3.0))

	<-w.bridge.probing

	for range cap(replies) {
		var reply httpReply
		w.Eventually(replies).Should(Receive(&reply))
		w.Expect(reply.Status).To(Equal(http.StatusServiceUnavailable))
		w.Expect(reply.Body).To(ContainSubstring("the MCP server process does not respond"))
		seconds, err := strconv.Atoi(reply.Header.Get("Retry-After"))
		w.Expect(err).NotTo(HaveOccurred())
		w.Expect(seconds).To(BeNumerically("~", 30, 5))
	}
	w.Expect(w.metric("child_starts_total")).To(Equal(2.0), "server/discover, and initialize alone")
	w.Expect(strings.Count(w.logs.String(), "Failed to detect")).To(Equal(1))

	t.Log("the next attempt follows the delay")
	s.nextStart = time.Now()
	w.Eventually(w.stateless(t.Context())).Should(Receive(HaveField("Reason", reasonStartFailed)))
	w.Expect(w.metric("child_starts_total")).To(Equal(4.0))
}

func TestDelayAfterAFailedDetection(t *testing.T) {
	w := newTestBridge(t, tinyServer())
	s := w.bridge.shared
	s.nextStart = time.Now().Add(time.Hour)
	var f *failure
	w.Eventually(w.stateless(t.Context())).Should(Receive(&f))
	w.Expect(f).To(And(MatchError("the MCP server process does not respond"), HaveField("Reason", reasonStartFailed)))
	retry := time.Now().Add(time.Duration(f.RetryAfter) * time.Second)
	w.Expect(retry).To(And(BeTemporally(">=", s.nextStart), BeTemporally("~", s.nextStart, testTimeout)))
	w.Expect(w.metric("child_starts_total")).To(BeZero())

	t.Log("the check at the start reports what is wrong, and is not delayed")
	w.Expect(w.bridge.Check(t.Context())).To(Succeed())
	w.Expect(w.metric("child_starts_total")).To(Equal(1.0))

	t.Log("what is known needs no start")
	w.Eventually(w.stateless(t.Context())).Should(Receive(MatchError("this server requires a session: send initialize")))
}

func TestFailedCheckDelaysRequests(t *testing.T) {
	w := newTestBridge(t, []string{"false"})
	w.bridge.shared.quickExits = 8
	w.Expect(w.bridge.Check(t.Context())).NotTo(Succeed())
	w.Eventually(w.stateless(t.Context())).Should(Receive(HaveField("Reason", reasonStartFailed)))
	w.Expect(w.metric("child_starts_total")).To(Equal(2.0), "those of the check")
}

// A server that cannot be started takes no place of a session.
func TestServerThatCannotBeStarted(t *testing.T) {
	w := newTestBridge(t, []string{"/no/such/server"}, func(o *Options) { o.MaxSessions = 1 })
	for range 2 {
		reply := w.post(initMessage)
		w.Expect(reply.Status).To(Equal(http.StatusServiceUnavailable))
		w.Expect(reply.Header.Get("Retry-After")).To(Equal("5"))
		w.Expect(reply.Body).To(MatchJSON(`{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"the MCP server process could not be started","data":{"reason":"StartFailed"}}}`))
	}
	w.Expect(w.metric("child_start_failures_total")).To(Equal(2.0))
	w.Expect(w.metric("child_starts_total")).To(BeZero())
	w.Expect(w.metric("sessions_started_total")).To(BeZero())

	reply := w.post(statelessCall, statelessHeaders...)
	w.Expect(reply.Status).To(Equal(http.StatusServiceUnavailable))
	w.Expect(reply.Header.Get("Retry-After")).To(Equal("5"))
	w.Expect(reply.Body).To(MatchJSON(`{"jsonrpc":"2.0","id":"x","error":{"code":-32000,"message":"the MCP server process does not respond","data":{"reason":"StartFailed"}}}`))
}

func TestServersThatEndAreReported(t *testing.T) {
	for name, c := range map[string]struct {
		exited  bool
		message string
	}{
		"the process exited":      {true, "the MCP server process exited: exit status 0"},
		"its output closed alone": {false, "the MCP server process closed its standard output"},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQuiet(t)
			pending := q.begin("1", "")
			shared, _ := q.call(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
			for _, child := range []*child{q.session.child, q.worker.child} {
				close(child.stderr.done)
				if !c.exited {
					child.exited, child.grace, child.reaper = make(chan struct{}), time.Millisecond, q.bridge.reaper
				}
			}

			q.session.childGone()
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				q.worker.childGone()
			}()
			q.Eventually(func() *failure { return failureOf(shared) }).ShouldNot(BeNil())
			if !c.exited {
				close(q.session.child.exited)
				close(q.worker.child.exited)
			}
			q.Eventually(gone).Should(BeClosed())

			q.Expect(q.session.ended()).To(Equal(ended(reasonServerExited, c.message)))
			q.Eventually(pending.done).Should(BeClosed())
			q.Expect(shared.failed).To(Equal(ended(reasonServerExited, c.message)))
			q.Expect(q.metric("child_crashes_total")).To(Equal(2.0))
			q.Eventually(q.session.stopped).Should(BeClosed())
		})
	}
}

// What a server speaks is known only once both of its generations were asked.
func TestGenerationsAreNotKnownAfterACancelledCheck(t *testing.T) {
	w := newTestBridge(t, []string{"sed", "-u", "-n", `s/.*"id":1,.*/{"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"]}}/p`})
	ctx, cancel := context.WithCancel(t.Context())
	checked := make(chan error, 1)
	go func() { checked <- w.bridge.Check(ctx) }()
	w.Eventually(func() float64 { return w.metric("child_starts_total") }).Should(Equal(2.0), "initialize has no response")
	cancel()
	var err error
	w.Eventually(checked).Should(Receive(&err))
	w.Expect(err).To(MatchError(context.Canceled))
	w.Expect(w.bridge.speaks.Load()).To(BeNil())
}
