package mcpserver

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayconfigurations "sigs.k8s.io/gateway-api/applyconfiguration"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1/applyconfiguration"
	"github.com/fixpoint-dev/fixpoint/internal/lease"
	"github.com/fixpoint-dev/fixpoint/internal/prober"
	"github.com/fixpoint-dev/fixpoint/internal/references"
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

// together is how long to wait after a Secret or ConfigMap has changed: several that change together
// lead to one rollout.
const together = 2 * time.Second

// referenceIndex finds MCPServers by what they refer to.
const referenceIndex = "spec.references"

// Options for [Setup].
type Options struct {
	// NoClusterRights is for a manager that has rights in some namespaces alone: the class of an Ingress
	// is taken to be there.
	// has the Gateway API is found out when the manager starts.
	NoClusterRights bool
	// Concurrency is the maximum number of concurrent reconciles.
	Concurrency int
	// RetryMinDelay and RetryMaxDelay bound the exponential backoff of failed reconciles.
	RetryMinDelay, RetryMaxDelay time.Duration
	// Settings are those of all MCPServers.
	Settings
	// Prober asks the servers.
	Prober *prober.Prober
	// Indexer indexes the cache. The manager's own indexer, without one.
	Indexer client.FieldIndexer
	// Guard ends passes that are refused a write. Optional.
	Guard *lease.Guard
	// Applies and Phases count outcomes. Optional.
	Applies *ssa.Metrics
	Phases  *phases.Metrics
	// Clock is for transition times and patience. Optional.
	Clock clock.PassiveClock

	references *references.Reader
	keys       *keyReader
	// gateways is nil if the cluster cannot be looked at as a whole.
	gateways *gatewayAPI
}

// Engine is the engine that reconciles MCPServers.
type Engine = phases.Engine[*v1alpha1.MCPServer, *scope]

// Setup adds the controller, and the prober, to a manager.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) error {
	if o.Indexer == nil {
		o.Indexer = mgr.GetFieldIndexer()
	}
	o.references = newReader(mgr)
	o.keys = newKeyReader(mgr)
	if !o.NoClusterRights {
		var err error
		if o.gateways, err = newGatewayAPI(mgr); err != nil {
			return err
		}
	}
	engine, err := NewEngine(mgr, o)
	if err != nil {
		return err
	}
	if err := mgr.Add(o.Prober); err != nil {
		return fmt.Errorf("adding the prober: %w", err)
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.MCPServer{}, referenceIndex, indexReferences); err != nil {
		return fmt.Errorf("indexing references: %w", err)
	}
	b := ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&v1alpha1.MCPServer{}, builder.WithPredicates(phases.AtOnce())).
		Watches(&v1alpha1.MCPServer{}, phases.InAWhile()).
		Watches(&v1alpha1.MCPServer{}, forgetting(o.Prober, o.keys)).
		Watches(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(askedThrough(mgr.GetClient()))).
		WatchesRawSource(o.Prober.Source()).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: o.Concurrency,
			RateLimiter:             phases.NewBackoff(o.RetryMinDelay, o.RetryMaxDelay),
		})
	if !o.NoClusterRights {
		b = b.Watches(&networkingv1.IngressClass{}, handler.EnqueueRequestsFromMapFunc(withIngress(mgr.GetClient())))
	}
	for _, kind := range []references.Kind{references.Secret, references.ConfigMap, references.ServiceAccount, references.PersistentVolumeClaim} {
		metadata := &metav1.PartialObjectMetadata{}
		metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(string(kind)))
		b = b.Watches(metadata, referrers(mgr.GetClient(), o.references, kind), builder.OnlyMetadata)
	}
	if b, err = o.watchChildren(ctx, mgr, b, engine); err != nil {
		return err
	}
	c, err := b.Build(o.Guard.Pass(engine))
	if err != nil {
		return fmt.Errorf("building the controller %s: %w", Name, err)
	}
	if o.gateways != nil {
		o.gateways.controller = c
		if err := mgr.Add(o.gateways); err != nil {
			return fmt.Errorf("adding the watch of the Gateway API: %w", err)
		}
	}
	return nil
}

