package controllers

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	currentevents "k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers/appservice"
	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
	"github.com/fixpoint-dev/fixpoint/controllers/securestorage"
	"github.com/fixpoint-dev/fixpoint/internal/certificates"
	"github.com/fixpoint-dev/fixpoint/internal/lease"
	"github.com/fixpoint-dev/fixpoint/internal/migration"
	"github.com/fixpoint-dev/fixpoint/internal/releases"
)

// recordingManager records what is added to a manager that does not start, or fails.
type recordingManager struct {
	ctrl.Manager
	// failing is the error of all additions of a name; runnables have none.
	failing map[string]error
	added   []manager.Runnable
	checks  map[string]healthz.Checker
	cached  cache.Cache
	starts  func(context.Context) error
}

func (m *recordingManager) Add(runnable manager.Runnable) error {
	m.added = append(m.added, runnable)
	return m.failing[""]
}

func (m *recordingManager) AddHealthzCheck(name string, check healthz.Checker) error {
	return m.addCheck("healthz/"+name, check)
}

func (m *recordingManager) AddReadyzCheck(name string, check healthz.Checker) error {
	return m.addCheck("readyz/"+name, check)
}

func (m *recordingManager) addCheck(name string, check healthz.Checker) error {
	if m.checks == nil {
		m.checks = map[string]healthz.Checker{}
	}
	m.checks[name] = check
	return m.failing[name]
}

func (m *recordingManager) GetCache() cache.Cache {
	if m.cached != nil {
		return m.cached
	}
	return m.Manager.GetCache()
}

func (m *recordingManager) Start(ctx context.Context) error { return m.starts(ctx) }

// syncing is a cache that has synced, or waits until the context ends.
type syncing struct {
	cache.Cache
	synced bool
	starts error
	// waits is the context of the last wait. Optional.
	waits *context.Context
}

func (s syncing) WaitForCacheSync(ctx context.Context) bool {
	if s.waits != nil {
		*s.waits = ctx
	}
	if !s.synced {
		<-ctx.Done()
	}
	return s.synced
}

func (s syncing) Start(ctx context.Context) error {
	if s.starts == nil {
		<-ctx.Done()
	}
	return s.starts
}

// build builds the manager of some options as [NewManager] does, without controllers.
func build(t *testing.T, o Options) (Options, *recordingManager, *stoppableCache, *rest.Config) {
	t.Helper()
	g := NewWithT(t)
	o.Logger = logr.Discard()
	o, err := o.complete()
	g.Expect(err).NotTo(HaveOccurred())
	_, cfg := startAPIServer(t)
	caches, options := newStoppableCache(), o.managerOptions()
	options.NewCache = caches.build
	options.LeaderElection = false
	mgr, err := ctrl.NewManager(cfg, options)
	g.Expect(err).NotTo(HaveOccurred())
	return o, &recordingManager{Manager: mgr, failing: map[string]error{}}, caches, cfg
}

var errAdded = errors.New("it cannot be added")

// refusing is a registry that refuses one metric.
type refusing struct {
	ctrlmetrics.RegistererGatherer
	metric string
}

func (r refusing) Register(collector prometheus.Collector) error {
	described := make(chan *prometheus.Desc)
	go func() {
		defer close(described)
		collector.Describe(described)
	}()
	refused := false
	for description := range described {
		refused = refused || strings.Contains(description.String(), `"`+r.metric+`"`)
	}
	if refused {
		return errAdded
	}
	return r.RegistererGatherer.Register(collector)
}

func TestNewManagerCopiesItsConfig(t *testing.T) {
	g := NewWithT(t)
	_, cfg := startAPIServer(t)
	before := rest.CopyConfig(cfg)
	mgr, err := NewManager(t.Context(), cfg, Options{QPS: 20, Burst: 40, LeaderElection: true, LeaderElectionNamespace: "fixpoint", Logger: logr.Discard()})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cfg).To(Equal(before))
	g.Expect(mgr.GetConfig().QPS).To(BeEquivalentTo(20))
	g.Expect(mgr.GetConfig().Burst).To(Equal(40))
}

func TestAManagerIsGuardedAndBoundsItsReads(t *testing.T) {
	g := NewWithT(t)
	server, cfg := startAPIServer(t)
	mgr, err := NewManager(t.Context(), cfg, Options{LeaderElection: true, LeaderElectionNamespace: "fixpoint", Logger: logr.Discard()})
	g.Expect(err).NotTo(HaveOccurred())
	built, ok := mgr.(stoppable)
	g.Expect(ok).To(BeTrue())
	g.Expect(built.guard).NotTo(BeNil(), "it ends when another replica acquires its Lease")
	g.Expect(built.guard.RequiresClaims()).To(BeTrue())
	_, isBounded := mgr.GetClient().(*readTimeoutClient)
	g.Expect(isBounded).To(BeTrue(), "reads do not wait for the cache without end")
	for _, request := range server.sent(http.MethodGet, "/apis") {
		if request.URL.Path == "/apis" {
			g.Expect(request.URL.Query().Get("timeout")).To(Equal("10s"), "all use the mapper that waits for the kinds")
		}
	}
}

