package authproxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/internal/authorization"
	"github.com/fixpoint-dev/fixpoint/internal/callpolicy"
	"github.com/fixpoint-dev/fixpoint/internal/peers"
	"github.com/fixpoint-dev/fixpoint/internal/peers/peerstest"
)

// replica is a proxy with its server.
type replica struct {
	*WithT
	proxy *Proxy
	// url and admin are those of the proxy, behind is the server.
	url, admin string
	behind     *httptest.Server
	// stop begins the drain, and served has the result of Serve.
	stop   context.CancelFunc
	served chan error
}

// newReplica serves a server as a replica.
func newReplica(t *testing.T, keys string, server http.Handler, change ...func(*Options)) *replica {
	t.Helper()
	w := &replica{WithT: NewWithT(t), behind: httptest.NewServer(server), served: make(chan error, 1)}
	w.SetDefaultEventuallyTimeout(testTimeout)
	t.Cleanup(w.behind.Close)
	address, err := url.Parse(w.behind.URL)
	w.Expect(err).NotTo(HaveOccurred())
	port, err := strconv.Atoi(address.Port())
	w.Expect(err).NotTo(HaveOccurred())
	peer, clients, admin := listen(t), listen(t), listen(t)
	opts := Options{Port: port, Protect: open, DrainTimeout: testTimeout, Sessions: &SessionOptions{
		Options:  peers.Options{KeyDirectory: keys, Server: "a", Address: netip.MustParseAddrPort(peer.Addr().String()), ConnectTimeout: testTimeout},
		Listener: peer,
	}}
	for _, c := range change {
		c(&opts)
	}
	w.proxy, err = New(opts)
	w.Expect(err).NotTo(HaveOccurred())
	w.url, w.admin = "http://"+clients.Addr().String(), "http://"+admin.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	force, kill := context.WithCancel(context.Background())
	w.stop = stop
	go func() {
		w.served <- w.proxy.Serve(ctx, force, clients, admin)
		close(w.served)
	}()
	t.Cleanup(func() {
		stop()
		kill()
		w.behind.CloseClientConnections()
		w.Eventually(w.served).Should(BeClosed())
	})
	return w
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return l
}

type reply struct {
	Status int
	Header http.Header
	Body   string
}

func (r reply) session() string { return r.Header.Get(headerSession) }

// send sends a request with pairs of headers.
func (w *replica) send(method, path, body string, headers ...string) reply {
	request, err := http.NewRequest(method, w.url+path, strings.NewReader(body))
	w.Expect(err).NotTo(HaveOccurred())
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	w.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	w.Expect(err).NotTo(HaveOccurred())
	return reply{response.StatusCode, response.Header, string(raw)}
}

func (w *replica) post(headers ...string) reply {
	return w.send(http.MethodPost, "/mcp", `{"jsonrpc":"2.0","id":7,"method":"ping"}`, headers...)
}

func keysOf(t *testing.T) string {
	t.Helper()
	return peerstest.Keys(t, time.Now().Add(-time.Hour))
}

// echo is a server that begins a session with an id, and responds with what it gets in a session. As some SDKs do, it
// repeats the id.
func echo(id string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sent := r.Header.Get(headerSession)
		if sent != "" && sent != id {
			http.Error(w, "unknown session "+sent, http.StatusTeapot)
			return
		}
		w.Header().Set(headerSession, id)
		fmt.Fprintf(w, "%s %s session=%s for=%s host=%s body=%d %v", r.Method, r.URL, sent, r.Header.Get("X-Forwarded-For"), r.Header.Get("X-Forwarded-Host"), len(body), r.TransferEncoding)
	})
}

