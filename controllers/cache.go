package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/lease"
)

// forgetStrangers keeps of objects that are not ours only who they are, so that the memory of a
// manager grows with its own objects and not with the cluster. Before one of them is touched, it
// is read from the API server.
func forgetStrangers(cached any) (any, error) {
	if metadata, ok := cached.(*metav1.PartialObjectMetadata); ok {
		metadata.ManagedFields, metadata.Annotations, metadata.Labels = nil, nil, nil
		return metadata, nil
	}
	object, ok := cached.(client.Object)
	if !ok || isOurs(object) {
		return cached, nil
	}
	stranger, ok := reflect.New(reflect.TypeOf(object).Elem()).Interface().(client.Object)
	if !ok {
		return cached, nil
	}
	stranger.SetName(object.GetName())
	stranger.SetNamespace(object.GetNamespace())
	stranger.SetUID(object.GetUID())
	stranger.SetResourceVersion(object.GetResourceVersion())
	stranger.SetOwnerReferences(object.GetOwnerReferences())
	stranger.SetDeletionTimestamp(object.GetDeletionTimestamp())
	return stranger, nil
}

func isOurs(object client.Object) bool {
	switch object.(type) {
	case *v1alpha1.AppService, *v1alpha1.MCPServer, *v1alpha1.SecureStorage, *networkingv1.IngressClass:
		return true
	case *discoveryv1.EndpointSlice:
		// Those of our Services have our labels, and others are not in the cache.
		return true
	}
	controller := metav1.GetControllerOfNoCopy(object)
	if controller == nil {
		return false
	}
	gv, err := schema.ParseGroupVersion(controller.APIVersion)
	return err == nil && gv.Group == v1alpha1.SchemeGroupVersion.Group
}

// stoppable is a manager that ends when it is stopped before its caches are full, because the API
// server does not answer or refuses a list. By itself controller-runtime, as of v0.25, waits for
// the caches all the same, in a loop that keeps a core busy. It also ends when its Lease is another's.
type stoppable struct {
	ctrl.Manager
	cache *stoppableCache
	// guard is nil without an election.
	guard *lease.Guard
}

// Start implements [ctrl.Manager].
func (m stoppable) Start(ctx context.Context) error {
	defer context.AfterFunc(ctx, m.cache.stop)()
	if m.guard == nil {
		return m.Manager.Start(ctx)
	}
	return startGuarded(ctx, m.Manager, m.guard)
}

// stoppableCache is the cache of a stoppable manager.
type stoppableCache struct {
	cache.Cache
	running context.Context
	stop    context.CancelFunc
}

func newStoppableCache() *stoppableCache {
	c := &stoppableCache{}
	c.running, c.stop = context.WithCancel(context.Background())
	return c
}

// build is a [cache.NewCacheFunc].
func (c *stoppableCache) build(cfg *rest.Config, options cache.Options) (cache.Cache, error) {
	inner, err := cache.New(cfg, options)
	c.Cache = inner
	return c, err
}

// WaitForCacheSync also ends the wait, as if all were well, when the manager is stopped: what goes
// on then is its end.
func (c *stoppableCache) WaitForCacheSync(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.running, cancel)()
	return c.Cache.WaitForCacheSync(ctx) || c.running.Err() != nil
}

// syncCheck is how long the readiness check waits for caches that should long be full.
const syncCheck = 500 * time.Millisecond

// cachesSynced is a readiness check: a replica is ready to take over when its caches are full.
func cachesSynced(mgr ctrl.Manager) healthz.Checker {
	return func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), syncCheck)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the caches are not full yet")
		}
		return nil
	}
}

// sharedIndexer lets several controllers ask for the same index, which a cache takes only once.
type sharedIndexer struct {
	client.FieldIndexer
	done map[string]bool
}

// IndexField implements [client.FieldIndexer].
func (i *sharedIndexer) IndexField(ctx context.Context, object client.Object, field string, extract client.IndexerFunc) error {
	index := fmt.Sprintf("%T %s", object, field)
	if i.done[index] {
		return nil
	}
	i.done[index] = true
	return i.FieldIndexer.IndexField(ctx, object, field, extract)
}