func TestManagerOptionsAreThoseOfTheFlags(t *testing.T) {
	g := NewWithT(t)
	logged := 0
	o, err := Options{
		LeaderElection: true, LeaderElectionNamespace: "fixpoint", LeaseDuration: 40 * time.Second, RenewDeadline: 30 * time.Second, RetryPeriod: 3 * time.Second,
		SyncPeriod: time.Hour, HealthProbeAddress: ":8081", ProfilingAddress: ":8082", Metrics: metricsserver.Options{BindAddress: ":8443"}, ClaimsNamespace: "claims",
		Logger: funcr.New(func(string, string) { logged++ }, funcr.Options{}),
	}.complete()
	g.Expect(err).NotTo(HaveOccurred())
	options := o.managerOptions()
	g.Expect(options.LeaderElection).To(BeTrue())
	g.Expect(options.LeaderElectionNamespace).To(Equal("fixpoint"))
	g.Expect(*options.LeaseDuration).To(Equal(40 * time.Second))
	g.Expect(*options.RenewDeadline).To(Equal(30 * time.Second))
	g.Expect(*options.RetryPeriod).To(Equal(3 * time.Second))
	g.Expect(*options.Cache.SyncPeriod).To(Equal(time.Hour))
	g.Expect(options.HealthProbeBindAddress).To(Equal(":8081"))
	g.Expect(options.PprofBindAddress).To(Equal(":8082"))
	g.Expect(options.Metrics.BindAddress).To(Equal(":8443"))
	g.Expect(options.Controller.ReconciliationTimeout).To(Equal(time.Minute), "a server that does not respond blocks a reconcile for so long")
	g.Expect(*options.Controller.SkipNameValidation).To(BeTrue(), "a process may build many managers")
	options.Logger.Info("to the manager")
	options.Controller.Logger.Info("to the controllers")
	g.Expect(logged).To(Equal(2))
	for _, object := range []client.Object{&v1beta1.AppService{}, &corev1.Secret{}, &coordinationv1.Lease{}} {
		_, _, err := options.Scheme.ObjectKinds(object)
		g.Expect(err).NotTo(HaveOccurred())
	}
}

func TestTheCacheHoldsLittle(t *testing.T) {
	g := NewWithT(t)
	for guarded, count := range map[bool]int{false: 1, true: 3} {
		o, err := Options{LeaderElection: guarded}.complete()
		g.Expect(err).NotTo(HaveOccurred())
		options := o.managerOptions().Cache
		g.Expect(options.ByObject).To(HaveLen(count), "EndpointSlices of managed Services; and of a release its claims, and the labels of namespaces")
		stripped, err := options.DefaultTransform(&corev1.ConfigMap{Data: map[string]string{"key": "value"}})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(stripped).To(HaveField("Data", BeEmpty()))
	}
}

