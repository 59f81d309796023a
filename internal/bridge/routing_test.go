package bridge

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
)

// openStandalone opens the stream of the session for messages that belong to no request.
func (q *quiet) openStandalone() *recorded {
	q.t.Helper()
	out := newRecorded()
	q.Expect(q.session.attach(out.stream)).To(BeTrue())
	return out
}

// slowClient reads a response once it is told to.
type slowClient struct {
	*httptest.ResponseRecorder
	reads chan struct{}
}

func (c slowClient) Write(part []byte) (int, error) {
	<-c.reads
	return c.ResponseRecorder.Write(part)
}

// Some clients take the end of the standalone stream as the end of the session.
func TestStandaloneStreamEndsAfterPendingRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, client := NewWithT(t), slowClient{httptest.NewRecorder(), make(chan struct{})}
		pending := &call{id: json.RawMessage("1"), stream: newStream(client, time.Second)}
		standalone := newStream(httptest.NewRecorder(), time.Second)
		go finishAll([]*call{pending}, standalone, drainFailure())
		synctest.Wait()
		g.Expect(standalone.done).NotTo(BeClosed())
		close(client.reads)
		synctest.Wait()
		g.Expect(pending.stream.done).To(BeClosed())
		g.Expect(standalone.done).To(BeClosed())
	})
}

