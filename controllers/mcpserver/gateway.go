package mcpserver

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// routeDefinition is the CustomResourceDefinition by which a cluster serves HTTPRoutes.
const routeDefinition = "httproutes.gateway.networking.k8s.io"

// gatewayAPI follows the Gateway API, which a cluster need not have, and may get or lose while the
// manager runs. HTTPRoutes and Gateways are watched while it is there. It is a runnable of the manager.
type gatewayAPI struct {
	mgr   ctrl.Manager
	watch phases.ChildWatch
	// controller is where watches are added to.
	controller controller.Controller
	queue      atomic.Pointer[requestQueue]
	// indexed is true while the cache of HTTPRoutes has its index, which it takes but once.
	indexed bool

	mu sync.Mutex
	// gateways holds all Gateways of the cluster; nil while there can be none.
	gateways cache.Cache
	// stop ends the watch of Gateways.
	stop context.CancelFunc
}

// newGatewayAPI finds out whether the cluster has the Gateway API now.
func newGatewayAPI(mgr ctrl.Manager) (*gatewayAPI, error) {
	g := &gatewayAPI{mgr: mgr}
	for _, kind := range []client.Object{&gatewayv1.HTTPRoute{}, &gatewayv1.Gateway{}} {
		served, err := isServed(mgr, kind)
		if err != nil || !served {
			return g, err
		}
	}
	gateways, err := g.newGateways()
	g.gateways = gateways
	return g, err
}

// addTo adds to the controller what there is to watch now, and what is watched of HTTPRoutes later.
func (g *gatewayAPI) addTo(ctx context.Context, b *builder.Builder, watch phases.ChildWatch) (*builder.Builder, error) {
	g.watch = watch
	b = b.WatchesRawSource(g.source())
	if g.gateways == nil {
		return b, nil
	}
	if err := g.index(ctx); err != nil {
		return b, err
	}
	return b.Watches(watch.Object, watch.Handler).WatchesRawSource(g.gatewaySource(g.gateways)), nil
}

func (g *gatewayAPI) index(ctx context.Context) error {
	if g.indexed {
		return nil
	}
	if err := ssa.IndexController(ctx, g.mgr.GetFieldIndexer(), g.watch.Object); err != nil {
		return fmt.Errorf("indexing HTTPRoutes: %w", err)
	}
	g.indexed = true
	return nil
}

func (g *gatewayAPI) newGateways() (cache.Cache, error) {
	gateways, err := cache.New(g.mgr.GetConfig(), cache.Options{
		HTTPClient: g.mgr.GetHTTPClient(), Scheme: g.mgr.GetScheme(), Mapper: g.mgr.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("making a cache of Gateways: %w", err)
	}
	return gateways, nil
}

func (g *gatewayAPI) gatewaySource(gateways cache.Cache) source.Source {
	return source.Kind[client.Object](gateways, &gatewayv1.Gateway{}, handler.EnqueueRequestsFromMapFunc(g.withRoute))
}

// NeedLeaderElection is false: standbys take over with full caches.
func (g *gatewayAPI) NeedLeaderElection() bool { return false }

func (g *gatewayAPI) isServed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.gateways != nil
}

func (g *gatewayAPI) isFollowed() bool { return true }

func (g *gatewayAPI) gateway(namespace, name string) *gatewayv1.Gateway {
	g.mu.Lock()
	gateways := g.gateways
	g.mu.Unlock()
	if gateways == nil {
		return nil
	}
	// The cache is full, so that this neither waits nor fails for any other reason than that there is none.
	var gateway gatewayv1.Gateway
	if err := gateways.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, &gateway); err != nil {
		return nil
	}
	return &gateway
}

