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
// error on the object. Such a reconcile returns no error and is retried. In a namespace that this release has not
// claimed, it is not retried: [Guard.Subscribe] tells when the namespace is claimed. A nil guard returns the
// reconciler unchanged.
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
	current := &reconcileState{namespace: request.Namespace}
	if refusal := p.guard.reconcileRefusal(current); refusal != nil {
		return stop(ctx, refusal), nil
	}
	result, err := p.inner.Reconcile(context.WithValue(ctx, stateKey{}, current), request)
	if refusal := current.refusal.Load(); refusal != nil {
		return stop(ctx, refusal), nil
	}
	return result, err
}

// reconcileRefusal is why a reconcile must not start, because its writes would be refused.
func (g *Guard) reconcileRefusal(current *reconcileState) *Error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if reason := g.writeRefusal(&write{namespace: current.namespace, reconciling: true}); reason != "" {
		return &Error{Reason: reason}
	}
	return nil
}

func stop(ctx context.Context, refusal *Error) reconcile.Result {
	log.FromContext(ctx).V(1).Info("Stopped the reconcile because a write was refused", "reason", refusal.Reason, "message", refusal.Error())
	if refusal.Reason == NotClaimed {
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: retryDelay}
}

type stateKey struct{}

// reconcileState records the first refused write of a reconcile.
type reconcileState struct {
	namespace string
	refusal   atomic.Pointer[Error]
}

// stateOf returns nil outside of a reconcile.
func stateOf(ctx context.Context) *reconcileState {
	current, _ := ctx.Value(stateKey{}).(*reconcileState)
	return current
}

func refusedBefore(ctx context.Context) *Error {
	if current := stateOf(ctx); current != nil {
		return current.refusal.Load()
	}
	return nil
}

func recordRefusal(ctx context.Context, refusal *Error) {
	if current := stateOf(ctx); current != nil {
		current.refusal.CompareAndSwap(nil, refusal)
	}
}
