package controllers

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fixpoint-dev/fixpoint/internal/lease"
	"github.com/fixpoint-dev/fixpoint/internal/releases"
)

// freeLock is a lock that is always acquired.
type freeLock struct{ resourcelock.Interface }

func (freeLock) Identity() string { return "me" }

func (freeLock) Create(context.Context, resourcelock.LeaderElectionRecord) error { return nil }

func elect(t *testing.T, guard *lease.Guard) {
	t.Helper()
	if err := guard.Lock(freeLock{}).Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}); err != nil {
		t.Fatal(err)
	}
}

// takenLock is a lock that this replica acquires, and another one then holds.
type takenLock struct {
	freeLock
	holder string
}

func (l *takenLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &resourcelock.LeaderElectionRecord{HolderIdentity: l.holder}, []byte(l.holder), nil
}

func (*takenLock) Describe() string { return "a lock" }

// connectionRecorder is a server that records the connection of each request.
type connectionRecorder struct {
	mu    sync.Mutex
	calls map[string]string
}

func (r *connectionRecorder) ServeHTTP(_ http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[request.Method] = request.RemoteAddr
}

func (r *connectionRecorder) connectionOf(method string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[method]
}

func TestGuardsWritesOnEveryTransport(t *testing.T) {
	counted := 0
	for name, c := range map[string]struct {
		config func(*rest.Config)
		// shared says that writes share the connections of reads.
		shared bool
	}{
		"default transport": {config: func(*rest.Config) {}},
		"custom dialer":     {config: func(c *rest.Config) { c.Dial = (&net.Dialer{}).DialContext }},
		"custom transport": {shared: true, config: func(c *rest.Config) {
			c.Transport = http.DefaultTransport
		}},
		"wrapped transport": {config: func(c *rest.Config) {
			c.WrapTransport = func(rt http.RoundTripper) http.RoundTripper { return counting{rt, &counted} }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			recorder := &connectionRecorder{calls: map[string]string{}}
			server := httptest.NewServer(recorder)
			t.Cleanup(server.Close)
			cfg := &rest.Config{Host: server.URL}
			c.config(cfg)
			guard := lease.New(time.Hour, nil)
			g.Expect(guardWrites(cfg, guard)).To(Succeed())
			client, err := rest.HTTPClientFor(cfg)
			g.Expect(err).NotTo(HaveOccurred())
			send := func(method string) error {
				request, err := http.NewRequestWithContext(t.Context(), method, server.URL, strings.NewReader(""))
				g.Expect(err).NotTo(HaveOccurred())
				response, err := client.Do(request)
				if err == nil {
					err = response.Body.Close()
				}
				return err
			}

			g.Expect(send(http.MethodGet)).To(Succeed())
			_, refused := lease.Refused(send(http.MethodPatch))
			g.Expect(refused).To(BeTrue())
			g.Expect(recorder.connectionOf(http.MethodPatch)).To(BeEmpty())

			elect(t, guard)
			g.Expect(send(http.MethodPatch)).To(Succeed())
			g.Expect(recorder.connectionOf(http.MethodPatch) == recorder.connectionOf(http.MethodGet)).To(Equal(c.shared))
		})
	}
	NewWithT(t).Expect(counted).To(Equal(2), "the wrapper sees the read and the write that were sent, and not the write that was refused")
}

type counting struct {
	http.RoundTripper
	count *int
}

// RoundTrip implements http.RoundTripper.
func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	*c.count++
	return c.RoundTripper.RoundTrip(r)
}

func TestNoGuardWithoutLeaderElection(t *testing.T) {
	for name, o := range map[string]Options{
		"no leader election": {},
		"unguarded":          {LeaderElection: true, LeaderElectionNamespace: "fixpoint", Unguarded: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cfg, options := &rest.Config{Host: "https://server.test"}, ctrl.Options{}
			e, err := o.newElection(cfg, &options)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(e.guard).To(BeNil())
			g.Expect(cfg.WrapTransport).To(BeNil())
			g.Expect(options.LeaderElectionResourceLockInterface).To(BeNil())
		})
	}
}

func TestLeaderElectionRequiresANamespace(t *testing.T) {
	g := NewWithT(t)
	o, err := Options{LeaderElection: true}.complete()
	g.Expect(err).NotTo(HaveOccurred())
	_, err = o.newElection(&rest.Config{Host: "https://server.test"}, &ctrl.Options{})
	g.Expect(err).To(MatchError(And(HavePrefix("preparing leader election: "), ContainSubstring("LeaderElectionNamespace"))))
}

func TestLeaderWithAnExpiredLeaseIsUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		guard := lease.New(DefaultLeaseDuration, nil)
		healthy := leaseNotOverdue(guard)
		g.Expect(healthy(nil)).To(Succeed(), "a standby")
		elect(t, guard)
		time.Sleep(DefaultLeaseDuration) //nolint:forbidigo // synctest advances the clock
		g.Expect(healthy(nil)).To(Succeed(), "a leader whose Lease has just expired")
		time.Sleep(unhealthyAfter - guard.Overdue()) //nolint:forbidigo // synctest advances the clock
		g.Expect(healthy(nil)).To(Succeed(), "a leader whose time to exit is up now")
		time.Sleep(time.Nanosecond) //nolint:forbidigo // synctest advances the clock
		g.Expect(healthy(nil)).To(MatchError("the Lease expired more than 30s ago, and the leader has neither renewed it nor exited"))
		guard.Close()
		g.Expect(healthy(nil)).To(Succeed(), "a manager that is shutting down")
	})
}

