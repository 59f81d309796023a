package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/internal/callrecord"
	"github.com/fixpoint-dev/fixpoint/internal/peers/peerstest"
)

func TestBodiesThatCannotBeRead(t *testing.T) {
	g := NewWithT(t)
	b := &Bridge{opts: Options{IOTimeout: 30 * time.Second}, times: times{bodyGrace: 5 * time.Second}}
	g.Expect(b.unreadable(nil)).To(BeNil())
	f := b.unreadable(fmt.Errorf("reading: %w", &http.MaxBytesError{Limit: 1024}))
	g.Expect(f).To(Equal(&failure{
		Status: http.StatusRequestEntityTooLarge, Code: codeInvalidRequest, Reason: reasonTooLarge,
		Message: "the message is larger than the limit of 1024 bytes",
	}))
	f = b.unreadable(fmt.Errorf("reading: %w", os.ErrDeadlineExceeded))
	g.Expect(f).To(Equal(&failure{
		Status: http.StatusRequestTimeout, Code: codeInvalidRequest, Reason: reasonSlowClient, Closes: true,
		Message: "the message arrived too slowly: send it within 5s, and large ones with at least 16384 bytes per second and within 30s",
	}))
	f = b.unreadable(errors.New("connection reset"))
	g.Expect(f).To(Equal(&failure{Status: http.StatusBadRequest, Code: codeParse, Message: "the message could not be read"}))
}

// They are kept until the response.
func TestIDsAndTokensAreBounded(t *testing.T) {
	message := func(id, token int) []byte {
		return fmt.Appendf(nil, `{"id":"%s","method":"m","params":{"_meta":{"progressToken":"%s"}}}`, strings.Repeat("x", id-2), strings.Repeat("x", token-2))
	}
	for name, c := range map[string]struct {
		message []byte
		code    int // 0 if it is accepted
		problem string
	}{
		"as long as may be":     {message(MaxID, MaxID), 0, ""},
		"a longer id":           {message(MaxID+1, 2), codeInvalidRequest, "id and progressToken must not be longer than 1024 bytes"},
		"a longer token":        {message(2, MaxID+1), codeInvalidRequest, "must not be longer"},
		"not JSON":              {[]byte("hello"), codeParse, "the body is not one JSON-RPC message"},
		"not JSON, of two line": {[]byte("hello\nworld"), codeParse, "the body is not one JSON-RPC message"},
		"a batch":               {[]byte(`[{"id":1,"method":"m"}]`), codeParse, "batches are not supported"},
		"not UTF-8":             {[]byte("{\"id\":1,\"method\":\"m\",\"params\":{\"a\":\"\xff\"}}"), codeParse, "the body is not valid UTF-8: encode it as UTF-8"},
		"an ambiguous one":      {[]byte(`{"id":1,"method":"m","method":"n"}`), codeInvalidRequest, "twice"},
	} {
		t.Run(name, func(t *testing.T) {
			var in incoming
			expectRefusal(NewWithT(t), in.parse(c.message), c.code, c.problem)
		})
	}
}

// Without Content-Length, the size of a message is known only at its end.
func TestLargeMessagesOfUnknownLengthAreRead(t *testing.T) {
	q := newQuiet(t)
	message := `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", 3*smallMessage) + `"}`
	r := requestWith(t, nil)
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(message)), -1

	in, f := q.bridge.receive(httptest.NewRecorder(), r, q.session.takePlace)

	q.Expect(f).To(BeNil())
	q.Expect(string(in.message)).To(Equal(message))
	in.release()
}

