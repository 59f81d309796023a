package authproxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/internal/callpolicy"
	"github.com/fixpoint-dev/fixpoint/internal/telemetry"
)

// eventServer is a server whose streams have the parts of a channel. The stream ends when the channel is closed, and
// breaks off at the part abort.
type eventServer struct {
	parts chan string
	// left is closed when the client of the stream has left.
	left chan struct{}
}

const abort = "abort"

func newEventServer() *eventServer {
	return &eventServer{parts: make(chan string), left: make(chan struct{})}
}

func (s *eventServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		echo("own").ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("X-Of-Server", "yes")
	flush := http.NewResponseController(w).Flush
	_ = flush()
	for {
		select {
		case part, ok := <-s.parts:
			switch {
			case !ok:
				return
			case part == abort:
				panic(http.ErrAbortHandler)
			}
			_, _ = io.WriteString(w, part)
			_ = flush()
		case <-r.Context().Done():
			close(s.left)
			return
		}
	}
}

// served is a proxy with its listeners, as in a pod.
type served struct {
	*WithT
	proxy *Proxy
	url   string
	// stop begins the drain, force ends it, and done has the result of Serve.
	stop, force context.CancelFunc
	done        chan error
	// returned is the number of requests whose handlers have returned.
	returned atomic.Int32
}

// serveProxy serves a proxy in front of a server.
func serveProxy(t *testing.T, server http.Handler, protect func(http.Handler) http.Handler) *served {
	t.Helper()
	s := &served{WithT: NewWithT(t), done: make(chan error, 1)}
	s.SetDefaultEventuallyTimeout(testTimeout)
	s.proxy, _, _ = newProxy(t, server, func(next http.Handler) http.Handler {
		protected := protect(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer s.returned.Add(1)
			protected.ServeHTTP(w, r)
		})
	})
	clients, admin := listen(t), listen(t)
	s.url = "http://" + clients.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	force, end := context.WithCancel(context.Background())
	s.stop, s.force = stop, end
	go func() {
		s.done <- s.proxy.Serve(ctx, force, clients, admin)
		close(s.done)
	}()
	t.Cleanup(func() {
		stop()
		end()
		s.Eventually(s.done).Should(BeClosed())
	})
	return s
}

// stream is an open stream of a client.
type stream struct {
	*WithT
	*http.Response
	reader *bufio.Reader
	leave  context.CancelFunc
}

func openStream(t *testing.T, g *WithT, url string, headers ...string) *stream {
	t.Helper()
	ctx, leave := context.WithCancel(context.Background())
	t.Cleanup(leave)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/mcp", http.NoBody)
	g.Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := (&http.Transport{}).RoundTrip(request)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = response.Body.Close() })
	return &stream{g, response, bufio.NewReader(response.Body), leave}
}

// gets reads a text from the stream.
func (s *stream) gets(text string) {
	got := make([]byte, len(text))
	_, err := io.ReadFull(s.reader, got)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(string(got)).To(Equal(text))
}

func (s *stream) endsWith(err error) {
	rest, got := io.ReadAll(s.reader)
	s.Expect(rest).To(BeEmpty())
	if err == nil {
		s.Expect(got).NotTo(HaveOccurred())
		return
	}
	s.Expect(got).To(MatchError(err))
}

func TestStreamsNeedNoHandler(t *testing.T) {
	t.Parallel()
	server := newEventServer()
	s := serveProxy(t, server, open)

	client := openStream(t, s.WithT, s.url)

	s.Eventually(s.returned.Load).Should(BeEquivalentTo(1), "before the first event")
	s.Expect(client.StatusCode).To(Equal(http.StatusOK))
	s.Expect(client.TransferEncoding).To(Equal([]string{"chunked"}))
	s.Expect(client.Close).To(BeTrue(), "the connection serves no other request")
	s.Expect(client.Header.Get("X-Of-Server")).To(Equal("yes"))
	for _, event := range []string{": keep-alive\n\n", "data: 1\n\n", "data: " + strings.Repeat("x", 100_000) + "\n\n"} {
		server.parts <- event
		client.gets(event) // before the next event is sent
	}
	close(server.parts)
	client.endsWith(nil)
}

func TestStreamThatBreaksOffIsNotComplete(t *testing.T) {
	t.Parallel()
	server := newEventServer()
	s := serveProxy(t, server, open)
	client := openStream(t, s.WithT, s.url)
	server.parts <- "data: half"
	client.gets("data: half")
	server.parts <- abort
	client.endsWith(io.ErrUnexpectedEOF)
}

