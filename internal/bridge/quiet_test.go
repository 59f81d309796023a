package bridge

import (
	"bufio"
	"encoding/json"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
)

// quiet is a bridge whose server says only what the test says, in a session and without one.
type quiet struct {
	*testBridge
	session *session
	worker  *worker
	// toSession and toWorker are what the server gets.
	toSession, toWorker <-chan string
}

func newQuiet(t *testing.T, change ...func(*Options)) *quiet {
	t.Helper()
	opts := DefaultOptions()
	opts.Command = []string{"x"}
	for _, c := range change {
		c(&opts)
	}
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(testTimeout)
	b, err := New(opts)
	g.Expect(err).NotTo(HaveOccurred())
	q := &quiet{testBridge: &testBridge{WithT: g, t: t, bridge: b}}

	q.session, err = newSession(b, honestAddress)
	g.Expect(err).NotTo(HaveOccurred())
	b.admission.add(honestAddress)
	q.session.child, q.toSession = quietChild(t, g)
	q.session.startTimer, q.session.idleTimer = time.NewTimer(time.Hour), time.NewTimer(time.Hour)

	var child *child
	child, q.toWorker = quietChild(t, g)
	q.worker = newWorker(b.shared, child, logr.Discard())
	t.Cleanup(func() {
		q.worker.end(drainFailure())
		q.session.end(drainFailure())
		b.Close()
	})
	return q
}

// quietChild is a child that counts as exited, and what it is sent.
func quietChild(t *testing.T, g *WithT) (*child, <-chan string) {
	t.Helper()
	r, stdin, err := os.Pipe()
	g.Expect(err).NotTo(HaveOccurred())
	sent := make(chan string, 1000)
	go func() {
		defer r.Close()
		for lines := bufio.NewScanner(r); lines.Scan(); {
			sent <- lines.Text()
		}
	}()
	t.Cleanup(func() { _ = stdin.Close() })
	exited := make(chan struct{})
	close(exited)
	return &child{stdin: stdin, started: time.Now(), stderr: newStderrLog(logr.Discard(), 1), grace: time.Hour, exited: exited}, sent
}

// whileBlocked expects that a function returns while the child does not read what it is sent.
func (q *quiet) whileBlocked(c *child, do func()) {
	q.t.Helper()
	c.writing.Lock()
	defer c.writing.Unlock()
	q.returns(do)
}

// got is what a child got since the last call of got.
func (q *quiet) got(c *child, sent <-chan string) (all []string) {
	q.t.Helper()
	q.Eventually(c.answering.Load).Should(BeZero())
	const end = "end"
	q.Expect(c.send([]byte(end))).To(Succeed())
	for {
		var message string
		q.Eventually(sent).Should(Receive(&message))
		if message == end {
			return all
		}
		all = append(all, message)
	}
}

// returns expects that a function does not block.
func (q *quiet) returns(do func()) {
	q.t.Helper()
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		do()
	}()
	q.Eventually(returned, "20s").Should(BeClosed())
}

// recorded is a stream and what was written to it.
type recorded struct {
	*stream
	response *httptest.ResponseRecorder
}

func newRecorded() *recorded {
	response := httptest.NewRecorder()
	return &recorded{newStream(response, time.Second), response}
}

// messages are those of the events on the stream.
func (r *recorded) messages() (all []string) {
	for event := range strings.SplitSeq(r.response.Body.String(), eventEnd) {
		if message, ok := strings.CutPrefix(event, eventStart); ok {
			all = append(all, message)
		}
	}
	return all
}

// begin adds a request of a client to the session.
func (q *quiet) begin(id, token string) *recorded {
	q.t.Helper()
	out := newRecorded()
	f := q.session.add(&call{id: json.RawMessage(id), key: idKey(json.RawMessage(id)), token: idKey(json.RawMessage(token)), begun: time.Now(), stream: out.stream})
	q.Expect(f).To(BeNil())
	return out
}

// call adds a request of a client without a session, and returns its number.
func (q *quiet) call(message string) (*sharedCall, string) {
	q.t.Helper()
	e, err := parse([]byte(message))
	q.Expect(err).NotTo(HaveOccurred())
	c := newSharedCall(&e)
	number, f := q.worker.add(c)
	q.Expect(f).To(BeNil())
	return c, number
}

// next is the next message in the mailbox of a call.
func next(c *sharedCall) mail {
	m, _, _ := c.take()
	return m
}

// failureOf is why a call has failed; nil before.
func failureOf(c *sharedCall) *failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// received are the messages in the mailbox of a call.
func received(c *sharedCall) (all []string) {
	for m, ok, _ := c.take(); ok; m, ok, _ = c.take() {
		all = append(all, string(m.message))
	}
	return all
}
