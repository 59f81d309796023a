package bridge

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/internal/callrecord"
	"github.com/fixpoint-dev/fixpoint/internal/peers"
	"github.com/fixpoint-dev/fixpoint/internal/peers/peerstest"
)

const ping = `{"jsonrpc":"2.0","id":7,"method":"ping"}`

// newReplica starts a replica of a server.
func newReplica(t *testing.T, command []string, directory, server string, change ...func(*Options)) *served {
	t.Helper()
	peer, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	change = append([]func(*Options){func(o *Options) {
		o.Peers = &peers.Options{
			KeyDirectory: directory, Server: server, Address: netip.MustParseAddrPort(peer.Addr().String()), ConnectTimeout: testTimeout,
		}
	}}, change...)
	w := newTestBridge(t, command, change...)
	s := w.serveWith(Listeners{Peer: peer, SkipCheck: true})
	w.Eventually(func() int { return s.status(readyPath) }).Should(Equal(http.StatusOK))
	return s
}

func (s *served) end(id string) int {
	resp := s.open(http.MethodDelete, "", headerSession, id)
	defer resp.Body.Close()
	return resp.StatusCode
}

func TestAnyReplicaServesASession(t *testing.T) {
	keys := peerstest.Keys(t, time.Now().Add(-time.Hour))
	owner := newReplica(t, server("sdk"), keys, "a")
	other := newReplica(t, server("sdk"), keys, "a")
	id := owner.session()

	reply := other.post(ping, headerSession, id)
	owner.Expect(reply.Status).To(Equal(http.StatusOK), reply.Body)
	owner.Expect(reply.Body).To(ContainSubstring(`"id":7`))
	owner.Expect(reply.Header.Get(peers.HeaderClient)).To(BeEmpty())
	owner.Expect(other.metric("children")).To(BeZero())
	owner.Expect(other.metric("forwarded_requests_total", peers.Relayed)).To(Equal(1.0))

	owner.Expect(other.end(id)).To(Equal(http.StatusNoContent))
	for _, replica := range []*served{owner, other} { // replayed
		owner.Expect(replica.post(ping, headerSession, id).Status).To(Equal(http.StatusNotFound))
	}
	owner.Expect(owner.logs.String() + other.logs.String()).NotTo(ContainSubstring(id))
}

func TestMessagesOfTheServerPassThroughAnyReplica(t *testing.T) {
	keys := peerstest.Keys(t, time.Now().Add(-time.Hour))
	early := []string{"sed", "-u", "-n",
		`s/.*"id":\([0-9]*\).*/{"jsonrpc":"2.0","id":\1,"result":{}}\n{"jsonrpc":"2.0","method":"notifications\/early"}/p`}
	owner := newReplica(t, early, keys, "a")
	other := newReplica(t, early, keys, "a")
	id := owner.session()
	stream := other.open(http.MethodGet, "", headerSession, id)
	defer stream.Body.Close()
	owner.Expect(stream.Header.Get("Content-Type")).To(Equal(eventType))
	lines := bufio.NewReader(stream.Body)
	owner.Eventually(func() string { line, _ := lines.ReadString('\n'); return line }).Should(ContainSubstring("notifications/early"))

	// A replica that ends completes the streams that pass through it.
	other.stop()
	owner.Eventually(other.done).Should(Receive(BeNil()))
	owner.Eventually(func() error { _, err := lines.ReadString('\n'); return err }).Should(MatchError("EOF"))
	owner.Expect(owner.post(ping, headerSession, id).Status).To(Equal(http.StatusOK))
}

func TestReplicasThatDrainServeTheirSessions(t *testing.T) {
	keys := peerstest.Keys(t, time.Now().Add(-time.Hour))
	long := func(o *Options) { o.DrainIdleTimeout = time.Hour }
	owner := newReplica(t, tinyServer(), keys, "a", long)
	other := newReplica(t, tinyServer(), keys, "a", long)
	id := owner.session()
	owner.stop()
	owner.Eventually(func() int { return owner.status(readyPath) }).Should(Equal(http.StatusServiceUnavailable))
	owner.Expect(other.post(ping, headerSession, id).Status).To(Equal(http.StatusOK))
	owner.Expect(other.end(id)).To(Equal(http.StatusNoContent))
	owner.Eventually(owner.done).Should(Receive(BeNil()))

	// It is gone, once the other has noticed that its connections have ended.
	owner.Eventually(func() httpReply { return other.post(ping, headerSession, id) }).Should(And(
		HaveField("Status", http.StatusNotFound),
		HaveField("Body", ContainSubstring("the replica that had it is gone; initialize again"))))
}