func TestAnyReplicaServesASession(t *testing.T) {
	keys := keysOf(t)
	owner, other := newReplica(t, keys, echo("own")), newReplica(t, keys, echo("other"))
	started := owner.post()
	id := started.session()
	owner.Expect(started.Body).To(ContainSubstring("session= "))
	owner.Expect(id).NotTo(Or(BeEmpty(), ContainSubstring("own")))

	for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
		for name, body := range map[string]string{"none": "", "small": "{}", "large": strings.Repeat("x", 1<<20)} {
			if method == http.MethodGet && body != "" {
				continue
			}
			headers := []string{headerSession, id, "X-Forwarded-For", "192.0.2.1", "X-Forwarded-Host", "tools.example.com", peers.HeaderClient, "192.0.2.2"}
			local, forwarded := owner.send(method, "/a%2Fb/mcp?x=1&y=%2F", body, headers...), other.send(method, "/a%2Fb/mcp?x=1&y=%2F", body, headers...)
			owner.Expect(local.Status).To(Equal(http.StatusOK), name)
			owner.Expect(local.Body).To(HavePrefix(method + " /a%2Fb/mcp?x=1&y=%2F session=own for=192.0.2.1, 127.0.0.1 host=tools.example.com body=" + strconv.Itoa(len(body))))
			owner.Expect(forwarded.Status).To(Equal(http.StatusOK), name)
			owner.Expect(forwarded.Body).To(Equal(local.Body), "the server does not know which replica the client reached")
			owner.Expect([]string{local.session(), forwarded.session()}).To(HaveEach(id), "the id of a session stays")
		}
	}
	unbounded := other.sendStream(strings.Repeat("x", 1<<20), headerSession, id)
	owner.Expect(unbounded.Body).To(ContainSubstring("body=1048576 [chunked]"))
}

// sendStream sends a body without its length.
func (w *replica) sendStream(body string, headers ...string) reply {
	request, err := http.NewRequest(http.MethodPost, w.url+"/mcp", io.MultiReader(strings.NewReader(body)))
	w.Expect(err).NotTo(HaveOccurred())
	request.Header.Set(headers[0], headers[1])
	response, err := http.DefaultClient.Do(request)
	w.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	w.Expect(err).NotTo(HaveOccurred())
	return reply{response.StatusCode, response.Header, string(raw)}
}

func TestIDsThatNoReplicaSealedForTheCaller(t *testing.T) {
	const headerCaller = "Test-Caller"
	keys := keysOf(t)
	identified := func(o *Options) {
		o.Caller = func(r *http.Request) string { return r.Header.Get(headerCaller) }
	}
	w, peer := newReplica(t, keys, echo("own"), identified), newReplica(t, keys, echo("other"), identified)
	foreign := newReplica(t, keys, echo("foreign"), identified, func(o *Options) { o.Sessions.Server = "b" })
	rekeyed := newReplica(t, peerstest.Keys(t, time.Now().Add(-2*time.Hour)), echo("rekeyed"), identified)
	anonymous := newReplica(t, keys, echo("anonymous"))
	own, others := w.post(headerCaller, "ann").session(), peer.post(headerCaller, "ann").session()
	changed := []byte(own)
	changed[len(changed)/2] ^= 1
	const unknown = "session not found: it has ended, or belongs to another replica; initialize again"
	for name, c := range map[string]struct {
		id, caller string
		status     int
	}{
		"own":                          {own, "ann", http.StatusOK},
		"of another replica":           {others, "ann", http.StatusOK},
		"own, of another caller":       {own, "bob", http.StatusNotFound},
		"other, of another caller":     {others, "bob", http.StatusNotFound},
		"other, without a caller":      {others, "", http.StatusNotFound},
		"begun without authorization":  {anonymous.post().session(), "ann", http.StatusNotFound},
		"that of the server":           {"own", "ann", http.StatusNotFound},
		"changed":                      {string(changed), "ann", http.StatusNotFound},
		"truncated":                    {own[:len(own)-4], "ann", http.StatusNotFound},
		"extended":                     {own + "AAAA", "ann", http.StatusNotFound},
		"oversized":                    {strings.Repeat("A", 10<<10), "ann", http.StatusNotFound},
		"of another server":            {foreign.post(headerCaller, "ann").session(), "ann", http.StatusNotFound},
		"with a key that is not known": {rekeyed.post(headerCaller, "ann").session(), "ann", http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got := w.post(headerSession, c.id, headerCaller, c.caller)
			g.Expect(got.Status).To(Equal(c.status), got.Body)
			if c.status == http.StatusNotFound {
				g.Expect(got.Body).To(And(ContainSubstring(unknown), ContainSubstring("-32001")))
			}
		})
	}
	t.Run("on the peer listener", func(t *testing.T) {
		g := NewWithT(t)
		for name, c := range map[string]struct {
			id, caller, client string
			status             int
		}{
			"its session":               {others, "ann", "192.0.2.1", http.StatusOK},
			"of another caller":         {others, "bob", "192.0.2.1", http.StatusNotFound},
			"of a third replica":        {own, "ann", "192.0.2.1", http.StatusNotFound}, // it forwards once
			"that of the server":        {"other", "ann", "192.0.2.1", http.StatusNotFound},
			"none":                      {"", "ann", "192.0.2.1", http.StatusNotFound},
			"client without an address": {others, "ann", "localhost", http.StatusBadRequest},
		} {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+peer.proxy.peers.Self().String()+"/mcp", strings.NewReader("{}"))
			g.Expect(err).NotTo(HaveOccurred())
			request.Header = http.Header{headerSession: {c.id}, headerCaller: {c.caller}, peers.HeaderClient: {c.client}}
			response, err := w.proxy.peers.RoundTrip(request)
			g.Expect(err).NotTo(HaveOccurred())
			_ = response.Body.Close()
			g.Expect(response.StatusCode).To(Equal(c.status), name)
		}
	})
}

