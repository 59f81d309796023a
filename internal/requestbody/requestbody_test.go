package requestbody

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
)

func newRequest(body io.Reader) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/mcp", body)
	r.Header.Set("Content-Type", "application/json")
	return r
}

func TestMessageReplacesTheBody(t *testing.T) {
	for name, body := range map[string]string{"small": "{}", "limit of small ones": strings.Repeat("x", SmallMessage), "large": strings.Repeat("x", SmallMessage+1)} {
		for kind, reader := range map[string]io.Reader{"of known length": strings.NewReader(body), "chunked": io.MultiReader(strings.NewReader(body))} {
			t.Run(name+" "+kind, func(t *testing.T) {
				g := NewWithT(t)
				m := NewReader(1 << 20)
				r := newRequest(reader)
				message, release, failed := m.Read(httptest.NewRecorder(), r, "a")
				g.Expect(failed).To(BeNil())
				g.Expect(string(message)).To(Equal(body))
				g.Expect(r.ContentLength).To(BeEquivalentTo(len(body)))
				if len(body) > SmallMessage {
					g.Expect(m.places.all).To(HaveLen(1))
				}
				again, _, failed := NewReader(1<<20).Read(httptest.NewRecorder(), r, "a")
				g.Expect(failed).To(BeNil())
				g.Expect(&again[0]).To(BeIdenticalTo(&message[0]), "it is not copied")
				_, _, failed = NewReader(1).Read(httptest.NewRecorder(), r, "a")
				g.Expect(failed).To(HaveField("Status", http.StatusRequestEntityTooLarge))
				g.Expect(io.ReadAll(io.LimitReader(r.Body, int64(len(body))))).To(Equal(message))
				if len(body) > SmallMessage {
					g.Expect(m.places.all).To(HaveLen(1), "the end has not been read")
				}
				g.Expect(io.ReadAll(r.Body)).To(BeEmpty())
				g.Expect(m.places.all).To(BeEmpty())
				release()
				g.Expect(m.places.all).To(BeEmpty(), "it is released once")
			})
		}
	}
}

// net/http closes the body of a request when the response begins, which may be right after its last byte was read.
func TestBodyEndsAtItsLength(t *testing.T) {
	for name, c := range map[string]struct {
		length int64
		body   string
		failed error
	}{
		"whole":   {2, "{}", nil},
		"chunked": {-1, "{}", http.ErrBodyReadAfterClose},
		"cut off": {3, "{}", http.ErrBodyReadAfterClose},
	} {
		g := NewWithT(t)
		r := newRequest(io.MultiReader(strings.NewReader(c.body), iotest.ErrReader(http.ErrBodyReadAfterClose)))
		r.ContentLength = c.length
		EndAtLength(r)
		got, err := io.ReadAll(r.Body)
		g.Expect(string(got)).To(Equal(c.body), name)
		g.Expect(errors.Is(err, c.failed)).To(BeTrue(), "%s: %v", name, err)
		g.Expect(r.Body.Close()).To(Succeed(), name)
	}
}

// Who forwards a message must not take the fault of its client for that of the server.
func TestErrorsOfBodiesAreMarked(t *testing.T) {
	for name, c := range map[string]struct {
		body   io.Reader
		marked bool
	}{
		"whole":      {strings.NewReader("{}"), false},
		"breaks off": {io.MultiReader(strings.NewReader("{"), iotest.ErrReader(io.ErrUnexpectedEOF)), true},
		"malformed":  {iotest.ErrReader(errors.New("malformed chunked encoding")), true},
	} {
		g, r := NewWithT(t), newRequest(c.body)
		r.ContentLength = -1
		MarkErrors(r)
		_, err := io.ReadAll(r.Body)
		var marked *ReadError
		g.Expect(errors.As(err, &marked)).To(Equal(c.marked), "%s: %v", name, err)
	}
}

func TestNoBodyIsKept(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/mcp", http.NoBody)
	EndAtLength(r)
	NewWithT(t).Expect(r.Body).To(BeIdenticalTo(http.NoBody), "the transport sends no body")
}

