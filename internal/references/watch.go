package references

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// index is the name of the index of objects by what they refer to.
const index = "spec.references"

// Index indexes the objects of a kind by the objects that they refer to, for [Reader.Sources].
func Index[T client.Object](ctx context.Context, indexer client.FieldIndexer, kind T, of func(T) []Reference) error {
	if err := indexer.IndexField(ctx, kind, index, indexed(of)); err != nil {
		return fmt.Errorf("indexing references: %w", err)
	}
	return nil
}

func indexed[T client.Object](of func(T) []Reference) client.IndexerFunc {
	return func(object client.Object) []string {
		referrer, ok := object.(T)
		if !ok {
			return nil
		}
		var ids []string
		for _, reference := range of(referrer) {
			ids = append(ids, reference.ID())
		}
		return ids
	}
}

// Referrers are the objects of an indexed kind.
type Referrers struct {
	// Reader lists them from a cache, and List is an empty list of them.
	Reader client.Reader
	List   client.ObjectList
	// Delay is how long after a change of a referenced object they are reconciled.
	Delay time.Duration
}

// Sources reconcile the objects that refer to an object of one of the kinds when that changes.
func (r *Reader) Sources(watched cache.Cache, referrers Referrers, kinds ...Kind) []source.Source {
	var sources []source.Source
	for _, kind := range kinds {
		metadata := &metav1.PartialObjectMetadata{}
		metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(string(kind)))
		sources = append(sources, source.Kind(watched, client.Object(metadata), r.handler(referrers, kind)))
	}
	return sources
}

type requestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func (r *Reader) handler(referrers Referrers, kind Kind) handler.EventHandler {
	return handler.TypedFuncs[client.Object, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, queue requestQueue) {
			referrers.enqueue(ctx, kind, e.Object, queue)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, queue requestQueue) {
			referrers.enqueue(ctx, kind, e.ObjectNew, queue)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, queue requestQueue) {
			r.Forget(e.Object.GetUID())
			referrers.enqueue(ctx, kind, e.Object, queue)
		},
	}
}

func (f Referrers) enqueue(ctx context.Context, kind Kind, object client.Object, queue requestQueue) {
	id := Reference{Kind: kind, Name: object.GetName()}.ID()
	list, _ := f.List.DeepCopyObject().(client.ObjectList)
	err := f.Reader.List(ctx, list, client.InNamespace(object.GetNamespace()), client.MatchingFields{index: id},
		client.DisableReadYourWritesConsistency, client.UnsafeDisableDeepCopy)
	if err == nil {
		err = meta.EachListItem(list, func(item runtime.Object) error {
			if referrer, ok := item.(client.Object); ok {
				queue.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(referrer)}, f.Delay)
			}
			return nil
		})
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to list the objects that refer to another", "reference", id)
	}
}