// watchChildren adds the watches of the children's kinds, and their indices.
func (o Options) watchChildren(ctx context.Context, mgr ctrl.Manager, b *builder.Builder, engine *Engine) (*builder.Builder, error) {
	for _, watch := range engine.Watches(mgr.GetRESTMapper()) {
		if _, isRoute := watch.Object.(*gatewayv1.HTTPRoute); isRoute && o.gateways != nil {
			var err error
			if b, err = o.gateways.addTo(ctx, b, watch); err != nil {
				return nil, err
			}
			continue
		}
		served, err := isServed(mgr, watch.Object)
		if err != nil {
			return nil, err
		}
		if !served {
			continue // an option that asks for it says so
		}
		if err := ssa.IndexController(ctx, o.Indexer, watch.Object); err != nil {
			return nil, fmt.Errorf("indexing %T: %w", watch.Object, err)
		}
		b = b.Watches(watch.Object, watch.Handler)
	}
	return b, nil
}

// NewEngine makes the engine with a manager's clients.
func NewEngine(mgr ctrl.Manager, o Options) (*Engine, error) {
	applier, err := ssa.New(ssa.Options{
		Client:       mgr.GetClient(),
		Reader:       mgr.GetAPIReader(),
		FieldManager: FieldManager,
		TypeConverters: []managedfields.TypeConverter{
			applyconfiguration.NewTypeConverter(mgr.GetScheme()),
			gatewayconfigurations.NewTypeConverter(mgr.GetScheme()),
		},
		Metrics: o.Applies,
	})
	if err != nil {
		return nil, fmt.Errorf("making the applier of %s: %w", Name, err)
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.references == nil {
		o.references = newReader(mgr)
	}
	if o.keys == nil {
		o.keys = newKeyReader(mgr)
	}
	var ingressClasses workload.IngressClasses
	if !o.NoClusterRights {
		ingressClasses.Reader = mgr.GetClient()
	}
	var cached, uncached client.Reader = mgr.GetClient(), mgr.GetAPIReader()
	var gateways gatewayReader
	if o.gateways != nil {
		gateways = o.gateways
	} else {
		served, err := isServed(mgr, &gatewayv1.HTTPRoute{})
		if err != nil {
			return nil, err
		}
		gateways = unfollowed(served)
	}
	cached, uncached = withoutRoutes{cached, gateways}, withoutRoutes{uncached, gateways}
	return phases.New(phases.Definition[*v1alpha1.MCPServer, *scope]{
		Controller: Name,
		Finalizer:  Finalizer,
		Phases:     Phases(),
		Scope: func(server *v1alpha1.MCPServer) *scope {
			return &scope{
				server: server, reader: mgr.GetClient(), uncached: mgr.GetAPIReader(), ingressClasses: ingressClasses,
				references: o.references, keys: o.keys, gateways: gateways, prober: o.Prober, settings: o.Settings, clock: o.Clock,
			}
		},
		Conditions: func(server *v1alpha1.MCPServer) []metav1.Condition { return server.Status.Conditions },
		Status:     func(s *scope, summary phases.Summary) ssa.Configuration { return desiredStatus(s, summary) },
		Suspended:  func(server *v1alpha1.MCPServer) bool { return server.Spec.Suspend },
		Policies: func(server *v1alpha1.MCPServer) (ssa.AdoptionPolicy, ssa.DriftPolicy) {
			return ssa.AdoptionPolicy(server.Spec.AdoptionPolicy), ssa.DriftPolicy(server.Spec.DriftPolicy)
		},
	}, phases.Dependencies{
		Reader:   cached,
		Uncached: uncached,
		Applier:  applier,
		Planner:  applier.DryRun(),
		Scheme:   mgr.GetScheme(),
		Recorder: mgr.GetEventRecorder(Name),
		Metrics:  o.Phases,
		Clock:    o.Clock,
	})
}

func newKeyReader(mgr ctrl.Manager) *keyReader {
	return &keyReader{metadata: mgr.GetClient(), data: mgr.GetAPIReader()}
}

func newReader(mgr ctrl.Manager) *references.Reader {
	return &references.Reader{Metadata: mgr.GetClient(), Data: mgr.GetAPIReader()}
}

// forgetting ends the probing of MCPServers that are gone or suspended.
func forgetting(p *prober.Prober, keys *keyReader) handler.EventHandler {
	forget := func(key client.ObjectKey) {
		p.Forget(key)
		keys.forget(key)
	}
	return handler.TypedFuncs[client.Object, reconcile.Request]{
		UpdateFunc: func(_ context.Context, e updateEvent, _ requestQueue) {
			if server, ok := e.ObjectNew.(*v1alpha1.MCPServer); ok && (server.Spec.Suspend || server.DeletionTimestamp != nil) {
				forget(client.ObjectKeyFromObject(server))
			}
		},
		DeleteFunc: func(_ context.Context, e deleteEvent, _ requestQueue) {
			forget(client.ObjectKeyFromObject(e.Object))
		},
	}
}

// isServed says whether the cluster knows the kind: HTTPRoutes come with a Gateway implementation.
func isServed(mgr ctrl.Manager, object client.Object) (bool, error) {
	gvk, err := apiutil.GVKForObject(object, mgr.GetScheme())
	if err != nil {
		return false, fmt.Errorf("finding the kind of %T: %w", object, err)
	}
	if _, err := mgr.GetRESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version); err != nil {
		if meta.IsNoMatchError(err) {
			return false, nil
		}
		return false, fmt.Errorf("looking whether the cluster serves %s: %w", gvk.Kind, err)
	}
	return true, nil
}

