package peers

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/internal/peers/peerstest"
)

// replica is a program with a peer listener.
type replica struct{ *Peers }

func newReplica(t *testing.T, directory, server string, serve http.HandlerFunc) *replica {
	t.Helper()
	g := NewWithT(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	p, err := New(&Options{KeyDirectory: directory, Server: server, Address: netip.MustParseAddrPort(listener.Addr().String()), ConnectTimeout: time.Minute}, Program{})
	g.Expect(err).NotTo(HaveOccurred())
	listening := p.Server(p.FromClients(serve))
	go func() { _ = listening.Serve(p.Listen(listener)) }()
	t.Cleanup(func() {
		p.Close()
		_ = listening.Close()
	})
	return &replica{Peers: p}
}

func TestOnlyReplicasUseThePeerListener(t *testing.T) {
	g := NewWithT(t)
	keys := peerstest.Keys(t, time.Now().Add(-time.Hour))
	var served atomic.Int32
	w := newReplica(t, keys, "a", func(http.ResponseWriter, *http.Request) { served.Add(1) })
	_, key, err := ed25519.GenerateKey(rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	own, _, err := selfSigned(key)
	g.Expect(err).NotTo(HaveOccurred())
	foreign, err := newKeyring(keys, "b", logr.Discard())
	g.Expect(err).NotTo(HaveOccurred())
	for name, c := range map[string]*tls.Config{
		"no certificate":     {InsecureSkipVerify: true},
		"other key":          {InsecureSkipVerify: true, Certificates: []tls.Certificate{own}},
		"of another server":  {InsecureSkipVerify: true, Certificates: []tls.Certificate{foreign.sealing().certificate}},
		"older TLS":          {InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{w.keys.sealing().certificate}},
		"server not trusted": foreign.tlsConfig(),
	} {
		transport := &http.Transport{TLSClientConfig: c}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "https://"+w.Self().String(), nil)
		g.Expect(err).NotTo(HaveOccurred())
		req.Header = http.Header{HeaderClient: {"192.0.2.1"}}
		resp, err := transport.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		g.Expect(err).To(HaveOccurred(), name)
	}
	g.Expect(served.Load()).To(BeZero())
	req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "https://"+w.Self().String(), nil)
	g.Expect(err).NotTo(HaveOccurred())
	req.Header = http.Header{HeaderClient: {"192.0.2.1"}}
	resp, err := newReplica(t, keys, "a", nil).RoundTrip(req)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(resp.Body.Close()).To(Succeed())
	g.Expect(resp.StatusCode).To(Equal(http.StatusOK))
	g.Expect(served.Load()).To(BeEquivalentTo(1))
}

// The program waits for last requests on connections that clients keep for sessions of other replicas.
func TestForwardedRequestsAreUseUntilTheyHaveEnded(t *testing.T) {
	g := NewWithT(t)
	ended := 0
	p, err := New(&Options{KeyDirectory: peerstest.Keys(t, time.Now()), Server: "a", Address: netip.MustParseAddrPort("192.0.2.1:9292")},
		Program{Changed: func() { ended++ }})
	g.Expect(err).NotTo(HaveOccurred())
	defer p.Close()
	to := netip.MustParseAddrPort("192.0.2.2:9292")
	enter := func(method string) (leave func()) {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://localhost/mcp", nil)
		g.Expect(err).NotTo(HaveOccurred())
		return p.enter(r, to, func() {})
	}

	enter(http.MethodGet)()
	g.Expect(p.UsedWithin(time.Hour)).To(BeFalse(), "a client opens a stream again")
	g.Expect(ended).To(BeZero())

	one, other := enter(http.MethodPost), enter(http.MethodDelete)
	g.Expect(p.UsedWithin(0)).To(BeTrue())
	g.Expect(p.Quiet()).To(BeFalse())
	one()
	g.Expect(p.UsedWithin(0)).To(BeTrue(), "another one is pending")
	g.Expect(p.Quiet()).To(BeFalse())
	other()
	g.Expect(p.Quiet()).To(BeTrue())
	g.Expect(p.UsedWithin(time.Hour)).To(BeTrue())
	g.Expect(p.UsedWithin(0)).To(BeFalse())
	g.Expect(ended).To(Equal(2))

	var none *Peers
	g.Expect(none.UsedWithin(time.Hour)).To(BeFalse())
	g.Expect(none.Quiet()).To(BeTrue())
}