func TestStreamsOfMessagesInASession(t *testing.T) {
	const progress = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`
	for name, c := range map[string]struct {
		message string
		// want is the stream if there is a standalone one, and without which if there is none.
		want, without string
	}{
		"progress of the older request":    {fmt.Sprintf(progress, `"t1"`), "older", "older"},
		"progress of the newer request":    {fmt.Sprintf(progress, `2.0`), "newer", "newer"},
		"progress of no request":           {fmt.Sprintf(progress, `"other"`), "newer", "newer"},
		"progress without a token":         {`{"jsonrpc":"2.0","method":"notifications/progress","params":{}}`, "newer", "newer"},
		"a token in another notification":  {`{"jsonrpc":"2.0","method":"notifications/x","params":{"progressToken":"t1"}}`, "newer", "newer"},
		"a request of the server":          {`{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage"}`, "newer", "newer"},
		"a log message":                    {`{"jsonrpc":"2.0","method":"notifications/message"}`, "newer", "newer"},
		"a list that changed":              {`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, "standalone", "newer"},
		"a resource that changed":          {`{"jsonrpc":"2.0","method":"notifications/resources/updated"}`, "standalone", "newer"},
		"a notification of similar method": {`{"jsonrpc":"2.0","method":"notifications/list_changed/x"}`, "newer", "newer"},
	} {
		for _, standalone := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, standalone %t", name, standalone), func(t *testing.T) {
				q := newQuiet(t)
				want := c.without
				streams := map[string]*recorded{"none": q.begin("0", ""), "older": q.begin("1", `"t1"`), "newer": q.begin("2", "2")}
				if standalone {
					streams["standalone"], want = q.openStandalone(), c.want
				}
				q.session.fromServer([]byte(c.message))
				for name, stream := range streams {
					if name == want {
						q.Expect(stream.messages()).To(Equal([]string{c.message}), name)
					} else {
						q.Expect(stream.messages()).To(BeEmpty(), name)
					}
				}
			})
		}
	}
}

func TestMessagesWithoutRequestsAreSentOnTheStandaloneStream(t *testing.T) {
	q := newQuiet(t)
	const message = `{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"<&>"}}`
	replaced := q.openStandalone()
	out := q.openStandalone()
	q.Eventually(replaced.done).Should(BeClosed(), "the client has lost it")
	q.session.detach(replaced.stream) // its handler returns later
	begun := q.session.lastUse.Load()
	q.session.fromServer([]byte(" " + message + "\r\n"))
	q.Expect(out.messages()).To(Equal([]string{message}))
	q.Expect(q.session.lastUse.Load()).To(BeNumerically(">", begun), "it counts as use")

	q.session.detach(out.stream)
	q.session.fromServer([]byte(message))
	q.Expect(out.messages()).To(HaveLen(1))
	q.session.fromServer([]byte(`{"jsonrpc":"2.0","id":7,"method":"roots/list"}`))
	used := q.session.lastUse.Load()
	next := q.begin("1", "")
	q.session.flush(next.stream)
	q.Expect(next.messages()).To(Equal([]string{message, `{"jsonrpc":"2.0","id":7,"method":"roots/list"}`}), "what waits is sent on the next stream, in order")
	q.Expect(q.session.lastUse.Load()).To(Equal(used))
	q.session.flush(next.stream)
	q.Expect(next.messages()).To(HaveLen(2), "once")
	q.Expect(q.metric("dropped_messages_total")).To(BeZero())
}

// The connection of a client that opens a stream again may be dead.
func TestNewStreamsDoNotWaitForTheOneThatTheyReplace(t *testing.T) {
	q, dead := newQuiet(t), slowClient{httptest.NewRecorder(), make(chan struct{})}
	defer close(dead.reads)
	q.Expect(q.session.attach(newStream(dead, time.Second))).To(BeTrue())
	go q.session.fromServer([]byte(`{"jsonrpc":"2.0","method":"notifications/x"}`))
	dead.reads <- struct{}{} // the rest of the event is blocked
	q.returns(func() { q.openStandalone() })
}

// The client may have disconnected for good, so a message that waits for a stream does not count as use.
func TestMessagesThatWaitDoNotKeepASession(t *testing.T) {
	q := newQuiet(t)
	q.session.lastUse.Store(7)
	broken := newStream(&brokenWriter{httptest.NewRecorder(), 0}, time.Second)
	q.Expect(q.session.attach(broken)).To(BeTrue())
	q.session.fromServer([]byte(`{"jsonrpc":"2.0","method":"notifications/x"}`))
	q.Expect(q.session.lastUse.Load()).To(Equal(int64(7)))
	q.Expect(q.session.standalone).To(BeNil(), "a stream that broke gets nothing more")
	q.Expect(q.session.parked.messages).To(HaveLen(1))
}

func TestMessagesAreSentOnAnotherStreamIfOneBreaks(t *testing.T) {
	q := newQuiet(t)
	older := q.begin("1", "")
	standalone := newRecorded()
	q.Expect(q.session.attach(standalone.stream)).To(BeTrue())
	broken := &call{id: json.RawMessage("2"), key: "2", begun: time.Now(), stream: newStream(&brokenWriter{httptest.NewRecorder(), 0}, time.Second)}
	q.Expect(q.session.add(broken)).To(BeNil())
	const message = `{"jsonrpc":"2.0","method":"notifications/x"}`
	q.session.fromServer([]byte(message))
	q.Expect(older.messages()).To(Equal([]string{message}))
	q.Expect(q.metric("requests_in_flight")).To(Equal(1.0), "the request whose stream broke is over")
	q.Expect(q.session.order).To(HaveLen(1))
	q.Expect(q.session.standalone).To(BeIdenticalTo(standalone.stream))
}

// A client that has no stream for long must not make the bridge hold messages without bounds.
func TestMessagesThatWaitAreBounded(t *testing.T) {
	message := func(id, size int) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"m","params":{"x":"%s"}}`, id, strings.Repeat("x", size))
	}
	sized := func(id, size int) string { return message(id, size-len(message(id, 0))) }
	for name, c := range map[string]struct {
		messages []string
		// dropped are the ids of those that were dropped, in order.
		dropped []int
	}{
		"some":                            {[]string{message(1, 0), message(2, 0)}, nil},
		"as many as may be":               {many(parkedMessages, message), nil},
		"two more":                        {many(parkedMessages+2, message), []int{1, 2}},
		"as large as may be":              {[]string{sized(1, parkedBytes/2), sized(2, parkedBytes/2)}, nil},
		"larger":                          {[]string{sized(1, parkedBytes/2), sized(2, parkedBytes/2+1)}, []int{1}},
		"large ones one after another":    {[]string{sized(1, parkedBytes/2), sized(2, parkedBytes/2), sized(3, parkedBytes/2), message(4, 0)}, []int{1, 2}},
		"one as large as may be":          {[]string{message(1, 0), sized(2, parkedBytes)}, []int{1}},
		"one that is larger, which alone": {[]string{message(1, 0), sized(2, parkedBytes+1), message(3, 0)}, []int{2}},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQuiet(t)
			q.whileBlocked(q.session.child, func() {
				for _, m := range c.messages {
					line := []byte(m)
					q.session.fromServer(line)
					copy(line, strings.Repeat("#", len(line))) // the reader uses its buffer again
				}
			})
			q.Expect(q.metric("dropped_messages_total", reasonNoStream)).To(Equal(float64(len(c.dropped))))
			answered := map[string]bool{}
			for range c.dropped {
				var answer string
				q.Eventually(q.toSession).Should(Receive(&answer), "the server does not wait without end")
				answered[answer] = true
			}
			left := newRecorded()
			q.session.flush(left.stream)
			want := c.messages
			for _, id := range c.dropped {
				q.Expect(answered).To(HaveKey(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":{"code":-32603,`+
					`"message":"the client has no open stream for requests of the server","data":{"reason":"NoOpenStream"}}}`, id)))
				want = without(want, id)
			}
			q.Expect(left.messages()).To(Equal(want))
		})
	}
}

