package bridge

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestStreamOfEvents(t *testing.T) {
	g := NewWithT(t)
	s := newRecorded()
	s.sessionID = "the id"
	g.Expect(s.send([]byte(`{"a":1}`))).To(Succeed())
	g.Expect(s.response.Flushed).To(BeTrue(), "the client gets each message at once")
	g.Expect(s.comment(": x\n\n")).To(Succeed())
	g.Expect(s.finish([]byte(`{"b":2}`))).To(Succeed())
	g.Expect(s.done).To(BeClosed())

	g.Expect(s.response.Body.String()).To(Equal("event: message\ndata: {\"a\":1}\n\n: x\n\nevent: message\ndata: {\"b\":2}\n\n"))
	g.Expect(s.response.Code).To(Equal(http.StatusOK))
	g.Expect(s.response.Header()).To(Equal(http.Header{
		"Content-Type": {"text/event-stream"}, headerSession: {"the id"},
		// Proxies must neither store nor hold back what a stream has.
		"Cache-Control": {"no-cache, no-transform"}, "X-Accel-Buffering": {"no"},
	}))
	for _, late := range []func([]byte) error{
		s.send, s.finish,
		func(message []byte) error { return s.comment(string(message)) },
		func(message []byte) error { return s.refuse(http.StatusNotFound, message) },
	} {
		g.Expect(late([]byte("late"))).To(MatchError(errGone))
	}
	g.Expect(s.response.Body.String()).NotTo(ContainSubstring("late"))
}

func TestStreamWithoutASessionHasNoID(t *testing.T) {
	g := NewWithT(t)
	s := newRecorded()
	s.sessionID = "x"
	s.dropSession()
	g.Expect(s.open()).To(Succeed())
	g.Expect(s.response.Header()).NotTo(HaveKey(headerSession))
	g.Expect(s.response.Flushed).To(BeTrue(), "the client sees that the stream is open")
	s.close()
	s.close()
	g.Expect(s.done).To(BeClosed())
	g.Expect(s.response.Body.String()).To(Equal(openEvent))
}

func TestRefusalsHaveAStatusUnlessTheStreamHasBegun(t *testing.T) {
	g := NewWithT(t)
	fresh := newRecorded()
	g.Expect(fresh.refuse(http.StatusNotFound, []byte(`{"e":1}`))).To(Succeed())
	g.Expect(fresh.response.Code).To(Equal(http.StatusNotFound))
	g.Expect(fresh.response.Header().Get("Content-Type")).To(Equal(jsonType))
	g.Expect(fresh.response.Body.String()).To(Equal(`{"e":1}`))
	g.Expect(fresh.done).To(BeClosed())
	g.Expect(fresh.send([]byte("{}"))).To(MatchError(errGone))

	begun := newRecorded()
	g.Expect(begun.send([]byte(`{"a":1}`))).To(Succeed())
	g.Expect(begun.refuse(http.StatusNotFound, []byte(`{"e":1}`))).To(Succeed())
	g.Expect(begun.response.Code).To(Equal(http.StatusOK))
	g.Expect(begun.messages()).To(Equal([]string{`{"a":1}`, `{"e":1}`}))
	g.Expect(begun.done).To(BeClosed())

	left := newRecorded()
	left.detach()
	g.Expect(left.refuse(http.StatusNotFound, []byte(`{"e":1}`))).To(MatchError(errGone))
}

// net/http forbids the use of a writer after its handler has returned.
func TestDetachedStreamsWriteNothing(t *testing.T) {
	g := NewWithT(t)
	s := newRecorded()
	s.detach()
	s.detach()
	for _, err := range []error{s.send([]byte("{}")), s.open(), s.finish([]byte("{}"))} {
		g.Expect(err).To(MatchError(errGone))
	}
	g.Expect(s.response.Body.String()).To(BeEmpty())
}

// writesOfStreams are all ways to write to a stream.
var writesOfStreams = map[string]func(*stream) error{
	"a message":      func(s *stream) error { return s.send([]byte("{}")) },
	"the last one":   func(s *stream) error { return s.finish([]byte("{}")) },
	"a comment":      func(s *stream) error { return s.open() },
	"another status": func(s *stream) error { return s.refuse(http.StatusNotFound, []byte("{}")) },
}

func TestStreamsEndWithTheirFirstFailedWrite(t *testing.T) {
	for name, write := range writesOfStreams {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			for writes := range 3 {
				broken := newStream(&brokenWriter{httptest.NewRecorder(), writes}, time.Second)
				if name == "a comment" || name == "another status" {
					broken = newStream(&brokenWriter{httptest.NewRecorder(), 0}, time.Second)
				}
				g.Expect(write(broken)).To(HaveOccurred())
				g.Expect(broken.done).To(BeClosed())
				g.Expect(broken.send([]byte("{}"))).To(MatchError(errGone))
			}
		})
	}
}

// unflushable is a client that leaves before what net/http has buffered is sent.
type unflushable struct{ *httptest.ResponseRecorder }

func (unflushable) FlushError() error { return io.ErrClosedPipe }

// A small message fits into the buffer of net/http, so that only its flush shows that it is not delivered.
func TestStreamsEndWithTheirFirstFailedFlush(t *testing.T) {
	for _, name := range []string{"a message", "a comment"} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			broken := newStream(unflushable{httptest.NewRecorder()}, time.Second)
			g.Expect(writesOfStreams[name](broken)).To(MatchError(io.ErrClosedPipe))
			g.Expect(broken.done).To(BeClosed())
		})
	}
}

// timedWriter records the deadlines of a connection.
type timedWriter struct {
	*httptest.ResponseRecorder
	deadlines, reads []time.Time
}

func (w *timedWriter) SetReadDeadline(at time.Time) error {
	w.reads = append(w.reads, at)
	return nil
}

func (w *timedWriter) SetWriteDeadline(at time.Time) error {
	w.deadlines = append(w.deadlines, at)
	return nil
}

func TestEachWriteOfAStreamHasADeadline(t *testing.T) {
	for name, write := range writesOfStreams {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := &timedWriter{ResponseRecorder: httptest.NewRecorder()}
			s := newStream(w, time.Hour)
			g.Expect(write(s)).To(Succeed())
			g.Expect(w.deadlines).To(HaveExactElements(BeTemporally("~", time.Now().Add(time.Hour), testTimeout)))
			s.detach()
			g.Expect(w.deadlines).To(HaveLen(2))
			g.Expect(w.deadlines[1].IsZero()).To(BeTrue(), "the connection may serve further requests")
		})
	}
}

func TestStreamsAreWaitedFor(t *testing.T) {
	g := NewWithT(t)
	complete := newRecorded()
	g.Expect(complete.finish([]byte("{}"))).To(Succeed())
	g.Expect(complete.wait(t.Context(), time.Hour)).To(BeTrue())
	g.Expect(complete.w).To(BeNil(), "the handler returns")

	lost := newStream(&brokenWriter{httptest.NewRecorder(), 0}, time.Second)
	g.Expect(lost.finish([]byte("{}"))).To(HaveOccurred())
	g.Expect(lost.wait(t.Context(), time.Hour)).To(BeFalse(), "the client does not receive it")

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	g.Expect(newRecorded().wait(gone, time.Hour)).To(BeFalse())

	broken := newStream(&brokenWriter{httptest.NewRecorder(), 1}, time.Second)
	g.Expect(broken.wait(t.Context(), time.Millisecond)).To(BeFalse(), "a keep-alive shows that the client is gone")
}