func TestIDsOfServers(t *testing.T) {
	keys := keysOf(t)
	for name, c := range map[string]struct{ id, refused string }{
		"short":          {"a", ""},
		"special":        {`!"#$%&'()*+,-./:;<=>?@[\]^_{|}~`, ""},
		"longest":        {strings.Repeat("i", maxServerID), ""},
		"too long":       {strings.Repeat("i", maxServerID+1), "it has 1025 characters, and the limit is 1024"},
		"with a space":   {"a b", "characters other than visible ASCII"},
		"not only ASCII": {"sitzung-ä", "characters other than visible ASCII"},
		"of no sessions": {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w, other := newReplica(t, keys, echo(c.id)), newReplica(t, keys, echo("other"))
			started := w.post()
			if c.refused != "" {
				w.Expect(started.Status).To(Equal(http.StatusBadGateway))
				w.Expect(started.Body).To(And(ContainSubstring(c.refused), ContainSubstring("InvalidSessionID")))
				w.Expect(started.session()).To(BeEmpty())
				return
			}
			w.Expect(started.Status).To(Equal(http.StatusOK), started.Body)
			if c.id == "" {
				w.Expect(started.Header).NotTo(HaveKey(headerSession))
				return
			}
			got := other.post(headerSession, started.session())
			w.Expect(got.Body).To(ContainSubstring("session=" + c.id + " "))
		})
	}
}

// A server that gives a session another id is not forgotten: the client gets the new one.
func TestServerChangesTheIDOfASession(t *testing.T) {
	var ids atomic.Int32
	keys := keysOf(t)
	w := newReplica(t, keys, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(headerSession, fmt.Sprint("id-", ids.Add(1)))
		_, _ = io.WriteString(w, r.Header.Get(headerSession))
	}))
	other := newReplica(t, keys, echo("other"))
	first := w.post().session()
	second := other.post(headerSession, first)
	w.Expect(second.Body).To(Equal("id-1"))
	w.Expect(other.post(headerSession, second.session()).Body).To(Equal("id-2"))
}

// What no replica has sealed does not reach a server, also if a version without sessions, or a repeated header, would let it
// pass.
func TestIDsDoNotPassUnsealed(t *testing.T) {
	w := newReplica(t, keysOf(t), echo("own"))
	for name, headers := range map[string][]string{
		"none":              nil,
		"empty":             {headerSession, ""},
		"of no sessions":    {headerSession, "own", headerVersion, "2026-07-28"},
		"empty, then other": {headerSession, "", headerSession, "own"},
		"of the connection": {headerSession, "", "Connection", headerSession},
	} {
		got := w.post(headers...)
		w.Expect(got.Status).To(Equal(http.StatusOK), name)
		w.Expect(got.Body).To(ContainSubstring("session= "), name)
	}
	id := w.post().session()
	w.Expect(w.post(headerSession, id, headerSession, "other").Body).To(ContainSubstring("session=own "))
	w.Expect(w.post(headerSession, id, "Connection", headerSession).Body).To(ContainSubstring("session=own "))
}

func TestReplicaOfASessionIsGone(t *testing.T) {
	t.Parallel()
	keys := keysOf(t)
	owner, other := newReplica(t, keys, echo("own")), newReplica(t, keys, echo("other"))
	// The other one has a connection to the owner. A request that meets the end of it may have been received.
	third := newReplica(t, keys, echo("third"))
	id := owner.post().session()
	owner.behind.Close()
	// It may start again.
	got := other.post(headerSession, id)
	owner.Expect(got.Status).To(Equal(http.StatusBadGateway), got.Body)
	owner.Expect(got.Body).To(ContainSubstring("check the log of the server"))
	owner.stop()
	owner.Eventually(owner.served).Should(Receive(BeNil()))

	got = third.post(headerSession, id)
	owner.Expect(got.Status).To(Equal(http.StatusNotFound))
	owner.Expect(got.Body).To(ContainSubstring("the replica that had it is gone; initialize again"))
}

