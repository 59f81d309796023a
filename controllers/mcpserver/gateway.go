package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/setup"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// routeDefinition is the CustomResourceDefinition by which a cluster serves HTTPRoutes.
const routeDefinition = "httproutes.gateway.networking.k8s.io"

// routeSyncTimeout bounds the first lists of HTTPRoutes and Gateways, which never end if the API is removed meanwhile. It is
// less than the time for which a controller waits for its sources.
const routeSyncTimeout = time.Minute

// gatewayAPI watches whether the cluster serves the Gateway API, which can be installed and removed while
// the manager starts and runs, and watches HTTPRoutes and Gateways while it does. It is a source of the controller.
type gatewayAPI struct {
	mgr   ctrl.Manager
	watch phases.ChildWatch
	// queue is that of the controller.
	queue requestQueue
	// newCache is [cache.New] outside of tests.
	newCache cache.NewCacheFunc
	// known is closed, by setKnown, once it is known whether the cluster serves the API.
	known    chan struct{}
	setKnown func()

	mu sync.Mutex
	// gateways caches all Gateways of the cluster; nil while the cluster does not serve them.
	gateways cache.Cache
	// stop ends the watch of Gateways.
	stop context.CancelFunc
	// denial is the error of a missing permission to watch the API; nil if none is known to be missing.
	denial error
}

func newGatewayAPI(mgr ctrl.Manager, newCache cache.NewCacheFunc) *gatewayAPI {
	known := make(chan struct{})
	return &gatewayAPI{mgr: mgr, newCache: newCache, known: known, setKnown: sync.OnceFunc(func() { close(known) })}
}

// watchChild takes over the watch of HTTPRoutes.
func (g *gatewayAPI) watchChild(c controller.Controller, watch phases.ChildWatch) (bool, error) {
	if _, isRoute := watch.Object.(*gatewayv1.HTTPRoute); !isRoute {
		return false, nil
	}
	g.watch = watch
	return true, c.Watch(g)
}

// cacheOf builds a cache beside that of the manager.
func (g *gatewayAPI) cacheOf(what string, options cache.Options) (cache.Cache, error) {
	options.HTTPClient, options.Scheme, options.Mapper = g.mgr.GetHTTPClient(), g.mgr.GetScheme(), g.mgr.GetRESTMapper()
	built, err := g.newCache(g.mgr.GetConfig(), options)
	if err != nil {
		return nil, fmt.Errorf("building the cache of %s: %w", what, err)
	}
	return built, nil
}

func (g *gatewayAPI) isServed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.gateways != nil
}

func (g *gatewayAPI) isWatched() bool { return true }

func (g *gatewayAPI) denied() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.denial
}

func (g *gatewayAPI) gateway(namespace, name string) *gatewayv1.Gateway {
	g.mu.Lock()
	gateways := g.gateways
	g.mu.Unlock()
	if gateways == nil {
		return nil
	}
	// The cache has synced, so Get neither waits nor fails with anything but NotFound.
	var gateway gatewayv1.Gateway
	if err := gateways.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, &gateway); err != nil {
		return nil
	}
	return &gateway
}

func (g *gatewayAPI) route(namespace, name string) *gatewayv1.HTTPRoute {
	if !g.isServed() {
		return nil
	}
	// If the API is removed meanwhile, the cache waits for an informer that does not sync.
	ctx, cancel := context.WithTimeout(context.Background(), routeSyncTimeout)
	defer cancel()
	var route gatewayv1.HTTPRoute
	if err := g.mgr.GetCache().Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &route); err != nil {
		return nil
	}
	return &route
}

// Start watches until ctx is done. Standby replicas watch as well, so that they have full caches.
func (g *gatewayAPI) Start(ctx context.Context, queue requestQueue) error {
	g.queue = queue
	definition := &metav1.PartialObjectMetadata{}
	definition.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	definitions, err := g.cacheOf("CustomResourceDefinitions", cache.Options{
		ByObject:                 map[client.Object]cache.ByObject{definition: {Field: fields.OneTermEqualSelector("metadata.name", routeDefinition)}},
		DefaultWatchErrorHandler: g.noteWatchError,
	})
	if err != nil {
		return err
	}
	informer, err := definitions.GetInformer(ctx, definition, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching CustomResourceDefinitions: %w", err)
	}
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { notify() }, UpdateFunc: func(_, _ any) { notify() }, DeleteFunc: func(any) { notify() }})
	if err != nil {
		return fmt.Errorf("watching CustomResourceDefinitions: %w", err)
	}
	go func() {
		if err := definitions.Start(ctx); err != nil {
			log.FromContext(ctx).Error(err, "Failed to watch the CustomResourceDefinition of HTTPRoutes")
		}
	}()
	go func() {
		if definitions.WaitForCacheSync(ctx) {
			g.watchDefinition(ctx, changed, func() bool {
				return definitions.Get(ctx, client.ObjectKey{Name: routeDefinition}, definition.DeepCopy()) == nil
			})
		}
		// The caches stay for reconciles that still run.
	}()
	return nil
}

