package bridge

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// Ids and progress tokens of clients without a session may collide, so the server gets a number of the bridge for both.
func TestRequestsWithoutASessionAreRenumbered(t *testing.T) {
	for name, c := range map[string]struct{ message, number, want string }{
		"a request": {
			`{"jsonrpc":"2.0","id":"x","method":"m","params":{"a":"<&>","_meta":{"progressToken":"t","k":1.0}}}`, "7",
			`{"jsonrpc":"2.0","id":7,"method":"m","params":{"_meta":{"k":1.0,"progressToken":7},"a":"<&>"}}`,
		},
		"without a token":              {`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"k":1}}}`, "7", `{"jsonrpc":"2.0","id":7,"method":"m","params":{"_meta":{"k":1}}}`},
		"without _meta":                {`{"jsonrpc":"2.0","id":1,"method":"m","params":{"progressToken":1}}`, "7", `{"jsonrpc":"2.0","id":7,"method":"m","params":{"progressToken":1}}`},
		"with params that are a list":  {`{"jsonrpc":"2.0","id":1,"method":"m","params":["a"]}`, "7", `{"jsonrpc":"2.0","id":7,"method":"m","params":["a"]}`},
		"with params that are null":    {`{"jsonrpc":"2.0","id":1,"method":"m","params":null}`, "7", `{"jsonrpc":"2.0","id":7,"method":"m","params":null}`},
		"with _meta of another type":   {`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":"progressToken"}}`, "7", `{"jsonrpc":"2.0","id":7,"method":"m","params":{"_meta":"progressToken"}}`},
		"with members of no meaning":   {`{"jsonrpc":"2.0","id":1,"method":"m","extra":1}`, "7", `{"jsonrpc":"2.0","id":7,"method":"m"}`},
		"a notification with null":     {`{"jsonrpc":"2.0","id":null,"method":"m"}`, "", `{"jsonrpc":"2.0","id":null,"method":"m"}`},
		"a notification has no number": {`{"jsonrpc":"2.0","method":"m","params":{"_meta":{"progressToken":"t"}}}`, "", `{"jsonrpc":"2.0","method":"m","params":{"_meta":{"progressToken":"t"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e, err := parse([]byte(c.message))
			g.Expect(err).NotTo(HaveOccurred())
			out, err := renumbered(&e, c.number)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(out)).To(Equal(c.want))
		})
	}
}

func TestResponsesHaveTheIDOfTheClient(t *testing.T) {
	q := newQuiet(t)
	plain, first := q.call(`{"jsonrpc":"2.0","id":"x","method":"tools/list"}`)
	listens, second := q.call(`{"jsonrpc":"2.0","id":"y","method":"subscriptions/listen"}`)
	failed, third := q.call(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	const meta = `"_meta":{"io.modelcontextprotocol/subscriptionId":%s}`

	q.worker.fromServer([]byte(`{"jsonrpc":"2.0","id":` + first + `,"result":{` + fmt.Sprintf(meta, first) + `}}`))
	q.worker.fromServer([]byte(`{"jsonrpc":"2.0","id":` + second + `,"result":{` + fmt.Sprintf(meta, second) + `}}`))
	q.worker.fromServer([]byte(`{"jsonrpc":"2.0","id":` + third + `,"error":{"code":-32602,"message":"<no>"}}`))

	q.Expect(next(plain)).To(Equal(mail{[]byte(`{"jsonrpc":"2.0","id":"x","result":{` + fmt.Sprintf(meta, first) + `}}`), true, http.StatusOK}))
	q.Expect(next(listens)).To(Equal(mail{[]byte(`{"jsonrpc":"2.0","id":"y","result":{` + fmt.Sprintf(meta, `"y"`) + `}}`), true, http.StatusOK}))
	q.Expect(next(failed)).To(Equal(mail{[]byte(`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"<no>"}}`), true, http.StatusBadRequest}))
	q.Expect(q.metric("messages_total", toClient)).To(Equal(3.0))
	q.Expect(q.metric("child_start_duration_seconds")).To(Equal(1.0), "the first response ends the start")
	q.worker.fromServer([]byte(`{"jsonrpc":"2.0","id":` + first + `,"result":{}}`))
	q.Expect(received(plain)).To(BeEmpty(), "one response to each request")
}

// The specification 2026-07-28 requires these.
func TestStatusOfErrorsWithoutASession(t *testing.T) {
	for code, want := range map[int]int{
		0: 200, codeInternal: 200, -1: 200, codeMethodNotFound: 404, codeInvalidParams: 400,
		codeMissingCapability: 400, codeUnsupportedVersion: 400, codeHeaderMismatch: 400,
	} {
		NewWithT(t).Expect(statusOf(code)).To(Equal(want), "%d", code)
	}
}

func TestNotificationsReachTheClientThatTheyBelongTo(t *testing.T) {
	q := newQuiet(t)
	const progress = `,"method":"tools/call","params":{"_meta":{"progressToken":"mine"}}}`
	first, one := q.call(`{"jsonrpc":"2.0","id":"a"` + progress)
	second, two := q.call(`{"jsonrpc":"2.0","id":"b"` + progress)
	for _, number := range []string{one, two} {
		for _, params := range []string{`"progressToken":%s,"progress":1`, `"requestId":%s`, `"_meta":{"io.modelcontextprotocol/subscriptionId":%s}`, `"progressToken":"%s"`} {
			q.worker.fromServer([]byte(`{"jsonrpc":"2.0","method":"notifications/x","params":{` + fmt.Sprintf(params, number) + `}}`))
		}
	}
	q.worker.fromServer([]byte(`{"jsonrpc":"2.0","method":"notifications/x","params":{"requestId":77}}`))

	for id, c := range map[string]*sharedCall{`"a"`: first, `"b"`: second} {
		q.Expect(received(c)).To(Equal([]string{
			`{"jsonrpc":"2.0","method":"notifications/x","params":{"progress":1,"progressToken":"mine"}}`,
			`{"jsonrpc":"2.0","method":"notifications/x","params":{"requestId":` + id + `}}`,
			`{"jsonrpc":"2.0","method":"notifications/x","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `}}}`,
		}), "a string is not the number of the bridge")
	}
	q.Expect(q.metric("dropped_messages_total")).To(BeZero())
}