// A request that was sent may have been executed, so it is not repeated, and the session not reported as ended.
func TestReplicaFailsAfterTheRequestWasSent(t *testing.T) {
	keys := keysOf(t)
	var served atomic.Int32
	abort := make(chan bool, 1)
	owner := newReplica(t, keys, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(headerSession) == "" {
			w.Header().Set(headerSession, "own")
			return
		}
		served.Add(1)
		panic(http.ErrAbortHandler)
	}), func(o *Options) {
		o.Caller = func(*http.Request) string {
			select {
			case <-abort: // the replica ends while it serves the forwarded request
				served.Add(1)
				panic(http.ErrAbortHandler)
			default:
				return ""
			}
		}
	})
	other := newReplica(t, keys, echo("other"), func(o *Options) { o.Caller = func(*http.Request) string { return "" } })
	id := owner.post().session()
	got := other.post(headerSession, id)
	owner.Expect(got.Status).To(Equal(http.StatusBadGateway), "the server failed")
	abort <- true
	got = other.post(headerSession, id)
	owner.Expect(got.Status).To(Equal(http.StatusBadGateway), "the replica failed")
	owner.Expect(got.Body).To(And(ContainSubstring("may have received the request"), ContainSubstring(`"id":7`)))
	owner.Expect(served.Load()).To(BeEquivalentTo(2))
}

// A large message passes through, so that its error is found while another replica reads it.
func TestMessageThatIsMalformedIsNoFailureOfTheReplica(t *testing.T) {
	keys := keysOf(t)
	owner, other := newReplica(t, keys, echo("own")), newReplica(t, keys, echo("other"))
	id := owner.post().session()
	got := sendRaw(t, other.url, fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: x\r\n%s: %s\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\nx\r\n",
		headerSession, id, 2*maxSmallBody, strings.Repeat("x", 2*maxSmallBody)))
	owner.Expect(got.Status).To(Equal(http.StatusBadRequest), got.Body)
	owner.Expect(got.Body).To(ContainSubstring("the message could not be read: send it again"))
}

// A replica that drains serves its sessions for other replicas as long as its server lives, and then the session has ended.
func TestReplicaThatDrainsServesItsSessions(t *testing.T) {
	t.Parallel()
	keys := keysOf(t)
	begun, end := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(end) })
	owner := newReplica(t, keys, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(begun)
			<-end
		}
		echo("own").ServeHTTP(w, r)
	}))
	t.Cleanup(release)
	other := newReplica(t, keys, echo("other"))
	id := owner.post().session()
	slow := make(chan reply, 1)
	go func() { slow <- other.send(http.MethodPost, "/slow", "{}", headerSession, id) }()
	owner.Eventually(begun).Should(BeClosed())

	owner.stop()
	owner.Eventually(func() int { return owner.ready() }).Should(Equal(http.StatusServiceUnavailable))
	// Longer than without other replicas.
	owner.Consistently(func() int { return other.post(headerSession, id).Status }, lastRequestTime+2*endedProbeInterval, "200ms").Should(Equal(http.StatusOK))
	owner.Expect(owner.served).NotTo(Receive())

	// The server ends: it completes what it has begun, and accepts no connections.
	owner.Expect(owner.behind.Listener.Close()).To(Succeed())
	owner.Eventually(func() reply { return other.post(headerSession, id) }).Should(And(
		HaveField("Status", http.StatusNotFound), HaveField("Body", ContainSubstring("is gone; initialize again"))))
	owner.Expect(owner.served).NotTo(Receive(), "a forwarded request is pending")
	release()
	owner.Eventually(slow).Should(Receive(HaveField("Status", http.StatusOK)))
	owner.Eventually(owner.served).Should(Receive(BeNil()))
}