func many(count int, message func(id, size int) string) (all []string) {
	for id := range count {
		all = append(all, message(id+1, 0))
	}
	return all
}

// without are the messages without that of the id.
func without(messages []string, id int) (left []string) {
	for _, m := range messages {
		if !strings.Contains(m, fmt.Sprintf(`"id":%d,`, id)) {
			left = append(left, m)
		}
	}
	return left
}

// A server that sends requests in a loop, and reads nothing, must not take the memory of all sessions.
func TestResponsesThatTheServerDoesNotReadAreBounded(t *testing.T) {
	const message = `{"jsonrpc":"2.0","id":"x","method":"m"}`
	for name, ask := range map[string]func(q *quiet) *child{
		"in a session":      func(q *quiet) *child { q.session.fromServer([]byte(message)); return q.session.child },
		"without a session": func(q *quiet) *child { q.worker.fromServer([]byte(message)); return q.worker.child },
		"too large": func(q *quiet) *child {
			q.session.tooLarge(&oversize{bytes: 11, id: []byte("1"), method: "m"})
			return q.session.child
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQuiet(t)
			asked, waiting := ask(q), 0
			before := runtime.NumGoroutine()
			q.whileBlocked(asked, func() {
				for range 3 * maxAnswers {
					ask(q)
				}
				waiting = runtime.NumGoroutine() - before
			})
			q.Expect(waiting).To(BeNumerically("<=", maxAnswers+1))
			q.Eventually(asked.answering.Load).Should(BeZero())
			ask(q)
			q.Eventually(asked.answering.Load).Should(BeZero(), "further ones are sent")
		})
	}
}

func TestNotificationsThatAreDroppedGetNoResponse(t *testing.T) {
	q := newQuiet(t)
	for range parkedMessages + 1 {
		q.session.fromServer([]byte(`{"jsonrpc":"2.0","method":"notifications/x"}`))
	}
	q.Expect(q.metric("dropped_messages_total", reasonNoStream)).To(Equal(1.0))
	q.session.tooLarge(&oversize{bytes: 1, id: []byte("7"), method: "m"})
	q.Expect(q.got(q.session.child, q.toSession)).To(HaveExactElements(ContainSubstring(`"id":7,`)), "the only response is to a request")
}