// A client could take all memory with the header of a single message.
func TestAnnouncedLengthTakesNoMoreMemoryThanTheLimit(t *testing.T) {
	q := newQuiet(t, func(o *Options) { o.MaxMessageBytes = 4 * smallMessage })
	r := requestWith(t, nil)
	r.Body = io.NopCloser(strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", smallMessage) + `"}`))
	r.ContentLength = 1024 * smallMessage

	in, f := q.bridge.receive(httptest.NewRecorder(), r, q.session.takePlace)

	q.Expect(f).To(BeNil())
	q.Expect(cap(in.message)).To(BeNumerically("<", 16*smallMessage))
	in.release()
}

func TestRefusedMessagesAreRecordedAndReturnTheirPlace(t *testing.T) {
	q := newQuiet(t, func(o *Options) { o.MaxRequests = 1 })
	q.session.inFlight.Store(1)
	large := `{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":"` + strings.Repeat("x", 2*smallMessage) + `"}}`
	plain := http.Header{"Content-Type": {jsonType}}
	for name, c := range map[string]struct {
		post    http.HandlerFunc
		headers http.Header
		message string
	}{
		"the headers of another message": {q.session.post, http.Header{"Content-Type": {jsonType}, headerMethod: {"other"}}, large},
		"too many requests":              {q.session.post, plain, large},
		"no session":                     {q.bridge.postSessionless, plain, large},
		"two methods":                    {q.session.post, plain, strings.Replace(large, `"method"`, `"method":"n","method"`, 1)},
		"a batch without a session":      {q.bridge.postSessionless, plain, "[" + large + "]"},
	} {
		var recorded string
		record := callrecord.New(func(message []byte) { recorded = string(message) })
		r := requestWith(t, c.headers)
		r = r.WithContext(callrecord.With(r.Context(), record))
		r.Body = io.NopCloser(strings.NewReader(c.message))
		response := httptest.NewRecorder()

		c.post(response, r)

		q.Expect(response.Code).To(BeNumerically(">=", 400), name)
		q.Expect(q.session.large).To(BeEmpty(), name)
		q.Expect(q.bridge.places.Held()).To(BeZero(), name)
		q.Expect(q.session.inFlight.Load()).To(BeEquivalentTo(1), name)
		q.Expect(recorded == c.message).To(BeTrue(), "the record of %s has the message", name)
	}
}

// The client cannot send while the bridge does not read.
func TestWaitForAPlaceIsNoTimeOfTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, b, body := NewWithT(t), &Bridge{times: times{place: time.Minute}}, &timedBody{begun: time.Now()}
		_, ok := b.waitForPlace(t.Context(), body, func(context.Context) (func(), bool) {
			<-time.After(20 * time.Second) // in a bubble, which takes no time
			return func() {}, true
		})
		g.Expect(ok).To(BeTrue())
		g.Expect(body.begun).To(BeTemporally("==", time.Now()))

		waiting := time.Now()
		_, ok = b.waitForPlace(t.Context(), body, func(ctx context.Context) (func(), bool) {
			<-ctx.Done()
			return nil, false
		})
		g.Expect(ok).To(BeFalse())
		g.Expect(time.Since(waiting)).To(Equal(time.Minute), "it ends")
	})
}

// The deadline of a body must not stay, or else it would end a request that takes longer.
func TestConnectionHasNoDeadlineAfterItsMessage(t *testing.T) {
	for name, size := range map[string]int{"a small message": 10, "a large message": 3 * smallMessage} {
		t.Run(name, func(t *testing.T) {
			q := newQuiet(t)
			conn := &deadlines{ResponseWriter: httptest.NewRecorder()}
			r := requestWith(t, nil)
			r.Body = io.NopCloser(strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", size) + `"}`))

			begun := time.Now()
			in, f := q.bridge.receive(conn, r, q.session.takePlace)

			q.Expect(f).To(BeNil())
			in.release()
			q.Expect(len(conn.set)).To(BeNumerically(">", 1))
			q.Expect(conn.set[0].Add(-bodyGrace)).To(And(BeTemporally(">=", begun), BeTemporally("<=", time.Now())), "while it arrives")
			q.Expect(conn.set[len(conn.set)-1].IsZero()).To(BeTrue())
		})
	}
}

// Otherwise one client could take the places of all others.
func TestLargeMessagesHaveThePlacesOfTheirAddress(t *testing.T) {
	replica := newReplica(t, []string{"/no/such/server"}, peerstest.Keys(t, time.Now()), "a", func(o *Options) {
		o.MemoryBytes = 16 * int64(o.MaxMessageBytes) // four places
	})
	b := replica.bridge
	for range 2 {
		release, ok := b.places.Take(t.Context(), hostileAddress)
		replica.Expect(ok).To(BeTrue())
		defer release()
	}
	for name, serve := range map[string]http.HandlerFunc{
		"without a session":               b.postSessionless,
		"in a session of another replica": func(w http.ResponseWriter, r *http.Request) { b.forward(w, r, netip.MustParseAddrPort("127.0.0.1:1")) },
	} {
		for address, place := range map[string]time.Duration{honestAddress: testTimeout, hostileAddress: time.Millisecond} {
			b.times.place = place
			r := requestWith(t, nil)
			r.RemoteAddr = net.JoinHostPort(address, "1234")
			r.Body = io.NopCloser(strings.NewReader(strings.Replace(initMessage, "raw", strings.Repeat("x", 2*smallMessage), 1)))
			response := httptest.NewRecorder()

			serve(response, r)

			if address == hostileAddress {
				replica.Expect(response.Code).To(Equal(http.StatusTooManyRequests), name)
			} else {
				replica.Expect(response.Code).To(BeElementOf(http.StatusNotFound, http.StatusServiceUnavailable), name)
			}
		}
	}
}
