package phases

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// Actions of steps, beside those of [ssa.Applier].
const (
	// ActionEnsure: a step brings about what it observed to be missing.
	ActionEnsure ssa.Action = "Ensure"
	// ActionUndo: a step takes back what it ensured. A plan cannot know whether that has been done
	// already, so it names it in any case.
	ActionUndo ssa.Action = "Undo"
)

// Apply is the action that brings an object to what is desired, or only reports its drift.
type Apply struct {
	Decision ssa.Decision
	// Existed is true if the object is known to have existed: if it is created, it was deleted
	// outside of the controller.
	Existed bool
}

// Delete is the action that deletes a child.
type Delete struct {
	Object      client.Object
	Propagation metav1.DeletionPropagation
}

// Do is the action of a step: Func, in words What. Its verdict is that of the phase.
type Do struct {
	// Action is [ActionEnsure] or [ActionUndo].
	Action ssa.Action
	// What Func does, in the words of a plan, and the Reason for a condition until it is done.
	What, Reason string
	// Drifts are what was changed outside of the controller, if that is why.
	Drifts []ssa.Drift
	Func   func(ctx context.Context) (Verdict, error)
	// Planned is called instead of Func in a plan, which goes on if its verdict is done. Optional.
	Planned func() Verdict
}

func (Apply) next()  {}
func (Delete) next() {}
func (Do) next()     {}

// Change is one thing that a reconcile did, or that a plan would do.
type Change struct {
	// Phase it belongs to.
	Phase string
	// Action is what was done: one of [ssa.Action], [ActionEnsure] or [ActionUndo].
	Action ssa.Action
	// Object is its kind and name, or for a step what it does.
	Object string
	// Drifts are the fields that other field managers had changed, if that was why.
	Drifts []ssa.Drift
	// Left is true if the drifts were not reverted.
	Left bool
	// Pending is true if a step has begun, and takes its time.
	Pending bool
	// Recreated is true if a child was created that had existed before.
	Recreated bool
}

// String reads like "Deployment: Correct Deployment web (kubectl-edit changed ...)".
func (c Change) String() string {
	text := fmt.Sprintf("%s: %s %s", c.Phase, c.Action, c.Object)
	for _, drift := range c.Drifts {
		text += " (" + drift.String() + ")"
	}
	return text
}

// executor is the only code that writes on behalf of phases: it makes sure that the owner is still what
// the reconcile goes by, performs an action, logs and records it. One that plans has an applier that
// sends dry runs, and does nothing else.
type executor struct {
	applier   Applier
	cluster   *Cluster
	owner     client.Object
	reference metav1.OwnerReference
	plans     bool
	// confirmed is true once the owner is known, past the cache, to be what the reconcile goes by. recent spares
	// the read for a write that is retried: see [Engine].
	confirmed bool
	recent    *cache.LRUExpireCache
	log       logr.Logger
	changes   []Change
}

// perform performs one action of a phase. Its verdict is nil if the phase has to be asked again.
func (x *executor) perform(ctx context.Context, phase string, next Next) (Verdict, error) {
	switch action := next.(type) {
	case Apply:
		return nil, x.apply(ctx, phase, action)
	case Delete:
		return nil, x.delete(ctx, phase, action)
	case Do:
		return x.do(ctx, phase, action)
	default:
		return bug(fmt.Sprintf("phase %s proposed a %T", phase, next)), nil
	}
}

func (x *executor) apply(ctx context.Context, phase string, action Apply) error {
	decision := action.Decision
	if live := decision.Request.Live; live != nil && !metav1.IsControlledBy(live, x.owner) {
		// The deletion of an owner that orphans its children removes the references first. Whoever has not
		// seen it yet would take that for drift, revert it, and later tear the children down.
		x.confirmed = x.plans
		x.recent.Remove(x.owner.GetUID())
	}
	if decision.Writes() {
		if err := x.confirm(ctx); err != nil {
			return err
		}
	}
	result, err := x.applier.Execute(ctx, decision)
	if err != nil {
		x.cluster.lags = x.cluster.lags || ssa.IsStale(err)
		return err
	}
	x.cluster.learn(idOf(result.Live), answer{result.Live, true})
	if result.Action == ssa.ActionNone {
		return nil
	}
	x.log.Info("Applied child", "child", klog.KObj(result.Live), "action", result.Action, "drifts", result.Drifts)
	x.changes = append(x.changes, Change{
		Phase: phase, Action: result.Action, Object: describe(result.Live, x.owner), Drifts: result.Drifts, Left: result.Left,
		Recreated: action.Existed && result.Action == ssa.ActionCreate,
	})
	return nil
}