func TestDrainEndsWithTheLastForwardedRequest(t *testing.T) {
	keys := peerstest.Keys(t, time.Now().Add(-time.Hour))
	owner := newReplica(t, server("deaf-to-discover"), keys, "a")
	other := newReplica(t, tinyServer(), keys, "a", func(o *Options) { o.DrainTimeout, o.DrainIdleTimeout = time.Hour, time.Millisecond })
	id := owner.session()
	_, answered := other.postBlocked(`{"jsonrpc":"2.0","id":2,"method":"never"}`, headerSession, id)
	owner.Eventually(func() float64 { return owner.metric("requests_in_flight") }).Should(Equal(1.0))
	other.stop()
	owner.Eventually(func() float64 { return other.metric("draining") }).Should(Equal(1.0))
	owner.Expect(answered).NotTo(BeClosed())

	owner.Expect(owner.end(id)).To(Equal(http.StatusNoContent))

	owner.Eventually(answered).Should(BeClosed())
	owner.Eventually(other.done, time.Minute).Should(Receive(BeNil()))
}

func TestRefusesIDsThatNoReplicaSealed(t *testing.T) {
	hourAgo := time.Now().Add(-time.Hour)
	keys := peerstest.Keys(t, hourAgo)
	w := newReplica(t, tinyServer(), keys, "a")
	peer := newReplica(t, tinyServer(), keys, "a")
	foreign := newReplica(t, tinyServer(), keys, "b")
	removed := newReplica(t, tinyServer(), peerstest.Keys(t, hourAgo.Add(-time.Hour)), "a")
	valid := peer.session()
	changed := []byte(valid)
	changed[len(changed)/2] ^= 1
	for name, id := range map[string]string{
		"forged":               "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
		"not encoded":          "no session",
		"changed":              string(changed),
		"truncated":            valid[:len(valid)-4],
		"extended":             valid + "AAAA",
		"long":                 strings.Repeat("A", 10<<10),
		"of another server":    foreign.session(),
		"with a key not known": removed.session(),
	} {
		w.Expect(w.post(ping, headerSession, id).Status).To(Equal(http.StatusNotFound), name)
	}
	w.Expect(w.metric("forwarded_requests_total")).To(BeZero())
	w.Expect(w.post(ping, headerSession, valid).Status).To(Equal(http.StatusOK))
}

// The session of a third replica is not served on the peer listener of the second.
func TestForwardsOnce(t *testing.T) {
	keys := peerstest.Keys(t, time.Now().Add(-time.Hour))
	first := newReplica(t, tinyServer(), keys, "a")
	second := newReplica(t, tinyServer(), keys, "a")
	third := newReplica(t, tinyServer(), keys, "a")
	req := func(client string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "https://"+second.bridge.peers.Self().String()+peerSessionPath, nil)
		first.Expect(err).NotTo(HaveOccurred())
		r.Header = http.Header{headerSession: {third.session()}, peers.HeaderClient: {client}}
		resp, err := first.bridge.peers.RoundTrip(r)
		first.Expect(err).NotTo(HaveOccurred())
		defer resp.Body.Close()
		return resp.StatusCode
	}
	first.Expect(req("192.0.2.1")).To(Equal(http.StatusNotFound))
	first.Expect(req("not an address")).To(Equal(http.StatusBadRequest))
	first.Expect(second.metric("forwarded_requests_total")).To(BeZero())
}

