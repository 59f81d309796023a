package controllers

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
)

func TestTheZeroValueOfOptionsWorks(t *testing.T) {
	g := NewWithT(t)

	o, err := Options{}.complete()

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(o.Controllers).To(Equal(Names()))
	g.Expect(o.Concurrency).To(Equal(10))
	g.Expect(o.QPS).To(BeEquivalentTo(-1), "client-go takes this as no limit, and 0 as its default of 5")
	g.Expect(o.Metrics.BindAddress).To(Equal("0"))
}

func TestWhatIsGivenIsKept(t *testing.T) {
	g := NewWithT(t)
	given := Options{Concurrency: 3, QPS: 20, Burst: 40, Controllers: []string{"appservice"}}
	given.Metrics.BindAddress = ":8443"

	o, err := given.complete()

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(o.Controllers).To(Equal(given.Controllers))
	g.Expect(o.Concurrency).To(Equal(3))
	g.Expect(o.QPS).To(BeEquivalentTo(20))
	g.Expect(o.Burst).To(Equal(40))
	g.Expect(o.Metrics.BindAddress).To(Equal(":8443"))
}

func TestWrongOptionsSayWhatWouldBeRight(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		want    string
	}{
		"no such controller":       {Options{Controllers: []string{"appservice", "webapp"}}, `there is no controller "webapp": choose from ` + strings.Join(Names(), ", ")},
		"a lease of half a second": {Options{LeaseDuration: 2500 * time.Millisecond}, "the lease duration is 2.5s: it must be whole seconds, since a Lease cannot say anything else"},
		"negative concurrency":     {Options{Concurrency: -1}, "the concurrency is -1: it must be at least 1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewManager(t.Context(), &rest.Config{}, c.options)
			NewWithT(t).Expect(err).To(MatchError(c.want))
		})
	}
}

func TestManagerOptions(t *testing.T) {
	managerOptions := func(g *WithT, o Options) ctrl.Options {
		o, err := o.complete()
		g.Expect(err).NotTo(HaveOccurred())
		return o.managerOptions()
	}

	t.Run("all namespaces by default", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(managerOptions(g, Options{}).Cache.DefaultNamespaces).To(BeEmpty())
	})
	t.Run("those namespaces that are named", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(managerOptions(g, Options{Namespaces: []string{"a", "b"}}).Cache.DefaultNamespaces).To(And(HaveLen(2), HaveKey("a"), HaveKey("b")))
	})
	t.Run("durations", func(t *testing.T) {
		g := NewWithT(t)
		options := managerOptions(g, Options{LeaseDuration: 30 * time.Second})
		g.Expect(*options.LeaseDuration).To(Equal(30 * time.Second))
		g.Expect(*options.RenewDeadline).To(Equal(DefaultRenewDeadline))
		g.Expect(*options.RetryPeriod).To(Equal(DefaultRetryPeriod))
		g.Expect(options.Cache.SyncPeriod).To(BeNil())
	})
	t.Run("a manager that is stopped waits for its passes, but not for ever", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(*managerOptions(g, Options{}).GracefulShutdownTimeout).To(Equal(drainTimeout))
	})
	t.Run("a leader that ends gives the Lease up, and standbys have full caches", func(t *testing.T) {
		g := NewWithT(t)
		options := managerOptions(g, Options{LeaderElection: true})
		g.Expect(options.LeaderElectionReleaseOnCancel).To(BeTrue())
		g.Expect(options.LeaderElectionID).To(Equal(LeaderElectionID))
		g.Expect(*options.Controller.EnableWarmup).To(BeTrue())
	})
	t.Run("a pass sees what the one before it wrote", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(*managerOptions(g, Options{}).Client.Cache.EnableReadYourWritesConsistency).To(BeTrue())
	})
}

func TestTheSchemeKnowsOurKinds(t *testing.T) {
	NewWithT(t).Expect(NewScheme().Recognizes(v1alpha1.SchemeGroupVersion.WithKind("AppService"))).To(BeTrue())
}
