package lease

import (
	"context"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// retryDelay is the delay before a stopped reconcile is retried, in case this replica is still the leader.
const retryDelay = time.Second

// Reconciler wraps a reconciler so that a reconcile stops at the first refused write: all later writes of
// the reconcile are refused as well, even if the Lease was renewed meanwhile, so that no status reports an
// error on the object. Such a reconcile returns no error and is retried. A nil guard returns the reconciler
// unchanged.
func (g *Guard) Reconciler(reconciler reconcile.Reconciler) reconcile.Reconciler {
	if g == nil {
		return reconciler
	}
	return &guardedReconciler{guard: g, inner: reconciler}
}

type guardedReconciler struct {
	guard *Guard
	inner reconcile.Reconciler
}

// Reconcile implements [reconcile.Reconciler].
func (p *guardedReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if refusal, refused := Refused(p.guard.Check()); refused {
		return retryLater(ctx, refusal), nil
	}
	current := &reconcileState{}
	result, err := p.inner.Reconcile(context.WithValue(ctx, stateKey{}, current), request)
	if refusal := current.refusal.Load(); refusal != nil {
		return retryLater(ctx, refusal), nil
	}
	return result, err
}

func retryLater(ctx context.Context, refusal *Error) reconcile.Result {
	log.FromContext(ctx).V(1).Info("Stopped the reconcile because a write was refused", "reason", refusal.Reason, "message", refusal.Error())
	return reconcile.Result{RequeueAfter: retryDelay}
}

type stateKey struct{}

// reconcileState records the first refused write of a reconcile.
type reconcileState struct{ refusal atomic.Pointer[Error] }

func refusedBefore(ctx context.Context) *Error {
	if current, ok := ctx.Value(stateKey{}).(*reconcileState); ok {
		return current.refusal.Load()
	}
	return nil
}

func recordRefusal(ctx context.Context, refusal *Error) {
	if current, ok := ctx.Value(stateKey{}).(*reconcileState); ok {
		current.refusal.CompareAndSwap(nil, refusal)
	}
}
