package mcpserver

import (
	"context"
	"fmt"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayconfigurations "sigs.k8s.io/gateway-api/applyconfiguration"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration"
	"github.com/fixpoint-dev/fixpoint/internal/lease"
	"github.com/fixpoint-dev/fixpoint/internal/prober"
	"github.com/fixpoint-dev/fixpoint/internal/references"
	"github.com/fixpoint-dev/fixpoint/internal/setup"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// Name is the controller's name in metrics, events, logs and flags.
const Name = "mcpserver"

// +kubebuilder:rbac:groups=fixpoint.dev,resources=mcpservers,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=fixpoint.dev,resources=mcpservers/status,verbs=patch
// +kubebuilder:rbac:groups=fixpoint.dev,resources=mcpservers/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=configmaps;services;serviceaccounts,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=list;watch
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=autoscaling,resources=horizontalpodautoscalers,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=networking.k8s.io,resources=ingresses;networkpolicies,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=networking.k8s.io,resources=ingressclasses,verbs=list;watch
// +kubebuilder:rbac:groups=gateway.networking.k8s.io,resources=httproutes,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=gateway.networking.k8s.io,resources=gateways,verbs=list;watch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=httproutes.gateway.networking.k8s.io,verbs=list;watch
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// referenceDelay is the delay between a change of a Secret or ConfigMap and the reconcile, so that
// changes of several objects cause one rollout.
const referenceDelay = 2 * time.Second

// Options for [Setup]. With NoClusterRights, Gateways are not read, and the Gateway API is detected only
// when the manager starts.
type Options struct {
	setup.Options
	// Settings apply to all MCPServers.
	Settings
	// Prober probes the servers.
	Prober *prober.Prober
}

// Engine is the engine that reconciles MCPServers.
type Engine = phases.Engine[*v1beta1.MCPServer, *scope]

// readers are what the phases read through, beside the clients of the manager.
type readers struct {
	references *references.Reader
	// hashKey is the key of hashes of Secret data; nil if the manager has no namespace to keep it in.
	hashKey *references.Key
	keys    *keyReader
	// pods is nil if the prober does not connect to pods.
	pods     *podReader
	gateways gatewayReader
	// podStatus writes the gates of pods; nil for an engine that only plans.
	podStatus statusApplier
	// plans is true for an engine that only plans.
	plans bool
}

// forget drops what is cached for the probes of an MCPServer.
func (r readers) forget(server client.ObjectKey) {
	r.keys.forget(server)
	r.pods.forget(server)
}

// NewEngine creates the engine with the clients of a manager.
func NewEngine(mgr ctrl.Manager, o Options) (*Engine, error) {
	r, err := newReaders(mgr, o)
	if err != nil {
		return nil, err
	}
	return newEngineWith(mgr, o, r)
}

func newEngineWith(mgr ctrl.Manager, o Options, r readers) (*Engine, error) {
	dependencies, err := o.Dependencies(mgr, Name, FieldManager,
		applyconfiguration.NewTypeConverter, gatewayconfigurations.NewTypeConverter)
	if err != nil {
		return nil, err
	}
	return newEngine(dependencies, o, r, o.Prober)
}

// Setup adds the controller, and the prober, to a manager.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) error {
	r, err := newReaders(mgr, o)
	if err != nil {
		return err
	}
	options := o.ForEngine(mgr, &v1beta1.MCPServerList{})
	if !o.NoClusterRights {
		gateways := newGatewayAPI(mgr, cache.New)
		r.gateways, options.WatchChild = gateways, gateways.watchChild
	}
	engine, err := newEngineWith(mgr, o, r)
	if err != nil {
		return err
	}
	if err := mgr.Add(o.Prober); err != nil {
		return fmt.Errorf("adding the prober: %w", err)
	}
	if err := references.Index(ctx, mgr.GetFieldIndexer(), &v1beta1.MCPServer{}, watchedReferencesOf); err != nil {
		return err
	}
	options.Sources = append(options.Sources, o.sources(mgr, r)...)
	if o.Guard.RequiresClaims() {
		o.Guard.Subscribe(stopProbingLost(ctx, mgr, o.Prober, r))
		options.Wrap = o.probingOnlyClaimed(r, options.Wrap)
	}
	return engine.SetupWithManager(mgr, options)
}