// Start follows until ctx is done.
func (g *gatewayAPI) Start(ctx context.Context) error {
	g.mu.Lock()
	if g.gateways != nil {
		g.stop = g.run(ctx, g.gateways)
	}
	g.mu.Unlock()
	definition := &metav1.PartialObjectMetadata{}
	definition.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	definitions, err := cache.New(g.mgr.GetConfig(), cache.Options{
		HTTPClient: g.mgr.GetHTTPClient(), Scheme: g.mgr.GetScheme(), Mapper: g.mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{definition: {Field: fields.OneTermEqualSelector("metadata.name", routeDefinition)}},
	})
	if err != nil {
		return fmt.Errorf("making a cache of definitions: %w", err)
	}
	informer, err := definitions.GetInformer(ctx, definition, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching definitions: %w", err)
	}
	changed := make(chan struct{}, 1)
	tell := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { tell() }, UpdateFunc: func(_, _ any) { tell() }, DeleteFunc: func(any) { tell() }})
	if err != nil {
		return fmt.Errorf("watching definitions: %w", err)
	}
	go func() {
		if err := definitions.Start(ctx); err != nil {
			log.FromContext(ctx).Error(err, "Watching the definition of HTTPRoutes")
		}
	}()
	if definitions.WaitForCacheSync(ctx) {
		g.follow(ctx, changed, func() bool {
			return definitions.Get(ctx, client.ObjectKey{Name: routeDefinition}, definition.DeepCopy()) == nil
		})
	}
	// What is known stays as it is for the passes that still run.
	return nil
}

// follow looks whenever the definition has changed, and again a little later as long as the API server
// does not serve yet what is defined.
func (g *gatewayAPI) follow(ctx context.Context, changed <-chan struct{}, isDefined func() bool) {
	const first, longest = 250 * time.Millisecond, 5 * time.Minute
	pause, retry := first, time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			pause = first
		case <-retry.C:
		}
		switch isHere := g.isServed(); {
		case isHere && !isDefined():
			g.end(ctx)
		case !isHere && isDefined():
			if err := g.begin(ctx); err != nil {
				log.FromContext(ctx).V(1).Info("HTTPRoutes are defined and not served yet", "problem", err.Error())
				retry.Reset(pause)
				pause = min(2*pause, longest)
			}
		}
	}
}

// begin watches HTTPRoutes and Gateways, and lets everything be looked at that wants one.
func (g *gatewayAPI) begin(ctx context.Context) error {
	// What is known of the API's kinds may be from before it went.
	for _, list := range []client.ObjectList{&gatewayv1.HTTPRouteList{}, &gatewayv1.GatewayList{}} {
		if err := g.mgr.GetAPIReader().List(ctx, list, client.Limit(1)); err != nil {
			return err
		}
	}
	// A pass that was under way when the API went may have begun to watch again, and a watch that has
	// failed for long tries again only after long.
	if err := g.forget(ctx); err != nil {
		return err
	}
	if err := g.index(ctx); err != nil {
		return err
	}
	if _, err := g.mgr.GetCache().GetInformer(ctx, g.watch.Object); err != nil {
		return err
	}
	gateways, err := g.newGateways()
	if err != nil {
		return err
	}
	stop := g.run(ctx, gateways)
	if err := g.join(ctx, gateways); err != nil {
		stop()
		return err
	}
	g.mu.Lock()
	g.gateways, g.stop = gateways, stop
	g.mu.Unlock()
	log.FromContext(ctx).Info("The cluster serves the Gateway API")
	return g.enqueue(ctx)
}

// run fills a cache of Gateways until ctx is done or it is stopped.
func (g *gatewayAPI) run(ctx context.Context, gateways cache.Cache) context.CancelFunc {
	ctx, stop := context.WithCancel(ctx)
	go func() {
		if err := gateways.Start(ctx); err != nil {
			log.FromContext(ctx).Error(err, "Watching Gateways")
		}
	}()
	return stop
}

// join adds the watches to a controller that may be running.
func (g *gatewayAPI) join(ctx context.Context, gateways cache.Cache) error {
	if _, err := gateways.GetInformer(ctx, &gatewayv1.Gateway{}); err != nil {
		return err
	}
	if err := g.controller.Watch(source.Kind(g.mgr.GetCache(), g.watch.Object, g.watch.Handler)); err != nil {
		return err
	}
	return g.controller.Watch(g.gatewaySource(gateways))
}

