package controllers

import (
	"context"
	"errors"
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

// stripUnowned is a cache transform. It keeps only the identity of objects that Fixpoint does not
// manage, so that the memory of the manager grows with the managed objects and not with the cluster.
// Before the manager writes to a stripped object, it reads it from the API server.
func stripUnowned(cached any) (any, error) {
	if metadata, ok := cached.(*metav1.PartialObjectMetadata); ok {
		metadata.ManagedFields, metadata.Annotations, metadata.Labels = nil, nil, nil
		return metadata, nil
	}
	object, ok := cached.(client.Object)
	if !ok || isManaged(object) {
		return cached, nil
	}
	stripped, ok := reflect.New(reflect.TypeOf(object).Elem()).Interface().(client.Object)
	if !ok {
		return cached, nil
	}
	stripped.SetName(object.GetName())
	stripped.SetNamespace(object.GetNamespace())
	stripped.SetUID(object.GetUID())
	stripped.SetResourceVersion(object.GetResourceVersion())
	stripped.SetOwnerReferences(object.GetOwnerReferences())
	stripped.SetDeletionTimestamp(object.GetDeletionTimestamp())
	return stripped, nil
}

func isManaged(object client.Object) bool {
	switch object.(type) {
	case *v1alpha1.AppService, *v1alpha1.MCPServer, *v1alpha1.SecureStorage, *networkingv1.IngressClass:
		return true
	case *discoveryv1.EndpointSlice:
		// The cache selects EndpointSlices of managed Services by label.
		return true
	}
	controller := metav1.GetControllerOfNoCopy(object)
	if controller == nil {
		return false
	}
	gv, err := schema.ParseGroupVersion(controller.APIVersion)
	return err == nil && gv.Group == v1alpha1.SchemeGroupVersion.Group
}

// stoppable is a manager that can be stopped before its caches have synced, for example while the API
// server does not respond or denies a list. controller-runtime, as of v0.25, keeps waiting for the
// caches in a busy loop. The manager also stops when another replica acquires its Lease.
type stoppable struct {
	ctrl.Manager
	cache *stoppableCache
	// guard is nil without leader election.
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

// WaitForCacheSync also returns true when the manager is stopped, so that the shutdown can proceed.
func (c *stoppableCache) WaitForCacheSync(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.running, cancel)()
	return c.Cache.WaitForCacheSync(ctx) || c.running.Err() != nil
}

// syncTimeout is how long the readiness check waits for the caches to sync.
const syncTimeout = 500 * time.Millisecond

// cachesSynced is a readiness check: a replica is ready to become the leader when its caches have synced.
func cachesSynced(mgr ctrl.Manager) healthz.Checker {
	return func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), syncTimeout)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the caches have not synced yet")
		}
		return nil
	}
}