func TestNewManagerFails(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = taken.Close() })
	elected := Options{LeaderElection: true, LeaderElectionNamespace: "fixpoint"}
	converting := Options{WebhookAddress: ":0", WebhookService: "webhook", PodNamespace: "fixpoint"}
	for name, c := range map[string]struct {
		options Options
		config  func(*rest.Config)
		without string
		// metric cannot be registered.
		metric string
		ends   bool
		want   string
	}{
		"certificate authority that cannot be read":    {config: func(c *rest.Config) { c.CAFile = "/nowhere" }, want: "creating a client for discovery: open /nowhere"},
		"host that is malformed":                       {config: func(c *rest.Config) { c.Host = "::" }, want: "creating a client for discovery: "},
		"kinds that are not served when it is stopped": {without: "fixpoint.dev", ends: true, want: "waiting for the kinds of Fixpoint: apply install.yaml"},
		"webhook without a Service":                    {options: Options{WebhookAddress: ":0"}, want: "the webhook needs the namespace and the name of its Service"},
		"leader election without a namespace":          {options: Options{LeaderElection: true}, want: "preparing leader election: "},
		"address of health probes that is taken":       {options: Options{HealthProbeAddress: taken.Addr().String()}, want: "building the manager: "},
		"children of AppServices that are unknown":     {options: Options{Controllers: []string{appservice.Name}}, without: "apps", want: "building the controller appservice: watching Deployment"},
		"children of MCPServers that are unknown":      {options: Options{Controllers: []string{mcpserver.Name}}, without: "apps", want: "building the controller mcpserver: watching Deployment"},
		"children of SecureStorages that are unknown": {
			options: Options{Controllers: []string{securestorage.Name}}, without: "core", want: "building the controller securestorage: watching "},
		"claims without Leases":  {options: elected, without: "coordination.k8s.io", want: "coordination"},
		"metrics of the guard":   {options: elected, metric: "fixpoint_lease_held", want: "registering the metrics of the lease guard: "},
		"metrics of claims":      {options: elected, without: "none", metric: "fixpoint_releases_refused_namespaces", want: "registering the metrics of claims: "},
		"metrics of conversions": {options: converting, metric: "fixpoint_conversion_duration_seconds", want: "registering the metrics of conversions: "},
		"metrics of migrations":  {options: converting, without: "none", metric: "fixpoint_migration_objects", want: "registering the metrics of migrations: "},
		"metrics of the prober":  {options: Options{Controllers: []string{mcpserver.Name}}, metric: "fixpoint_mcp_probes_total", want: "creating the prober: "},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server, cfg := startAPIServer(t, c.without)
			server.unavailable = !c.ends
			if c.without == "core" {
				server.forget("")
			}
			if c.config != nil {
				c.config(cfg)
			}
			if c.metric != "" {
				all := ctrlmetrics.Registry
				t.Cleanup(func() { ctrlmetrics.Registry = all })
				ctrlmetrics.Registry = refusing{all, c.metric}
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.ends {
				cancel()
			}
			c.options.Logger = logr.Discard()
			_, err := NewManager(ctx, cfg, c.options)
			g.Expect(err).To(MatchError(ContainSubstring(c.want)))
		})
	}
}

func TestChecksOfTheManager(t *testing.T) {
	g := NewWithT(t)
	var waits context.Context
	mgr := &recordingManager{cached: syncing{synced: true, waits: &waits}}
	g.Expect(addChecks(mgr, nil, nil)).To(Succeed())
	g.Expect(mgr.checks).To(HaveLen(3))
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	for name, check := range mgr.checks {
		g.Expect(check(request)).To(Succeed(), name)
	}
	g.Expect(waits.Err()).To(MatchError(context.Canceled), "a probe leaves no timer")
	for name := range mgr.checks {
		g.Expect(addChecks(&recordingManager{failing: map[string]error{name: errAdded}}, nil, nil)).To(MatchError(errAdded), name)
	}
}

// A replica whose caches have not synced does not become the leader, and one without a certificate converts nothing.
func TestAReplicaIsNotReadyBeforeItsCachesHaveSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		hook := &webhook{}
		var err error
		hook.keeper, err = certificates.New(certificates.Options{Config: &rest.Config{Host: "127.0.0.1:1"}, Namespace: "a", Service: "b", Logger: logr.Discard()})
		g.Expect(err).NotTo(HaveOccurred())
		mgr := &recordingManager{cached: syncing{}}
		g.Expect(addChecks(mgr, lease.New(time.Minute, nil), hook)).To(Succeed())
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		began := time.Now()
		g.Expect(mgr.checks["readyz/caches"](request)).To(MatchError("the caches have not synced yet"))
		g.Expect(time.Since(began)).To(Equal(syncTimeout), "the probe gets an answer before its timeout of a second")
		g.Expect(mgr.checks["readyz/webhook"](request)).To(MatchError("the certificate of the webhook has not been issued yet"))
		g.Expect(mgr.checks["healthz/election"](request)).To(Succeed())
	})
}

func TestMigratesTheKindsOfItsControllers(t *testing.T) {
	g := NewWithT(t)
	all := Options{Controllers: Names()}
	g.Expect(all.migratedKinds()).To(ConsistOf(
		migration.Kind{GroupVersionKind: v1beta1.SchemeGroupVersion.WithKind("AppService"), Resource: "appservices", FieldManager: appservice.FieldManager, Finalizer: appservice.Finalizer},
		migration.Kind{GroupVersionKind: v1beta1.SchemeGroupVersion.WithKind("MCPServer"), Resource: "mcpservers", FieldManager: mcpserver.FieldManager, Finalizer: mcpserver.Finalizer},
		migration.Kind{GroupVersionKind: v1beta1.SchemeGroupVersion.WithKind("SecureStorage"), Resource: "securestorages", FieldManager: securestorage.FieldManager, Finalizer: securestorage.Finalizer},
	))
	one := Options{Controllers: []string{mcpserver.Name}}
	g.Expect(one.migratedKinds()).To(ConsistOf(HaveField("Resource", "mcpservers")))
	g.Expect(one.cachedDefinitions()).To(Equal([]string{"mcpservers.fixpoint.dev"}))
	g.Expect(one.definitions()).To(ConsistOf("appservices.fixpoint.dev", "mcpservers.fixpoint.dev", "securestorages.fixpoint.dev"), "the CA bundle of all")
	g.Expect(Options{NoClusterRights: true}.definitions()).To(BeEmpty())
}