func (w *replica) ready() int {
	response, err := http.Get(w.admin + readyPath)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// Streams pass as their events arrive. A replica that ends completes those that pass through it, and clients open them again.
func TestStreamsPassThroughReplicas(t *testing.T) {
	t.Parallel()
	keys := keysOf(t)
	events := make(chan string)
	owner := newReplica(t, keys, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			echo("own").ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case event := <-events:
				fmt.Fprintf(w, "data: %s\n\n", event)
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}))
	through := newReplica(t, keys, echo("other"))
	id := owner.post().session()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, through.url+"/mcp", nil)
	owner.Expect(err).NotTo(HaveOccurred())
	request.Header.Set(headerSession, id)
	response, err := http.DefaultClient.Do(request)
	owner.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	lines := bufio.NewReader(response.Body)
	for _, event := range []string{"one", "two"} {
		events <- event
		line, err := lines.ReadString('\n')
		owner.Expect(err).NotTo(HaveOccurred())
		owner.Expect(line).To(Equal("data: "+event+"\n"), "before the next event is sent")
		_, _ = lines.ReadString('\n')
	}

	through.stop()
	through.behind.Close()
	owner.Eventually(through.served).Should(Receive(BeNil()))
	_, err = lines.ReadString('\n')
	owner.Expect(err).To(MatchError("EOF"), "not in the middle of a response")
	owner.Expect(owner.post(headerSession, id).Status).To(Equal(http.StatusOK))
}

// net/http closes the body of a request when the response begins, which may be right after its last byte was read.
func TestResponseThatBeginsAtTheLastByteIsNotBrokenOff(t *testing.T) {
	keys := keysOf(t)
	closed := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Body = io.NopCloser(io.MultiReader(io.LimitReader(r.Body, r.ContentLength), iotest.ErrReader(http.ErrBodyReadAfterClose)))
			next.ServeHTTP(w, r)
		})
	}
	protected := func(o *Options) { o.Protect = closed }
	owner, other := newReplica(t, keys, echo("own"), protected), newReplica(t, keys, echo("other"), protected)
	id := owner.post().session()
	large := strings.Repeat("x", maxSmallBody+1)
	for name, got := range map[string]reply{
		"small": owner.send(http.MethodPost, "/mcp", "{}", headerSession, id),
		"large": owner.send(http.MethodPost, "/mcp", large, headerSession, id),
		"other": other.send(http.MethodPost, "/mcp", large, headerSession, id),
	} {
		owner.Expect(got.Status).To(Equal(http.StatusOK), "%s: %s", name, got.Body)
	}
}

// twoRequests limits requests, as [callpolicy.Policy] does, and a client does not regain them with time.
func twoRequests(next http.Handler) http.Handler {
	var requests atomic.Int32
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) > 2 {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Limits are those of the replica that the client has reached.
func TestLimitsAreAppliedOnce(t *testing.T) {
	keys := keysOf(t)
	limited := func(o *Options) {
		bodies := newPolicy(t, callpolicy.Options{MaxBodyBytes: 1 << 20})
		o.Protect = func(next http.Handler) http.Handler { return twoRequests(bodies(next)) }
	}
	owner, other := newReplica(t, keys, echo("own"), limited), newReplica(t, keys, echo("other"), limited)
	id := owner.post().session()
	owner.Expect(owner.post(headerSession, id).Status).To(Equal(http.StatusOK))
	owner.Expect(owner.post(headerSession, id).Status).To(Equal(http.StatusTooManyRequests))
	owner.Expect(other.post(headerSession, id).Status).To(Equal(http.StatusOK))
	large := other.sendStream(strings.Repeat("x", 1<<20+1), headerSession, id)
	owner.Expect(large.Status).To(Equal(http.StatusRequestEntityTooLarge), large.Body)
	owner.Expect(other.post(headerSession, id).Status).To(Equal(http.StatusTooManyRequests))
}

func TestInvalidSessionOptions(t *testing.T) {
	for name, options := range map[string]peers.Options{
		"none":       {},
		"no keys":    {KeyDirectory: t.TempDir(), Server: "a", Address: netip.MustParseAddrPort("192.0.2.1:9292")},
		"no address": {KeyDirectory: keysOf(t), Server: "a"},
	} {
		_, err := New(Options{Port: 8080, Protect: open, Sessions: &SessionOptions{Options: options}})
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring("configuring the proxy")), name)
	}
}

// anyReplica sends each request to another replica, over a connection of its own.
type anyReplica struct {
	replicas []*replica
	token    string
	// other is the transport; its connections are not kept.
	other http.RoundTripper
	// begun counts requests that begin a session: not all sessions are on one replica.
	begun atomic.Int32
}