// What is read for a record has a place until it was sent, also if it is only the beginning of the body.
func TestPeekedMessagesReleaseTheirPlaces(t *testing.T) {
	const limit = 2 * SmallMessage
	for name, c := range map[string]struct {
		size   int
		places int
	}{
		"small": {SmallMessage - 1, 0},
		"large": {limit, 1},
		"above": {limit + 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			m := NewReader(limit)
			body := strings.Repeat("x", c.size)
			r := newRequest(io.MultiReader(strings.NewReader(body)))
			release := m.Peek(r)
			g.Expect(m.places.all).To(HaveLen(c.places))
			begin := min(c.size, limit+1)
			g.Expect(io.ReadAll(io.LimitReader(r.Body, int64(begin)))).To(HaveLen(begin))
			g.Expect(m.places.all).To(HaveLen(c.places), "the end has not been read")
			g.Expect(io.ReadAll(r.Body)).To(HaveLen(c.size - begin))
			g.Expect(m.places.all).To(BeEmpty())
			release()
			g.Expect(m.places.all).To(BeEmpty(), "it is released once")
		})
	}
}

// A message that was read for a record is not read again, and has one place.
func TestPeekedMessagesAreNotCopied(t *testing.T) {
	g := NewWithT(t)
	body := strings.Repeat("x", SmallMessage+1)
	peeking, reading := NewReader(1<<20), NewReader(1<<20)
	r := newRequest(strings.NewReader(body))
	defer peeking.Peek(r)()
	message, release, failed := reading.Read(httptest.NewRecorder(), r, "a")
	g.Expect(failed).To(BeNil())
	defer release()
	g.Expect(string(message)).To(Equal(body))
	g.Expect(peeking.places.all).To(HaveLen(1))
	g.Expect(reading.places.all).To(BeEmpty())
	g.Expect(io.ReadAll(r.Body)).To(Equal([]byte(body)))
	g.Expect(peeking.places.all).To(BeEmpty())
}

func TestLargeMessagesWaitForAPlace(t *testing.T) {
	g := NewWithT(t)
	m := NewReader(maxHeldBytes)
	g.Expect(cap(m.places.all)).To(Equal(1))
	g.Expect(cap(NewReader(1).places.all)).To(Equal(MaxLargeMessages))
	m.places.all <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, failed := m.Read(httptest.NewRecorder(), newRequest(strings.NewReader(strings.Repeat("x", SmallMessage+1))).WithContext(ctx), "a")
	g.Expect(failed).To(HaveField("Status", http.StatusServiceUnavailable))
	_, _, failed = m.Read(httptest.NewRecorder(), newRequest(strings.NewReader("{}")).WithContext(ctx), "a")
	g.Expect(failed).To(BeNil(), "small ones need no place")
}

// timed is a connection with a read deadline.
type timed struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (c *timed) SetReadDeadline(deadline time.Time) error {
	c.deadline = deadline
	return nil
}

// slowly reads what takes a time to arrive.
type slowly struct {
	io.Reader
	conn  *timed
	takes time.Duration
}

func (s *slowly) Read(p []byte) (int, error) {
	<-time.After(s.takes)
	if time.Now().After(s.conn.deadline) {
		return 0, os.ErrDeadlineExceeded
	}
	return s.Reader.Read(p)
}

// The client cannot send while it waits for a place, so this is not its time.
func TestTheTimeOfAMessageIsWithoutTheWaitForAPlace(t *testing.T) {
	for name, c := range map[string]struct {
		takes  time.Duration
		status int
	}{
		"in time":  {messageTimeout - time.Second, 0},
		"too slow": {messageTimeout + time.Second, http.StatusRequestTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				m := NewReader(maxHeldBytes)
				m.places.all <- struct{}{}
				time.AfterFunc(messageTimeout-time.Second, func() { <-m.places.all })
				conn := &timed{ResponseRecorder: httptest.NewRecorder()}
				rest := &slowly{strings.NewReader("x"), conn, c.takes / 2} // It is read twice, up to its end.
				r := newRequest(io.MultiReader(strings.NewReader(strings.Repeat("x", SmallMessage)), rest))
				_, release, failed := m.Read(conn, r, "a")
				if c.status != 0 {
					g.Expect(failed).To(HaveField("Status", c.status))
					g.Expect(m.places.all).To(BeEmpty())
					return
				}
				g.Expect(failed).To(BeNil())
				g.Expect(conn.deadline).To(BeZero())
				release()
			})
		})
	}
}

func TestRefusedBodiesCloseTheConnection(t *testing.T) {
	for name, c := range map[string]struct {
		request *http.Request
		closes  bool
	}{
		"none":    {httptest.NewRequest(http.MethodGet, "/", http.NoBody), false},
		"small":   {newRequest(strings.NewReader("{}")), false},
		"large":   {newRequest(strings.NewReader(strings.Repeat("x", SmallMessage+1))), true},
		"chunked": {newRequest(io.MultiReader(strings.NewReader("{}"))), true},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			Refuse(w, c.request)
			NewWithT(t).Expect(w.Header().Get("Connection") == "close").To(Equal(c.closes))
		})
	}
}