// sources are what MCPServers wait for beside their children.
func (o Options) sources(mgr ctrl.Manager, r readers) []source.Source {
	watch := func(object client.Object, handler handler.EventHandler) source.Source {
		return source.Kind(mgr.GetCache(), object, handler)
	}
	sources := []source.Source{
		watch(&v1beta1.MCPServer{}, stopProbing(o.Prober, r)),
		watch(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(probedServer(mgr.GetClient()))),
		o.Prober.Source(),
	}
	if !o.NoClusterRights {
		servers := setup.Enqueue(mgr.GetClient(), &v1beta1.MCPServerList{}, hasIngress)
		sources = append(sources, watch(&networkingv1.IngressClass{}, handler.EnqueueRequestsFromMapFunc(servers)))
	}
	referrers := references.Referrers{Reader: mgr.GetClient(), List: &v1beta1.MCPServerList{}, Delay: referenceDelay}
	return append(sources, r.references.Sources(mgr.GetCache(), referrers,
		references.Secret, references.ConfigMap, references.ServiceAccount, references.PersistentVolumeClaim)...)
}

// newReaders returns readers for which the Gateway API is served or not as it is now.
func newReaders(mgr ctrl.Manager, o Options) (readers, error) {
	r := readers{
		references: &references.Reader{Metadata: mgr.GetClient(), Data: mgr.GetAPIReader()},
		keys:       &keyReader{metadata: mgr.GetClient(), data: mgr.GetAPIReader()},
	}
	if o.Prober.DialsReplicas() {
		r.pods = &podReader{uncached: mgr.GetAPIReader()}
	}
	// The cache holds no pods.
	_, podStatus, err := setup.Direct(mgr, FieldManager)
	if err != nil {
		return r, err
	}
	r.podStatus = podStatus
	hashKey, err := newHashKey(mgr, o)
	if err != nil {
		return r, err
	}
	r.hashKey = hashKey
	served, err := isServed(mgr.GetRESTMapper(), mgr.GetScheme(), &gatewayv1.HTTPRoute{})
	r.gateways = staticGatewayAPI(served)
	return r, err
}

// newHashKey returns nil if the namespace of the manager is not known, as outside of a cluster.
func newHashKey(mgr ctrl.Manager, o Options) (*references.Key, error) {
	if o.ManagerNamespace == "" {
		mgr.GetLogger().Info("Hashes of Secret data in pod templates have no key, because the namespace of the manager is not known: set --pod-namespace")
		return nil, nil
	}
	// The cache may not contain the namespace of the manager.
	direct, applier, err := setup.Direct(mgr, FieldManager)
	if err != nil {
		return nil, err
	}
	return &references.Key{Namespace: o.ManagerNamespace, Reader: direct, Applier: applier}, nil
}

func newEngine(dependencies phases.Dependencies, o Options, r readers, probes Prober) (*Engine, error) {
	reader, uncached := dependencies.Reader, dependencies.Uncached
	dependencies.Reader, dependencies.Uncached = routeReader{reader, r.gateways}, routeReader{uncached, r.gateways}
	dependencies.Applier = setup.PermissionHint{Applier: dependencies.Applier, Hint: sessionKeysHint}
	var ingressClasses workload.IngressClasses
	if !o.NoClusterRights {
		ingressClasses.Reader = reader
	}
	return phases.New(phases.Definition[*v1beta1.MCPServer, *scope]{
		Controller: Name,
		Finalizer:  Finalizer,
		Phases:     Phases(),
		Scope: func(server *v1beta1.MCPServer) *scope {
			s := &scope{
				server: server, readers: r, reader: reader, uncached: uncached, ingressClasses: ingressClasses,
				prober: probes, settings: o.Settings, clock: dependencies.Clock,
			}
			if isNotProbed(server) {
				// A reconcile that was running may have set the target after stopProbing.
				s.forget(client.ObjectKeyFromObject(server))
			}
			return s
		},
		Conditions: func(server *v1beta1.MCPServer) []metav1.Condition { return server.Status.Conditions },
		Status:     func(s *scope, summary phases.Summary) ssa.Configuration { return desiredStatus(s, summary) },
		Events:     contractEvents,
		Suspended:  func(server *v1beta1.MCPServer) bool { return server.Spec.Suspend },
		Policies: func(server *v1beta1.MCPServer) phases.Policies {
			return workload.Policies(server, server.Spec.AdoptionPolicy, server.Spec.DriftPolicy)
		},
		ReportInterval: workload.ReportInterval,
	}, dependencies)
}