func (x *executor) delete(ctx context.Context, phase string, action Delete) error {
	if err := x.confirm(ctx); err != nil {
		return err
	}
	gone, err := x.applier.Delete(ctx, action.Object, x.reference, action.Propagation)
	if err != nil {
		return err
	}
	x.log.Info("Deleted child", "kind", kindName(action.Object), "child", klog.KObj(action.Object))
	x.changes = append(x.changes, Change{Phase: phase, Action: ssa.ActionDelete, Object: describe(action.Object, x.owner)})
	if gone {
		x.cluster.learn(idOf(action.Object), answer{})
		return nil
	}
	deleted, _ := action.Object.DeepCopyObject().(client.Object)
	now := metav1.Now()
	deleted.SetDeletionTimestamp(&now)
	if action.Propagation == metav1.DeletePropagationForeground {
		deleted.SetFinalizers(append(deleted.GetFinalizers(), metav1.FinalizerDeleteDependents))
	}
	x.cluster.learn(idOf(deleted), answer{object: deleted})
	return nil
}

func (x *executor) do(ctx context.Context, phase string, action Do) (Verdict, error) {
	if err := x.confirm(ctx); err != nil {
		return nil, err
	}
	x.changes = append(x.changes, Change{Phase: phase, Action: action.Action, Object: action.What, Drifts: action.Drifts, Pending: true})
	switch {
	case x.plans && action.Planned != nil:
		return action.Planned(), nil
	case x.plans:
		return Wait(action.Reason, action.What, 0), nil // what follows a step depends on how it ends
	}
	if action.Action == ActionEnsure {
		x.log.Info("Ensuring step", "step", action.What)
	}
	change := &x.changes[len(x.changes)-1]
	verdict, err := action.Func(ctx)
	if isSuperseded(err) {
		x.changes = x.changes[:len(x.changes)-1] // nothing was done
		return nil, err
	}
	verdict = given(verdict, phase)
	change.Pending = err != nil || !verdict.IsDone()
	return verdict, err
}

// finalize adds the finalizer before the first side effect.
func (x *executor) finalize(ctx context.Context, finalizer string) error {
	if x.plans {
		return nil
	}
	finalized, err := x.applier.EnsureFinalizer(ctx, x.owner, finalizer)
	if err == nil {
		x.owner, x.confirmed = finalized, true
	}
	return err
}

// release removes the finalizer after the last.
func (x *executor) release(ctx context.Context, finalizer string) error {
	if x.plans {
		return nil
	}
	err := client.IgnoreNotFound(x.applier.RemoveFinalizer(ctx, x.owner, finalizer))
	if err == nil {
		x.recent.Add(x.owner.GetUID(), released, recentTime) // the cache may go on to show it for a while
	}
	return err
}

// released stands for the version of an owner whose finalizer has been removed: nothing is left to do for it.
const released = "released"

// superseded ends a reconcile whose object is not what the cache showed. Nil means that it is gone.
type superseded struct{ by client.Object }

func (*superseded) Error() string { return "the object has changed since it was read" }

// isSuperseded says whether something changed while it was reconciled: nothing is wrong.
func isSuperseded(err error) bool {
	_, ok := errors.AsType[*superseded](err)
	return ok || ssa.IsStale(err)
}

// confirm makes sure, before the first write, that the owner is still the version that the reconcile
// goes by. A manager that has just started, or whose watch lags, would otherwise create what a deletion
// has removed, delete what an edit has just asked for, and roll back to a spec of the past.
func (x *executor) confirm(ctx context.Context) error {
	last, _ := x.recent.Get(x.owner.GetUID())
	switch {
	case last == released:
		return &superseded{}
	case x.confirmed || last == x.owner.GetResourceVersion():
		return nil
	}
	fresh := newLike(x.owner)
	err := x.cluster.Uncached.Get(ctx, client.ObjectKeyFromObject(x.owner), fresh)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("reading the object past the cache: %w", err)
	case err != nil:
		return &superseded{}
	case fresh.GetUID() != x.owner.GetUID() || fresh.GetResourceVersion() != x.owner.GetResourceVersion():
		return &superseded{by: fresh}
	}
	x.confirmed = true
	x.recent.Add(fresh.GetUID(), fresh.GetResourceVersion(), recentTime)
	return nil
}
