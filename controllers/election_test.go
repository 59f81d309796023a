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

// granted is a lock that anybody gets.
type granted struct{ resourcelock.Interface }

func (granted) Identity() string { return "me" }

func (granted) Create(context.Context, resourcelock.LeaderElectionRecord) error { return nil }

func elect(t *testing.T, guard *lease.Guard) {
	t.Helper()
	if err := guard.Lock(granted{}).Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}); err != nil {
		t.Fatal(err)
	}
}

// listener is a server that notes by which connection it was asked.
type listener struct {
	mu    sync.Mutex
	calls map[string]string
}

// ServeHTTP implements http.Handler.
func (l *listener) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls[r.Method] = r.RemoteAddr
}

func (l *listener) connectionOf(method string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls[method]
}

func TestWritesAreGuardedByWhateverWayTheyGo(t *testing.T) {
	counted := 0
	for name, c := range map[string]struct {
		config func(*rest.Config)
		// together says that writes share the connections of reads.
		together bool
	}{
		"as client-go goes": {config: func(*rest.Config) {}},
		"by a dialer":       {config: func(c *rest.Config) { c.Dial = (&net.Dialer{}).DialContext }},
		"by a transport that was given": {together: true, config: func(c *rest.Config) {
			c.Transport = http.DefaultTransport
		}},
		"through what wraps it": {config: func(c *rest.Config) {
			c.WrapTransport = func(rt http.RoundTripper) http.RoundTripper { return counting{rt, &counted} }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			heard := &listener{calls: map[string]string{}}
			server := httptest.NewServer(heard)
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
			g.Expect(heard.connectionOf(http.MethodPatch)).To(BeEmpty())

			elect(t, guard)
			g.Expect(send(http.MethodPatch)).To(Succeed())
			g.Expect(heard.connectionOf(http.MethodPatch) == heard.connectionOf(http.MethodGet)).To(Equal(c.together))
		})
	}
	NewWithT(t).Expect(counted).To(Equal(2), "the wrapper stands for the wire: a read and a write came there, and what was refused did not")
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

func TestWithoutAnElectionThereIsNoGuard(t *testing.T) {
	for name, o := range map[string]Options{
		"alone":     {},
		"unguarded": {LeaderElection: true, LeaderElectionNamespace: "fixpoint", Unguarded: true},
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

func TestAnElectionNeedsANamespace(t *testing.T) {
	g := NewWithT(t)
	o, err := Options{LeaderElection: true}.complete()
	g.Expect(err).NotTo(HaveOccurred())
	_, err = o.newElection(&rest.Config{Host: "https://server.test"}, &ctrl.Options{})
	g.Expect(err).To(MatchError(And(HavePrefix("preparing the leader election: "), ContainSubstring("LeaderElectionNamespace"))))
}

func TestALeaderThatIsStuckIsUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		guard := lease.New(DefaultLeaseDuration, nil)
		healthy := notStuck(guard)
		g.Expect(healthy(nil)).To(Succeed(), "a standby")
		elect(t, guard)
		time.Sleep(DefaultLeaseDuration) //nolint:forbidigo // the clock of the bubble
		g.Expect(healthy(nil)).To(Succeed(), "a leader whose election is about to end")
		time.Sleep(stuckAfter) //nolint:forbidigo // the clock of the bubble
		g.Expect(healthy(nil)).To(MatchError("the leader has not renewed its Lease for 30s after it ran out, and goes on"))
		guard.Close()
		g.Expect(healthy(nil)).To(Succeed(), "one that is about to end")
	})
}

func TestWhoElectsNobodyIsHealthy(t *testing.T) {
	NewWithT(t).Expect(notStuck(nil)(nil)).To(Succeed())
}