// A replica that has not read the newest key yet refuses those that identify themselves by it. It is not gone, so its
// session is not reported as ended.
func TestReplicaThatRefusesTheConnectionIsNotGone(t *testing.T) {
	t.Parallel()
	former := time.Now().Add(-2 * time.Hour)
	owner := newReplica(t, tinyServer(), peerstest.Keys(t, former), "a")
	keys := peerstest.Keys(t, former, former.Add(time.Hour))
	other := newReplica(t, tinyServer(), keys, "a")
	id := owner.session()

	posts := 0.0
	owner.Eventually(func() string {
		posts++
		reply := other.post(ping, headerSession, id)
		owner.Expect(reply.Status).To(Equal(http.StatusBadGateway), reply.Body)
		owner.Expect(reply.Body).To(And(ContainSubstring(reasonReplicaFailed), ContainSubstring(`"id":7`)))
		return reply.Body
	}).Should(And(ContainSubstring("refused the connection"), ContainSubstring("retry later")), "unless a write fails before the alert is read")
	owner.Expect(other.metric("forwarded_requests_total", peers.Failed)).To(Equal(posts))
	owner.Expect(other.metric("refused_requests_total", reasonReplicaFailed)).To(Equal(posts))
	owner.Expect(owner.post(ping, headerSession, id).Status).To(Equal(http.StatusOK))

	// With the same keys again, the session continues.
	owner.Expect(os.Remove(filepath.Join(keys, former.Add(time.Hour).UTC().Format(peers.KeyName)))).To(Succeed())
	owner.Eventually(func() int { return other.post(ping, headerSession, id).Status }, testTimeout).Should(Equal(http.StatusOK))
}

// Whoever learns the id of a session of another caller must not use it, whichever replica receives the request.
func TestForwardedRequestsAreThoseOfTheCaller(t *testing.T) {
	const headerCaller = "Test-Caller"
	keys := peerstest.Keys(t, time.Now().Add(-time.Hour))
	identified := func(o *Options) {
		o.Caller = func(r *http.Request) string { return r.Header.Get(headerCaller) }
	}
	owner := newReplica(t, tinyServer(), keys, "a", identified)
	other := newReplica(t, tinyServer(), keys, "a", identified)
	started := owner.post(initMessage, headerCaller, "ann")
	owner.Expect(started.Status).To(Equal(http.StatusOK), started.Body)
	id := started.Header.Get(headerSession)
	for caller, status := range map[string]int{"ann": http.StatusOK, "bob": http.StatusNotFound, "": http.StatusNotFound} {
		owner.Expect(other.post(ping, headerSession, id, headerCaller, caller).Status).To(Equal(status), caller)
	}
	stop, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "", nil)
	owner.Expect(err).NotTo(HaveOccurred())
	stop.Header = http.Header{headerSession: {id}, headerCaller: {"bob"}}
	stream := owner.open(http.MethodGet, "", headerSession, id, headerCaller, "ann")
	defer stream.Body.Close()
	isOpen := func() bool {
		s := owner.bridge.lookup(id)
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.standalone != nil
	}
	owner.Expect(other.bridge.endPeerStream(stop, owner.bridge.peers.Self())).To(MatchError("status 404"))
	owner.Expect(isOpen()).To(BeTrue())
	stop.Header = http.Header{headerSession: {"ended"}, headerCaller: {"ann"}}
	owner.Expect(other.bridge.endPeerStream(stop, owner.bridge.peers.Self())).To(MatchError("status 404"))
	stop.Header.Set(headerSession, id)
	owner.Expect(other.bridge.endPeerStream(stop, owner.bridge.peers.Self())).To(Succeed())
	owner.Expect(isOpen()).To(BeFalse())
	owner.Expect(other.bridge.endPeerStream(stop, netip.MustParseAddrPort("127.0.0.1:1"))).To(MatchError(ContainSubstring("127.0.0.1:1")), "nothing listens there")
}

// A peer must not be held by a body that never arrives. A stream has no body, and would end with the deadline.
func TestRequestsHaveADeadlineForTheirBody(t *testing.T) {
	w := newReplica(t, tinyServer(), peerstest.Keys(t, time.Now()), "a")
	for name, serve := range map[string]http.HandlerFunc{"of a client": w.bridge.serveMCP, "of another replica": w.bridge.servePeer} {
		for method, want := range map[string]int{http.MethodPost: 1, http.MethodPut: 1, http.MethodGet: 0} {
			body := strings.NewReader(strings.Repeat("x", want))
			r := httptest.NewRequestWithContext(t.Context(), method, w.url, body)
			setHeaders(r, headerSession, "ended")
			response := &timedWriter{ResponseRecorder: httptest.NewRecorder()}
			serve(response, r)
			w.Expect(response.reads).To(HaveLen(want), "%s %s", method, name)
		}
	}
}