// isNotProbed reports whether an MCPServer is not probed whatever its pods.
func isNotProbed(server *v1beta1.MCPServer) bool {
	return server.Spec.Suspend || server.DeletionTimestamp != nil
}

// stopProbing stops probing MCPServers that are deleted or suspended.
func stopProbing(p *prober.Prober, r readers) handler.EventHandler {
	forget := func(key client.ObjectKey) {
		p.Forget(key)
		r.forget(key)
	}
	return handler.TypedFuncs[client.Object, reconcile.Request]{
		UpdateFunc: func(_ context.Context, e updateEvent, _ requestQueue) {
			if server, ok := e.ObjectNew.(*v1beta1.MCPServer); ok && isNotProbed(server) {
				forget(client.ObjectKeyFromObject(server))
			}
		},
		DeleteFunc: func(_ context.Context, e deleteEvent, _ requestQueue) {
			forget(client.ObjectKeyFromObject(e.Object))
		},
	}
}

// stopProbingLost stops probing MCPServers in namespaces that this release has given up.
func stopProbingLost(ctx context.Context, mgr ctrl.Manager, p *prober.Prober, r readers) func(lease.Change) {
	return func(change lease.Change) {
		isLost := func(o client.Object) bool { return change.Lost(o.GetNamespace()) }
		keys, err := setup.Objects(ctx, mgr.GetCache(), &v1beta1.MCPServerList{}, isLost)
		if err != nil {
			mgr.GetLogger().Error(err, "Failed to list the MCPServers of a namespace that was given up; they are probed until the manager restarts")
			return
		}
		for _, key := range keys {
			p.Forget(key)
			r.forget(key)
		}
	}
}

// probingOnlyClaimed stops probing an MCPServer whose namespace was given up while it was reconciled.
func (o Options) probingOnlyClaimed(r readers, wrap func(reconcile.Reconciler) reconcile.Reconciler) func(reconcile.Reconciler) reconcile.Reconciler {
	return func(inner reconcile.Reconciler) reconcile.Reconciler {
		inner = wrap(inner)
		return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
			result, err := inner.Reconcile(ctx, request)
			if !o.Guard.Claimed().Has(request.Namespace) {
				o.Prober.Forget(request.NamespacedName)
				r.forget(request.NamespacedName)
			}
			return result, err
		})
	}
}

// isServed reports whether the API server serves the kind of the object.
func isServed(mapper meta.RESTMapper, scheme *runtime.Scheme, object client.Object) (bool, error) {
	gvk, err := apiutil.GVKForObject(object, scheme)
	if err != nil {
		return false, fmt.Errorf("finding the kind of %T: %w", object, err)
	}
	if _, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version); err != nil {
		if meta.IsNoMatchError(err) {
			return false, nil
		}
		return false, fmt.Errorf("checking whether the API server serves %s: %w", gvk.Kind, err)
	}
	return true, nil
}

// probedServer maps an EndpointSlice to the MCPServer of its Service, which has the same name. MCPServers
// that are not probed do not need endpoints.
func probedServer(reader client.Reader) handler.MapFunc {
	return func(ctx context.Context, object client.Object) []reconcile.Request {
		service := object.GetLabels()[discoveryv1.LabelServiceName]
		if service == "" {
			return nil
		}
		key := client.ObjectKey{Namespace: object.GetNamespace(), Name: service}
		var server v1beta1.MCPServer
		if err := reader.Get(ctx, key, &server, client.DisableReadYourWritesConsistency, client.UnsafeDisableDeepCopy); err == nil && server.Spec.Protocol.Probe == v1beta1.ProbeDisabled {
			return nil
		}
		return []reconcile.Request{{NamespacedName: key}}
	}
}

// hasIngress selects the MCPServers that a change of an IngressClass may affect.
func hasIngress(server *v1beta1.MCPServer) bool {
	return server.Spec.Ingress != nil
}
