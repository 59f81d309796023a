// Package controllers builds the manager that runs all controllers. A process can build and run many
// managers, in sequence or concurrently.
package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
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

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers/appservice"
	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
	"github.com/fixpoint-dev/fixpoint/controllers/securestorage"
	"github.com/fixpoint-dev/fixpoint/internal/buildinfo"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/lease"
	"github.com/fixpoint-dev/fixpoint/internal/prober"
	"github.com/fixpoint-dev/fixpoint/internal/releases"
	"github.com/fixpoint-dev/fixpoint/internal/setup"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// LeaderElectionID is the name of the Lease for leader election.
const LeaderElectionID = "manager.fixpoint.dev"

// Defaults of leader election. A standby replica tries to acquire the Lease every 1 to 2.2 retry
// periods, so that a handover takes at most 1.1 s.
const (
	DefaultLeaseDuration = 15 * time.Second
	DefaultRenewDeadline = 10 * time.Second
	DefaultRetryPeriod   = 500 * time.Millisecond
)

// drainTimeout is how long a manager that is shutting down waits for running reconciles.
const drainTimeout = 10 * time.Second

// reconcileTimeout cancels a reconcile that blocks, for example on a server that does not respond.
const reconcileTimeout = time.Minute

// Names lists the controllers that a manager can run.
func Names() []string { return []string{appservice.Name, mcpserver.Name, securestorage.Name} }

// DefaultBridgeImage is the image of Fixpoint itself, which contains the bridge, in the version of this
// build.
var DefaultBridgeImage = "ghcr.io/fixpoint-dev/fixpoint:" + imageTag(buildinfo.Get().Version)

// imageTag is the tag of the image of a version: without the characters that tags cannot have, such as the
// parentheses of (devel).
func imageTag(version string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case '+':
			return '_'
		case '(', ')':
			return -1
		default:
			return r
		}
	}, version)
}

