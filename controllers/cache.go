package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"time"
	"unique"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers/appservice"
	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
	"github.com/fixpoint-dev/fixpoint/controllers/securestorage"
	"github.com/fixpoint-dev/fixpoint/internal/lease"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// strip is a cache transform. Of objects that Fixpoint does not manage, it keeps only the identity, so that the
// memory of the manager grows with the managed objects and not with the cluster. Of children that are as they
// were applied, it keeps a digest of that, and what their phases read: see [ssa.Compact]. Before the manager
// writes to a stripped object, it reads it from the API server.
func strip(cached any) (any, error) {
	if metadata, ok := cached.(*metav1.PartialObjectMetadata); ok {
		metadata.ManagedFields, metadata.Annotations, metadata.Labels, metadata.OwnerReferences = nil, nil, nil, nil
		shareNamespace(metadata)
		return metadata, nil
	}
	object, ok := cached.(client.Object)
	if !ok {
		return cached, nil
	}
	switch object := object.(type) {
	case *v1beta1.AppService:
		stripOwner(object, &object.Status.Conditions)
		return object, nil
	case *v1beta1.MCPServer:
		stripOwner(object, &object.Status.Conditions)
		return object, nil
	case *v1beta1.SecureStorage:
		stripOwner(object, &object.Status.Conditions)
		return object, nil
	case *networkingv1.IngressClass:
		return object, nil
	case *discoveryv1.EndpointSlice: // the cache selects those of managed Services by label
		object.ManagedFields, object.Annotations = nil, nil
		return object, nil
	}
	if manager := managerOf(object); manager != "" {
		stripChild(object, manager)
		return object, nil
	}
	stripped, _ := reflect.New(reflect.TypeOf(object).Elem()).Interface().(client.Object)
	stripped.SetName(object.GetName())
	stripped.SetNamespace(object.GetNamespace())
	stripped.SetUID(object.GetUID())
	stripped.SetResourceVersion(object.GetResourceVersion())
	stripped.SetOwnerReferences(object.GetOwnerReferences())
	stripped.SetDeletionTimestamp(object.GetDeletionTimestamp())
	return stripped, nil
}

// stripChild keeps of a child what its phase reads: what decides whether it is ready, and the name of what it is.
// A child of another kind, or one that has drifted, stays whole.
func stripChild(child client.Object, fieldManager string) {
	annotations := child.GetAnnotations()
	if !ssa.Compact(child, fieldManager) {
		return
	}
	switch child := child.(type) {
	case *appsv1.Deployment:
		kept := appsv1.DeploymentSpec{Replicas: child.Spec.Replicas, ProgressDeadlineSeconds: child.Spec.ProgressDeadlineSeconds}
		if workload.Ready(child).IsDone() {
			child.Status.Conditions = nil
		} else {
			kept.Selector = child.Spec.Selector // finds the pods that explain why the rollout makes no progress
		}
		mcpserver.KeepDependenciesHash(&kept.Template, child.Spec.Template.Annotations)
		child.Spec = kept
	case *autoscalingv2.HorizontalPodAutoscaler:
		child.Spec = autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: child.Spec.MinReplicas, MaxReplicas: child.Spec.MaxReplicas}
		child.Status = autoscalingv2.HorizontalPodAutoscalerStatus{Conditions: child.Status.Conditions}
	case *networkingv1.Ingress:
		child.Spec, child.Status = networkingv1.IngressSpec{IngressClassName: child.Spec.IngressClassName}, networkingv1.IngressStatus{}
		workload.KeepIngressClass(child, annotations)
	case *policyv1.PodDisruptionBudget:
		child.Spec, child.Status = policyv1.PodDisruptionBudgetSpec{}, policyv1.PodDisruptionBudgetStatus{ObservedGeneration: child.Status.ObservedGeneration}
	case *corev1.Service:
		child.Spec, child.Status = corev1.ServiceSpec{}, corev1.ServiceStatus{}
	case *corev1.ConfigMap:
		child.BinaryData = nil
		mcpserver.KeepContractKeys(child)
	case *corev1.Secret:
		if child.Type != v1beta1.SecretTypeSessionKeys { // their phase keeps those that exist
			child.Data = nil
		}
	case *batchv1.Job:
		child.Spec = batchv1.JobSpec{}
	case *networkingv1.NetworkPolicy:
		child.Spec = networkingv1.NetworkPolicySpec{}
	default:
		return
	}
	child.SetLabels(nil)
	shareStrings(child)
}