func TestMessagesThatWereLeftWaitInFrontOfLaterOnes(t *testing.T) {
	q := newQuiet(t)
	message := func(n int) string { return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/%d"}`, n) }
	q.session.fromServer([]byte(message(3)))
	q.session.parkAgain([]parked{{line: []byte(message(1))}, {line: []byte(message(2))}})
	out := newRecorded()
	q.session.flush(out.stream)
	q.Expect(out.messages()).To(Equal([]string{message(1), message(2), message(3)}))

	q.session.end(ended(reasonDeleted, "the client ended the session"))
	q.session.parkAgain([]parked{{line: []byte(message(1))}})
	q.session.fromServer([]byte(message(2)))
	q.Expect(q.session.parked).To(Equal(parking{}), "a session that has ended holds nothing")
	q.Expect(q.session.attach(newRecorded().stream)).To(BeFalse())
}

func TestResponsesReachTheirRequest(t *testing.T) {
	q := newQuiet(t)
	number, text := q.begin("1", ""), q.begin(`"1"`, "")
	q.session.lastUse.Store(7)
	q.session.fromServer([]byte("Welcome!"))
	q.session.fromServer([]byte(`{"jsonrpc":"2.0","id":2,"result":{}}`))
	q.Expect(q.session.lastUse.Load()).To(Equal(int64(7)))
	q.Expect(q.metric("messages_total", toClient)).To(Equal(1.0))
	q.Expect(q.metric("dropped_messages_total", reasonNotMessage)).To(Equal(1.0))
	q.Expect(q.metric("dropped_messages_total", reasonNoStream)).To(Equal(1.0))

	q.session.fromServer([]byte(`{"jsonrpc":"2.0","id":1,"result":{"a":1}}`))
	q.session.fromServer([]byte(`{"jsonrpc":"2.0","id":"1","error":{"code":1}}`))

	q.Expect(number.messages()).To(Equal([]string{`{"jsonrpc":"2.0","id":1,"result":{"a":1}}`}))
	q.Expect(number.done).To(BeClosed())
	q.Expect(text.messages()).To(Equal([]string{`{"jsonrpc":"2.0","id":"1","error":{"code":1}}`}))
	q.Expect(q.session.lastUse.Load()).To(BeNumerically(">", 7))
	q.Expect(q.metric("requests_in_flight")).To(BeZero())
	q.Expect(q.metric("request_duration_seconds", "session")).To(Equal(2.0))
	q.Expect(q.metric("message_bytes_total", toClient)).To(BeNumerically(">", 100))
	q.session.fromServer([]byte(`{"jsonrpc":"2.0","id":1,"result":{"a":1}}`))
	q.Expect(q.metric("dropped_messages_total", reasonNoStream)).To(Equal(2.0), "each has one response")
}

// Most readers of JSON, and so most clients, take the last of duplicates.
func TestResponsesReachTheRequestOfTheirLastID(t *testing.T) {
	q := newQuiet(t)
	first, last := q.begin("1", ""), q.begin("2", "")
	q.session.fromServer([]byte(`{"jsonrpc":"2.0","id":1,"id":2,"result":{}}`))
	q.Expect(first.messages()).To(BeEmpty())
	q.Expect(last.messages()).To(HaveLen(1))
}

// Otherwise the client would use a session that does not exist.
func TestServerThatRejectsInitializeHasNoSession(t *testing.T) {
	for name, c := range map[string]struct {
		message string
		status  int
	}{
		"the method is unknown": {`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}`, http.StatusNotFound},
		"another error":         {`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}`, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQuiet(t)
			out := newRecorded()
			out.sessionID = q.session.id
			q.Expect(q.session.add(&call{id: json.RawMessage("1"), key: "1", initialize: true, begun: time.Now(), stream: out.stream})).To(BeNil())

			q.session.fromServer([]byte(c.message))

			q.Expect(out.response.Code).To(Equal(c.status))
			q.Expect(out.response.Body.String()).To(ContainSubstring(c.message))
			q.Expect(out.response.Header()).NotTo(HaveKey(headerSession))
			q.Expect(q.session.ended()).To(MatchError("the MCP server rejected initialize"))
			q.Expect(q.metric("sessions_ended_total", reasonInitRefused)).To(Equal(1.0))
			q.Expect(q.metric("child_start_duration_seconds")).To(Equal(1.0))
			q.Expect(q.metric("dropped_messages_total")).To(BeZero())
		})
	}
}

// Otherwise the session would keep its process and its place until the start timeout.
func TestSessionEndsIfTheResponseToInitializeIsTooLarge(t *testing.T) {
	q := newQuiet(t, func(o *Options) { o.MaxMessageBytes = 10 })
	out := newRecorded()
	out.sessionID = q.session.id
	q.Expect(q.session.add(&call{id: json.RawMessage("1"), key: "1", initialize: true, begun: time.Now(), stream: out.stream})).To(BeNil())

	q.session.tooLarge(&oversize{bytes: 11, id: []byte("1")})

	q.Expect(out.messages()).To(HaveExactElements(ContainSubstring("which exceeds the limit of 10")))
	q.Expect(out.response.Header()).NotTo(HaveKey(headerSession))
	q.Expect(q.session.ended()).To(HaveField("Reason", reasonTooLarge))
	q.Expect(q.metric("dropped_messages_total", reasonNoStream)).To(BeZero())
}