// Options configure a manager. The zero value runs all controllers in all namespaces, without
// endpoints for metrics, health probes and profiles.
type Options struct {
	// Namespaces to watch, or NamespaceSelector, which selects them by labels; if both are empty, all are. With
	// leader election, namespaces are claimed, so that several releases can divide a cluster.
	Namespaces        []string
	NamespaceSelector labels.Selector
	// Controllers to run, a subset of [Names]; empty means all.
	Controllers []string
	// Concurrency is the maximum number of concurrent reconciles per kind. Default 10.
	Concurrency int
	// RetryMinDelay and RetryMaxDelay bound the exponential backoff of failed reconciles: the delay
	// before the first retry and the longest delay. The defaults are 200 ms and 5 min.
	RetryMinDelay, RetryMaxDelay time.Duration
	// QPS and Burst limit the requests to the API server. The default is no client-side limit: API
	// Priority and Fairness limits requests on the server.
	QPS   float32
	Burst int
	// NoClusterRights is for a manager with permissions in some namespaces only. The manager does not
	// access cluster-scoped resources: it assumes that the IngressClass of an Ingress exists.
	NoClusterRights bool
	// SyncPeriod is the interval at which all objects are reconciled although nothing has changed. Default 10 hours.
	SyncPeriod time.Duration

	// BridgeImage is the image that provides the bridge for MCPServers with transport stdio.
	BridgeImage string
	// ProbeEndpoint, if set, replaces the scheme and host of every MCPServer that the manager probes.
	// It is only for clusters with simulated nodes.
	ProbeEndpoint *url.URL
	// ProbeDial opens the connections of the prober to pods. The default is a net.Dialer, which needs a route
	// to the pods.
	ProbeDial func(ctx context.Context, network, address string) (net.Conn, error)
	// ProbeHost replaces the host name that the prober sends to pods: see [prober.Options].
	ProbeHost string
	// PodNamespace and PodLabels select the manager's own pods, from which the NetworkPolicies of
	// MCPServers allow traffic. Without labels, they allow traffic from the whole namespace; without
	// a namespace, each MCPServer must list the namespace of the manager itself.
	PodNamespace string
	PodLabels    map[string]string
	// PodOverrides is what the manager permits in the pods of MCPServers. The default is
	// [mcpserver.OverridesRestricted].
	PodOverrides mcpserver.OverridesPolicy

	// Cloud is the cloud API for SecureStorages, and Credentials authenticate the manager to it. The
	// default is Azure with its default credential chain. AmbientScopes are the scopes in which
	// SecureStorages without credentials may use those of the manager, by namespace; the default is none.
	Cloud         cloud.Config
	Credentials   cloud.Credentials
	AmbientScopes securestorage.AmbientScopes

	// LeaderElection enables leader election with a Lease in LeaderElectionNamespace, by default the
	// namespace of the pod. Replicas that do not verifiably hold the Lease write nothing.
	LeaderElection          bool
	LeaderElectionNamespace string
	// LeaseDuration is how long standby replicas wait before they take over from an unresponsive
	// leader, in whole seconds; RenewDeadline how long the leader retries to renew the Lease before it
	// exits; RetryPeriod the interval between attempts to acquire the Lease, where a handover takes up
	// to 2.2 times as long. The defaults are 15 s, 10 s and 0.5 s.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// ClaimsNamespace is the namespace of the Lease in which all releases claim their namespaces. The default is
	// [releases.LeaseNamespace].
	ClaimsNamespace string
	// ClaimDuration is after what time without a renewal the claims of a release on its namespaces expire. The
	// default is [releases.DefaultDuration].
	ClaimDuration time.Duration
	// Unguarded uses the leader election of client-go as it is, which allows two leaders to write for
	// a short time. It is for tests that prove that they detect this.
	Unguarded bool

	// WebhookAddress is the address of the conversion webhook; empty or "0" disables it. WebhookService is the Service
	// in PodNamespace through which API servers reach it, for its certificate. WebhookCertDir, if set, has a
	// certificate in tls.crt and tls.key instead.
	WebhookAddress, WebhookService, WebhookCertDir string
	// Metrics configures the metrics endpoint. The zero value disables it.
	Metrics metricsserver.Options
	// HealthProbeAddress is the address of /healthz and /readyz; empty or "0" disables them.
	HealthProbeAddress string
	// ProfilingAddress is the address of the pprof endpoint, which has no authentication; empty or "0" disables it.
	ProfilingAddress string

	// Logger receives all logs. The default is the logger of controller-runtime.
	Logger logr.Logger
	// Clock is for tests. The default is the system clock.
	Clock clock.PassiveClock
}

// NewScheme returns a scheme with the Go types of all objects of Kubernetes and of the controllers, for clients.
func NewScheme() *runtime.Scheme {
	scheme := newScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	return scheme
}

// newScheme returns a scheme with what the controllers read and write, since each group takes memory.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		appsv1.AddToScheme, authenticationv1.AddToScheme, autoscalingv2.AddToScheme, batchv1.AddToScheme, coordinationv1.AddToScheme, corev1.AddToScheme, discoveryv1.AddToScheme,
		networkingv1.AddToScheme, policyv1.AddToScheme, gatewayv1.Install, v1beta1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// NewManager builds a manager that is ready to start, and waits until its kinds are served. It copies the config.
