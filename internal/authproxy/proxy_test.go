package authproxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/internal/bridge"
)

// testTimeout is for a busy machine and the race detector.
const testTimeout = time.Minute

func open(next http.Handler) http.Handler { return next }

// newProxy serves a proxy in front of a handler, and returns its URL.
func newProxy(t *testing.T, server http.Handler, protect func(http.Handler) http.Handler) (*Proxy, string, *httptest.Server) {
	t.Helper()
	g := NewWithT(t)
	behind := httptest.NewServer(server)
	t.Cleanup(behind.Close)
	address, err := url.Parse(behind.URL)
	g.Expect(err).NotTo(HaveOccurred())
	port, err := strconv.Atoi(address.Port())
	g.Expect(err).NotTo(HaveOccurred())
	p, err := New(Options{Port: port, Protect: protect, DrainTimeout: testTimeout})
	g.Expect(err).NotTo(HaveOccurred())
	front := httptest.NewServer(p.handler)
	t.Cleanup(front.Close)
	return p, front.URL, behind
}

func TestRequestsAreForwarded(t *testing.T) {
	g := NewWithT(t)
	var got *http.Request
	var body string
	_, front, _ := newProxy(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		got, body = r, string(raw)
		w.Header().Set("Mcp-Session-Id", "s")
		w.WriteHeader(http.StatusAccepted)
	}), open)
	request, err := http.NewRequest(http.MethodPost, front+"/a%2Fb/mcp?x=1;y", strings.NewReader("{}"))
	g.Expect(err).NotTo(HaveOccurred())
	request.Host = "tools.example.com"
	request.Header = http.Header{
		"X-Forwarded-For": {"192.0.2.1"}, "X-Forwarded-Proto": {"https"}, "Forwarded": {"for=192.0.2.1"}, "Connection": {"X-Secret"}, "X-Secret": {"s"},
		"Mcp-Protocol-Version": {"2025-11-25"},
	}

	response, err := http.DefaultClient.Do(request)

	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	g.Expect(response.StatusCode).To(Equal(http.StatusAccepted))
	g.Expect(response.Header.Get("Mcp-Session-Id")).To(Equal("s"))
	g.Expect(body).To(Equal("{}"))
	g.Expect(got.URL.EscapedPath()).To(Equal("/a%2Fb/mcp"))
	g.Expect(got.Host).To(HavePrefix("localhost:"), "the server listens on localhost")
	g.Expect(got.Header.Get("X-Forwarded-Host")).To(Equal("tools.example.com"))
	g.Expect(got.Header.Get("X-Forwarded-For")).To(Equal("192.0.2.1, 127.0.0.1"))
	g.Expect(got.Header.Get("X-Forwarded-Proto")).To(Equal("https"))
	g.Expect(got.Header.Get("Forwarded")).To(Equal("for=192.0.2.1"))
	g.Expect(got.Header.Get("Mcp-Protocol-Version")).To(Equal("2025-11-25"))
	g.Expect(got.Header).NotTo(HaveKey("X-Secret"), "a header of the connection")
}

func TestHostIsPassedToServersOnOtherAddresses(t *testing.T) {
	g := NewWithT(t)
	u := newUpstream(8080, nil)
	at := netip.MustParseAddrPort("10.0.0.7:8080")
	g.Expect(u.host(at, "tools.acme.svc:8080")).To(Equal("tools.acme.svc:8080"))
	g.Expect(u.host(netip.MustParseAddrPort("[::1]:8080"), "tools.acme.svc:8080")).To(Equal("localhost:8080"))
}

func TestServerOnLocalhostSeesHostsThatAreNotAllowed(t *testing.T) {
	allows, err := bridge.AllowsHosts([]string{"tools.acme.svc"})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	u := newUpstream(8080, allows)
	for sent, want := range map[string]string{
		"tools.acme.svc:8080": "localhost:8080", "tools.acme.svc": "localhost:8080", "10.0.0.7:9190": "localhost:8080", "localhost:1": "localhost:8080",
		"evil.example.com": "evil.example.com", "localhost.evil.example.com:80": "localhost.evil.example.com:80", "": "",
	} {
		NewWithT(t).Expect(u.host(netip.MustParseAddrPort("127.0.0.1:8080"), sent)).To(Equal(want), sent)
	}
}

func TestAddressesOfTheHostComeFirst(t *testing.T) {
	g := NewWithT(t)
	listener, err := net.Listen("tcp", "127.0.0.2:0")
	g.Expect(err).NotTo(HaveOccurred())
	at := listener.Addr().(*net.TCPAddr).AddrPort() //nolint:errcheck // it is a TCP address
	u := newUpstream(int(at.Port()), nil)
	u.addresses = func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("127.0.0.3"), at.Addr()} }

	found, err := u.address(t.Context())

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found).To(Equal(at))
	g.Expect(listener.Close()).To(Succeed())
	g.Expect(u.address(t.Context())).To(Equal(at), "it is known")
	u.forget()
	_, err = u.address(t.Context())
	g.Expect(err).To(HaveOccurred())
}