func TestMigratesOnlyWithAWebhookAndClusterRights(t *testing.T) {
	g := NewWithT(t)
	o, mgr, _, cfg := build(t, Options{Controllers: []string{appservice.Name}, WebhookAddress: ":0", WebhookService: "webhook", PodNamespace: "fixpoint"})
	var logged string
	o.Logger = funcr.New(func(name, _ string) { logged = name }, funcr.Options{})
	hook, err := o.newWebhook(cfg)
	g.Expect(err).NotTo(HaveOccurred())

	g.Expect(o.addMigration(t.Context(), mgr, nil, cfg)).To(Succeed())
	without := o
	without.NoClusterRights = true
	g.Expect(without.addMigration(t.Context(), mgr, hook, cfg)).To(Succeed())
	g.Expect(mgr.added).To(BeEmpty())

	g.Expect(o.addMigration(t.Context(), mgr, hook, cfg)).To(Succeed())
	g.Expect(mgr.added).To(HaveLen(1))
	added, ok := mgr.added[0].(*migration.Migration)
	g.Expect(ok).To(BeTrue())
	g.Expect(added.Kinds).To(ConsistOf(HaveField("Resource", "appservices")))
	g.Expect(added.Changed).To(BeIdenticalTo(hook.keeper.DefinitionChanged()))
	for _, needed := range []any{added.API, added.Metrics, added.Recorder, added.Clock} {
		g.Expect(needed).NotTo(BeNil())
	}
	added.Logger.Info("migrated")
	g.Expect(logged).To(Equal("migration"))
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	g.Expect(added.Wait(stopped)).To(MatchError(context.Canceled))
	synctest.Test(t, func(t *testing.T) {
		g, began := NewWithT(t), time.Now()
		for range migrationRate + 1 {
			g.Expect(added.Wait(t.Context())).To(Succeed())
		}
		g.Expect(time.Since(began)).To(BeNumerically("~", time.Second, 50*time.Millisecond))
	})

	mgr.failing[""] = errAdded
	g.Expect(o.addMigration(t.Context(), mgr, hook, cfg)).To(And(MatchError(errAdded), MatchError(HavePrefix("adding the migration of stored objects: "))))
	g.Expect(o.addMigration(t.Context(), mgr, hook, &rest.Config{Host: "::"})).To(MatchError(HavePrefix("preparing the migration of stored objects: ")))
}

// Events about cluster-scoped objects are in the namespace default, which belongs to this release or to another one.
func TestMigrationsRecordEventsOutsideTheNamespacesOfTheRelease(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(time.Minute)
	server, cfg := startAPIServer(t)
	o, err := Options{
		LeaderElection: true, LeaderElectionNamespace: "fixpoint", Namespaces: []string{"acme"},
		WebhookAddress: ":0", WebhookService: "webhook", PodNamespace: "fixpoint", Logger: logr.Discard(),
	}.complete()
	g.Expect(err).NotTo(HaveOccurred())
	hook, err := o.newWebhook(cfg)
	g.Expect(err).NotTo(HaveOccurred())
	guarded, options := rest.CopyConfig(cfg), o.managerOptions()
	_, err = o.newElection(guarded, &options)
	g.Expect(err).NotTo(HaveOccurred())
	mgr, err := ctrl.NewManager(guarded, options)
	g.Expect(err).NotTo(HaveOccurred())
	recording := &recordingManager{Manager: mgr}
	g.Expect(o.addMigration(t.Context(), recording, hook, cfg)).To(Succeed())
	added, ok := recording.added[0].(*migration.Migration)
	g.Expect(ok).To(BeTrue())

	definition := definitionOf("appservices.fixpoint.dev")
	definition.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	added.Recorder.Eventf(definition, nil, corev1.EventTypeNormal, migration.ReasonMigrated, "Migrate", "All objects are stored in v1beta1.")

	g.Eventually(func() []*http.Request {
		return server.sent(http.MethodPost, "/apis/events.k8s.io/v1/namespaces/default/events")
	}).Should(HaveLen(1))
}