// Their servers complete them, and the program waits for that.
func TestForwardedCallsGoOnUntilTheProgramCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		p, err := New(&Options{KeyDirectory: peerstest.Keys(t, time.Now()), Server: "a", Address: netip.MustParseAddrPort("192.0.2.1:9292")}, Program{})
		g.Expect(err).NotTo(HaveOccurred())
		defer p.Close()
		cancelled := make(chan struct{})
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", http.NoBody)
		defer p.enter(r, netip.MustParseAddrPort("192.0.2.2:9292"), func() { close(cancelled) })()
		p.FinishStreams()
		synctest.Wait()
		g.Expect(cancelled).NotTo(BeClosed())
		p.Close()
		synctest.Wait()
		g.Expect(cancelled).To(BeClosed())
	})
}

// forwarding serves the requests of clients as a replica that has another one serve them. EndStream succeeds, and is
// reported.
func forwarding(t *testing.T, keys string, to netip.AddrPort) (p *Peers, url string, ended <-chan struct{}) {
	t.Helper()
	g := NewWithT(t)
	ends := make(chan struct{}, 10)
	p, err := New(&Options{KeyDirectory: keys, Server: "a", Address: netip.MustParseAddrPort("192.0.2.1:9292"), ConnectTimeout: time.Minute},
		Program{EndStream: func(*http.Request, netip.AddrPort) error {
			ends <- struct{}{}
			return nil
		}})
	g.Expect(err).NotTo(HaveOccurred())
	clients := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.Forward(w, r, p.Request(r, to), to, func() json.RawMessage { return nil })
	}))
	t.Cleanup(func() {
		p.Close()
		clients.CloseClientConnections()
		clients.Close()
	})
	return p, clients.URL, ends
}

// The other replica ends only the streams that it has, and the server cuts connections soon after that.
func TestStreamsEndAlsoIfTheOtherReplicaDoesNotEndThem(t *testing.T) {
	for name, end := range map[string]func(*Peers){"before the program closes": (*Peers).FinishStreams, "when it closes": (*Peers).Close} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			keys := peerstest.Keys(t, time.Now().Add(-time.Hour))
			arrived, respond := make(chan struct{}, 1), make(chan struct{})
			owner := newReplica(t, keys, "a", func(w http.ResponseWriter, r *http.Request) {
				arrived <- struct{}{}
				<-respond
				w.Header().Set("Content-Type", "text/event-stream")
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			})
			p, url, ended := forwarding(t, keys, owner.Self())
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
			g.Expect(err).NotTo(HaveOccurred())
			failed := make(chan error, 1)
			go func() {
				response, err := http.DefaultClient.Do(request)
				if err == nil {
					_, err = io.Copy(io.Discard, response.Body)
					_ = response.Body.Close()
				}
				failed <- err
			}()
			g.Eventually(arrived, time.Minute).Should(Receive())

			end(p)
			g.Eventually(ended, time.Minute).Should(Receive())
			close(respond)

			g.Eventually(failed, 2*time.Minute).Should(Receive(BeNil()), "the response is complete")
		})
	}
}