// end stops the watches, because the cluster no longer has the Gateway API.
func (g *gatewayAPI) end(ctx context.Context) {
	g.mu.Lock()
	stop := g.stop
	g.gateways, g.stop = nil, nil
	g.mu.Unlock()
	if stop == nil {
		return
	}
	stop()
	log.FromContext(ctx).Info("The cluster no longer serves the Gateway API")
	if err := g.forget(ctx); err != nil {
		log.FromContext(ctx).Error(err, "Ending the watch of HTTPRoutes")
	}
	if err := g.enqueue(ctx); err != nil {
		log.FromContext(ctx).Error(err, "Listing MCPServers with routes")
	}
}

// forget ends the watch of HTTPRoutes.
func (g *gatewayAPI) forget(ctx context.Context) error {
	g.indexed = false
	return g.mgr.GetCache().RemoveInformer(ctx, g.watch.Object)
}

// source catches the controller's queue, for [gatewayAPI.enqueue].
func (g *gatewayAPI) source() source.Source {
	return source.Func(func(_ context.Context, queue requestQueue) error {
		g.queue.Store(&queue)
		return nil
	})
}

// enqueue lets all MCPServers be looked at that want a route.
func (g *gatewayAPI) enqueue(ctx context.Context) error {
	queue := g.queue.Load()
	if queue == nil {
		return nil // the controller has not begun, and looks at all when it does
	}
	for _, request := range g.withRoute(ctx, nil) {
		(*queue).Add(request)
	}
	return nil
}

// withRoute lists the MCPServers that a Gateway may matter to.
func (g *gatewayAPI) withRoute(ctx context.Context, gateway client.Object) []reconcile.Request {
	var servers v1alpha1.MCPServerList
	if err := g.mgr.GetClient().List(ctx, &servers); err != nil {
		log.FromContext(ctx).Error(err, "Listing MCPServers with routes")
		return nil
	}
	var requests []reconcile.Request
	for i := range servers.Items {
		server := &servers.Items[i]
		if server.Spec.HTTPRoute == nil || gateway != nil && !isThrough(server, gateway) {
			continue
		}
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(server)})
	}
	return requests
}

func isThrough(server *v1alpha1.MCPServer, gateway client.Object) bool {
	for _, parent := range server.Spec.HTTPRoute.ParentRefs {
		if parent.Name == gateway.GetName() && namespaceOf(parent, server) == gateway.GetNamespace() {
			return true
		}
	}
	return false
}

// unfollowed is the Gateway API for a manager that has no rights on what is of the whole cluster: it
// is there or not as it was when the manager started.
type unfollowed bool

func (u unfollowed) isServed() bool                         { return bool(u) }
func (u unfollowed) isFollowed() bool                       { return false }
func (u unfollowed) gateway(_, _ string) *gatewayv1.Gateway { return nil }

// withoutRoutes is a reader that says at once that there are no HTTPRoutes while the cluster does not
// serve them: otherwise each look would ask the API server whether it does by now.
//
// Reads of them do not wait until they show what was written before: the client, as of
// controller-runtime v0.25, would wait for the watch that it knew first, which ends when the API goes.
// A write that is repeated for that is refused by its precondition, and the object is read again.
type withoutRoutes struct {
	client.Reader
	api gatewayReader
}

// Get implements [client.Reader].
func (r withoutRoutes) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if _, isRoute := object.(*gatewayv1.HTTPRoute); isRoute {
		if !r.api.isServed() {
			return errNoRoutes
		}
		options = append(options, client.DisableReadYourWritesConsistency)
	}
	return r.Reader.Get(ctx, key, object, options...)
}

// List implements [client.Reader].
func (r withoutRoutes) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if _, isRoute := list.(*gatewayv1.HTTPRouteList); isRoute {
		if !r.api.isServed() {
			return errNoRoutes
		}
		options = append(options, client.DisableReadYourWritesConsistency)
	}
	return r.Reader.List(ctx, list, options...)
}

var errNoRoutes = &meta.NoKindMatchError{
	GroupKind: schema.GroupKind{Group: gatewayv1.GroupName, Kind: "HTTPRoute"}, SearchedVersions: []string{gatewayv1.GroupVersion.Version}}