// settingsOf reads the options of a controller, whose type controller-runtime does not export.
func settingsOf(controller manager.Runnable) (name string, concurrency int, limiter workqueue.TypedRateLimiter[reconcile.Request]) {
	value := reflect.Indirect(reflect.ValueOf(controller))
	if value.Kind() != reflect.Struct || !value.FieldByName("MaxConcurrentReconciles").IsValid() {
		return "", 0, nil
	}
	limiter, _ = value.FieldByName("RateLimiter").Interface().(workqueue.TypedRateLimiter[reconcile.Request])
	return value.FieldByName("Name").String(), int(value.FieldByName("MaxConcurrentReconciles").Int()), limiter
}

func reconcilerOf(controller manager.Runnable) reconcile.Reconciler {
	reconciler, _ := reflect.Indirect(reflect.ValueOf(controller)).FieldByName("Do").Interface().(reconcile.Reconciler)
	return reconciler
}

func TestRunsTheControllersOfItsOptions(t *testing.T) {
	for _, selected := range [][]string{Names(), {appservice.Name}, {mcpserver.Name}, {securestorage.Name}} {
		t.Run("", func(t *testing.T) {
			g := NewWithT(t)
			clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
			o, mgr, caches, _ := build(t, Options{Controllers: selected, Concurrency: 3, RetryMinDelay: time.Second, RetryMaxDelay: 5 * time.Second, Clock: clock})
			g.Expect(o.addControllers(t.Context(), mgr, caches, lease.New(time.Minute, nil), types.NamespacedName{})).To(Succeed())
			var names []string
			for _, added := range mgr.added {
				name, concurrency, limiter := settingsOf(added)
				if name == "" {
					continue
				}
				names = append(names, name)
				g.Expect(concurrency).To(Equal(3))
				for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
					g.Expect(limiter.When(reconcile.Request{})).To(Equal(want), "retry %d of %s", i, name)
					clock.SetTime(clock.Now().Add(want))
				}
				result, err := reconcilerOf(added).Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "acme", Name: "shop"}})
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(result.RequeueAfter).NotTo(BeZero(), "a replica that is not the leader reconciles nothing")
			}
			g.Expect(names).To(ConsistOf(selected))

			o, mgr, caches, _ = build(t, o)
			mgr.failing[""] = errAdded
			g.Expect(o.addControllers(t.Context(), mgr, caches, nil, types.NamespacedName{})).To(MatchError(errAdded))
		})
	}
}

func TestClaimsNamespacesOnlyWithAGuard(t *testing.T) {
	g := NewWithT(t)
	o, mgr, _, cfg := build(t, Options{
		LeaderElection: true, LeaderElectionNamespace: "fixpoint", PodNamespace: "pods", NamespaceSelector: labels.Everything(), ClaimsNamespace: "claims", ClaimDuration: time.Hour,
		Clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0)),
	})
	g.Expect(o.addReleases(mgr, &election{})).To(Succeed())
	g.Expect(mgr.added).To(BeEmpty())
	var options ctrl.Options
	e, err := o.newElection(cfg, &options)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(e.guard.RequiresClaims()).To(BeTrue())
	g.Expect(options.LeaderElectionResourceLockInterface.Describe()).To(Equal("fixpoint/" + LeaderElectionID))
	listed := o
	listed.Namespaces, listed.NamespaceSelector = []string{"acme"}, nil
	for i, o := range []Options{o, listed} {
		g.Expect(o.addReleases(mgr, e)).To(Succeed())
		name, _, limiter := settingsOf(mgr.added[i])
		g.Expect(name).To(Equal(releases.Name))
		var retry time.Duration
		for range 30 {
			retry = limiter.When(reconcile.Request{})
		}
		g.Expect(retry).To(Equal(30*time.Second), "without claims, nothing is reconciled")
		claims, ok := reconcilerOf(mgr.added[i]).(*releases.Controller)
		g.Expect(ok).To(BeTrue())
		g.Expect(claims.Options).To(Equal(releases.Options{
			Guard: e.guard, Claims: "claims", Release: "fixpoint", LeaseName: LeaderElectionID, Leader: e.lock.Identity(), Pods: "pods",
			Namespaces: o.Namespaces, Selector: o.NamespaceSelector, Duration: time.Hour, Clock: o.Clock,
		}))
	}
	mgr.failing[""] = errAdded
	g.Expect(o.addReleases(mgr, e)).To(MatchError(errAdded))
}