// The client must not take half of an event stream for the whole.
func TestForwardedResponseThatBreaksOffIsNotComplete(t *testing.T) {
	g := NewWithT(t)
	keys := peerstest.Keys(t, time.Now().Add(-time.Hour))
	owner := newReplica(t, keys, "a", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	_, url, _ := forwarding(t, keys, owner.Self())
	response, err := http.Post(url, "application/json", http.NoBody)
	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	g.Expect(string(body)).To(Equal("data: half"))
	g.Expect(err).To(MatchError(io.ErrUnexpectedEOF))
}

// A client on a kept connection should open the stream at another replica.
func TestReplicaThatDrainsForwardsNoMoreStreams(t *testing.T) {
	g := NewWithT(t)
	keys := peerstest.Keys(t, time.Now().Add(-time.Hour))
	var served atomic.Int32
	owner := newReplica(t, keys, "a", func(http.ResponseWriter, *http.Request) { served.Add(1) })
	p, url, _ := forwarding(t, keys, owner.Self())
	p.FinishStreams()

	response, err := http.Get(url)

	g.Expect(err).NotTo(HaveOccurred())
	body, err := io.ReadAll(response.Body)
	g.Expect(errors.Join(err, response.Body.Close())).To(Succeed())
	g.Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable))
	g.Expect(response.Close).To(BeTrue())
	g.Expect(string(body)).To(ContainSubstring(ReasonDraining))
	g.Expect(served.Load()).To(BeZero())
	posted, err := http.Post(url, "application/json", strings.NewReader("{}"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(posted.Body.Close()).To(Succeed())
	g.Expect(posted.StatusCode).To(Equal(http.StatusOK), "other requests are forwarded")
	g.Expect(served.Load()).To(BeEquivalentTo(1))
}

// Otherwise the other replica would close a connection at the moment of a request, which fails then.
func TestConnectionsAreClosedBeforeTheOtherReplicaClosesThem(t *testing.T) {
	g := NewWithT(t)
	p, err := New(&Options{KeyDirectory: peerstest.Keys(t, time.Now()), Server: "a", Address: netip.MustParseAddrPort("192.0.2.1:9292")}, Program{})
	g.Expect(err).NotTo(HaveOccurred())
	defer p.Close()
	g.Expect(p.transport.IdleConnTimeout).To(BeNumerically(">", 0))
	g.Expect(p.transport.IdleConnTimeout).To(BeNumerically("<", p.Server(nil).IdleTimeout))
}

func TestForwardedRequestsHaveTheURLOfTheClient(t *testing.T) {
	const path = "/a%2Fb/mcp?x=1&y=%2F"
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, http.NoBody)
	out := (&Peers{}).Request(r, netip.MustParseAddrPort("192.0.2.1:9292"))
	NewWithT(t).Expect(out.URL.String()).To(Equal("https://192.0.2.1:9292" + path))
}

// A replica whose node is gone does not respond at all.
func TestConnectionsThatAreNotEstablishedTimeOut(t *testing.T) {
	g := NewWithT(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer silent.Close()
	address := netip.MustParseAddrPort(silent.Addr().String())
	p, err := New(&Options{KeyDirectory: peerstest.Keys(t, time.Now()), Server: "a", Address: address, ConnectTimeout: 10 * time.Millisecond}, Program{})
	g.Expect(err).NotTo(HaveOccurred())
	defer p.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "https://"+address.String(), nil)
	g.Expect(err).NotTo(HaveOccurred())
	began := time.Now()
	_, err = p.RoundTrip(req)
	g.Expect(err).To(MatchError(context.DeadlineExceeded))
	g.Expect(time.Since(began)).To(BeNumerically("<", userTimeout))
}

// The next request over the same connection would reach the same replica.
func TestReplicaThatDrainsClosesTheConnection(t *testing.T) {
	g, response := NewWithT(t), httptest.NewRecorder()
	Draining().Write(response, nil)
	g.Expect(response.Code).To(Equal(http.StatusServiceUnavailable))
	g.Expect(response.Header()).To(And(HaveKeyWithValue("Connection", []string{"close"}), HaveKeyWithValue("Retry-After", []string{"1"})))
}

func TestSealedIDs(t *testing.T) {
	keys := peerstest.Keys(t, time.Now().Add(-time.Hour))
	ring := func(directory, server string) *keyring {
		k, err := newKeyring(directory, server, logr.Discard())
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		return k
	}
	own, other := ring(keys, "a"), ring(keys, "b")
	foreign := ring(peerstest.Keys(t, time.Now().Add(-2*time.Hour)), "a")
	at := netip.MustParseAddrPort("192.0.2.1:9292")
	seal := func(k *keyring, local string) string {
		id, err := k.sealID(at, local)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		return id
	}
	long := strings.Repeat("l", MaxLocalID)
	valid := seal(own, "local")
	changed := []byte(valid)
	changed[len(changed)/2] ^= 1
	for name, c := range map[string]struct {
		id string
		// local is what opens; isRefused is true if nothing does.
		local     string
		isRefused bool
	}{
		"short":             {valid, "local", false},
		"empty":             {seal(own, ""), "", false},
		"any bytes":         {seal(own, "a\x00b\xff"), "a\x00b\xff", false},
		"longest":           {seal(own, long), long, false},
		"changed":           {string(changed), "", true},
		"truncated":         {valid[:len(valid)-4], "", true},
		"ends in its nonce": {valid[:idEncoding.EncodedLen(2+len(KeyName)+5)], "", true},
		"extended":          {valid + "AAAA", "", true},
		"end of a line":     {valid[:8] + "\n" + valid[8:], "", true},
		"oversized":         {strings.Repeat("A", maxSealedID+1), "", true},
		"of another server": {seal(other, "local"), "", true},
		"of another key":    {seal(foreign, "local"), "", true},
		"not sealed":        {"local", "", true},
		"none":              {"", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			replica, local, err := own.openID(c.id)
			if c.isRefused {
				g.Expect(err).To(MatchError(errNotSealed))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(replica).To(Equal(at))
			g.Expect(local).To(Equal(c.local))
		})
	}
	g := NewWithT(t)
	g.Expect(len(seal(own, long))).To(BeNumerically("<=", maxSealedID))
	_, err := own.sealID(at, long+"l")
	g.Expect(err).To(MatchError("the id has 1201 bytes, and the limit is 1200"))
	g.Expect(seal(own, "local")).NotTo(Equal(valid), "an id does not tell whether two sessions have the same local id")
}