func TestServerLearnsThatTheClientOfAStreamHasLeft(t *testing.T) {
	t.Parallel()
	server := newEventServer()
	s := serveProxy(t, server, open)
	client := openStream(t, s.WithT, s.url)
	s.Eventually(s.returned.Load).Should(BeEquivalentTo(1))
	client.leave()
	s.Eventually(server.left).Should(BeClosed())
}

func TestServerLearnsThatTheClientHasLeftBeforeTheStream(t *testing.T) {
	t.Parallel()
	begun, left := make(chan struct{}), make(chan struct{})
	s := serveProxy(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		close(left)
	}), open)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	s.Expect(err).NotTo(HaveOccurred())
	_, err = io.WriteString(conn, "GET /mcp HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n")
	s.Expect(err).NotTo(HaveOccurred())
	s.Eventually(begun).Should(BeClosed())
	s.Expect(conn.Close()).To(Succeed())
	s.Eventually(left).Should(BeClosed())
}

func TestWhatClientsSendDuringAStreamIsIgnored(t *testing.T) {
	t.Parallel()
	server := newEventServer()
	s := serveProxy(t, server, open)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	s.Expect(err).NotTo(HaveOccurred())
	defer conn.Close()
	const request = "GET /mcp HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n"
	_, err = io.WriteString(conn, request+request)
	s.Expect(err).NotTo(HaveOccurred())
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	s.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	_, err = io.WriteString(conn, request)
	s.Expect(err).NotTo(HaveOccurred())
	server.parts <- "data: 1\n\n"
	close(server.parts)
	body, err := io.ReadAll(response.Body)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(string(body)).To(Equal("data: 1\n\n"))
	_, err = reader.ReadByte()
	s.Expect(err).To(HaveOccurred(), "the connection is closed")
	s.Expect(s.returned.Load()).To(BeEquivalentTo(1))
}

func TestDrainWaitsForStreams(t *testing.T) {
	t.Parallel()
	server := newEventServer()
	s := serveProxy(t, server, open)
	client := openStream(t, s.WithT, s.url)
	s.stop()
	s.Eventually(func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}).Should(BeTrue(), "the proxy accepts no connections")
	server.parts <- "data: 1\n\n"
	client.gets("data: 1\n\n")
	s.Expect(s.done).NotTo(Receive())
	close(server.parts)
	client.endsWith(nil)
	s.Eventually(s.done).Should(Receive(BeNil()))
}

func TestEndOfTheDrainCutsStreams(t *testing.T) {
	t.Parallel()
	server := newEventServer()
	s := serveProxy(t, server, open)
	client := openStream(t, s.WithT, s.url)
	s.stop()
	s.force()
	client.endsWith(io.ErrUnexpectedEOF)
	s.Eventually(server.left).Should(BeClosed())
	s.Eventually(s.done).Should(Receive(BeNil()))
}

func TestSlowClientsHoldTheServerBack(t *testing.T) {
	t.Parallel()
	const size, parts = 1 << 20, 64
	server := newEventServer()
	s := serveProxy(t, server, open)
	client := openStream(t, s.WithT, s.url)
	var sent atomic.Int32
	go func() {
		defer close(server.parts)
		for range parts {
			server.parts <- strings.Repeat("x", size)
			sent.Add(1)
		}
	}()
	s.Eventually(sent.Load).Should(BeNumerically(">", 2))
	s.Consistently(sent.Load, "300ms").Should(BeNumerically("<", parts))
	n, err := io.Copy(io.Discard, client.reader)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(n).To(BeEquivalentTo(size * parts))
}

func TestStreamsAreFiltered(t *testing.T) {
	t.Parallel()
	server := newEventServer()
	s := serveProxy(t, server, newPolicy(t, callpolicy.Options{Deny: []string{"delete"}}))
	client := openStream(t, s.WithT, s.url)
	s.Eventually(s.returned.Load).Should(BeEquivalentTo(1))
	const all, kept = `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"delete"},{"name":"add"}]}}`, `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"add"}]}}`
	server.parts <- "data: " + all[:20]
	server.parts <- all[20:] + "\n\n: next\n\n"
	client.gets("data: " + kept + "\n\n: next\n\n")
	server.parts <- "data: " + kept // without its end
	close(server.parts)
	client.gets("data: " + kept)
	client.endsWith(nil)
}

