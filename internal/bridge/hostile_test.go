package bridge

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// Addresses of clients. All of 127.0.0.0/8 is the local machine.
const (
	hostileAddress = "127.0.0.1"
	honestAddress  = "127.0.0.2"
)

// clientAt returns an HTTP client with the given address.
func (w *testBridge) clientAt(address string) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// tryPost sends a message, and returns the status and the body of the response.
func (w *testBridge) tryPost(ctx context.Context, c *http.Client, body string, headers ...string) (httpReply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, strings.NewReader(body))
	if err != nil {
		return httpReply{}, err
	}
	req.Header.Set("Content-Type", jsonType)
	req.Header.Set("Accept", jsonType+", "+eventType)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		return httpReply{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return httpReply{resp.StatusCode, resp.Header, string(text)}, err
}

// isServed expects that a new client at the address gets a session, and responses to messages of these sizes in it.
func (w *testBridge) isServed(address string, sizes ...int) {
	w.t.Helper()
	c := w.clientAt(address)
	ctx, cancel := context.WithTimeout(w.t.Context(), testTimeout)
	defer cancel()
	started, err := w.tryPost(ctx, c, initMessage)
	w.Expect(err).NotTo(HaveOccurred(), "client at %s", address)
	w.Expect(started.Status).To(Equal(http.StatusOK), started.Body)
	for _, size := range sizes {
		ping := fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"ping","params":{"text":"%s"}}`, strings.Repeat("x", size))
		reply, err := w.tryPost(ctx, c, ping, headerSession, started.Header.Get(headerSession))
		w.Expect(err).NotTo(HaveOccurred(), "client at %s", address)
		w.Expect(reply.Body).To(ContainSubstring(`"id":2`))
	}
}

// slowBody sends the beginning of a request, and then one byte from time to time until the connection is closed. The
// channel is closed when the bridge responds or ends the connection.
func (w *testBridge) slowBody(address, beginning string) <-chan struct{} {
	w.t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	conn, err := dialer.DialContext(w.t.Context(), "tcp", strings.TrimSuffix(strings.TrimPrefix(w.url, "http://"), "/mcp"))
	w.Expect(err).NotTo(HaveOccurred())
	w.t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: */*\r\n"+
		"Content-Length: 1000000\r\n\r\n%s", beginning)
	w.Expect(err).NotTo(HaveOccurred())
	go func() {
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for range ticker.C {
			if _, err := conn.Write([]byte("x")); err != nil {
				return
			}
		}
	}()
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = conn.Read(make([]byte, 1)) // nothing is sent while the body is read
	}()
	return over
}

// One peer opens slow bodies and idle sessions, more than the limits. Before, 64 slow bodies held every place
// before a byte was read, and 100 sessions were held for the idle timeout. The bodies are held longer than the test
// takes, so that no client is served because they end.
func TestServesNewClientsDuringSlowBodiesAndIdleSessions(t *testing.T) {
	const idleSessions, slowBodies = 1000, 64
	held := newTestBridge(t, tinyServer(), func(o *Options) { o.IOTimeout = time.Hour })
	held.bridge.times.bodyGrace = time.Hour
	w := held.serve()
	w.Eventually(func() int { return w.status(readyPath) }).Should(Equal(http.StatusOK))
	hostile := w.clientAt(hostileAddress)
	var opening sync.WaitGroup
	for range 8 {
		opening.Go(func() {
			for range idleSessions / 8 {
				reply, err := w.tryPost(t.Context(), hostile, initMessage)
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
				NewWithT(t).Expect(reply.Status).To(Equal(http.StatusOK), reply.Body)
			}
		})
	}
	opening.Wait()
	var bodies []<-chan struct{}
	for range slowBodies {
		for _, beginning := range []string{"", `{"jsonrpc":"2.0","id":1,"method":"initialize"`, strings.Repeat(" ", smallMessage+1)} {
			bodies = append(bodies, w.slowBody(hostileAddress, beginning))
		}
	}
	places := w.bridge.places
	w.Eventually(places.Held).Should(Equal(w.bridge.opts.largeMessages()/2), "large bodies hold all places of their address")

	w.isServed(honestAddress, 10, 100<<10)

	w.Expect(w.metric("sessions")).To(Equal(91.0), "one address has at most 90 of 100 sessions")
	// At the hostile address, sessions that were never used end first. Its large messages wait.
	w.isServed(hostileAddress, 10)
	w.Expect(w.metric("sessions_ended_total", reasonEvicted)).To(Equal(idleSessions - 90 + 1.0))
	for _, closed := range bodies {
		w.Expect(closed).NotTo(BeClosed())
	}
}

// A body that is never completed holds its connection for a limited time, whether or not it is read.
func TestSlowBodiesAreCutOff(t *testing.T) {
	slow := newTestBridge(t, tinyServer())
	session := headerSession + ": " + slow.session() + "\r\n"
	slow.limit(func(b *Bridge) { b.times.bodyGrace = 200 * time.Millisecond })
	w := slow.serve()
	cases := map[string]struct {
		headers, beginning string
		status             int
	}{
		"without a session":      {"", `{"jsonrpc"`, http.StatusRequestTimeout},
		"in a session":           {session, `{"jsonrpc"`, http.StatusRequestTimeout},
		"large":                  {"", strings.Repeat(" ", 2*smallMessage), http.StatusRequestTimeout},
		"origin is refused":      {"Origin: https://evil.example\r\n", `{`, http.StatusForbidden},
		"session does not exist": {headerSession + ": x\r\n", `{`, http.StatusNotFound},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			conn, err := net.Dial("tcp", strings.TrimPrefix(strings.TrimSuffix(w.url, "/mcp"), "http://"))
			g.Expect(err).NotTo(HaveOccurred())
			defer conn.Close()
			g.Expect(conn.SetDeadline(time.Now().Add(testTimeout))).To(Succeed())
			_, err = fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: */*\r\n"+
				"Content-Length: 100000\r\n%s\r\n%s", c.headers, c.beginning)
			g.Expect(err).NotTo(HaveOccurred())

			said, err := io.ReadAll(conn)

			g.Expect(err).NotTo(HaveOccurred(), "the connection is closed")
			g.Expect(string(said)).To(HavePrefix(fmt.Sprintf("HTTP/1.1 %d ", c.status)))
		})
	}
}

// A client that sends requests and reads no response holds its connection for a limited time, whatever the responses are.
func TestClientsThatNeverReadLoseTheirConnection(t *testing.T) {
	t.Parallel()
	const headerRefused = "Test-Refused"
	w := newTestBridge(t, tinyServer(), func(o *Options) {
		o.StopGrace = 50 * time.Millisecond
		o.Protect = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get(headerRefused) != "" {
					http.Error(w, "refused", http.StatusUnauthorized)
					return
				}
				next.ServeHTTP(w, r)
			})
		}
	})
	w.bridge.speaks.Store(&generations{sessions: true, stateless: []string{"2026-07-28"}})
	session := headerSession + ": " + w.session() + "\r\n"
	w.limit(func(b *Bridge) { b.opts.IOTimeout = 200 * time.Millisecond })
	var closed sync.Map
	w.http.Close()
	w.http = httptest.NewUnstartedServer(nil)
	w.http.Config = newServer(w.bridge.Handler(), w.bridge.opts.IOTimeout)
	w.http.Config.ConnState = func(c net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetWriteBuffer(64 << 10) // it would grow otherwise
			}
		case http.StateClosed:
			closed.Store(c.RemoteAddr().String(), true)
		}
	}
	w.http.Start()
	w.url = w.http.URL + "/mcp"
	noted := `{"jsonrpc":"2.0","method":"notifications/x"}`
	stateless := headerVersion + ": 2026-07-28\r\n" + headerMethod + ": tools/call\r\n" + headerName + ": echo\r\n"
	for name, c := range map[string]struct{ headers, body string }{
		"responses of a session":       {session, ping},
		"responses without one":        {stateless, statelessCall},
		"requests to send a body":      {session + "Expect: 100-continue\r\n", ping},
		"accepted notifications":       {session, noted},
		"refusals":                     {"", ping},
		"refusals larger than buffers": {"", `{"jsonrpc":"2.0","id":"` + strings.Repeat("<", MaxID-2) + `","method":"ping"}`},
		"refusals of Protect":          {headerRefused + ": x\r\n", ping},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			conn, err := net.Dial("tcp", w.http.Listener.Addr().String())
			g.Expect(err).NotTo(HaveOccurred())
			requests := strings.Repeat(fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: */*\r\n"+
				"Content-Length: %d\r\n%s\r\n%s", len(c.body), c.headers, c.body), 100)
			left := make(chan struct{})
			defer func() {
				_ = conn.Close()
				<-left
			}()
			go func() {
				defer close(left)
				for err == nil {
					_, err = conn.Write([]byte(requests))
				}
			}()

			g.Eventually(func() bool {
				_, isClosed := closed.Load(conn.LocalAddr().String())
				return isClosed
			}, testTimeout).Should(BeTrue())
		})
	}
}

func TestMinimumRateOfBodies(t *testing.T) {
	cases := map[string]struct {
		received int64
		timeout  time.Duration
		want     time.Duration
	}{
		"no byte":          {0, time.Minute, bodyGrace},
		"one second's":     {minBodyRate, time.Minute, bodyGrace + time.Second},
		"at most in total": {100 * minBodyRate, 30 * time.Second, 30 * time.Second},
		"a short timeout":  {0, time.Second, time.Second},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(timeFor(c.received, bodyGrace, c.timeout)).To(Equal(c.want))
		})
	}
}

// A server that stops reading blocks the large messages of its own session only.
func TestServerThatDoesNotReadBlocksOnlyItsSession(t *testing.T) {
	w := newTestBridge(t, server("stops-reading"), func(o *Options) {
		o.StopGrace = 50 * time.Millisecond
		o.MemoryBytes = 64 << 20 // two places for a client address
	})
	w.bridge.times.place = 300 * time.Millisecond
	stuck := w.session()
	large := fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"ping","params":{"text":"%s"}}`, strings.Repeat("x", 1<<20))
	c := w.clientAt(hostileAddress)
	var waiting sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for range 4 {
		waiting.Go(func() { _, _ = w.tryPost(ctx, c, large, headerSession, stuck) })
	}
	w.Eventually(func() float64 { return w.metric("refused_requests_total", reasonTooManyRequests) }).Should(Equal(3.0))

	reply := w.post(strings.Replace(large, `"method":"ping"`, `"method":"initialize"`, 1))

	w.Expect(reply.Status).To(Equal(http.StatusOK), reply.Body)
	cancel()
	w.open(http.MethodDelete, "", headerSession, stuck).Body.Close()
	waiting.Wait()
}

// deadlines records the read deadlines of a connection.
type deadlines struct {
	http.ResponseWriter
	set []time.Time
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.set = append(d.set, at)
	return nil
}

// A body that arrives fast enough gets more time with each part, and the connection none afterwards.
func TestBodiesGetTimeAsTheyArrive(t *testing.T) {
	g := NewWithT(t)
	conn := &deadlines{}
	begun := time.Now()
	body := &timedBody{
		from: strings.NewReader(strings.Repeat("x", 2*minBodyRate)), conn: http.NewResponseController(conn),
		begun: begun, grace: bodyGrace, timeout: bodyGrace + 1500*time.Millisecond,
	}
	for range 2 {
		_, err := io.ReadFull(body, make([]byte, minBodyRate))
		g.Expect(err).NotTo(HaveOccurred())
	}
	body.done()

	g.Expect(conn.set).To(Equal([]time.Time{begun.Add(bodyGrace), begun.Add(bodyGrace + time.Second), {}}))
}
