package authproxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
)

// idleFixture is a server that keeps idle connections, and a connection to it.
type idleFixture struct {
	*WithT
	server *http.Server
	idle   *idleConnections
	conn   net.Conn
	reader *bufio.Reader
}

func newIdleFixture(t *testing.T) *idleFixture {
	t.Helper()
	f := &idleFixture{WithT: NewWithT(t)}
	f.SetDefaultEventuallyTimeout(testTimeout)
	f.server = newServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) }))
	l := listen(t)
	listeners := keepIdle(f.server, l)
	f.idle = listeners[1].(*idleConnections) //nolint:errcheck // a wrong type fails the test
	served := make(chan error, len(listeners))
	for _, each := range listeners {
		go func() { served <- f.server.Serve(each) }()
	}
	var err error
	f.conn, err = net.Dial("tcp", l.Addr().String())
	f.Expect(err).NotTo(HaveOccurred())
	f.reader = bufio.NewReader(f.conn)
	t.Cleanup(func() {
		_ = f.conn.Close()
		_ = f.server.Close()
		for range listeners {
			f.Eventually(served).Should(Receive(MatchError(http.ErrServerClosed)))
		}
	})
	return f
}

func (f *idleFixture) write(text string) {
	_, err := io.WriteString(f.conn, text)
	f.Expect(err).NotTo(HaveOccurred())
}

// read reads a response.
func (f *idleFixture) read() string {
	response, err := http.ReadResponse(f.reader, nil)
	f.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	f.Expect(err).NotTo(HaveOccurred())
	return string(body)
}

func (f *idleFixture) parked() int {
	f.idle.mu.Lock()
	defer f.idle.mu.Unlock()
	return len(f.idle.parked)
}

func TestIdleConnectionsServeFurtherRequests(t *testing.T) {
	t.Parallel()
	f := newIdleFixture(t)
	for _, path := range []string{"/a", "/b", "/c"} {
		f.write("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n")
		f.Expect(f.read()).To(Equal(path))
		f.Eventually(f.parked).Should(Equal(1))
	}
}

func TestRequestsThatBeginSlowlyAreServed(t *testing.T) {
	t.Parallel()
	f := newIdleFixture(t)
	f.write("GET /a HTTP/1.1\r\nHost: a\r\n\r\nG") // with the begin of the next request
	f.Expect(f.read()).To(Equal("/a"))
	f.Consistently(f.parked, 3*idleServing).Should(BeZero(), "the first byte would be lost")
	f.write("ET /b HTTP/1.1\r\nHost: a\r\n\r\n")
	f.Expect(f.read()).To(Equal("/b"))
	f.Eventually(f.parked).Should(Equal(1))
	f.write("G")
	f.Eventually(f.parked).Should(BeZero())
	f.write("ET /c HTTP/1.1\r\nHost: a\r\n\r\n")
	f.Expect(f.read()).To(Equal("/c"))
}

func TestConnectionsThatClientsCloseAreForgotten(t *testing.T) {
	t.Parallel()
	f := newIdleFixture(t)
	f.write("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
	f.Expect(f.read()).To(Equal("/a"))
	f.Eventually(f.parked).Should(Equal(1))
	f.Expect(f.conn.Close()).To(Succeed())
	f.Eventually(f.parked).Should(BeZero())
}

func TestShutdownClosesIdleConnections(t *testing.T) {
	t.Parallel()
	f := newIdleFixture(t)
	f.write("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
	f.Expect(f.read()).To(Equal("/a"))
	f.Eventually(f.parked).Should(Equal(1))

	f.Expect(f.server.Shutdown(context.Background())).To(Succeed())

	_, err := f.reader.ReadByte()
	f.Expect(errors.Is(err, io.EOF)).To(BeTrue(), "%v", err)
	f.Eventually(f.parked).Should(BeZero())
}

func TestClientsHaveATimeToReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		client, served := net.Pipe()
		defer client.Close()
		conn := &clientConn{Conn: served}
		defer conn.Close()
		// A client that does not read
		failsAfter := func() time.Duration {
			begun := time.Now()
			_, err := io.WriteString(conn, "event")
			g.Expect(err).To(MatchError(os.ErrDeadlineExceeded))
			return time.Since(begun)
		}
		g.Expect(failsAfter()).To(Equal(sendTimeout))
		g.Expect(failsAfter()).To(Equal(sendTimeout), "each part")
		// A handler may set another limit
		g.Expect(conn.SetWriteDeadline(time.Now().Add(time.Second))).To(Succeed())
		g.Expect(failsAfter()).To(Equal(time.Second))
		g.Expect(failsAfter()).To(BeZero())
		g.Expect(conn.SetWriteDeadline(time.Time{})).To(Succeed())
		g.Expect(failsAfter()).To(Equal(sendTimeout))
	})
}
