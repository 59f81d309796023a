package phases

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// ProgressInterval is how long the progress of a child may go unreported, so that one status reports
// what many events said. What settles a child, and whatever is not its status, is acted on at once.
const ProgressInterval = time.Second

// childPriority is the priority of what changed in a child. Objects that are nearly done, and drifts, do not wait behind
// objects that are new, or that are only read after a start.
const childPriority = 10

// ChildWatch is the watch of one kind of child.
type ChildWatch struct {
	// Object is an empty object of the kind.
	Object client.Object
	// Handler turns events into requests for the owner.
	Handler handler.EventHandler

	// kind of the object, as the scheme of the engine has it.
	kind schema.GroupVersionKind
	// ofNamespaced is true if the owner is known to be namespaced.
	ofNamespaced bool
}

// watches lists the children's kinds, each once.
func (e *Engine[O, S]) watches(mapper meta.RESTMapper) []ChildWatch {
	var watches []ChildWatch
	mapping, err := mapper.RESTMapping(e.kind.GroupKind(), e.kind.Version)
	isClusterScoped := err == nil && mapping.Scope.Name() == meta.RESTScopeNameRoot
	seen := map[schema.GroupVersionKind]*childHandler{}
	for i := range e.slots {
		d := &e.slots[i]
		if d.Child == nil {
			continue
		}
		h := seen[d.kind]
		if h == nil {
			h = &childHandler{
				EventHandler: handler.EnqueueRequestForOwner(e.deps.Scheme, mapper, newObject[O](), handler.OnlyControllerOwner()),
				owner:        e.kind.GroupKind(), isClusterScoped: isClusterScoped,
			}
			seen[d.kind] = h
			watches = append(watches, ChildWatch{Object: d.Child, Handler: h, kind: d.kind, ofNamespaced: err == nil && !isClusterScoped})
		}
		h.settled = append(h.settled, d.Settled)
		h.ownersName = h.ownersName || d.HasOwnersName
	}
	return watches
}

// childHandler enqueues the owner of a child.
type childHandler struct {
	handler.EventHandler
	owner schema.GroupKind
	// isClusterScoped is true if the owner has no namespace.
	isClusterScoped bool
	// settled says for each phase with this kind of child whether the child is ready; nil cannot tell.
	settled []func(client.Object) bool
	// ownersName is true if a child has the owner's name.
	ownersName bool
}

// Update enqueues the owner, later if all that changed is how far the child has come; and if another controller has
// released the object, the object of its name, which may adopt it.
func (h *childHandler) Update(ctx context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	var after time.Duration
	if h.isProgress(e.ObjectOld, e.ObjectNew) {
		after = ProgressInterval
	}
	h.EventHandler.Update(ctx, e, childQueue{queue, after})
	if controllerOf(e.ObjectOld) != controllerOf(e.ObjectNew) {
		h.enqueueNamesake(e.ObjectNew, queue)
	}
}

// Delete enqueues the owner; and if the object had the name of the child of another object, that one, which may
// wait for the name to be free.
func (h *childHandler) Delete(ctx context.Context, e event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	h.EventHandler.Delete(ctx, e, childQueue{queue, 0})
	h.enqueueNamesake(e.Object, queue)
}

// enqueueNamesake enqueues the object whose child would have the name of one that it does not control.
func (h *childHandler) enqueueNamesake(object client.Object, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	if !h.ownersName || h.isManaged(object) {
		return
	}
	owner := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
	if h.isClusterScoped {
		owner.Namespace = ""
	}
	queue.Add(reconcile.Request{NamespacedName: owner})
}

func controllerOf(object client.Object) types.UID {
	if controller := metav1.GetControllerOfNoCopy(object); controller != nil {
		return controller.UID
	}
	return ""
}

func (h *childHandler) isManaged(object client.Object) bool {
	controller := metav1.GetControllerOfNoCopy(object)
	if controller == nil || controller.Name != object.GetName() {
		return false
	}
	return schema.FromAPIVersionAndKind(controller.APIVersion, controller.Kind).GroupKind() == h.owner
}

// isProgress says whether nothing changed but the status, and the child neither became ready nor ceased
// to be.
func (h *childHandler) isProgress(before, after client.Object) bool {
	if before.GetResourceVersion() == after.GetResourceVersion() {
		return false // a resync is acted on at once
	}
	if after.GetGeneration() == 0 || before.GetGeneration() != after.GetGeneration() {
		return false
	}
	if ssa.IsCompact(before) && !ssa.IsCompact(after) {
		return false // it has drifted
	}
	sameMetadata := includes(after.GetLabels(), before.GetLabels()) &&
		includes(after.GetAnnotations(), before.GetAnnotations()) &&
		slices.Equal(before.GetFinalizers(), after.GetFinalizers()) &&
		equality.Semantic.DeepEqual(before.GetOwnerReferences(), after.GetOwnerReferences()) &&
		before.GetDeletionTimestamp().Equal(after.GetDeletionTimestamp())
	return sameMetadata && !slices.ContainsFunc(h.settled, func(settled func(client.Object) bool) bool {
		return settled == nil || settled(before) != settled(after)
	})
}

// includes says whether all contains some. Labels that other field managers add do not concern the child.
func includes(all, some map[string]string) bool {
	for key, value := range some {
		if found, ok := all[key]; !ok || found != value {
			return false
		}
	}
	return true
}

// atOnce is the predicate for the objects themselves: it lets everything through but updates that change
// nothing but status and metadata, which afterInterval handles.
func atOnce() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return !canWait(e.ObjectOld, e.ObjectNew) }}
}

// afterInterval handles the updates that atOnce holds back, after the [ProgressInterval]. They are the
// echo of the engine's own status and finalizer, which would only make it report how far the children
// have come since; or an edit of the status, to be reverted.
func afterInterval() handler.EventHandler {
	return handler.Funcs{UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		if canWait(e.ObjectOld, e.ObjectNew) {
			queue.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.ObjectNew)}, ProgressInterval)
		}
	}}
}

// canWait says whether an update changed neither the spec nor the deletion, and removed no finalizer.
func canWait(before, after client.Object) bool {
	if before.GetResourceVersion() == after.GetResourceVersion() {
		return false // a resync is acted on at once
	}
	return before.GetGeneration() == after.GetGeneration() &&
		before.GetDeletionTimestamp().Equal(after.GetDeletionTimestamp()) &&
		!slices.ContainsFunc(before.GetFinalizers(), func(f string) bool { return !slices.Contains(after.GetFinalizers(), f) })
}

// childQueue adds requests with the [childPriority], unless they have one, and after a time. It is a priority queue for
// [handler.EventHandler], and passes on what a queue without priorities understands.
type childQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	after time.Duration
}

var _ priorityqueue.PriorityQueue[reconcile.Request] = childQueue{}

// Add implements the queue.
func (q childQueue) Add(request reconcile.Request) { q.AddWithOpts(priorityqueue.AddOpts{}, request) }

// AddWithOpts implements the queue.
func (q childQueue) AddWithOpts(o priorityqueue.AddOpts, requests ...reconcile.Request) {
	o.After = max(o.After, q.after)
	if prioritized, ok := q.TypedRateLimitingInterface.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		o.Priority = cmp.Or(o.Priority, ptr.To(childPriority))
		prioritized.AddWithOpts(o, requests...)
		return
	}
	for _, request := range requests {
		q.AddAfter(request, o.After)
	}
}

// GetWithPriority implements the queue, of which handlers only add.
func (q childQueue) GetWithPriority() (request reconcile.Request, priority int, shutdown bool) {
	request, shutdown = q.Get()
	return request, 0, shutdown
}
