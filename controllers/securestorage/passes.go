package securestorage

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
)

// A pass costs calls to the cloud, of which a subscription has only so many. So there is none for
// what we have written ourselves, and none that the budget has no room for.

// worthAPass lets everything pass but updates that differ in nothing that a pass goes by: our own
// status and finalizer, above all. See docs/adr/0018.
var worthAPass = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld, e.ObjectNew
	return before.GetResourceVersion() == after.GetResourceVersion() || // a resync
		before.GetGeneration() != after.GetGeneration() ||
		!maps.Equal(before.GetAnnotations(), after.GetAnnotations()) ||
		slices.Contains(before.GetFinalizers(), Finalizer) && !slices.Contains(after.GetFinalizers(), Finalizer)
}}

// frugal reconciles SecureStorages, and puts off those passes for which the subscription has no room
// at the moment. A status that is about the spec stays as it is until then: that nobody has looked at
// an account does not make it any less ready.
type frugal struct {
	*Engine
	reader client.Reader
	door   *door
	clock  clock.PassiveClock
}

// Reconcile implements [reconcile.Reconciler].
func (f *frugal) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	storage := &v1alpha1.SecureStorage{}
	if err := f.reader.Get(ctx, request.NamespacedName, storage); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if wait := f.putOff(ctx, storage); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	return f.ReconcileObject(ctx, storage)
}

// putOff says how long a pass has to wait that nobody is waiting for.
func (f *frugal) putOff(ctx context.Context, storage *v1alpha1.SecureStorage) time.Duration {
	isNew := storage.Status.ObservedGeneration != storage.Generation
	if isNew || storage.DeletionTimestamp != nil || storage.Spec.Suspend || !f.door.cloud.IsBusy() {
		return 0
	}
	s := &scope{storage: storage, door: f.door, clock: f.clock}
	// Whatever else is wrong, the pass will find too, and say.
	if failure, ok := cloud.AsError(s.connect(ctx)); ok && failure.Kind == cloud.Throttled {
		return later(failure.RetryAfter)
	}
	return 0
}