func TestEventsAreSentAsTheyArrive(t *testing.T) {
	g := NewWithT(t)
	next := make(chan struct{})
	_, front, _ := newProxy(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		flush := http.NewResponseController(w).Flush
		for i := 0; ; i++ {
			_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
			_ = flush()
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
	}), open)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, front, http.NoBody)
	g.Expect(err).NotTo(HaveOccurred())
	response, err := http.DefaultClient.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	lines := bufio.NewReader(response.Body)
	for i := range 3 {
		line, err := lines.ReadString('\n')
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(line).To(Equal(fmt.Sprintf("data: %d\n", i)), "before the next event is sent")
		_, _ = lines.ReadString('\n')
		next <- struct{}{}
	}
}

func TestServerLearnsThatAClientHasLeft(t *testing.T) {
	g := NewWithT(t)
	begun, left := make(chan struct{}), make(chan struct{})
	_, front, _ := newProxy(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		close(begun)
		<-r.Context().Done()
		close(left)
	}), open)
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, front, http.NoBody)
	g.Expect(err).NotTo(HaveOccurred())
	response, err := http.DefaultClient.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	g.Eventually(begun, testTimeout).Should(BeClosed())
	cancel()
	g.Eventually(left, testTimeout).Should(BeClosed())
}

func TestServerThatDoesNotListen(t *testing.T) {
	g := NewWithT(t)
	p, front, behind := newProxy(t, http.NotFoundHandler(), open)
	ready := func() int {
		w := httptest.NewRecorder()
		p.AdminHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, readyPath, http.NoBody))
		return w.Code
	}
	g.Expect(ready()).To(Equal(http.StatusOK))
	behind.Close()

	for range 2 { // with an address that is known, and without
		response, err := http.Get(front)
		g.Expect(err).NotTo(HaveOccurred())
		body, err := io.ReadAll(response.Body)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(response.Body.Close()).To(Succeed())
		g.Expect(response.StatusCode).To(Equal(http.StatusBadGateway))
		g.Expect(string(body)).To(ContainSubstring("check the log of the server"))
	}
	g.Expect(ready()).To(Equal(http.StatusServiceUnavailable))
}

func TestDrainLetsRequestsEnd(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	begun, end := make(chan struct{}), make(chan struct{})
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-end
		_, _ = io.WriteString(w, "complete")
	}))
	defer behind.Close()
	address, err := url.Parse(behind.URL)
	g.Expect(err).NotTo(HaveOccurred())
	port, err := strconv.Atoi(address.Port())
	g.Expect(err).NotTo(HaveOccurred())
	p, err := New(Options{Port: port, Protect: open, DrainTimeout: testTimeout})
	g.Expect(err).NotTo(HaveOccurred())
	clients, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	admin, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- p.Serve(ctx, t.Context(), clients, admin) }()
	responded := make(chan string, 1)
	go func() {
		response, err := http.Get("http://" + clients.Addr().String())
		if err != nil {
			responded <- err.Error()
			return
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		responded <- string(body)
	}()
	g.Eventually(begun, testTimeout).Should(BeClosed())

	stop()

	g.Eventually(func() string {
		response, err := http.Get("http://" + admin.Addr().String() + readyPath)
		if err != nil {
			return err.Error()
		}
		defer response.Body.Close()
		return response.Status
	}, testTimeout).Should(HavePrefix("503"))
	g.Consistently(served, "100ms").ShouldNot(Receive())
	close(end)
	g.Eventually(responded, testTimeout).Should(Receive(Equal("complete")))
	g.Eventually(served, testTimeout).Should(Receive(BeNil()))
}

func TestForceEndsTheDrain(t *testing.T) {
	g := NewWithT(t)
	clients, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	admin, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	p, err := New(Options{Port: 1, Protect: open, DrainTimeout: time.Hour})
	g.Expect(err).NotTo(HaveOccurred())
	done, cancel := context.WithCancel(t.Context())
	cancel()
	g.Expect(p.Serve(done, done, clients, admin)).To(Succeed())
}

func TestInvalidPort(t *testing.T) {
	for _, port := range []int{-1, 0, 65536} {
		_, err := New(Options{Port: port, Protect: open})
		NewWithT(t).Expect(err).To(HaveOccurred())
	}
}

// sendRaw sends bytes, and returns the response.
func sendRaw(t *testing.T, to, text string) reply {
	t.Helper()
	g := NewWithT(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(to, "http://"))
	g.Expect(err).NotTo(HaveOccurred())
	defer conn.Close()
	_, err = io.WriteString(conn, text)
	g.Expect(err).NotTo(HaveOccurred())
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	return reply{response.StatusCode, response.Header, string(body)}
}

// What a client does wrong says nothing about the server.
func TestMessageThatIsMalformedIsNoFailureOfTheServer(t *testing.T) {
	g := NewWithT(t)
	p, front, _ := newProxy(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }), open)
	got := sendRaw(t, front, "POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\nno length\r\n")
	g.Expect(got.Status).To(Equal(http.StatusBadRequest), got.Body)
	g.Expect(got.Body).To(ContainSubstring("the message could not be read: send it again"))
	g.Expect(p.upstream.last.Load()).NotTo(BeNil(), "the address of the server is still known")
}