func TestReplicasNeedAListenerForEachOther(t *testing.T) {
	w := newReplica(t, tinyServer(), peerstest.Keys(t, time.Now()), "a")
	w.Expect(w.bridge.Serve(t.Context(), t.Context(), Listeners{})).To(MatchError("serving: there is no listener for other replicas"))
	w.Expect(w.bridge.isClosed()).To(BeTrue())
}

func TestPeersRefuseOtherMethods(t *testing.T) {
	w := newReplica(t, tinyServer(), peerstest.Keys(t, time.Now()), "a")
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/", http.NoBody)
	r.Header.Set(headerSession, w.session())
	response := httptest.NewRecorder()
	w.bridge.servePeer(response, r)
	w.Expect(response.Code).To(Equal(http.StatusMethodNotAllowed))
	w.Expect(response.Body.String()).To(ContainSubstring("use GET, POST or DELETE"))
}

// The response of a slow tool must not hold the message of the call.
func TestForwardedMessagesAreDroppedAfterTheyWereSent(t *testing.T) {
	keys := peerstest.Keys(t, time.Now().Add(-time.Hour))
	var kept atomic.Pointer[weak.Pointer[byte]]
	owner := newReplica(t, server("deaf-to-discover"), keys, "a")
	other := newReplica(t, tinyServer(), keys, "a", func(o *Options) {
		o.Protect = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				record := callrecord.New(func(message []byte) { kept.Store(new(weak.Make(&message[0]))) })
				next.ServeHTTP(w, r.WithContext(callrecord.With(r.Context(), record)))
			})
		}
	})
	large := strings.Replace(ping, "ping", strings.Repeat("x", 100<<10), 1)
	leave, left := other.postBlocked(large, headerSession, owner.session())
	owner.Eventually(func() float64 { return owner.metric("messages_total", toServer) }).Should(Equal(2.0))
	dropped := func() bool { runtime.GC(); return kept.Load().Value() == nil }

	owner.Eventually(dropped).Should(BeTrue())
	owner.Eventually(other.bridge.places.Held, "20s").Should(BeZero(), "nor the place of the message")

	owner.Expect(left).NotTo(BeClosed())
	leave()
	owner.Eventually(left).Should(BeClosed())
}

// Otherwise one that does not read would keep its request, and a drain would wait for it.
func TestClientsOfForwardedRequestsHaveATimeToRead(t *testing.T) {
	w := newReplica(t, tinyServer(), peerstest.Keys(t, time.Now().Add(-time.Hour)), "a")
	r := requestWith(t, http.Header{headerSession: {w.session()}, "Content-Type": {jsonType}, "Accept": {"*/*"}})
	r.Body = io.NopCloser(strings.NewReader(ping))
	client := &timedWriter{ResponseRecorder: httptest.NewRecorder()}

	w.bridge.forward(client, r, w.bridge.peers.Self())

	w.Expect(client.Code).To(Equal(http.StatusOK), client.Body.String())
	w.Expect(client.deadlines).NotTo(BeEmpty())
	w.Expect(client.deadlines[0]).To(BeTemporally("~", time.Now().Add(w.bridge.opts.IOTimeout), testTimeout))
}

// The transport sends a message again if the connection was closed before anything of it was sent.
func TestForwardedMessagesCanBeSentAgain(t *testing.T) {
	w := newReplica(t, tinyServer(), peerstest.Keys(t, time.Now()), "a")
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", http.NoBody)
	for _, size := range []int{10, 2 * smallMessage} {
		message := make([]byte, size)
		out := w.bridge.forwarded(r, &incoming{message: message, release: func() {}}, w.bridge.peers.Self())
		w.Expect(out.ContentLength).To(BeEquivalentTo(size))
		// At most this may be in its buffer.
		_, err := io.Copy(io.Discard, io.LimitReader(out.Body, smallMessage))
		w.Expect(err).NotTo(HaveOccurred())

		again, err := out.GetBody()
		w.Expect(err).NotTo(HaveOccurred())
		w.Expect(io.ReadAll(again)).To(Equal(message))
	}
}