func TestStreamThatCannotBeFilteredBreaksOff(t *testing.T) {
	t.Parallel()
	server := newEventServer()
	s := serveProxy(t, server, newPolicy(t, callpolicy.Options{Deny: []string{"delete"}}))
	client := openStream(t, s.WithT, s.url)
	server.parts <- "data: no JSON\n\n"
	client.endsWith(io.ErrUnexpectedEOF)
	s.Eventually(server.left).Should(BeClosed())
}

func TestCompressedStreamsAreNotFiltered(t *testing.T) {
	t.Parallel()
	left := make(chan struct{})
	s := serveProxy(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Content-Encoding", "gzip")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(left)
	}), newPolicy(t, callpolicy.Options{Deny: []string{"delete"}}))
	client := openStream(t, s.WithT, s.url)
	s.Expect(client.StatusCode).To(Equal(http.StatusBadGateway))
	body, err := io.ReadAll(client.reader)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(string(body)).To(ContainSubstring("ListNotReadable"))
	s.Eventually(left).Should(BeClosed())
}

// lockedBuffer is the output of a recorder.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(data)
}

type auditLine struct {
	Audit, HTTPMethod, Outcome string
	Status                     int
	DurationMs                 float64
	BytesOut                   int64
}

// requests are the lines of requests.
func (b *lockedBuffer) requests(g Gomega) []auditLine {
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []auditLine
	for text := range strings.Lines(b.text.String()) {
		var line auditLine
		g.Expect(json.Unmarshal([]byte(text), &line)).To(Succeed())
		if line.Audit == "request" {
			found = append(found, line)
		}
	}
	return found
}

func TestStreamsAreRecordedAtTheirEnd(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*eventServer, *served, *stream)
		want string
	}{
		"the server ends the stream":    {func(server *eventServer, _ *served, _ *stream) { close(server.parts) }, "ok"},
		"the client leaves":             {func(_ *eventServer, _ *served, client *stream) { client.leave() }, "ok"},
		"the stream of the server ends": {func(server *eventServer, _ *served, _ *stream) { server.parts <- abort }, "serverFailed"},
		"the drain ends": {func(_ *eventServer, s *served, _ *stream) {
			s.stop()
			s.force()
		}, "serverFailed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines := &lockedBuffer{}
			recorder, err := telemetry.New(telemetry.Options{Server: "tools", Lines: lines, Arguments: telemetry.Digest, Metrics: telemetry.NewMetrics()})
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			server := newEventServer()
			policy := newPolicy(t, callpolicy.Options{Deny: []string{"delete"}})
			s := serveProxy(t, server, func(next http.Handler) http.Handler { return recorder.Protect(policy(recorder.Forward(next))) })
			client := openStream(t, s.WithT, s.url)
			s.Eventually(s.returned.Load).Should(BeEquivalentTo(1))
			server.parts <- "data: {}\n\n"
			client.gets("data: {}\n\n")
			s.Expect(lines.requests(s)).To(BeEmpty(), "the stream is open")

			c.end(server, s, client)

			s.Eventually(func() []auditLine { return lines.requests(s) }).Should(HaveLen(1))
			line := lines.requests(s)[0]
			s.Expect(line.Outcome).To(Equal(c.want))
			s.Expect(line.HTTPMethod).To(Equal(http.MethodGet))
			s.Expect(line.Status).To(Equal(http.StatusOK))
			s.Expect(line.BytesOut).To(BeEquivalentTo(len("data: {}\n\n")))
			s.Expect(line.DurationMs).To(BeNumerically(">", 0))
			s.Expect(recorder.Close(context.Background())).To(Succeed())
		})
	}
}

func TestOtherResponsesToRequestsForStreams(t *testing.T) {
	for name, c := range map[string]struct {
		server http.HandlerFunc
		status int
		body   string
	}{
		"no stream": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "use POST", http.StatusMethodNotAllowed) }, http.StatusMethodNotAllowed, "use POST\n"},
		"JSON": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{}")
		}, http.StatusOK, "{}"},
		"stream with a length": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Content-Length", "9")
			_, _ = io.WriteString(w, "data: 1\n\n")
		}, http.StatusOK, "data: 1\n\n"},
		"stream without a marked end": {func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = io.WriteString(conn, "HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
				_ = conn.Close()
			}
		}, http.StatusOK, "data: 1\n\n"},
		"stream with a trailer": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Trailer", "X-End")
			_, _ = io.WriteString(w, "data: 1\n\n")
			w.Header().Set("X-End", "1")
		}, http.StatusOK, "data: 1\n\n"},
		"informational response before": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusNotFound)
		}, http.StatusNotFound, ""},
		"no HTTP": {func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = io.WriteString(conn, "?\r\n\r\n")
				_ = conn.Close()
			}
		}, http.StatusBadGateway, `{"error":"server_unreachable",`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveProxy(t, c.server, open)
			client := openStream(t, s.WithT, s.url)
			s.Expect(client.StatusCode).To(Equal(c.status))
			body, err := io.ReadAll(client.reader)
			s.Expect(err).NotTo(HaveOccurred())
			s.Expect(string(body)).To(HavePrefix(c.body))
		})
	}
}