func TestTheProberDialsAndNamesPodsAsConfigured(t *testing.T) {
	g := NewWithT(t)
	plain := Options{}.proberOptions()
	g.Expect(plain.Rewrite).To(BeNil())
	g.Expect(plain.Metrics).NotTo(BeNil())
	dialed := errors.New("dialed")
	options := Options{
		ProbeHost: "localhost", ProbeEndpoint: &url.URL{Scheme: "http", Host: "127.0.0.1:9"},
		ProbeDial: func(context.Context, string, string) (net.Conn, error) { return nil, dialed },
	}.proberOptions()
	g.Expect(options.Host).To(Equal("localhost"))
	_, err := options.Dial(t.Context(), "tcp", "10.0.0.1:80")
	g.Expect(err).To(MatchError(dialed))
	target := &url.URL{Scheme: "https", Host: "10.0.0.1:8443", Path: "/mcp"}
	options.Rewrite(target)
	g.Expect(target.String()).To(Equal("http://127.0.0.1:9/mcp"))
}

// events is a provider of one recorder.
type events struct {
	*record.FakeRecorder
	current recorder.EventRecorder
	named   []string
}

func (e *events) GetEventRecorderFor(name string) record.EventRecorder {
	e.named = append(e.named, name)
	return e.FakeRecorder
}

func (e *events) GetEventRecorder(name string) recorder.EventRecorder {
	e.named = append(e.named, name)
	return e.current
}

// The lock of leader election is built before the manager, and records Events with it.
func TestEventsOfTheLockAreRecordedByTheManager(t *testing.T) {
	g := NewWithT(t)
	lazy := &lazyRecorders{}
	early := lazy.GetEventRecorderFor("lock")
	provider := &events{FakeRecorder: record.NewFakeRecorder(3), current: currentevents.NewFakeRecorder(0)}
	lazy.recorders = provider
	early.Event(&corev1.Pod{}, corev1.EventTypeNormal, "A", "plain")
	early.Eventf(&corev1.Pod{}, corev1.EventTypeNormal, "B", "formatted %d", 1)
	early.AnnotatedEventf(&corev1.Pod{}, map[string]string{"a": "b"}, corev1.EventTypeWarning, "C", "annotated %d", 2)
	g.Expect(lazy.GetEventRecorder("other")).To(BeIdenticalTo(provider.current))
	g.Expect(provider.Events).To(Receive(Equal("Normal A plain")))
	g.Expect(provider.Events).To(Receive(Equal("Normal B formatted 1")))
	g.Expect(provider.Events).To(Receive(HavePrefix("Warning C annotated 2")))
	g.Expect(provider.named).To(Equal([]string{"lock", "lock", "lock", "other"}))
}

func TestAManagerEndsWhenAnotherReplicaHasItsLease(t *testing.T) {
	g := NewWithT(t)
	guard := lease.New(time.Hour, nil)
	lock := guard.Lock(&takenLock{holder: "other"})
	g.Expect(lock.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"})).To(Succeed())
	failure := errors.New("leader election lost")
	mgr := &recordingManager{starts: func(ctx context.Context) error {
		_, _, err := lock.Get(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		<-ctx.Done()
		return failure
	}}
	err := startGuarded(t.Context(), mgr, guard)
	g.Expect(err).To(MatchError(ContainSubstring("another replica has acquired the Lease")))
	g.Expect(err).To(MatchError(failure))
}

// In a bubble, so that a goroutine that remains is an error.
func TestAManagerThatEndsCannotWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		guard := lease.New(time.Hour, nil)
		elect(t, guard)
		failure := errors.New("a cache failed")
		var running context.Context
		mgr := &recordingManager{starts: func(ctx context.Context) error {
			running = ctx
			g.Expect(guard.Held()).To(BeTrue())
			return failure
		}}
		g.Expect(startGuarded(t.Context(), mgr, guard)).To(BeIdenticalTo(failure))
		g.Expect(guard.Held()).To(BeFalse(), "a reconcile that still runs does not write")
		g.Expect(running.Err()).To(MatchError(context.Canceled))
	})
}

func TestAManagerStopsBeforeItsCachesHaveSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		caches := newStoppableCache()
		caches.Cache = syncing{}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		mgr := stoppable{cache: caches, Manager: &recordingManager{starts: func(context.Context) error {
			g.Expect(caches.WaitForCacheSync(context.Background())).To(BeTrue())
			return nil
		}}}
		go func() { ended <- mgr.Start(ctx) }()
		synctest.Wait()
		g.Expect(ended).NotTo(Receive())
		cancel()
		synctest.Wait()
		g.Expect(ended).To(Receive(BeNil()))
	})
}

func TestAManagerFailsIfTheWebhookCannotListen(t *testing.T) {
	g := NewWithT(t)
	mgr := stoppable{cache: newStoppableCache(), webhook: &webhook{address: "not an address"}}
	g.Expect(mgr.Start(t.Context())).To(MatchError(HavePrefix("serving the webhook: ")))
}

