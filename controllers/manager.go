// Package controllers builds the manager that hosts all controllers, as a value: a process can
// build and run many of them, one after another or side by side.
package controllers

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/controllers/appservice"
	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
	"github.com/fixpoint-dev/fixpoint/controllers/securestorage"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/lease"
	"github.com/fixpoint-dev/fixpoint/internal/prober"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// LeaderElectionID names the Lease by which replicas agree who works.
const LeaderElectionID = "manager.fixpoint.dev"

// How the election goes unless it is said otherwise. A standby looks after 1 to 2.2 retry periods
// whether the Lease is free, so that a handover takes at most 1.1 s.
const (
	DefaultLeaseDuration = 15 * time.Second
	DefaultRenewDeadline = 10 * time.Second
	DefaultRetryPeriod   = 500 * time.Millisecond
)

// drainTimeout is how long a manager that is stopped waits for the passes that are under way.
const drainTimeout = 10 * time.Second

// reconcileTimeout ends a reconcile that hangs, for instance on a server that does not answer.
const reconcileTimeout = time.Minute

// Names lists the controllers that a manager can host.
func Names() []string { return []string{appservice.Name, mcpserver.Name, securestorage.Name} }

// DefaultBridgeImage is the project's own image, which holds the bridge.
const DefaultBridgeImage = "ghcr.io/fixpoint-dev/fixpoint:latest"

// Options configure a manager. The zero value runs all controllers in all namespaces and serves
// nothing.
type Options struct {
	// Namespaces to watch; none means all.
	Namespaces []string
	// Controllers to run, out of [Names]; none means all.
	Controllers []string
	// Concurrency is how many objects of one kind are reconciled at the same time. Default 10.
	Concurrency int
	// QPS and Burst limit the requests to the API server. The default is no limit: the API
	// server's own priority and fairness does it better.
	QPS   float32
	Burst int
	// NoClusterRights is for a manager that has rights in some namespaces alone. It does not look at what
	// is of the whole cluster: the class of an Ingress is taken to be there.
	NoClusterRights bool
	// SyncPeriod is how often everything is looked at although nothing changed. Default 10 hours.
	SyncPeriod time.Duration

	// BridgeImage is the image that brings the bridge for the stdio servers of MCPServers.
	BridgeImage string
	// ProbeEndpoint, if it is set, is the scheme and host that are asked in place of every MCPServer's:
	// for a cluster whose nodes are simulated, and for nothing else.
	ProbeEndpoint *url.URL
	// ProbeDial opens the connections of the prober to pods; a net.Dialer does by default. It is for
	// tests, whose pods run nowhere.
	ProbeDial func(ctx context.Context, network, address string) (net.Conn, error)
	// PodNamespace and PodLabels say where and how the manager's own pods are found: the network
	// policies of MCPServers let them in. Without labels it is the whole namespace; without the
	// namespace the policies have to name it.
	PodNamespace string
	PodLabels    map[string]string

	// Cloud is where SecureStorages live, and Credentials how one is known there. Azure by default.
	Cloud       cloud.Config
	Credentials cloud.Credentials

	// LeaderElection makes replicas agree on one that works, over a Lease in LeaderElectionNamespace,
	// by default the pod's own. The others, and a leader that cannot prove that it is one, write nothing.
	LeaderElection          bool
	LeaderElectionNamespace string
	// LeaseDuration is how long the others wait for a leader that is not heard of, in whole seconds;
	// RenewDeadline how long a leader tries to renew the Lease before it gives up; RetryPeriod the
	// pause between tries, and with it how long a handover takes: up to 2.2 times as long. The defaults
	// are 15 s, 10 s and 0.5 s.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// Unguarded leaves the election as client-go has it, by which there are two leaders at times. It
	// is for tests that show that they would notice.
	Unguarded bool

	// Metrics says where and how metrics are served. The zero value serves none.
	Metrics metricsserver.Options
	// HealthProbeAddress is where /healthz and /readyz are served; empty or "0" serves none.
	HealthProbeAddress string
	// ProfilingAddress is where profiles are served, to everybody; empty or "0" serves none.
	ProfilingAddress string

	// Logger takes all logs. The default is controller-runtime's own.
	Logger logr.Logger
	// Clock is for tests. The default is the real one.
	Clock clock.PassiveClock
}

