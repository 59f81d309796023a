package setup

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fixpoint-dev/fixpoint/internal/lease"
)

// claimed is a source of the objects in namespaces that this release has just claimed. Earlier requests for them
// ended without a reconcile.
func claimed(guard *lease.Guard, mgr ctrl.Manager, list client.ObjectList) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		guard.Subscribe(func(change lease.Change) {
			isGained := func(o client.Object) bool { return change.Gained(o.GetNamespace()) }
			keys, err := Objects(ctx, mgr.GetCache(), list, isGained)
			if err != nil {
				mgr.GetLogger().Error(err, "Failed to list the objects of claimed namespaces; they are reconciled when they change")
				return
			}
			for _, key := range keys {
				enqueue(queue, reconcile.Request{NamespacedName: key})
			}
		})
		return nil
	})
}

// enqueue gives way to requests for objects that change.
func enqueue(queue workqueue.TypedRateLimitingInterface[reconcile.Request], request reconcile.Request) {
	if prioritized, ok := queue.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		prioritized.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(handler.LowPriority)}, request)
		return
	}
	queue.Add(request)
}

// Enqueue maps an event to the objects of a kind that are selected.
func Enqueue[T client.Object](reader client.Reader, kind client.ObjectList, selected func(T) bool) handler.MapFunc {
	return func(ctx context.Context, changed client.Object) []reconcile.Request {
		keys, err := Objects(ctx, reader, kind, selected)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Failed to list the objects that a change may affect", "changed", klog.KObj(changed))
		}
		var requests []reconcile.Request
		for _, key := range keys {
			requests = append(requests, reconcile.Request{NamespacedName: key})
		}
		return requests
	}
}

// Objects returns the keys of the objects of a kind that are selected.
func Objects[T client.Object](ctx context.Context, reader client.Reader, kind client.ObjectList, selected func(T) bool) ([]client.ObjectKey, error) {
	list, ok := kind.DeepCopyObject().(client.ObjectList)
	if !ok {
		return nil, fmt.Errorf("%T is not a list", kind)
	}
	if err := reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing %T: %w", kind, err)
	}
	var keys []client.ObjectKey
	err := meta.EachListItem(list, func(item runtime.Object) error {
		if object, ok := item.(T); ok && selected(object) {
			keys = append(keys, client.ObjectKeyFromObject(object))
		}
		return nil
	})
	return keys, err
}
