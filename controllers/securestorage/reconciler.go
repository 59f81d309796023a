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

// Each reconcile costs requests to the cloud, which limits them per subscription. So updates that
// this controller wrote itself trigger no reconcile, and routine reconciles wait for the rate limiter.

// needsReconcile ignores updates that change nothing a reconcile depends on, such as the status and the
// finalizer that this controller writes. See docs/adr/0018.
var needsReconcile = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld, e.ObjectNew
	return before.GetResourceVersion() == after.GetResourceVersion() || // a resync
		before.GetGeneration() != after.GetGeneration() ||
		!maps.Equal(before.GetAnnotations(), after.GetAnnotations()) ||
		slices.Contains(before.GetFinalizers(), Finalizer) && !slices.Contains(after.GetFinalizers(), Finalizer)
}}

// reconciler reconciles SecureStorages. It defers routine reconciles while the request budget of the
// subscription is used up; the status stays as it is until then.
type reconciler struct {
	*Engine
	reader client.Reader
	access *cloudAccess
	clock  clock.PassiveClock
}

// Reconcile implements [reconcile.Reconciler].
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	storage := &v1alpha1.SecureStorage{}
	if err := r.reader.Get(ctx, request.NamespacedName, storage); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if wait := r.deferral(ctx, storage); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	return r.ReconcileObject(ctx, storage)
}

// deferral returns how long to defer a reconcile that the user does not wait for, or 0.
func (r *reconciler) deferral(ctx context.Context, storage *v1alpha1.SecureStorage) time.Duration {
	isNew := storage.Status.ObservedGeneration != storage.Generation
	if isNew || storage.DeletionTimestamp != nil || storage.Spec.Suspend || !r.access.cloud.IsBusy() {
		return 0
	}
	s := &scope{storage: storage, access: r.access, clock: r.clock}
	// Other errors are reported by the reconcile itself.
	if failure, ok := cloud.AsError(s.connect(ctx)); ok && failure.Kind == cloud.Throttled {
		return atLeast(failure.RetryAfter)
	}
	return 0
}