func TestClientsCannotChooseTheirAddress(t *testing.T) {
	w := newReplica(t, tinyServer(), peerstest.Keys(t, time.Now()), "a", func(o *Options) { o.MaxSessionsPerCaller = 1 })
	id := w.session()
	w.Expect(w.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, headerSession, id).Status).To(Equal(http.StatusAccepted))
	w.Expect(w.post(initMessage, peers.HeaderClient, "192.0.2.1").Status).To(Equal(http.StatusServiceUnavailable))
}

// 200 sessions live over 4 replicas, and each request goes to another one, while all replicas are replaced.
func TestRolloutWithoutAffinity(t *testing.T) {
	t.Parallel()
	const sessions, replicas = 200, 4
	keys := peerstest.Keys(t, time.Now().Add(-time.Hour))
	start := func() *served {
		return newReplica(t, tinyServer(), keys, "a", func(o *Options) {
			o.MaxSessions, o.MaxSessionsPerCaller = sessions, sessions
			o.DrainIdleTimeout, o.DrainTimeout = time.Hour, time.Hour
		})
	}
	var mu sync.Mutex
	var live []*served
	for range replicas {
		live = append(live, start())
	}
	old := append([]*served(nil), live...)
	g := live[0].WithT
	var turn atomic.Int64
	next := func() *served {
		mu.Lock()
		defer mu.Unlock()
		return live[int(turn.Add(1))%len(live)]
	}
	// With more requests at a time, most of the work would be TLS handshakes of connections that are not used again.
	atOnce := make(chan struct{}, 16)
	call := func(body string, headers ...string) (httpReply, error) {
		atOnce <- struct{}{}
		defer func() { <-atOnce }()
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		reply, err := next().tryPost(ctx, http.DefaultClient, body, headers...)
		if err == nil && reply.Status != http.StatusOK {
			err = fmt.Errorf("status %d: %s", reply.Status, reply.Body)
		}
		return reply, err
	}
	var failed, calls atomic.Int64
	var stop atomic.Bool
	var clients, opened sync.WaitGroup
	opened.Add(sessions)
	for range sessions {
		clients.Go(func() {
			started, err := call(initMessage)
			opened.Done()
			if err != nil {
				failed.Add(1)
				t.Errorf("initialize: %v", err)
				return
			}
			id := started.Header.Get(headerSession)
			for range 2 {
				for done := false; !done; {
					done = stop.Load()
					if _, err := call(ping, headerSession, id); err != nil {
						failed.Add(1)
						t.Errorf("call: %v", err)
						return
					}
					calls.Add(1)
				}
			}
			next().end(id)
		})
	}
	opened.Wait()
	for i := range replicas {
		fresh := start()
		mu.Lock()
		live[i] = fresh
		mu.Unlock()
		old[i].stop()
	}
	enough := calls.Load() + 2*sessions
	g.Eventually(calls.Load).Should(BeNumerically(">", enough))
	stop.Store(true)
	clients.Wait()
	for _, replica := range old {
		g.Eventually(replica.done).Should(Receive(BeNil()))
		g.Expect(replica.metric("sessions_ended_total")).To(Equal(replica.metric("sessions_ended_total", reasonDeleted)))
	}
	g.Expect(failed.Load()).To(BeZero())
	t.Logf("%d calls of %d sessions, %d failed", calls.Load(), sessions, failed.Load())
}

// The next request of a client can go to another replica.
func TestClientsOfAReplicaThatDrainsConnectAgain(t *testing.T) {
	keys := peerstest.Keys(t, time.Now().Add(-time.Hour))
	w := newReplica(t, tinyServer(), keys, "a")
	ids := map[string]string{"its own": w.session(), "that of another replica": newReplica(t, tinyServer(), keys, "a").session()}
	for _, draining := range []bool{false, true} {
		w.bridge.mu.Lock()
		w.bridge.draining = draining
		w.bridge.mu.Unlock()
		for session, id := range ids {
			resp := w.open(http.MethodPost, ping, headerSession, id)
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			w.Expect(resp.StatusCode).To(Equal(http.StatusOK), session)
			w.Expect(resp.Close).To(Equal(draining), session)
		}
	}
}