// stripOwner makes an object of a kind of Fixpoint smaller without changing what its controller reads. The slices are
// copied, because decoding leaves them with room for more entries.
func stripOwner(owner client.Object, conditions *[]metav1.Condition) {
	// kubectl apply stores the manifest a second time.
	delete(owner.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
	shareNamespace(owner)
	entries := slices.Clone(owner.GetManagedFields())
	for i := range entries {
		shareEntry(&entries[i])
	}
	owner.SetManagedFields(entries)
	*conditions = slices.Clone(*conditions)
	for i := range *conditions {
		condition := &(*conditions)[i]
		share(&condition.Type)
		share(&condition.Status)
		share(&condition.Reason)
	}
}

// fieldSets holds the field sets of managed fields that were seen last. Objects of a kind with the same conditions
// and the same fields in their spec have equal ones.
var fieldSets = lru.New(256)

// shareEntry makes objects share equal field sets and field managers. Objects from the cache are copied or only read.
func shareEntry(entry *metav1.ManagedFieldsEntry) {
	share(&entry.Manager)
	share(&entry.Operation)
	share(&entry.APIVersion)
	share(&entry.FieldsType)
	share(&entry.Subresource)
	if entry.FieldsV1 == nil {
		return
	}
	raw := entry.FieldsV1.GetRawString()
	if known, ok := fieldSets.Get(raw); ok {
		entry.FieldsV1, _ = known.(*metav1.FieldsV1)
		return
	}
	fieldSets.Add(raw, entry.FieldsV1)
}

// shareStrings makes children share the strings that they have in common. The UID of an owner is not one of them: as
// few objects have it, the table of shared strings would take as much memory as the copies.
func shareStrings(child client.Object) {
	shareNamespace(child)
	owners := child.GetOwnerReferences()
	for i := range owners {
		owner := &owners[i]
		share(&owner.APIVersion)
		share(&owner.Kind)
		if owner.Name == child.GetName() {
			owner.Name = child.GetName()
		}
		if ptr.Deref(owner.Controller, false) && ptr.Deref(owner.BlockOwnerDeletion, false) {
			owner.Controller, owner.BlockOwnerDeletion = &yes, &yes
		}
	}
}

func shareNamespace(object client.Object) {
	namespace := object.GetNamespace()
	share(&namespace)
	object.SetNamespace(namespace)
}

// share replaces a string that many objects have by a copy that they share.
func share[S ~string](s *S) { *s = S(unique.Make(string(*s)).Value()) }

var yes = true

// managerOf is the field manager that applies the object, or empty if none of the controllers does.
func managerOf(object client.Object) string {
	controller := metav1.GetControllerOfNoCopy(object)
	if controller == nil {
		return ""
	}
	gv, _ := schema.ParseGroupVersion(controller.APIVersion)
	if gv.Group != v1beta1.SchemeGroupVersion.Group {
		return ""
	}
	switch controller.Kind {
	case "AppService":
		return appservice.FieldManager
	case "MCPServer":
		return mcpserver.FieldManager
	default:
		return securestorage.FieldManager
	}
}

// stoppable is a manager that can be stopped before its caches have synced, for example while the API
// server does not respond or denies a list. controller-runtime, as of v0.25, keeps waiting for the
// caches in a busy loop. The manager also stops when another replica acquires its Lease.
type stoppable struct {
	ctrl.Manager
	cache *stoppableCache
	// guard is nil without leader election.
	guard *lease.Guard
	// webhook is nil if it is disabled.
	webhook *webhook
}

// Start implements [ctrl.Manager].
func (m stoppable) Start(ctx context.Context) error {
	stop, err := m.webhook.start(ctx)
	if err != nil {
		return err
	}
	defer stop()
	defer context.AfterFunc(ctx, m.cache.stop)()
	if m.guard == nil {
		return m.Manager.Start(ctx)
	}
	return startGuarded(ctx, m.Manager, m.guard)
}

// stoppableCache is the cache of a stoppable manager. It keeps Secrets of the types that the manager writes apart: the data of
// others does not reach the manager by a watch. Of all Secrets, Cache can have the metadata. A watch selects a single
// type, so each controller that writes Secrets has a cache of its own for them: see secretsOf.
type stoppableCache struct {
	cache.Cache
	// secrets are the caches of Secrets, by their type.
	secrets map[string]cache.Cache
	running context.Context
	stop    context.CancelFunc
}

// secretTypes are the types of the Secrets that the manager writes.
var secretTypes = []string{v1beta1.SecretTypeAccountKeys, v1beta1.SecretTypeSessionKeys}

func newStoppableCache() *stoppableCache {
	c := &stoppableCache{secrets: map[string]cache.Cache{}}
	c.running, c.stop = context.WithCancel(context.Background())
	return c
}

// build is a [cache.NewCacheFunc]. The Secrets of the cache are those with account keys.
func (c *stoppableCache) build(cfg *rest.Config, options cache.Options) (cache.Cache, error) {
	inner, err := cache.New(cfg, options)
	if err != nil {
		return nil, err
	}
	c.Cache = inner
	for _, secretType := range secretTypes {
		options.ByObject, options.DefaultFieldSelector = nil, fields.OneTermEqualSelector("type", secretType)
		if c.secrets[secretType], err = cache.New(cfg, options); err != nil {
			return nil, err
		}
	}
	return c.secretsOf(v1beta1.SecretTypeAccountKeys), nil
}

// secretsOf is the cache for a controller that writes Secrets of a type.
func (c *stoppableCache) secretsOf(secretType string) cache.Cache {
	return secretCache{c, c.secrets[secretType]}
}

// secretCache is a cache whose Secrets are those of one type.
type secretCache struct {
	*stoppableCache
	secrets cache.Cache
}

// of returns the cache of the objects of a Go type.
func (c secretCache) of(object runtime.Object) cache.Cache {
	switch object.(type) {
	case *corev1.Secret, *corev1.SecretList:
		return c.secrets
	default:
		return c.Cache
	}
}

// Get implements [client.Reader].
func (c secretCache) Get(ctx context.Context, key client.ObjectKey, into client.Object, o ...client.GetOption) error {
	return c.of(into).Get(ctx, key, into, o...)
}

// List implements [client.Reader].
func (c secretCache) List(ctx context.Context, into client.ObjectList, o ...client.ListOption) error {
	return c.of(into).List(ctx, into, o...)
}

// GetInformer implements [cache.Informers].
func (c secretCache) GetInformer(ctx context.Context, object client.Object, o ...cache.InformerGetOption) (cache.Informer, error) {
	return c.of(object).GetInformer(ctx, object, o...)
}

// IndexField implements [client.FieldIndexer].
func (c secretCache) IndexField(ctx context.Context, object client.Object, field string, extract client.IndexerFunc) error {
	return c.of(object).IndexField(ctx, object, field, extract)
}

// secretManager is a manager for a controller that writes Secrets of a type: they are the Secrets of its cache.
type secretManager struct {
	ctrl.Manager
	cache  cache.Cache
	client client.Client
}

// withSecretsOf returns the manager as a controller sees it that writes Secrets of a type.
func withSecretsOf(mgr ctrl.Manager, caches *stoppableCache, secretType string, options client.Options) (ctrl.Manager, error) {
	m := secretManager{Manager: mgr, cache: caches.secretsOf(secretType)}
	options.HTTPClient, options.Scheme, options.Mapper = mgr.GetHTTPClient(), mgr.GetScheme(), mgr.GetRESTMapper()
	cached := *options.Cache
	cached.Reader = m.cache
	options.Cache = &cached
	var err error
	if m.client, err = newClient(mgr.GetConfig(), options); err != nil {
		return nil, fmt.Errorf("building a client for Secrets of the type %s: %w", secretType, err)
	}
	return m, nil
}

// GetCache implements [ctrl.Manager].
func (m secretManager) GetCache() cache.Cache { return m.cache }

// GetClient implements [ctrl.Manager].
func (m secretManager) GetClient() client.Client { return m.client }

// GetFieldIndexer implements [ctrl.Manager].
func (m secretManager) GetFieldIndexer() client.FieldIndexer { return m.cache }

// Start implements [cache.Informers].
func (c *stoppableCache) Start(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, secrets := range c.secrets {
		group.Go(func() error { return secrets.Start(ctx) })
	}
	group.Go(func() error { return c.Cache.Start(ctx) })
	return group.Wait()
}

// WaitForCacheSync also returns true when the manager is stopped, so that the shutdown can proceed.
func (c *stoppableCache) WaitForCacheSync(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.running, cancel)()
	synced := c.Cache.WaitForCacheSync(ctx)
	for _, secrets := range c.secrets {
		synced = synced && secrets.WaitForCacheSync(ctx)
	}
	return synced || c.running.Err() != nil
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
