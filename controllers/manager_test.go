package controllers

import (
	"context"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
)

func TestDefaultOptions(t *testing.T) {
	g := NewWithT(t)

	o, err := Options{}.complete()

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(o.Controllers).To(Equal(Names()))
	g.Expect(o.Concurrency).To(Equal(10))
	g.Expect(o.QPS).To(BeEquivalentTo(-1), "client-go reads -1 as no limit, and 0 as its default of 5")
	g.Expect(o.Metrics.BindAddress).To(Equal("0"))
	g.Expect(o.RetryMinDelay).To(Equal(200 * time.Millisecond))
	g.Expect(o.RetryMaxDelay).To(Equal(5 * time.Minute))
	g.Expect(o.LeaseDuration).To(Equal(15 * time.Second))
	g.Expect(o.BridgeImage).To(Equal(DefaultBridgeImage))
	g.Expect(o.Credentials).To(Equal(cloud.AzureCredentials{}))
}

func TestCompleteKeepsTheGivenOptions(t *testing.T) {
	g := NewWithT(t)
	given := Options{
		Concurrency: 3, QPS: 20, Burst: 40, Controllers: []string{"appservice"},
		RetryMinDelay: time.Second, RetryMaxDelay: time.Second,
	}
	given.Metrics.BindAddress = ":8443"

	o, err := given.complete()

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(o.Controllers).To(Equal(given.Controllers))
	g.Expect(o.Concurrency).To(Equal(3))
	g.Expect(o.QPS).To(BeEquivalentTo(20))
	g.Expect(o.Burst).To(Equal(40))
	g.Expect(o.Metrics.BindAddress).To(Equal(":8443"))
	g.Expect(o.RetryMinDelay).To(Equal(time.Second))
	g.Expect(o.RetryMaxDelay).To(Equal(time.Second))
}

func TestRejectsInvalidOptions(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		want    string
	}{
		"unknown controller":               {Options{Controllers: []string{"appservice", "webapp"}}, `controller "webapp" does not exist: choose from ` + strings.Join(Names(), ", ")},
		"lease duration of 2.5 seconds":    {Options{LeaseDuration: 2500 * time.Millisecond}, "the lease duration is 2.5s: set whole seconds, because a Lease stores whole seconds"},
		"selector without leader election": {Options{NamespaceSelector: labels.Everything()}, "a selector of namespaces requires leader election, and no list of namespaces"},
		"selector and list":                {Options{NamespaceSelector: labels.Everything(), LeaderElection: true, Namespaces: []string{"a"}}, "a selector of namespaces requires leader election, and no list of namespaces"},
		"negative concurrency":             {Options{Concurrency: -1}, "the concurrency is -1: set at least 1"},
		"negative min delay":               {Options{RetryMinDelay: -1}, "--retry-min-delay is -1ns: set a positive duration"},
		"negative max delay":               {Options{RetryMaxDelay: -time.Second}, "--retry-max-delay is -1s: set a positive duration"},
		"min delay greater than max delay": {Options{RetryMinDelay: 2 * time.Second, RetryMaxDelay: time.Second},
			"--retry-min-delay (2s) is greater than --retry-max-delay (1s): set a delay of at most --retry-max-delay"},
		"min delay greater than the default max delay": {Options{RetryMinDelay: time.Hour},
			"--retry-min-delay (1h0m0s) is greater than --retry-max-delay (5m0s): set a delay of at most --retry-max-delay"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // with valid options it would wait for the API server
			_, err := NewManager(ctx, &rest.Config{}, c.options)
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
	t.Run("selected namespaces", func(t *testing.T) {
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
	t.Run("a manager that is shutting down waits for running reconciles, for a limited time", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(*managerOptions(g, Options{}).GracefulShutdownTimeout).To(Equal(drainTimeout))
	})
	t.Run("a leader releases the Lease on shutdown, and standby replicas have synced caches", func(t *testing.T) {
		g := NewWithT(t)
		options := managerOptions(g, Options{LeaderElection: true})
		g.Expect(options.LeaderElectionReleaseOnCancel).To(BeTrue())
		g.Expect(options.LeaderElectionID).To(Equal(LeaderElectionID))
		g.Expect(*options.Controller.EnableWarmup).To(BeTrue())
	})
	t.Run("a reconcile sees the writes of the previous one", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(*managerOptions(g, Options{}).Client.Cache.EnableReadYourWritesConsistency).To(BeTrue())
	})
}

func TestSchemeRecognizesTheKindsOfFixpoint(t *testing.T) {
	NewWithT(t).Expect(NewScheme().Recognizes(v1beta1.SchemeGroupVersion.WithKind("AppService"))).To(BeTrue())
	NewWithT(t).Expect(NewScheme().Recognizes(rbacv1.SchemeGroupVersion.WithKind("Role"))).To(BeTrue(), "the scheme of clients has all kinds of Kubernetes")
}