// NewScheme knows the Go types of everything that the controllers read and write.
func NewScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(gatewayv1.Install(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	return scheme
}

// NewManager builds a manager that is ready to be started. The config is copied.
func NewManager(ctx context.Context, cfg *rest.Config, o Options) (ctrl.Manager, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = o.QPS, o.Burst
	caches, options := newStoppableCache(), o.managerOptions()
	options.NewCache = caches.build
	election, err := o.newElection(cfg, &options)
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(cfg, options)
	if err != nil {
		return nil, fmt.Errorf("building the manager: %w", err)
	}
	election.events.recorders = mgr
	if err := o.addControllers(ctx, mgr, election.guard); err != nil {
		return nil, err
	}
	if err := addChecks(mgr, election.guard); err != nil {
		return nil, err
	}
	return stoppable{Manager: mgr, cache: caches, guard: election.guard}, nil
}

func addChecks(mgr ctrl.Manager, guard *lease.Guard) error {
	if err := mgr.AddHealthzCheck("election", notStuck(guard)); err != nil {
		return fmt.Errorf("adding the health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("caches", cachesSynced(mgr)); err != nil {
		return fmt.Errorf("adding the readiness check: %w", err)
	}
	return nil
}

func (o Options) complete() (Options, error) {
	for _, name := range o.Controllers {
		if !slices.Contains(Names(), name) {
			return o, fmt.Errorf("there is no controller %q: choose from %s", name, strings.Join(Names(), ", "))
		}
	}
	if o.Concurrency < 0 {
		return o, fmt.Errorf("the concurrency is %d: it must be at least 1", o.Concurrency)
	}
	if o.Concurrency == 0 {
		o.Concurrency = 10
	}
	if len(o.Controllers) == 0 {
		o.Controllers = Names()
	}
	if o.QPS == 0 {
		o.QPS = -1
	}
	if o.LeaseDuration%time.Second != 0 {
		return o, fmt.Errorf("the lease duration is %s: it must be whole seconds, since a Lease cannot say anything else", o.LeaseDuration)
	}
	o.LeaseDuration = cmp.Or(o.LeaseDuration, DefaultLeaseDuration)
	o.RenewDeadline = cmp.Or(o.RenewDeadline, DefaultRenewDeadline)
	o.RetryPeriod = cmp.Or(o.RetryPeriod, DefaultRetryPeriod)
	if o.Credentials == nil {
		o.Credentials = cloud.AzureCredentials{}
	}
	if o.BridgeImage == "" {
		o.BridgeImage = DefaultBridgeImage
	}
	if o.Metrics.BindAddress == "" {
		o.Metrics.BindAddress = "0"
	}
	return o, nil
}

func (o Options) managerOptions() ctrl.Options {
	options := ctrl.Options{
		Scheme:                        NewScheme(),
		Logger:                        o.Logger,
		Metrics:                       o.Metrics,
		HealthProbeBindAddress:        o.HealthProbeAddress,
		LeaderElection:                o.LeaderElection,
		LeaderElectionID:              LeaderElectionID,
		LeaderElectionNamespace:       o.LeaderElectionNamespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &o.LeaseDuration,
		RenewDeadline:                 &o.RenewDeadline,
		RetryPeriod:                   &o.RetryPeriod,
		PprofBindAddress:              o.ProfilingAddress,
		GracefulShutdownTimeout:       ptr.To(drainTimeout),
		Cache: cache.Options{
			SyncPeriod:       nonZero(o.SyncPeriod),
			DefaultTransform: forgetStrangers,
			ByObject: map[client.Object]cache.ByObject{
				&discoveryv1.EndpointSlice{}: {Label: labels.SelectorFromSet(labels.Set{workload.LabelManagedBy: workload.ManagedBy})},
			},
		},
		NewClient: newPatientClient,
		Client: client.Options{
			// A pass must see what the one before it wrote, or it would do it again.
			Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)},
		},
		Controller: config.Controller{
			SkipNameValidation:    ptr.To(true), // a process may build many managers
			EnableWarmup:          ptr.To(true), // standbys take over with full caches
			ReconciliationTimeout: reconcileTimeout,
			Logger:                o.Logger,
		},
	}
	if len(o.Namespaces) > 0 {
		options.Cache.DefaultNamespaces = map[string]cache.Config{}
		for _, namespace := range o.Namespaces {
			options.Cache.DefaultNamespaces[namespace] = cache.Config{}
		}
	}
	return options
}

func (o Options) addControllers(ctx context.Context, mgr ctrl.Manager, guard *lease.Guard) error {
	applies, err := ssa.NewMetrics(ctrlmetrics.Registry)
	if err != nil {
		return err
	}
	outcomes, err := phases.NewMetrics(ctrlmetrics.Registry)
	if err != nil {
		return err
	}
	indexer := &sharedIndexer{FieldIndexer: mgr.GetFieldIndexer(), done: map[string]bool{}}
	if slices.Contains(o.Controllers, appservice.Name) {
		err := appservice.Setup(ctx, mgr, appservice.Options{Concurrency: o.Concurrency, NoClusterRights: o.NoClusterRights, Indexer: indexer, Guard: guard, Applies: applies, Phases: outcomes, Clock: o.Clock})
		if err != nil {
			return err
		}
	}
	if slices.Contains(o.Controllers, mcpserver.Name) {
		asking, err := prober.New(o.proberOptions())
		if err != nil {
			return fmt.Errorf("making the prober: %w", err)
		}
		err = mcpserver.Setup(ctx, mgr, mcpserver.Options{
			Concurrency: o.Concurrency, Indexer: indexer, Guard: guard, Applies: applies, Phases: outcomes, Clock: o.Clock,
			Settings: mcpserver.Settings{BridgeImage: o.BridgeImage, ManagerNamespace: o.PodNamespace, ManagerLabels: o.PodLabels},
			Prober:   asking, NoClusterRights: o.NoClusterRights,
		})
		if err != nil {
			return err
		}
	}
	if slices.Contains(o.Controllers, securestorage.Name) {
		at := o.Cloud
		at.Guard = guard
		err := securestorage.Setup(ctx, mgr, securestorage.Options{
			Concurrency: o.Concurrency, Guard: guard, Applies: applies, Phases: outcomes, Clock: o.Clock,
			Cloud: cloud.New(at), Credentials: o.Credentials,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (o Options) proberOptions() prober.Options {
	options := prober.Options{Metrics: ctrlmetrics.Registry, Dial: o.ProbeDial}
	if endpoint := o.ProbeEndpoint; endpoint != nil {
		options.Rewrite = func(u *url.URL) { u.Scheme, u.Host = endpoint.Scheme, endpoint.Host }
	}
	return options
}

func nonZero(d time.Duration) *time.Duration {
	if d == 0 {
		return nil
	}
	return &d
}