func TestServerThatAcceptsInitializeHasASession(t *testing.T) {
	q := newQuiet(t)
	out := newRecorded()
	out.sessionID = q.session.id
	q.Expect(q.session.add(&call{id: json.RawMessage("1"), key: "1", initialize: true, begun: time.Now(), stream: out.stream})).To(BeNil())
	q.session.checkIdle()
	q.Expect(q.session.ended()).To(BeNil())

	q.session.fromServer([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`))

	q.Expect(out.response.Header()).To(HaveKeyWithValue(headerSession, []string{q.session.id}))
	q.Expect(out.messages()).To(HaveLen(1))
	q.Expect(q.session.startTimer.Stop()).To(BeFalse(), "it has no start timeout any more")
	q.session.checkStart()
	q.Expect(q.session.ended()).To(BeNil())
}

func TestLargeMessagesOfTheServerInASession(t *testing.T) {
	q := newQuiet(t, func(o *Options) { o.MaxMessageBytes = 10 })
	out := q.begin("1", "")
	q.session.lastUse.Store(7)
	q.session.tooLarge(&oversize{bytes: 11, method: "notifications/message"}) // which gets no response
	q.Expect(q.session.lastUse.Load()).To(BeNumerically(">", 7))
	q.session.tooLarge(&oversize{bytes: 11, id: []byte("1"), method: "m"})
	const message = `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the message has 11 bytes, which exceeds the limit of 10","data":{"reason":"MessageTooLarge"}}}`
	q.Expect(q.got(q.session.child, q.toSession)).To(Equal([]string{message}), "a request of the server fails there")
	q.session.tooLarge(&oversize{bytes: 11, id: []byte("2")})
	q.Expect(out.messages()).To(BeEmpty())

	q.session.tooLarge(&oversize{bytes: 11, id: []byte("1.0")})

	q.Expect(out.messages()).To(Equal([]string{message}), "with the id as the client wrote it")
	q.Expect(q.metric("requests_in_flight")).To(BeZero())
	q.Expect(q.metric("dropped_messages_total", reasonTooLarge)).To(Equal(4.0))
	q.Expect(q.metric("dropped_messages_total")).To(Equal(4.0))
}

// The longest ids need the most bytes if the server escapes each of their characters.
func TestLargeResponsesFailRequestsWithLongIDs(t *testing.T) {
	const characters = MaxID - len(`""`)
	id := `"` + strings.Repeat("<", characters) + `"`
	for name, written := range map[string]string{"as the client": id, "escaped": `"` + strings.Repeat(`\u003c`, characters) + `"`} {
		t.Run(name, func(t *testing.T) {
			q := newQuiet(t, func(o *Options) { o.MaxMessageBytes = MaxID })
			out := q.begin(id, "")
			_, over, err := newLineReader(strings.NewReader(`{"jsonrpc":"2.0","id":`+written+`,"result":{}}`+"\n"), MaxID).next()
			q.Expect(err).NotTo(HaveOccurred())

			q.session.tooLarge(over)

			q.Expect(out.messages()).To(HaveExactElements(ContainSubstring(reasonTooLarge)))
		})
	}
}

func TestResponsesThatCannotBeDeliveredCount(t *testing.T) {
	q := newQuiet(t, func(o *Options) { o.MaxMessageBytes = 10 })
	for id, fail := range map[string]func(){
		"1": func() { q.session.fromServer([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`)) },
		"2": func() { q.session.tooLarge(&oversize{bytes: 11, id: []byte("2")}) },
	} {
		before := q.metric("dropped_messages_total", reasonNoStream)
		out := q.begin(id, "")
		out.detach()
		fail()
		q.Expect(q.metric("dropped_messages_total", reasonNoStream)).To(Equal(before + 1))
	}
}