func TestOptions(t *testing.T) {
	valid := Options{KeyDirectory: "/keys", Server: "a", Address: netip.MustParseAddrPort("192.0.2.1:9292")}
	for name, c := range map[string]struct {
		change func(*Options)
		says   string
	}{
		"valid":              {func(*Options) {}, ""},
		"no keys":            {func(o *Options) { o.KeyDirectory = "" }, "set -session-keys"},
		"no server":          {func(o *Options) { o.Server = "" }, "set -server-id"},
		"no address":         {func(o *Options) { o.Address = netip.AddrPort{} }, "set -peer-ip"},
		"address of no host": {func(o *Options) { o.Address = netip.MustParseAddrPort("0.0.0.0:9292") }, "set -peer-ip"},
		"no port":            {func(o *Options) { o.Address = netip.MustParseAddrPort("192.0.2.1:0") }, "set -peer-ip"},
		"time of the past":   {func(o *Options) { o.ConnectTimeout = -1 }, "must not be negative"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			o := valid
			c.change(&o)
			err := o.Complete()
			if c.says == "" {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(o.ConnectTimeout).To(Equal(defaultConnectTimeout))
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(c.says)))
		})
	}
}

// A key seals only once all replicas have read it, so it does not matter which of them reads it first.
func TestKeyRotation(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	former := now.Add(-time.Hour)
	for name, newFirst := range map[string]bool{"the replica of the session reads the key first": true, "the other replica reads the key first": false} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var clock atomic.Int64
			clock.Store(now.UnixNano())
			ring := func(directory string) *keyring {
				k, err := newKeyring(directory, "a", logr.Discard())
				g.Expect(err).NotTo(HaveOccurred())
				k.now = func() time.Time { return time.Unix(0, clock.Load()) }
				return k
			}
			directories := []string{peerstest.Keys(t, former), peerstest.Keys(t, former)}
			own, other := ring(directories[0]), ring(directories[1])
			opens := func() {
				t.Helper()
				at := netip.MustParseAddrPort("[2001:db8::1]:9292")
				id, err := own.sealID(at, "local")
				g.Expect(err).NotTo(HaveOccurred())
				replica, local, err := other.openID(id)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(replica).To(Equal(at))
				g.Expect(local).To(Equal("local"))
				g.Expect(other.trusts(own.sealing().public)).To(BeTrue())
			}
			if !newFirst {
				directories[0], directories[1] = directories[1], directories[0]
			}
			peerstest.AddKey(t, directories[0], now)
			clock.Add(int64(keysMaxAge))
			opens()
			peerstest.AddKey(t, directories[1], now)
			clock.Add(int64(keysMaxAge))
			opens()
			old, err := own.sealID(netip.MustParseAddrPort("192.0.2.1:9292"), "local")
			g.Expect(err).NotTo(HaveOccurred())
			clock.Add(int64(9 * time.Minute))
			g.Expect(own.sealing().created).To(BeTemporally("==", former), "until the kubelets have updated all replicas")
			clock.Add(int64(time.Minute))
			opens()
			g.Expect(own.sealing().created).To(BeTemporally("==", now))
			for _, directory := range directories {
				g.Expect(os.Remove(filepath.Join(directory, former.UTC().Format(KeyName)))).To(Succeed())
			}
			clock.Add(int64(keysMaxAge))
			opens()
			_, _, err = other.openID(old)
			g.Expect(err).To(MatchError(errNotSealed))
		})
	}
}