func NewManager(ctx context.Context, cfg *rest.Config, o Options) (ctrl.Manager, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = o.QPS, o.Burst
	// Each watch would keep a decompressor, and each list take processor time on both sides.
	cfg.DisableCompression = true
	mapper, err := newMapper(cfg)
	if err != nil {
		return nil, err
	}
	if err := o.awaitKinds(ctx, mapper, kindsInterval); err != nil {
		return nil, err
	}
	// Certificates and migrations of stored objects are written without a Lease: such writes change nothing that
	// controllers decide.
	unguarded := rest.CopyConfig(cfg)
	hook, err := o.newWebhook(unguarded)
	if err != nil {
		return nil, err
	}
	caches, options := newStoppableCache(), o.managerOptions()
	options.NewCache = caches.build
	options.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil }
	election, err := o.newElection(cfg, &options)
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(cfg, options)
	if err != nil {
		return nil, fmt.Errorf("building the manager: %w", err)
	}
	election.events.recorders = mgr
	if err := o.addReleases(mgr, election); err != nil {
		return nil, err
	}
	if err := o.addControllers(ctx, mgr, caches, election.guard, serviceAccountOf(cfg)); err != nil {
		return nil, err
	}
	if err := o.addMigration(ctx, mgr, hook, unguarded); err != nil {
		return nil, err
	}
	if err := addChecks(mgr, election.guard, hook); err != nil {
		return nil, err
	}
	return stoppable{Manager: mgr, cache: caches, guard: election.guard, webhook: hook}, nil
}

func addChecks(mgr ctrl.Manager, guard *lease.Guard, hook *webhook) error {
	if err := mgr.AddHealthzCheck("election", leaseNotOverdue(guard)); err != nil {
		return fmt.Errorf("adding the health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("webhook", hook.ready); err != nil {
		return fmt.Errorf("adding the readiness check of the webhook: %w", err)
	}
	// While objects are stored in an older version, the caches need the webhook to sync, and API servers send requests
	// only to replicas that are ready.
	synced := cachesSynced(mgr)
	if err := mgr.AddReadyzCheck("caches", func(r *http.Request) error {
		if hook.isNeededByCaches() {
			return nil
		}
		return synced(r)
	}); err != nil {
		return fmt.Errorf("adding the readiness check: %w", err)
	}
	return nil
}

func (o Options) complete() (Options, error) {
	for _, name := range o.Controllers {
		if !slices.Contains(Names(), name) {
			return o, fmt.Errorf("controller %q does not exist: choose from %s", name, strings.Join(Names(), ", "))
		}
	}
	if o.Concurrency < 0 {
		return o, fmt.Errorf("the concurrency is %d: set at least 1", o.Concurrency)
	}
	o.Concurrency = cmp.Or(o.Concurrency, 10)
	if len(o.Controllers) == 0 {
		o.Controllers = Names()
	}
	o.QPS = cmp.Or(o.QPS, -1)
	o.RetryMinDelay = cmp.Or(o.RetryMinDelay, phases.DefaultRetryMinDelay)
	o.RetryMaxDelay = cmp.Or(o.RetryMaxDelay, phases.DefaultRetryMaxDelay)
	if err := o.checkRetryDelays(); err != nil {
		return o, err
	}
	if o.LeaseDuration%time.Second != 0 {
		return o, fmt.Errorf("the lease duration is %s: set whole seconds, because a Lease stores whole seconds", o.LeaseDuration)
	}
	if o.NamespaceSelector != nil && (len(o.Namespaces) > 0 || !o.isGuarded()) {
		return o, errors.New("a selector of namespaces requires leader election, and no list of namespaces")
	}
	o.LeaseDuration = cmp.Or(o.LeaseDuration, DefaultLeaseDuration)
	o.RenewDeadline = cmp.Or(o.RenewDeadline, DefaultRenewDeadline)
	o.RetryPeriod = cmp.Or(o.RetryPeriod, DefaultRetryPeriod)
	if o.Credentials == nil {
		o.Credentials = cloud.AzureCredentials{}
	}
	o.BridgeImage = cmp.Or(o.BridgeImage, DefaultBridgeImage)
	o.Metrics.BindAddress = cmp.Or(o.Metrics.BindAddress, "0")
	return o, nil
}

func (o Options) checkRetryDelays() error {
	switch {
	case o.RetryMinDelay < 0:
		return fmt.Errorf("--retry-min-delay is %s: set a positive duration", o.RetryMinDelay)
	case o.RetryMaxDelay < 0:
		return fmt.Errorf("--retry-max-delay is %s: set a positive duration", o.RetryMaxDelay)
	case o.RetryMinDelay > o.RetryMaxDelay:
		return fmt.Errorf("--retry-min-delay (%s) is greater than --retry-max-delay (%s): set a delay of at most --retry-max-delay", o.RetryMinDelay, o.RetryMaxDelay)
	default:
		return nil
	}
}

func (o Options) managerOptions() ctrl.Options {
	options := ctrl.Options{
		Scheme:                        newScheme(),
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
			DefaultTransform: strip,
			ByObject: map[client.Object]cache.ByObject{
				&discoveryv1.EndpointSlice{}: {Label: labels.SelectorFromSet(mcpserver.EndpointLabels())},
			},
		},
		NewClient: newClient,
		Client: client.Options{
			// A reconcile must see the writes of the previous one, or it would repeat them.
			Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)},
		},
		Controller: config.Controller{
			SkipNameValidation:    ptr.To(true), // a process may build many managers
			EnableWarmup:          ptr.To(true), // standby replicas take over with synced caches
			ReconciliationTimeout: reconcileTimeout,
			Logger:                o.Logger,
		},
	}
	if o.isGuarded() {
		maps.Copy(options.Cache.ByObject, releases.CacheOptions(o.claimsNamespace()))
	}
	options.Cache.DefaultNamespaces = map[string]cache.Config{}
	for _, namespace := range o.Namespaces {
		options.Cache.DefaultNamespaces[namespace] = cache.Config{}
	}
	return options
}