// RoundTrip implements [http.RoundTripper].
func (a *anyReplica) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+a.token)
	i := rand.N(len(a.replicas))
	if r.Header.Get(headerSession) == "" {
		i = int(a.begun.Add(1)) % len(a.replicas)
	}
	r.URL.Host = strings.TrimPrefix(a.replicas[i].url, "http://")
	r.Host = ""
	return a.other.RoundTrip(r)
}

// newNamedServer is an unmodified server of the SDK, which says its name and asks its client.
func newNamedServer(name string) (*mcp.Server, http.Handler) {
	server := mcp.NewServer(&mcp.Implementation{Name: name, Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "name"}, func(_ context.Context, r *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, none, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: name + " " + r.Extra.Header.Get(authorization.HeaderSubject)}}}, none{}, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "ask"}, func(ctx context.Context, r *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, none, error) {
		for i := range 3 {
			if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i + 1)}); err != nil {
				return nil, none{}, err
			}
		}
		answer, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "Who?", RequestedSchema: map[string]any{
			"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string"}},
		}})
		if err != nil {
			return nil, none{}, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(answer.Content["name"])}}}, none{}, nil
	})
	return server, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
}

// Unmodified clients of the SDK have sessions over three replicas, and each of their requests reaches any of them: calls,
// responses to the server, streams, and the end of sessions.
func TestClientsOfTheSDKNeedNoAffinity(t *testing.T) {
	t.Parallel()
	const replicas, sessions = 3, 9
	g := NewWithT(t)
	keys := keysOf(t)
	authorizer, token := newProtected(t)
	protected := func(o *Options) { o.Protect, o.Caller = authorizer.Protect, authorization.Caller }
	scattered := &anyReplica{token: token("mcp"), other: &http.Transport{DisableKeepAlives: true}}
	var servers []*mcp.Server
	for i := range replicas {
		server, handler := newNamedServer(fmt.Sprint("replica-", i))
		servers = append(servers, server)
		scattered.replicas = append(scattered.replicas, newReplica(t, keys, handler, protected))
	}
	open := func() (count int) {
		for _, server := range servers {
			count += len(slices.Collect(server.Sessions()))
		}
		return count
	}

	var clients sync.WaitGroup
	var notified atomic.Int32
	var all []*mcp.ClientSession
	names := map[string]bool{}
	for i := range sessions {
		progress := make(chan float64, 3)
		var once sync.Once
		name := fmt.Sprint("client-", i)
		client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
			ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": name}}, nil
			},
			ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progress <- r.Params.Progress },
			ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { once.Do(func() { notified.Add(1) }) },
		})
		session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
			Endpoint: "http://any/mcp", HTTPClient: &http.Client{Transport: scattered},
		}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
		g.Expect(err).NotTo(HaveOccurred())
		all = append(all, session)
		at := session.InitializeResult().ServerInfo.Name
		names[at] = true
		clients.Go(func() {
			for range 5 {
				said, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "name"})
				if err != nil || said.Content[0].(*mcp.TextContent).Text != at+" ann" { //nolint:errcheck,forcetypeassert // a test
					t.Errorf("%s: %v %v", at, said, err)
				}
			}
			params := &mcp.CallToolParams{Name: "ask"}
			params.SetProgressToken("p")
			said, err := session.CallTool(t.Context(), params)
			if err != nil || said.IsError || said.Content[0].(*mcp.TextContent).Text != name { //nolint:errcheck,forcetypeassert // a test
				t.Errorf("%s: %v %v", at, said, err)
			}
			for i := range 3 {
				if got := <-progress; got != float64(i+1) {
					t.Errorf("%s: progress %v", at, got)
				}
			}
		})
	}
	clients.Wait()
	g.Expect(len(names)).To(BeNumerically(">", 1), "sessions live in several replicas")
	g.Expect(open()).To(Equal(sessions))

	// Messages of the servers arrive on the streams of the sessions.
	turn := 0
	g.Eventually(func() int32 {
		turn++
		for _, server := range servers {
			mcp.AddTool(server, &mcp.Tool{Name: fmt.Sprint("tool-", turn)}, func(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, none, error) {
				return nil, none{}, nil
			})
		}
		return notified.Load()
	}, testTimeout, "100ms").Should(BeEquivalentTo(sessions))

	for _, session := range all {
		g.Expect(session.Close()).To(Succeed())
	}
	g.Eventually(open, testTimeout).Should(BeZero())
}