func TestKeysAreReadAgainAfterTheClockWasSetBack(t *testing.T) {
	g := NewWithT(t)
	directory := peerstest.Keys(t, time.Now().Add(-time.Hour))
	k, err := newKeyring(directory, "a", logr.Discard())
	g.Expect(err).NotTo(HaveOccurred())
	peerstest.AddKey(t, directory, time.Now())
	g.Expect(k.accepted()).To(HaveLen(1), "they are not read for each request")
	now := time.Now().Add(-30 * time.Minute)
	k.now = func() time.Time { return now }
	g.Expect(k.accepted()).To(HaveLen(2))
}

// Sessions of clients depend on the keys.
func TestKeysRemainWhileTheDirectoryHasNone(t *testing.T) {
	g := NewWithT(t)
	created := time.Now().Add(-time.Hour)
	directory := peerstest.Keys(t, created)
	k, err := newKeyring(directory, "a", logr.Discard())
	g.Expect(err).NotTo(HaveOccurred())
	k.now = func() time.Time { return k.read.Add(keysMaxAge) } // they are read each time
	g.Expect(os.Remove(filepath.Join(directory, created.UTC().Format(KeyName)))).To(Succeed())
	g.Expect(k.accepted()).To(HaveLen(1))
	g.Expect(os.Remove(directory)).To(Succeed())
	g.Expect(k.accepted()).To(HaveLen(1), "nor can it be read")
}

func TestFilesThatAreNotKeysAreIgnored(t *testing.T) {
	g := NewWithT(t)
	directory := peerstest.Keys(t, time.Now())
	for name, content := range map[string]string{"key": strings.Repeat("k", 32), "20260101T000000Z": "short", "..data": "x"} {
		g.Expect(os.WriteFile(filepath.Join(directory, name), []byte(content), 0o600)).To(Succeed())
	}
	k, err := newKeyring(directory, "a", logr.Discard())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(k.accepted()).To(HaveLen(1))
	_, err = newKeyring(t.TempDir(), "a", logr.Discard())
	g.Expect(err).To(MatchError(ContainSubstring("has none")))
}

// FuzzOpenID checks that no id that was not sealed opens, whatever a client sends.
func FuzzOpenID(f *testing.F) {
	directory := f.TempDir()
	name := time.Now().UTC().Format(KeyName)
	if err := os.WriteFile(filepath.Join(directory, name), []byte(strings.Repeat("k", KeyBytes)), 0o600); err != nil {
		f.Fatal(err)
	}
	k, err := newKeyring(directory, "a", logr.Discard())
	if err != nil {
		f.Fatal(err)
	}
	sealed := netip.MustParseAddrPort("192.0.2.1:9292")
	valid, err := k.sealID(sealed, "local")
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{valid, valid[:20], valid + "A", valid[:8] + "\n" + valid[8:], "", "AQ", "AQA", "Af8", "====", "no id"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, id string) {
		replica, _, err := k.openID(id)
		if err != nil {
			return
		}
		// Other processes of the fuzzer may have the same key, and seal ids of their own.
		raw, _ := idEncoding.DecodeString(id)
		if replica != sealed || idEncoding.EncodeToString(raw) != id {
			t.Fatalf("%q opens, for %s", id, replica)
		}
	})
}

// The server does not know what a client means by the header, for which net/http sends a request again that may have been
// executed.
func TestRequestsThatMayHaveBeenExecutedAreNotSentAgain(t *testing.T) {
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			keys := peerstest.Keys(t, time.Now().Add(-time.Hour))
			var executed atomic.Int32
			var sent atomic.Value
			owner := newReplica(t, keys, "a", func(_ http.ResponseWriter, r *http.Request) {
				sent.Store(r.Header.Get(name))
				if executed.Add(1) > 1 {
					panic(http.ErrAbortHandler) // the replica fails after the first request on the connection
				}
			})
			other := newReplica(t, keys, "a", nil)
			call := func() int {
				const message = `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", strings.NewReader(message))
				r.Header.Set(name, "once")
				out := other.Request(r, owner.Self())
				out.Body, out.ContentLength = r.Body, r.ContentLength
				out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(message)), nil }
				w := httptest.NewRecorder()
				other.Forward(w, r, out, owner.Self(), func() json.RawMessage { return nil })
				return w.Code
			}

			g.Expect(call()).To(Equal(http.StatusOK))
			g.Expect(call()).To(Equal(http.StatusBadGateway))
			g.Expect(executed.Load()).To(BeEquivalentTo(2))
			g.Expect(sent.Load()).To(Equal("once"))
		})
	}
}