func (o Options) addControllers(ctx context.Context, mgr ctrl.Manager, caches *stoppableCache, guard *lease.Guard, account types.NamespacedName) error {
	common := setup.Options{
		Concurrency: o.Concurrency, RetryMinDelay: o.RetryMinDelay, RetryMaxDelay: o.RetryMaxDelay,
		NoClusterRights: o.NoClusterRights, ManagerAccount: account, Guard: guard, Clock: o.Clock,
	}
	if slices.Contains(o.Controllers, appservice.Name) {
		if err := appservice.Setup(ctx, mgr, common); err != nil {
			return err
		}
	}
	if slices.Contains(o.Controllers, mcpserver.Name) {
		if err := o.addMCPServers(ctx, mgr, caches, common); err != nil {
			return err
		}
	}
	if slices.Contains(o.Controllers, securestorage.Name) {
		endpoint := o.Cloud
		endpoint.Guard = guard
		return securestorage.Setup(mgr, securestorage.Options{Options: common, Cloud: cloud.New(endpoint), Credentials: o.Credentials, AmbientScopes: o.AmbientScopes})
	}
	return nil
}

func (o Options) addMCPServers(ctx context.Context, mgr ctrl.Manager, caches *stoppableCache, common setup.Options) error {
	probes, err := prober.New(o.proberOptions())
	if err != nil {
		return fmt.Errorf("creating the prober: %w", err)
	}
	settings := mcpserver.Settings{
		BridgeImage: o.BridgeImage, ManagerNamespace: o.PodNamespace, ManagerLabels: o.PodLabels,
		ManagerAccount: common.ManagerAccount, PodOverrides: o.PodOverrides,
	}
	mgr, err = withSecretsOf(mgr, caches, v1beta1.SecretTypeSessionKeys, o.managerOptions().Client)
	if err != nil {
		return err
	}
	return mcpserver.Setup(ctx, mgr, mcpserver.Options{Options: common, Settings: settings, Prober: probes})
}

func (o Options) proberOptions() prober.Options {
	options := prober.Options{Metrics: ctrlmetrics.Registry, Dial: o.ProbeDial, Host: o.ProbeHost, Version: buildinfo.Get().Version}
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
