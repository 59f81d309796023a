package lease

import (
	"context"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// lookAgain is when a pass is made that was given up, if this replica should still be the leader then.
const lookAgain = time.Second

// Pass makes of a reconciler one whose passes end at the first write that is refused: all that
// follows is refused too, even if the Lease was renewed meanwhile, so that no half of a pass and no
// status says that an object had trouble that was this replica's. Such a pass is no error, and is made
// again. A nil guard changes nothing.
func (g *Guard) Pass(reconciler reconcile.Reconciler) reconcile.Reconciler {
	if g == nil {
		return reconciler
	}
	return &passes{guard: g, inner: reconciler}
}

type passes struct {
	guard *Guard
	inner reconcile.Reconciler
}

// Reconcile implements [reconcile.Reconciler].
func (p *passes) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if refusal, refused := Refused(p.guard.Check()); refused {
		return putOff(ctx, refusal), nil
	}
	current := &pass{}
	result, err := p.inner.Reconcile(context.WithValue(ctx, passKey{}, current), request)
	if refusal := current.refusal.Load(); refusal != nil {
		return putOff(ctx, refusal), nil
	}
	return result, err
}

func putOff(ctx context.Context, refusal *Error) reconcile.Result {
	log.FromContext(ctx).V(1).Info("Gave up a pass", "reason", refusal.Reason, "explanation", refusal.Error())
	return reconcile.Result{RequeueAfter: lookAgain}
}

type passKey struct{}

// pass remembers that it was refused a write.
type pass struct{ refusal atomic.Pointer[Error] }

func refusedBefore(ctx context.Context) *Error {
	if current, ok := ctx.Value(passKey{}).(*pass); ok {
		return current.refusal.Load()
	}
	return nil
}

func tellPass(ctx context.Context, refusal *Error) {
	if current, ok := ctx.Value(passKey{}).(*pass); ok {
		current.refusal.CompareAndSwap(nil, refusal)
	}
}