func TestStreamsInHTTP10(t *testing.T) {
	t.Parallel()
	server := newEventServer()
	s := serveProxy(t, server, open)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	s.Expect(err).NotTo(HaveOccurred())
	defer conn.Close()
	_, err = fmt.Fprint(conn, "GET /mcp HTTP/1.0\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n")
	s.Expect(err).NotTo(HaveOccurred())
	server.parts <- "data: 1\n\n"
	close(server.parts)
	all, err := io.ReadAll(conn)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(string(all)).To(HavePrefix("HTTP/1.0 200 OK\r\n"))
	s.Expect(string(all)).To(HaveSuffix("\r\n\r\ndata: 1\n\n"))
}

// A stream of another replica's session is relayed without handlers in both replicas.
func TestForwardedStreams(t *testing.T) {
	t.Parallel()
	keys := keysOf(t)
	server := newEventServer()
	owner, through := newReplica(t, keys, server), newReplica(t, keys, echo("other"))
	id := owner.post().session()
	client := openStream(t, owner.WithT, through.url, headerSession, id)
	owner.Expect(client.Header.Get(headerSession)).To(BeEmpty())
	for _, event := range []string{"data: 1\n\n", "data: 2\n\n"} {
		server.parts <- event
		client.gets(event)
	}
	client.leave()
	owner.Eventually(server.left).Should(BeClosed())
}

func TestForwardedStreamThatBreaksOffIsNotComplete(t *testing.T) {
	t.Parallel()
	keys := keysOf(t)
	server := newEventServer()
	owner, through := newReplica(t, keys, server), newReplica(t, keys, echo("other"))
	client := openStream(t, owner.WithT, through.url, headerSession, owner.post().session())
	server.parts <- "data: half"
	client.gets("data: half")
	server.parts <- abort
	client.endsWith(io.ErrUnexpectedEOF)
}

func TestForwardedStreamsEndWithTheServer(t *testing.T) {
	t.Parallel()
	keys := keysOf(t)
	server := newEventServer()
	owner, through := newReplica(t, keys, server), newReplica(t, keys, echo("other"))
	client := openStream(t, owner.WithT, through.url, headerSession, owner.post().session())
	server.parts <- "data: 1\n\n"
	close(server.parts)
	client.gets("data: 1\n\n")
	client.endsWith(nil)
}

func TestDrainCompletesForwardedStreams(t *testing.T) {
	t.Parallel()
	keys := keysOf(t)
	server := newEventServer()
	owner, through := newReplica(t, keys, server), newReplica(t, keys, echo("other"))
	client := openStream(t, owner.WithT, through.url, headerSession, owner.post().session())
	through.stop()
	through.behind.Close()
	client.endsWith(nil) // The client opens it again through another replica.
	owner.Eventually(server.left).Should(BeClosed())
	owner.Eventually(through.served).Should(Receive(BeNil()))
}

func TestForwardedRequestsAreCounted(t *testing.T) {
	t.Parallel()
	keys := keysOf(t)
	server := newEventServer()
	owner, through := newReplica(t, keys, server), newReplica(t, keys, echo("other"))
	id := owner.post().session()
	counted := func() string {
		response, err := http.Get(through.admin + metricsPath)
		owner.Expect(err).NotTo(HaveOccurred())
		defer response.Body.Close()
		all, err := io.ReadAll(response.Body)
		owner.Expect(err).NotTo(HaveOccurred())
		return string(all)
	}
	owner.Expect(through.post(headerSession, id).Status).To(Equal(http.StatusOK))
	owner.Eventually(counted).Should(ContainSubstring(`fixpoint_proxy_forwarded_requests_total{outcome="relayed"} 1`))
	client := openStream(t, owner.WithT, through.url, headerSession, id)
	server.parts <- "data: 1\n\n"
	client.gets("data: 1\n\n")
	client.leave()
	owner.Eventually(counted).Should(ContainSubstring(`fixpoint_proxy_forwarded_requests_total{outcome="client_left"} 1`))
}