func indexReferences(object client.Object) []string {
	server, ok := object.(*v1alpha1.MCPServer)
	if !ok {
		return nil
	}
	var ids []string
	for _, reference := range referencesOf(server) {
		ids = append(ids, reference.ID())
	}
	return ids
}

// referrers enqueues the MCPServers that refer to an object of the kind, a little later: what changes
// together is then seen together.
func referrers(reader client.Reader, known *references.Reader, kind references.Kind) handler.EventHandler {
	return handler.TypedFuncs[client.Object, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e createEvent, queue requestQueue) {
			enqueueReferrers(ctx, reader, kind, e.Object, queue)
		},
		UpdateFunc: func(ctx context.Context, e updateEvent, queue requestQueue) {
			enqueueReferrers(ctx, reader, kind, e.ObjectNew, queue)
		},
		DeleteFunc: func(ctx context.Context, e deleteEvent, queue requestQueue) {
			known.Forget(e.Object.GetUID())
			enqueueReferrers(ctx, reader, kind, e.Object, queue)
		},
	}
}

func enqueueReferrers(ctx context.Context, reader client.Reader, kind references.Kind, object client.Object, queue requestQueue) {
	var servers v1alpha1.MCPServerList
	id := references.Reference{Kind: kind, Name: object.GetName()}.ID()
	err := reader.List(ctx, &servers, client.InNamespace(object.GetNamespace()), client.MatchingFields{referenceIndex: id},
		client.DisableReadYourWritesConsistency)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing MCPServers that refer to an object", "reference", id)
		return
	}
	for i := range servers.Items {
		queue.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&servers.Items[i])}, together)
	}
}

// askedThrough names the MCPServer whose Service the endpoints are of: the two have one name. The
// endpoints say where to ask a server; one that is not asked has no use for them.
func askedThrough(reader client.Reader) handler.MapFunc {
	return func(ctx context.Context, object client.Object) []reconcile.Request {
		service := object.GetLabels()[discoveryv1.LabelServiceName]
		if service == "" {
			return nil
		}
		key := client.ObjectKey{Namespace: object.GetNamespace(), Name: service}
		var server v1alpha1.MCPServer
		if err := reader.Get(ctx, key, &server, client.DisableReadYourWritesConsistency, client.UnsafeDisableDeepCopy); err == nil && server.Spec.Protocol.Disabled {
			return nil
		}
		return []reconcile.Request{{NamespacedName: key}}
	}
}

// withIngress lists the MCPServers that an ingress class may matter to.
func withIngress(reader client.Reader) handler.MapFunc {
	return func(ctx context.Context, _ client.Object) []reconcile.Request {
		var servers v1alpha1.MCPServerList
		if err := reader.List(ctx, &servers); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing MCPServers for an ingress class")
			return nil
		}
		var requests []reconcile.Request
		for i := range servers.Items {
			if servers.Items[i].Spec.Ingress != nil {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&servers.Items[i])})
			}
		}
		return requests
	}
}