// The number of the bridge may be the token of another request of the client.
func TestProgressThatAClientDidNotAskForIsDropped(t *testing.T) {
	for name, params := range map[string]string{"no token": `{}`, "a token that is null": `{"_meta":{"progressToken":null}}`} {
		t.Run(name, func(t *testing.T) {
			q := newQuiet(t)
			c, number := q.call(`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":` + params + `}`)
			q.worker.fromServer([]byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + number + `,"progress":1}}`))
			q.Expect(received(c)).To(BeEmpty())
			q.Expect(q.metric("dropped_messages_total", reasonNoStream)).To(Equal(1.0))
		})
	}
}

// A log message names no request. It must not reach a client that may not be the one whose data it has.
func TestLogMessagesReachTheOnlyClientThatAskedForThem(t *testing.T) {
	q := newQuiet(t)
	const message = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"secret"}}`
	log := func() { q.worker.fromServer([]byte(message)) }
	const wants = `"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/logLevel":"info"}}}`
	dropped := func(reason string) float64 { return q.metric("dropped_messages_total", reason) }
	silent, _ := q.call(`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`)
	log()
	q.Expect(dropped(reasonNoStream)).To(Equal(1.0))

	first, _ := q.call(`{"jsonrpc":"2.0","id":2,` + wants)
	log()
	q.Expect(received(first)).To(Equal([]string{message}))

	second, number := q.call(`{"jsonrpc":"2.0","id":3,` + wants)
	log()
	q.Expect(dropped(reasonAmbiguous)).To(Equal(1.0))
	q.worker.take(number)
	log()
	q.Expect(received(first)).To(Equal([]string{message}))
	q.Expect(received(second)).To(BeEmpty())
	q.Expect(received(silent)).To(BeEmpty())
	q.Expect(q.metric("dropped_messages_total")).To(Equal(2.0))
}

// A server may continue with a request that was cancelled, and it need not respond to it.
func TestLogMessagesOfCancelledRequestsReachNoOtherClient(t *testing.T) {
	const message = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"of the first client"}}`
	const wants = `"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/logLevel":"info"}}}`
	q := newQuiet(t)
	_, cancelled := q.call(`{"jsonrpc":"2.0","id":1,` + wants)
	other, _ := q.call(`{"jsonrpc":"2.0","id":2,` + wants)
	q.worker.cancel(cancelled, "the client closed the connection")

	q.worker.fromServer([]byte(message))
	q.Expect(received(other)).To(BeEmpty())
	q.Expect(q.metric("dropped_messages_total", reasonAmbiguous)).To(Equal(1.0))

	q.worker.fromServer([]byte(`{"jsonrpc":"2.0","id":` + cancelled + `,"error":{"code":0,"message":"cancelled"}}`))
	q.worker.fromServer([]byte(message))
	q.Expect(received(other)).To(Equal([]string{message}), "the server has ended the other request")

	_, silent := q.call(`{"jsonrpc":"2.0","id":3,"method":"tools/call"}`)
	q.worker.cancel(silent, "the client closed the connection")
	q.worker.fromServer([]byte(message))
	q.Expect(received(other)).To(Equal([]string{message}), "the cancelled request has no log messages")

	q.worker.cancelled["9"] = time.Now().Add(-cancelledFor)
	q.worker.fromServer([]byte(message))
	q.Expect(received(other)).To(Equal([]string{message}), "no response is expected any more")
}

// Clients can cancel any number of requests.
func TestCancelledRequestsWithLogMessagesAreBounded(t *testing.T) {
	q := newQuiet(t)
	const wants = `"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/logLevel":"info"}}}`
	var numbers []string
	for range maxCancelled + 10 {
		_, number := q.call(`{"jsonrpc":"2.0","id":1,` + wants)
		q.worker.cancel(number, "the client closed the connection")
		numbers = append(numbers, number)
	}
	q.Expect(len(q.worker.cancelled)).To(BeNumerically("<=", maxCancelled+1))
	for _, number := range numbers {
		q.worker.fromServer([]byte(`{"jsonrpc":"2.0","id":` + number + `,"result":{}}`))
	}
	c, _ := q.call(`{"jsonrpc":"2.0","id":1,` + wants)
	q.worker.fromServer([]byte(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`))
	q.Expect(received(c)).To(BeEmpty(), "those that are not known may still run")
}

// Otherwise one client would get what another one has subscribed to.
func TestOnlyLogMessagesNeedNoID(t *testing.T) {
	q := newQuiet(t)
	c, _ := q.call(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/logLevel":"info"}}}`)
	for _, message := range []string{
		`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///secret"}}`,
		`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`,
	} {
		q.worker.fromServer([]byte(message))
	}
	q.Expect(received(c)).To(BeEmpty())
	q.Expect(q.metric("dropped_messages_total", reasonAmbiguous)).To(Equal(2.0))
}

func TestServersCannotAskClientsWithoutASession(t *testing.T) {
	q := newQuiet(t)
	c, _ := q.call(`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`)
	q.worker.fromServer([]byte(`{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage","params":{"requestId":1}}`))
	q.Eventually(q.toWorker).Should(Receive(MatchJSON(`{"jsonrpc":"2.0","id":"s","error":{"code":-32601,"message":"requests to the client require a session"}}`)))
	q.worker.tooLarge(&oversize{bytes: 1, id: []byte(`"large"`), method: "sampling/createMessage"})
	q.Eventually(q.toWorker).Should(Receive(MatchJSON(`{"jsonrpc":"2.0","id":"large","error":{"code":-32601,"message":"requests to the client require a session"}}`)))
	q.worker.fromServer([]byte("Welcome!"))
	q.Expect(received(c)).To(BeEmpty())
	q.Expect(q.metric("dropped_messages_total", reasonStateless)).To(Equal(1.0))
	q.Expect(q.metric("dropped_messages_total", reasonNotMessage)).To(Equal(1.0))
}

// What a client does not read must not take memory without bounds, nor block the requests of others.
func TestSlowClientsWithoutASessionFail(t *testing.T) {
	notification := func(number string, size int) []byte {
		return []byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + number + `,"message":"` + strings.Repeat("x", size) + `"}}`)
	}
	log := func(string, int) []byte {
		return []byte(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`)
	}
	const progressBytes = len(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"message":"","progressToken":"t"}}`)
	for name, c := range map[string]struct {
		limit, size, count int
		message            func(number string, size int) []byte
	}{
		"many messages":     {500 * (progressBytes + 1 + mailBytes), 1, 1001, notification},
		"large messages":    {1000, 900, 2, notification},
		"many log messages": {1 << 10, 1, (2<<10)/(len(log("", 0))+mailBytes) + 1, log},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQuiet(t, func(o *Options) { o.MaxMessageBytes = c.limit })
			slow, number := q.call(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":"t","io.modelcontextprotocol/logLevel":"info"}}}`)
			for range c.count - 1 {
				q.worker.fromServer(c.message(number, c.size))
			}
			q.Expect(q.metric("dropped_messages_total")).To(BeZero())
			q.whileBlocked(q.worker.child, func() { q.worker.fromServer(c.message(number, c.size)) })
			q.Expect(q.metric("dropped_messages_total", reasonSlowClient)).To(Equal(1.0))
			q.Eventually(q.toWorker).Should(Receive(MatchJSON(
				`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + number + `,"reason":"the client reads too slowly"}}`)))

			q.Expect(received(slow)).To(HaveLen(c.count - 1))
			q.Expect(slow.failed).To(MatchError("the client reads the response too slowly"))
			q.Expect(slow.failed.Reason).To(Equal(reasonSlowClient))
			q.Expect(q.worker.lookup(number)).To(BeNil())
		})
	}
}

// A server may send progress faster than any client reads.
func TestBurstsOfMessagesDoNotFailTheirRequest(t *testing.T) {
	q := newQuiet(t)
	c, number := q.call(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":"t"}}}`)
	const burst = 5000
	for range burst {
		q.worker.fromServer([]byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + number + `,"progress":1}}`))
	}
	q.worker.fromServer([]byte(`{"jsonrpc":"2.0","id":` + number + `,"result":{}}`))
	q.Expect(received(c)).To(HaveLen(burst + 1))
	q.Expect(failureOf(c)).To(BeNil())
}

// A client that reads makes room for further messages.
func TestMailboxCountsWhatIsNotRead(t *testing.T) {
	g := NewWithT(t)
	c := newSharedCall(&envelope{})
	const limit = 2*mailBytes + 10
	put := func(size int) bool { return c.put(mail{message: make([]byte, size)}, limit) }
	g.Expect(put(1000)).To(BeTrue(), "a single message may have any size")
	g.Expect(put(1)).To(BeFalse())
	g.Expect(next(c).message).To(HaveLen(1000))
	g.Expect(put(6)).To(BeTrue())
	g.Expect(put(4)).To(BeTrue())
	g.Expect(put(0)).To(BeFalse(), "the entry counts, too")
	g.Expect(next(c).message).To(HaveLen(6))
	g.Expect(put(7)).To(BeFalse())
	g.Expect(put(6)).To(BeTrue())
	c.fail(drainFailure())
	g.Expect(put(1)).To(BeTrue(), "a call that has failed does not need it")
	c.fail(tooManyRequests())
	g.Expect(next(c).message).To(HaveLen(4))
	_, ok, failed := c.take()
	g.Expect(ok).To(BeTrue())
	g.Expect(failed).To(BeNil(), "the failure comes after what has arrived before")
	_, ok, failed = c.take()
	g.Expect(ok).To(BeFalse())
	g.Expect(failed).To(HaveField("Reason", reasonDraining), "the first reason stays")
}

func TestLargeResponsesFailTheirRequestWithoutASession(t *testing.T) {
	q := newQuiet(t, func(o *Options) { o.MaxMessageBytes = 10 })
	c, number := q.call(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
	q.worker.tooLarge(&oversize{bytes: 11})
	q.worker.tooLarge(&oversize{bytes: 11, id: []byte("77")})
	q.worker.tooLarge(&oversize{bytes: 11, id: []byte(number), method: "m"})
	q.Expect(q.worker.lookup(number)).NotTo(BeNil(), "they are not the response")
	q.Expect(q.got(q.worker.child, q.toWorker)).To(HaveExactElements(ContainSubstring(`"id":`+number)), "only a request gets a response")

	q.worker.tooLarge(&oversize{bytes: 11, id: []byte(number)})

	q.Expect(c.failed).To(MatchError("the message has 11 bytes, which exceeds the limit of 10"))
	q.Expect(c.failed.Reason).To(Equal(reasonTooLarge))
	q.Expect(q.worker.lookup(number)).To(BeNil())
	q.Expect(q.metric("dropped_messages_total", reasonTooLarge)).To(Equal(4.0))
}

func TestReplaceChangesWhatExists(t *testing.T) {
	for name, c := range map[string]struct {
		raw  string
		path []string
		want string
	}{
		"a member":             {`{"a":1,"b":2}`, []string{"a"}, `{"a":9,"b":2}`},
		"a member below":       {`{"a":{"b":1,"c":2}}`, []string{"a", "b"}, `{"a":{"b":9,"c":2}}`},
		"none":                 {`{ "b":2}`, []string{"a"}, `{ "b":2}`},
		"none below":           {`{"a":{"c":2}}`, []string{"a", "b"}, `{"a":{"c":2}}`},
		"what is no object":    {`[ 1]`, []string{"a"}, `[ 1]`},
		"below what is none":   {`{"a":[1]}`, []string{"a", "b"}, `{"a":[1]}`},
		"null":                 {`null`, []string{"a"}, `null`},
		"characters of markup": {`{"a":1,"b":"<&>\u2028"}`, []string{"a"}, `{"a":9,"b":"<&>\u2028"}`},
		"nothing":              {``, []string{"a"}, ``},
	} {
		NewWithT(t).Expect(string(replace(json.RawMessage(c.raw), json.RawMessage("9"), c.path...))).To(Equal(c.want), name)
	}
}
