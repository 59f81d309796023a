package prober

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
)

// transportTo is the transport of a probe of a server in a bubble.
func transportTo(ctx context.Context, t *testing.T, target Target, dial func(context.Context, string, string) (net.Conn, error)) *probeTransport {
	t.Helper()
	e := &entry{target: target.complete()}
	e.prepare(nil)
	return newProbeTransport(ctx, job{url: e.url, header: e.header, transport: e.target.Transport}, dial)
}

func post(t *testing.T) *http.Request {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, bubbled, nil)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return request
}

// trackedConn tells when it is closed.
type trackedConn struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (c *trackedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func TestProbeClosesItsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		serve := serveInBubble(t, streamable(newServer(), nil))
		var mu sync.Mutex
		var opened []*trackedConn
		// http.Transport also dials for a request that then gets a connection that became idle.
		dial := func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := serve(ctx, network, address)
			if err != nil {
				return nil, err
			}
			mu.Lock()
			defer mu.Unlock()
			tracked := &trackedConn{Conn: conn, closed: make(chan struct{})}
			opened = append(opened, tracked)
			return tracked, nil
		}
		g.Expect(probeWith(t, Options{Dial: dial}, Target{URL: bubbled}).err).To(BeNil())
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		g.Expect(opened).NotTo(BeEmpty())
		for _, conn := range opened {
			g.Expect(conn.closed).To(BeClosed())
		}
	})
}

// Whatever the SDK does in that time: it may not return.
func TestEverythingEndsASecondAfterTheTimeoutOfTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		near, far := net.Pipe()
		defer far.Close()
		w := transportTo(ctx, t, Target{URL: bubbled}, nil)
		_, err := w.trackConn(near)
		g.Expect(err).NotTo(HaveOccurred())
		began := time.Now()
		_, err = io.ReadAll(far)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(time.Since(began)).To(Equal(time.Minute + closeTimeout))
		g.Expect(w.ctx.Err()).To(HaveOccurred(), "it no longer dials")
	})
}

// A connection that is opened too late would never be closed.
func TestNothingBeginsAfterTheEndOfAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		dialled := false
		w := transportTo(t.Context(), t, Target{URL: bubbled}, func(context.Context, string, string) (net.Conn, error) {
			dialled = true
			return nil, net.ErrClosed
		})
		w.close()
		_, err := w.RoundTrip(post(t))
		g.Expect(err).To(MatchError(errEnded))
		synctest.Wait()
		g.Expect(dialled).To(BeFalse())

		near, far := net.Pipe()
		conn, err := w.trackConn(near)
		g.Expect(err).To(MatchError(errEnded))
		g.Expect(conn).To(BeNil())
		_, err = far.Write([]byte("x"))
		g.Expect(err).To(MatchError(io.ErrClosedPipe))
	})
}

func TestDialEndsWithTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		ended := make(chan struct{})
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
			defer close(ended)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		g.Expect(probeWith(t, Options{Dial: dial}, Target{URL: bubbled, Timeout: time.Second}).err).To(Equal(&Error{Kind: Timeout}))
		synctest.Wait()
		g.Expect(ended).To(BeClosed())
	})
}

// The SDK logs and repeats requests as it knows them.
func TestCredentialsAreNotAddedToTheRequestsOfTheSDK(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		sent := make(chan http.Header, 1)
		w := transportTo(t.Context(), t, Target{URL: bubbled, Bearer: Credential("secret")}, serveInBubble(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			sent <- r.Header
		})))
		defer w.close()
		request := post(t)
		response, err := w.RoundTrip(request)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(response.Body.Close()).To(Succeed())
		g.Expect((<-sent).Get("Authorization")).To(Equal("Bearer secret"))
		g.Expect(request.Header).To(BeEmpty())
	})
}

// A server that opens one with each response must not make a probe send as many requests.
func TestProbeClosesAtMostFourSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		opened := 0
		var closed []string
		w := transportTo(t.Context(), t, Target{URL: bubbled}, serveInBubble(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete {
				closed = append(closed, r.Header.Get(sessionHeader))
				return
			}
			opened++
			w.Header().Set(sessionHeader, fmt.Sprint(opened))
		})))
		for range 10 {
			response, err := w.RoundTrip(post(t))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(response.Body.Close()).To(Succeed())
		}
		w.close()
		slices.Sort(closed)
		g.Expect(closed).To(Equal([]string{"1", "2", "3", "4"}))
	})
}

func TestRejectedSessionThatCannotBeClosedIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		dial := serveInBubble(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete {
				<-r.Context().Done()
				return
			}
			w.Header().Set(sessionHeader, "session")
			w.WriteHeader(http.StatusBadRequest)
		}))
		began := time.Now()
		g.Expect(probeWith(t, Options{Dial: dial}, Target{URL: bubbled}).err).To(Equal(&Error{Kind: HTTPStatus, Status: 400}))
		g.Expect(time.Since(began)).To(Equal(closeTimeout))
	})
}

// The SDK must not find an end of a message where the transport finds none.
func TestStreamsAreReadAsTheSDKReadsThem(t *testing.T) {
	for name, test := range map[string]struct {
		transport     Transport
		method, media string
		then          bool
	}{
		"events":                  {StreamableHTTP, http.MethodPost, "text/event-stream; charset=utf-8", true},
		"JSON":                    {StreamableHTTP, http.MethodPost, "application/json", false},
		"page after a redirect":   {StreamableHTTP, http.MethodGet, "text/html", false},
		"stream of SSE":           {SSE, http.MethodGet, "text/html", true},
		"response to SSE message": {SSE, http.MethodPost, "text/html", false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := transportTo(t.Context(), t, Target{URL: bubbled, Transport: test.transport}, nil)
			defer w.close()
			body := w.limit(&http.Request{Method: test.method}, &http.Response{Header: http.Header{"Content-Type": {test.media}}})
			g.Expect(body.reducer.events).To(Equal(test.then))
		})
	}
}

// The bytes of the dropped items of a list count.
func TestResponsesAreReadUpToTheLimits(t *testing.T) {
	const beginning, end = `{"result":{"instructions":"`, `"}}`
	long := func(bytes int) string {
		return beginning + strings.Repeat("x", bytes-len(beginning)-len(end)) + end
	}
	events := "data: 1\n\ndata: 2\n\n"
	for name, test := range map[string]struct {
		media, body string
		lists       bool
		then        error
	}{
		"as long as possible":              {body: long(handshakeBytes - overhead)},
		"one byte too long":                {body: long(handshakeBytes - overhead + 1), then: errTooLarge},
		"as long as possible, with lists":  {lists: true, body: long(handshakeBytes + listBytes - overhead)},
		"one byte too long, with lists":    {lists: true, body: long(handshakeBytes + listBytes - overhead + 1), then: errTooLarge},
		"events, as long as possible":      {media: "text/event-stream", body: events + "data: " + long(handshakeBytes-4*overhead-len(events)-len("data: "))},
		"events, one byte too long":        {media: "text/event-stream", body: events + "data: " + long(handshakeBytes-4*overhead-len(events)-len("data: ")+1), then: errTooLarge},
		"as many bytes kept":               {body: strings.Repeat(" ", handshakeKept)},
		"one byte kept too many":           {body: strings.Repeat(" ", handshakeKept+1), then: errTooLarge},
		"as many values":                   {body: strings.Repeat(",", handshakeValues)},
		"one value too many":               {body: strings.Repeat(",", handshakeValues+1), then: errTooManyValues},
		"more bytes kept, with lists":      {lists: true, body: strings.Repeat(" ", handshakeKept+listKept)},
		"too many bytes kept, with lists":  {lists: true, body: strings.Repeat(" ", handshakeKept+listKept+1), then: errTooLarge},
		"too many values kept, with lists": {lists: true, body: strings.Repeat(",", handshakeValues+listValues+1), then: errTooManyValues},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := transportTo(t.Context(), t, Target{URL: bubbled}, nil)
			defer w.close()
			if test.lists {
				w.extendLimit()
			}
			_, err := io.Copy(io.Discard, w.limit(post(t), &http.Response{
				Header: http.Header{"Content-Type": {test.media}}, Body: io.NopCloser(strings.NewReader(test.body)),
			}))
			if test.then == nil {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(Equal(test.then))
			}
			g.Expect(w.observed.broken).To(BeFalse(), "the server has sent all of it")
		})
	}
}