// WaitForSync lets the first reconciles wait until it is known whether the API is served: they would otherwise report it
// as missing. If that takes too long, they begin without the API, which is watched as soon as it is served.
func (g *gatewayAPI) WaitForSync(ctx context.Context) error {
	select {
	case <-g.known:
	case <-ctx.Done():
	}
	return nil
}

// watchDefinition checks the API whenever its CustomResourceDefinition changes, and retries with backoff while
// the API server does not serve it yet.
func (g *gatewayAPI) watchDefinition(ctx context.Context, changed <-chan struct{}, isDefined func() bool) {
	const minDelay, maxDelay = 250 * time.Millisecond, 5 * time.Minute
	delay, retry := minDelay, time.NewTimer(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			delay = minDelay
		case <-retry.C:
		}
		var err error
		switch served, defined := g.isServed(), isDefined(); {
		case served && !defined:
			g.stopWatches(ctx)
		case !served && defined:
			err = g.startWatches(ctx)
		}
		if err != nil {
			log.FromContext(ctx).V(1).Info("Gateway API is installed but not served yet; retrying", "error", err.Error())
			retry.Reset(delay)
			delay = min(2*delay, maxDelay)
		}
		g.noteDenial(ctx, err)
		if err == nil || apierrors.IsForbidden(err) { // for a permission, reconciles do not wait
			g.setKnown()
		}
	}
}

// noteWatchError reports a missing permission to watch the CustomResourceDefinition, without which it stays unknown whether the
// cluster serves the API. The watch is retried, and the denial ends when it begins.
func (g *gatewayAPI) noteWatchError(ctx context.Context, reflector *toolscache.Reflector, err error) {
	if !apierrors.IsForbidden(err) {
		toolscache.DefaultWatchErrorHandler(ctx, reflector, err)
		return
	}
	log.FromContext(ctx).Error(err, "Failed to watch the CustomResourceDefinition of HTTPRoutes")
	select {
	case <-g.known: // the watch began before, or this was reported
	default:
		g.noteDenial(ctx, err)
		g.setKnown()
	}
}

// noteDenial keeps the error of a missing permission for the condition of the phase.
func (g *gatewayAPI) noteDenial(ctx context.Context, err error) {
	if !apierrors.IsForbidden(err) {
		err = nil
	}
	g.mu.Lock()
	isNew := (g.denial == nil) != (err == nil)
	g.denial = err
	g.mu.Unlock()
	if isNew {
		g.enqueue(ctx)
	}
}

// startWatches watches HTTPRoutes and Gateways, and enqueues the MCPServers with a route.
func (g *gatewayAPI) startWatches(ctx context.Context) error {
	// Discovery data may be stale; a List shows whether the API is served.
	for _, list := range []client.ObjectList{&gatewayv1.HTTPRouteList{}, &gatewayv1.GatewayList{}} {
		if err := g.mgr.GetAPIReader().List(ctx, list, client.Limit(1)); err != nil {
			return err
		}
	}
	// A concurrent reconcile may have started an informer after the API was removed. Such an informer
	// backs off, so it is replaced.
	if err := g.removeInformer(ctx); err != nil {
		return err
	}
	if err := g.watch.Index(g.mgr.GetFieldIndexer()); err != nil {
		return fmt.Errorf("indexing HTTPRoutes: %w", err)
	}
	syncing, cancel := context.WithTimeout(ctx, routeSyncTimeout)
	defer cancel()
	if _, err := g.mgr.GetCache().GetInformer(syncing, g.watch.Object); err != nil {
		return err
	}
	gateways, err := g.cacheOf("Gateways", cache.Options{})
	if err != nil {
		return err
	}
	if _, err := gateways.GetInformer(syncing, &gatewayv1.Gateway{}); err != nil {
		return err
	}
	stop := g.run(ctx, gateways)
	if !gateways.WaitForCacheSync(syncing) {
		stop()
		return errors.New("the cache of Gateways has not synced")
	}
	for _, watched := range []source.Source{
		source.Kind(g.mgr.GetCache(), g.watch.Object, g.watch.Handler),
		source.Kind[client.Object](gateways, &gatewayv1.Gateway{}, handler.EnqueueRequestsFromMapFunc(g.serversWithRoute)),
	} {
		if err := watched.Start(ctx, g.queue); err != nil {
			stop()
			return err
		}
	}
	g.mu.Lock()
	g.gateways, g.stop = gateways, stop
	g.mu.Unlock()
	log.FromContext(ctx).Info("Gateway API is served; watching HTTPRoutes and Gateways")
	g.enqueue(ctx)
	return nil
}