func TestAllCachesMustSync(t *testing.T) {
	g := NewWithT(t)
	caches := newStoppableCache()
	wait := func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		return caches.WaitForCacheSync(ctx)
	}
	for _, c := range []struct{ all, keys, sessions, want bool }{
		{true, true, true, true}, {false, true, true, false}, {true, false, true, false}, {true, true, false, false},
	} {
		caches.Cache = syncing{synced: c.all}
		caches.secrets[v1beta1.SecretTypeAccountKeys], caches.secrets[v1beta1.SecretTypeSessionKeys] = syncing{synced: c.keys}, syncing{synced: c.sessions}
		g.Expect(wait()).To(Equal(c.want))
	}
	var waits context.Context
	for secretType := range caches.secrets {
		caches.secrets[secretType] = syncing{synced: true, waits: &waits}
	}
	g.Expect(caches.WaitForCacheSync(t.Context())).To(BeTrue())
	g.Expect(waits.Err()).To(MatchError(context.Canceled), "a wait that has ended is not kept")
}

func TestAllCachesEndWithOneThatFails(t *testing.T) {
	g := NewWithT(t)
	failure := errors.New("a watch failed")
	for i := range 3 {
		all := []syncing{{}, {}, {}}
		all[i].starts = failure
		caches := newStoppableCache()
		caches.Cache = all[0]
		caches.secrets[v1beta1.SecretTypeAccountKeys], caches.secrets[v1beta1.SecretTypeSessionKeys] = all[1], all[2]
		g.Expect(caches.Start(t.Context())).To(MatchError(failure))
	}
}

func TestACacheThatCannotBeBuiltIsAnError(t *testing.T) {
	g := NewWithT(t)
	_, err := newStoppableCache().build(&rest.Config{Host: "::"}, cache.Options{})
	g.Expect(err).To(HaveOccurred())
	_, err = newClient(&rest.Config{Host: "::"}, client.Options{})
	g.Expect(err).To(HaveOccurred())

	// The file is gone when the cache of the first type of Secrets is built.
	authority := filepath.Join(t.TempDir(), "tls.crt")
	certificateIn(t, filepath.Dir(authority))
	cfg := &rest.Config{Host: "https://server.test", TLSClientConfig: rest.TLSClientConfig{CAFile: authority}}
	cfg.WrapTransport = func(rt http.RoundTripper) http.RoundTripper {
		g.Expect(os.Remove(authority)).To(Succeed())
		return rt
	}
	_, err = newStoppableCache().build(cfg, cache.Options{})
	g.Expect(err).To(MatchError(ContainSubstring(authority)))
}

// indexing is a cache that records for what kinds it is asked.
type indexing struct {
	cache.Cache
	asked *[]string
	name  string
	err   error
}

func (i indexing) note() error {
	*i.asked = append(*i.asked, i.name)
	return i.err
}

func (i indexing) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return i.note()
}

func (i indexing) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return i.note()
}

func (i indexing) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return nil, i.note()
}

func (i indexing) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return i.note()
}

func TestSecretsOfATypeHaveTheirOwnCache(t *testing.T) {
	g := NewWithT(t)
	var asked []string
	caches := newStoppableCache()
	caches.Cache = indexing{asked: &asked, name: "all"}
	for _, secretType := range secretTypes {
		caches.secrets[secretType] = indexing{asked: &asked, name: secretType}
	}
	for _, secretType := range secretTypes {
		keys := caches.secretsOf(secretType)
		for _, object := range []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}} {
			g.Expect(keys.Get(t.Context(), client.ObjectKey{}, object)).To(Succeed())
			_, err := keys.GetInformer(t.Context(), object)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(keys.IndexField(t.Context(), object, "f", nil)).To(Succeed())
		}
		g.Expect(keys.List(t.Context(), &corev1.SecretList{})).To(Succeed())
		g.Expect(keys.List(t.Context(), &corev1.ConfigMapList{})).To(Succeed())
		g.Expect(asked).To(Equal([]string{secretType, secretType, secretType, "all", "all", "all", secretType, "all"}))
		asked = nil
	}
	failure := errors.New("a list failed")
	caches.Cache = indexing{asked: &asked, err: failure}
	all := caches.secretsOf(v1beta1.SecretTypeAccountKeys)
	g.Expect(all.Get(t.Context(), client.ObjectKey{}, &corev1.ConfigMap{})).To(MatchError(failure))
	g.Expect(all.List(t.Context(), &corev1.ConfigMapList{})).To(MatchError(failure))
	g.Expect(all.IndexField(t.Context(), &corev1.ConfigMap{}, "f", nil)).To(MatchError(failure))
}

