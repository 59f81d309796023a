package controllers

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fixpoint-dev/fixpoint/internal/lease"
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

// connectionRecorder is a server that records the connection of each request.
type connectionRecorder struct {
	mu    sync.Mutex
	calls map[string]string
}

// ServeHTTP implements http.Handler.
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
		time.Sleep(unhealthyAfter) //nolint:forbidigo // synctest advances the clock
		g.Expect(healthy(nil)).To(MatchError("the Lease expired more than 30s ago, and the leader has neither renewed it nor exited"))
		guard.Close()
		g.Expect(healthy(nil)).To(Succeed(), "a manager that is shutting down")
	})
}

func TestManagerWithoutLeaderElectionIsHealthy(t *testing.T) {
	NewWithT(t).Expect(leaseNotOverdue(nil)(nil)).To(Succeed())
}