func TestManagerWithoutLeaderElectionIsHealthy(t *testing.T) {
	NewWithT(t).Expect(leaseNotOverdue(nil)(nil)).To(Succeed())
}

// client-go shares connections among configs with the same dialer, and a renewal of the Lease must not wait for others.
func TestTheLeaseHasAConnectionOfItsOwn(t *testing.T) {
	dialed := 0
	for name, dial := range map[string]func(context.Context, string, string) (net.Conn, error){
		"default dialer": nil,
		"custom dialer": func(ctx context.Context, network, address string) (net.Conn, error) {
			dialed++
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			recorder := &connectionRecorder{calls: map[string]string{}}
			server := httptest.NewServer(recorder)
			t.Cleanup(server.Close)
			cfg := &rest.Config{Host: server.URL, Dial: dial}
			client, err := rest.HTTPClientFor(cfg)
			g.Expect(err).NotTo(HaveOccurred())
			response, err := client.Head(server.URL)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(response.Body.Close()).To(Succeed())

			o, err := Options{LeaderElection: true, LeaderElectionNamespace: "fixpoint"}.complete()
			g.Expect(err).NotTo(HaveOccurred())
			lock, err := o.newLock(cfg, &lazyRecorders{})
			g.Expect(err).NotTo(HaveOccurred())
			_, _, _ = lock.Get(t.Context()) // the server responds with nothing

			g.Expect(recorder.connectionOf(http.MethodGet)).NotTo(BeEmpty())
			g.Expect(recorder.connectionOf(http.MethodGet)).NotTo(Equal(recorder.connectionOf(http.MethodHead)))
		})
	}
	NewWithT(t).Expect(dialed).To(Equal(2))
}

// A config may have either a transport or a dialer.
func TestTheLeaseUsesACustomTransport(t *testing.T) {
	g := NewWithT(t)
	counted := 0
	server := httptest.NewServer(&connectionRecorder{calls: map[string]string{}})
	t.Cleanup(server.Close)
	o, err := Options{LeaderElection: true, LeaderElectionNamespace: "fixpoint"}.complete()
	g.Expect(err).NotTo(HaveOccurred())
	lock, err := o.newLock(&rest.Config{Host: server.URL, Transport: counting{http.DefaultTransport, &counted}}, &lazyRecorders{})
	g.Expect(err).NotTo(HaveOccurred())
	_, _, _ = lock.Get(t.Context()) // the server responds with nothing
	g.Expect(counted).To(Equal(1))
}

// A request for the Lease ends early enough for another attempt before the deadline.
func TestRequestsForTheLeaseEndWithinHalfTheRenewDeadline(t *testing.T) {
	g := NewWithT(t)
	var timeout string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { timeout = r.URL.Query().Get("timeout") }))
	t.Cleanup(server.Close)
	o, err := Options{LeaderElection: true, LeaderElectionNamespace: "fixpoint", RenewDeadline: 8 * time.Second}.complete()
	g.Expect(err).NotTo(HaveOccurred())
	lock, err := o.newLock(&rest.Config{Host: server.URL}, &lazyRecorders{})
	g.Expect(err).NotTo(HaveOccurred())
	_, _, _ = lock.Get(t.Context()) // the server responds with nothing
	g.Expect(timeout).To(Equal("4s"))
}