func TestAControllerThatWritesSecretsReadsThoseOfItsType(t *testing.T) {
	g := NewWithT(t)
	o, mgr, caches, _ := build(t, Options{})
	var asked []string
	caches.secrets[v1beta1.SecretTypeSessionKeys] = indexing{asked: &asked, name: "session keys"}
	seen, err := withSecretsOf(mgr, caches, v1beta1.SecretTypeSessionKeys, o.managerOptions().Client)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(seen.GetClient().Get(t.Context(), client.ObjectKey{Name: "keys"}, &corev1.Secret{}, client.DisableReadYourWritesConsistency)).To(Succeed())
	g.Expect(asked).To(Equal([]string{"session keys"}))
	g.Expect(seen.GetCache()).To(Equal(caches.secretsOf(v1beta1.SecretTypeSessionKeys)))
	g.Expect(seen.GetFieldIndexer()).To(Equal(seen.GetCache()))
	g.Expect(seen.GetClient()).NotTo(BeIdenticalTo(mgr.GetClient()))
	g.Expect(seen.GetClient().Scheme()).To(BeIdenticalTo(mgr.GetScheme()))
	g.Expect(seen.GetClient().RESTMapper()).To(BeIdenticalTo(mgr.GetRESTMapper()))
	_, isBounded := seen.GetClient().(*readTimeoutClient)
	g.Expect(isBounded).To(BeTrue())

	o.Controllers = []string{mcpserver.Name}
	g.Expect(o.addControllers(t.Context(), withoutConfig{mgr}, caches, nil, types.NamespacedName{})).
		To(MatchError(HavePrefix("building a client for Secrets of the type " + v1beta1.SecretTypeSessionKeys + ": ")))
}

// withoutConfig is a manager with which no client can be built.
type withoutConfig struct{ ctrl.Manager }

func (withoutConfig) GetConfig() *rest.Config { return nil }

func TestTheWebhookBoundsItsConnections(t *testing.T) {
	g, dir := NewWithT(t), t.TempDir()
	client := certificateIn(t, dir)
	for verbosity, want := range map[int]string{4: "", 5: "webhook"} {
		var logged string
		logger := funcr.New(func(name, _ string) { logged = name }, funcr.Options{Verbosity: verbosity})
		w, err := Options{WebhookAddress: "127.0.0.1:0", WebhookCertDir: dir, NoClusterRights: true, Logger: logger}.newWebhook(&rest.Config{Host: "127.0.0.1:1"})
		g.Expect(err).NotTo(HaveOccurred())
		w.server.ErrorLog.Print("a handshake failed")
		g.Expect(logged).To(Equal(want), "clients that abandon connections do not fill the log")
	}
	w, err := Options{WebhookAddress: "127.0.0.1:0", WebhookCertDir: dir, NoClusterRights: true, Logger: logr.Discard()}.newWebhook(&rest.Config{Host: "127.0.0.1:1"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.server.ReadHeaderTimeout).To(And(BeNumerically(">", 0), BeNumerically("<=", 5*time.Second)))
	g.Expect(w.server.ReadTimeout).To(And(BeNumerically(">", 0), BeNumerically("<=", 10*time.Second)))
	g.Expect(w.server.WriteTimeout).To(BeNumerically("==", 30*time.Second), "the longest timeout of a conversion by an API server")
	g.Expect(w.server.IdleTimeout).To(And(BeNumerically(">", 90*time.Second), BeNumerically("<=", 3*time.Minute)), "API servers close idle connections first")
	g.Expect(w.server.MaxHeaderBytes).To(Equal(16 << 10))
	patient(w)

	stop, err := w.start(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	defer stop()
	g.Expect(w.address).To(HavePrefix("127.0.0.1:"))
	transport, ok := client.Transport.(*http.Transport)
	g.Expect(ok).To(BeTrue())
	transport.ForceAttemptHTTP2 = true
	response, err := client.Get("https://" + w.address)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	g.Expect(response.ProtoMajor).To(Equal(1), "HTTP/2 sends all requests of an API server to one replica")
	old := transport.TLSClientConfig.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS11, tls.VersionTLS11
	_, err = tls.Dial("tcp", w.address, old)
	g.Expect(err).To(HaveOccurred())
}

func TestTheErrorOfAManagerIsReturned(t *testing.T) {
	g := NewWithT(t)
	failure := errors.New("a cache failed")
	mgr := &recordingManager{starts: func(context.Context) error { return failure }}
	g.Expect(stoppable{Manager: mgr, cache: newStoppableCache()}.Start(t.Context())).To(MatchError(failure))
	guard := lease.New(time.Hour, nil)
	elect(t, guard)
	g.Expect(stoppable{Manager: mgr, cache: newStoppableCache(), guard: guard}.Start(t.Context())).To(MatchError(failure))
	g.Expect(guard.Held()).To(BeFalse())
}