// run runs the cache of Gateways until ctx is done or stop is called.
func (g *gatewayAPI) run(ctx context.Context, gateways cache.Cache) context.CancelFunc {
	ctx, stop := context.WithCancel(ctx)
	go func() {
		if err := gateways.Start(ctx); err != nil {
			log.FromContext(ctx).Error(err, "Failed to watch Gateways")
		}
	}()
	return stop
}

// stopWatches stops the watches after the cluster has stopped serving the Gateway API.
func (g *gatewayAPI) stopWatches(ctx context.Context) {
	g.mu.Lock()
	stop := g.stop
	g.gateways, g.stop = nil, nil
	g.mu.Unlock()
	stop()
	log.FromContext(ctx).Info("Gateway API is no longer served; stopping its watches")
	if err := g.removeInformer(ctx); err != nil {
		log.FromContext(ctx).Error(err, "Failed to stop the watch of HTTPRoutes")
	}
	g.enqueue(ctx)
}

// removeInformer stops the watch of HTTPRoutes.
func (g *gatewayAPI) removeInformer(ctx context.Context) error {
	return g.mgr.GetCache().RemoveInformer(ctx, g.watch.Object)
}

// enqueue enqueues all MCPServers with a route.
func (g *gatewayAPI) enqueue(ctx context.Context) {
	for _, request := range g.serversWithRoute(ctx, nil) {
		g.queue.Add(request)
	}
}

// serversWithRoute lists the MCPServers whose route refers to the Gateway, or all with a route if it is nil.
func (g *gatewayAPI) serversWithRoute(ctx context.Context, gateway client.Object) []reconcile.Request {
	return setup.Enqueue(g.mgr.GetClient(), &v1beta1.MCPServerList{}, func(server *v1beta1.MCPServer) bool {
		return server.Spec.HTTPRoute != nil && (gateway == nil || refersTo(server, gateway))
	})(ctx, gateway)
}

func refersTo(server *v1beta1.MCPServer, gateway client.Object) bool {
	for _, parent := range server.Spec.HTTPRoute.ParentRefs {
		if parent.Name == gateway.GetName() && namespaceOf(parent, server) == gateway.GetNamespace() {
			return true
		}
	}
	return false
}

// staticGatewayAPI is the Gateway API for plans, and for a manager without cluster-wide permissions: it is served or not
// as detected when the manager started.
type staticGatewayAPI bool

func (u staticGatewayAPI) isServed() bool                         { return bool(u) }
func (u staticGatewayAPI) isWatched() bool                        { return false }
func (u staticGatewayAPI) denied() error                          { return nil }
func (u staticGatewayAPI) gateway(_, _ string) *gatewayv1.Gateway { return nil }
func (u staticGatewayAPI) route(_, _ string) *gatewayv1.HTTPRoute { return nil }

// routeReader is a reader that fails reads of HTTPRoutes while the cluster does not serve them. Without
// it, each read would query the discovery API.
//
// Reads of HTTPRoutes do not use read-your-writes consistency: as of controller-runtime v0.25 the client
// would wait for the first informer of the kind, which stops when the API is removed. A write based on a
// stale read fails its precondition, and the object is read again.
type routeReader struct {
	client.Reader
	api gatewayReader
}

// Get implements [client.Reader].
func (r routeReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if _, isRoute := object.(*gatewayv1.HTTPRoute); isRoute {
		if !r.api.isServed() {
			return errRouteNotServed
		}
		options = append(options, client.DisableReadYourWritesConsistency)
	}
	return r.Reader.Get(ctx, key, object, options...)
}

// List implements [client.Reader].
func (r routeReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if _, isRoute := list.(*gatewayv1.HTTPRouteList); isRoute {
		if !r.api.isServed() {
			return errRouteNotServed
		}
		options = append(options, client.DisableReadYourWritesConsistency)
	}
	return r.Reader.List(ctx, list, options...)
}

var errRouteNotServed = &meta.NoKindMatchError{
	GroupKind: schema.GroupKind{Group: gatewayv1.GroupName, Kind: "HTTPRoute"}, SearchedVersions: []string{gatewayv1.GroupVersion.Version}}