// Writes have the TLS options, the proxy and the compression of the config.
func TestWritesConnectAsTheConfigSays(t *testing.T) {
	g := NewWithT(t)
	var encodings []string
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		encodings = append(encodings, r.Method+" "+r.Host+" "+r.Header.Get("Accept-Encoding"))
	})
	secure, plain := httptest.NewTLSServer(handler), httptest.NewServer(handler)
	t.Cleanup(secure.Close)
	t.Cleanup(plain.Close)
	guard := lease.New(time.Hour, nil)
	elect(t, guard)
	send := func(cfg *rest.Config, url string) error {
		g.Expect(guardWrites(cfg, guard)).To(Succeed())
		client, err := rest.HTTPClientFor(cfg)
		g.Expect(err).NotTo(HaveOccurred())
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, url, http.NoBody)
		g.Expect(err).NotTo(HaveOccurred())
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		return response.Body.Close()
	}
	trusted := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	g.Expect(send(&rest.Config{Host: secure.URL, DisableCompression: true}, secure.URL)).To(MatchError(ContainSubstring("certificate")))
	g.Expect(send(&rest.Config{Host: secure.URL, DisableCompression: true, TLSClientConfig: rest.TLSClientConfig{CAData: trusted}}, secure.URL)).To(Succeed())
	g.Expect(encodings).To(HaveExactElements(HaveSuffix(" ")), "compression is disabled")
	encodings = nil
	proxy, err := url.Parse(plain.URL)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(send(&rest.Config{Host: "http://server.test", Proxy: http.ProxyURL(proxy)}, "http://server.test")).To(Succeed())
	g.Expect(encodings).To(Equal([]string{"PATCH server.test gzip"}))
	g.Expect(guardWrites(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: "/nowhere"}}, guard)).To(MatchError(HavePrefix("preparing the transport for writes: ")))
	g.Expect(guardWrites(&rest.Config{ExecProvider: &clientcmdapi.ExecConfig{}, AuthProvider: &clientcmdapi.AuthProviderConfig{}}, guard)).
		To(MatchError(HavePrefix("preparing the transport for writes: ")))
	o := Options{LeaderElection: true, LeaderElectionNamespace: "fixpoint", RenewDeadline: time.Second}
	_, err = o.newElection(&rest.Config{Host: "http://server.test", Dial: (&net.Dialer{}).DialContext, TLSClientConfig: rest.TLSClientConfig{CAFile: "/nowhere"}}, &ctrl.Options{})
	g.Expect(err).To(HaveOccurred())

	// The file of the certificate authority is gone after the lock has read it.
	authority, wrapped, last := filepath.Join(t.TempDir(), "ca"), 0, 0
	g.Expect(os.WriteFile(authority, trusted, 0o600)).To(Succeed())
	cfg := &rest.Config{Host: secure.URL, TLSClientConfig: rest.TLSClientConfig{CAFile: authority}, WrapTransport: func(rt http.RoundTripper) http.RoundTripper {
		if wrapped++; wrapped == last {
			g.Expect(os.Remove(authority)).To(Succeed())
		}
		return rt
	}}
	_, err = o.newLock(cfg, &lazyRecorders{})
	g.Expect(err).NotTo(HaveOccurred())
	last = 2 * wrapped
	_, err = o.newElection(cfg, &ctrl.Options{})
	g.Expect(err).To(MatchError(HavePrefix("preparing the transport for writes: ")))
}

// A credential plugin ends the connections with the certificate that it replaces, also those of writes.
func TestWritesUseTheCertificateThatACredentialPluginRenews(t *testing.T) {
	g := NewWithT(t)
	var presented [][]byte
	var connections []string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		presented, connections = append(presented, r.TLS.PeerCertificates[0].Raw), append(connections, r.RemoteAddr)
		if len(presented) == 2 {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	dir := t.TempDir()
	credential := filepath.Join(dir, "credential")
	renew := func() {
		certificateIn(t, dir)
		certificate, err := os.ReadFile(filepath.Join(dir, "tls.crt"))
		g.Expect(err).NotTo(HaveOccurred())
		key, err := os.ReadFile(filepath.Join(dir, "tls.key"))
		g.Expect(err).NotTo(HaveOccurred())
		text, err := json.Marshal(clientauthenticationv1.ExecCredential{
			TypeMeta: metav1.TypeMeta{APIVersion: clientauthenticationv1.SchemeGroupVersion.String(), Kind: "ExecCredential"},
			Status:   &clientauthenticationv1.ExecCredentialStatus{ClientCertificateData: string(certificate), ClientKeyData: string(key)},
		})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(os.WriteFile(credential, text, 0o600)).To(Succeed())
	}
	renew()
	guard := lease.New(time.Hour, nil)
	elect(t, guard)
	cfg := &rest.Config{
		Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		ExecProvider: &clientcmdapi.ExecConfig{
			APIVersion: clientauthenticationv1.SchemeGroupVersion.String(), Command: "cat", Args: []string{credential}, InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		},
	}
	g.Expect(guardWrites(cfg, guard)).To(Succeed())
	client, err := rest.HTTPClientFor(cfg)
	g.Expect(err).NotTo(HaveOccurred())
	for i := range 3 {
		if i == 1 {
			renew() // the server refuses the former certificate next
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, server.URL, http.NoBody)
		g.Expect(err).NotTo(HaveOccurred())
		response, err := client.Do(request)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(response.Body.Close()).To(Succeed())
	}
	g.Expect(connections).To(HaveLen(3))
	g.Expect(connections[1]).To(Equal(connections[0]))
	g.Expect(connections[2]).NotTo(Equal(connections[0]))
	g.Expect(presented[2]).NotTo(Equal(presented[0]))
}

func TestAReleaseIsKnownByTheNamespaceOfItsLease(t *testing.T) {
	g := NewWithT(t)
	o, err := Options{LeaderElection: true, LeaderElectionNamespace: "fixpoint", LeaseDuration: 20 * time.Second}.complete()
	g.Expect(err).NotTo(HaveOccurred())
	cfg, options := &rest.Config{Host: "https://server.test"}, ctrl.Options{}
	e, err := o.newElection(cfg, &options)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(releaseOf(e.lock)).To(Equal("fixpoint"))
	g.Expect(cfg.WrapTransport).NotTo(BeNil(), "writes are guarded")
	g.Expect(o.claimsNamespace()).To(Equal(releases.LeaseNamespace))
	o.ClaimsNamespace = "claims"
	g.Expect(o.claimsNamespace()).To(Equal("claims"))
}
