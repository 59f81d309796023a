package phases

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

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

// performer performs actions. There are two: one that does, and one that plans.
type performer interface {
	apply(ctx context.Context, decision ssa.Decision) (ssa.Result, error)
	delete(ctx context.Context, action Delete, owner metav1.OwnerReference) error
	do(ctx context.Context, action Do) (Verdict, error)
	// finalize adds the finalizer, and release removes it.
	finalize(ctx context.Context, owner client.Object) (client.Object, error)
	release(ctx context.Context) error
	// confirmTeardown makes sure that the teardown goes by the newest spec and status.
	confirmTeardown(ctx context.Context) error
	// timed counts the outcome of a phase, and how long it took.
	timed(metrics *phaseMetrics, verdict Verdict, err error)
}

// executor is the only code that writes on behalf of phases: it performs an action, logs and records it.
type executor[S any] struct {
	performer
	changes []Change
}

// perform performs one action. Its verdict is nil if the phase has to be asked again.
func (x *executor[S]) perform(ctx context.Context, phase string, p Reconcile[S], next Next) (Verdict, error) {
	switch action := next.(type) {
	case Apply:
		return nil, x.performApply(ctx, phase, p, action)
	case Delete:
		return nil, x.performDelete(ctx, phase, p, action)
	case Do:
		return x.performDo(ctx, phase, action)
	default:
		return bug(fmt.Sprintf("phase %s proposed a %T", phase, next)), nil
	}
}

func (x *executor[S]) performApply(ctx context.Context, phase string, p Reconcile[S], action Apply) error {
	result, err := x.apply(ctx, action.Decision)
	if ssa.IsStale(err) {
		if readErr := relearn(ctx, p.Cluster, action.Decision.Request.Desired); readErr != nil {
			return readErr // as an error of its own it is retried with backoff
		}
		return err
	}
	if err != nil {
		return err
	}
	p.Cluster.learn(idOf(result.Live), answer{result.Live, true})
	if result.Action == ssa.ActionNone {
		return nil
	}
	x.changes = append(x.changes, Change{
		Phase: phase, Action: result.Action, Object: kindName(result.Live) + " " + result.Live.GetName(), Drifts: result.Drifts, Left: result.Left,
		Recreated: action.Existed && result.Action == ssa.ActionCreate,
	})
	return nil
}

// relearn reads an object past the cache, which showed a version of the past.
func relearn(ctx context.Context, c *Cluster, desired ssa.Configuration) error {
	kind := schema.FromAPIVersionAndKind(valueOf(desired.GetAPIVersion()), valueOf(desired.GetKind()))
	empty, err := c.scheme.New(kind)
	if err != nil {
		return fmt.Errorf("creating a %s: %w", kind.Kind, err)
	}
	fresh, ok := empty.(client.Object)
	if !ok {
		return fmt.Errorf("creating a %s: %T is not an object", kind.Kind, empty)
	}
	key := client.ObjectKey{Namespace: valueOf(desired.GetNamespace()), Name: valueOf(desired.GetName())}
	err = c.Uncached.Get(ctx, key, fresh)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading %s %s past the cache: %w", kind.Kind, key, err)
	}
	a := answer{object: fresh}
	if err != nil {
		a.object = nil
	}
	c.learn(objectID{reflect.TypeOf(fresh), key}, a)
	return nil
}

func (x *executor[S]) performDelete(ctx context.Context, phase string, p Reconcile[S], action Delete) error {
	if err := x.delete(ctx, action, p.Reference); err != nil {
		return err
	}
	x.changes = append(x.changes, Change{Phase: phase, Action: ssa.ActionDelete, Object: kindName(action.Object) + " " + action.Object.GetName()})
	deleted, _ := action.Object.DeepCopyObject().(client.Object)
	now := metav1.Now()
	deleted.SetDeletionTimestamp(&now)
	if action.Propagation == metav1.DeletePropagationForeground {
		deleted.SetFinalizers(append(deleted.GetFinalizers(), metav1.FinalizerDeleteDependents))
	}
	p.Cluster.learn(idOf(deleted), answer{object: deleted})
	return nil
}

func (x *executor[S]) performDo(ctx context.Context, phase string, action Do) (Verdict, error) {
	x.changes = append(x.changes, Change{Phase: phase, Action: action.Action, Object: action.What, Drifts: action.Drifts})
	change := &x.changes[len(x.changes)-1]
	verdict, err := x.do(ctx, action)
	change.Pending = err != nil || verdict == nil || !verdict.IsDone()
	if isSuperseded(err) {
		x.changes = x.changes[:len(x.changes)-1] // nothing was done
	}
	if err == nil && verdict == nil {
		return bug(fmt.Sprintf("phase %s gave no verdict", phase)), nil
	}
	return verdict, err
}

// actor is the performer that acts.
type actor struct {
	applier   Applier
	owner     client.Object
	finalizer string
	uncached  client.Reader
	answered  *answered
	// confirmed is true once the owner is known, past the cache, to be what the reconcile goes by.
	confirmed bool
	clock     clock.PassiveClock
	lap       time.Time
}

func (a *actor) apply(ctx context.Context, decision ssa.Decision) (ssa.Result, error) {
	if !decision.Writes() {
		return a.applier.Execute(ctx, decision)
	}
	live := decision.Request.Live
	if live != nil && !metav1.IsControlledBy(live, a.owner) && decision.Action != ssa.ActionCreate {
		// The deletion of an owner that orphans its children removes the references first. Whoever has not
		// seen it yet would take that for drift, revert it, and later tear the children down.
		a.confirmed = false
		a.answered.forget(a.owner)
	}
	if err := a.confirm(ctx); err != nil {
		return ssa.Result{}, err
	}
	result, err := a.applier.Execute(ctx, decision)
	if err == nil && result.Action != ssa.ActionNone {
		log.FromContext(ctx).Info("Applied child", "child", klog.KObj(result.Live), "action", result.Action, "drifts", result.Drifts)
	}
	return result, err
}

func (a *actor) delete(ctx context.Context, action Delete, owner metav1.OwnerReference) error {
	if err := a.confirm(ctx); err != nil {
		return err
	}
	err := a.applier.Delete(ctx, action.Object, owner, action.Propagation)
	if err == nil {
		log.FromContext(ctx).Info("Deleted child", "kind", kindName(action.Object), "child", klog.KObj(action.Object))
	}
	return err
}

func (a *actor) do(ctx context.Context, action Do) (Verdict, error) {
	if err := a.confirm(ctx); err != nil {
		return nil, err
	}
	if action.Action == ActionEnsure {
		log.FromContext(ctx).Info("Ensuring step", "step", action.What)
	}
	return action.Func(ctx)
}

func (a *actor) finalize(ctx context.Context, owner client.Object) (client.Object, error) {
	finalized, err := a.applier.EnsureFinalizer(ctx, owner, a.finalizer)
	if err != nil {
		return nil, err
	}
	a.answered.add(finalized)
	a.owner, a.confirmed = finalized, true
	return finalized, nil
}

func (a *actor) release(ctx context.Context) error {
	return a.applier.RemoveFinalizer(ctx, a.owner, a.finalizer)
}

func (a *actor) timed(metrics *phaseMetrics, verdict Verdict, err error) {
	if metrics == nil {
		return
	}
	now := a.clock.Now()
	metrics.observe(verdict, err, now.Sub(a.lap))
	a.lap = now
}

// superseded ends a reconcile whose object is not what the cache showed. Nil means that it is gone.
type superseded struct{ by client.Object }

func (*superseded) Error() string { return "the object has changed since it was read" }

// isSuperseded says whether something changed while it was reconciled: nothing is wrong.
func isSuperseded(err error) bool {
	if err == nil {
		return false
	}
	var newer *superseded
	return errors.As(err, &newer) || ssa.IsStale(err)
}

// confirm makes sure, before the first write, that the owner is still the version that the reconcile
// goes by. A manager that has just started, or whose watch lags, would otherwise create what a deletion
// has removed, delete what an edit has just asked for, and roll back to a spec of the past. What the
// API server has just answered to a write of the owner is as good as a read.
func (a *actor) confirm(ctx context.Context) error {
	if a.confirmed || a.answered.has(a.owner) {
		return nil
	}
	fresh := newLike(a.owner)
	err := a.uncached.Get(ctx, client.ObjectKeyFromObject(a.owner), fresh)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("reading the object past the cache: %w", err)
	case err != nil:
		return &superseded{}
	}
	a.answered.add(fresh)
	if fresh.GetUID() != a.owner.GetUID() || fresh.GetResourceVersion() != a.owner.GetResourceVersion() {
		return &superseded{by: fresh}
	}
	a.confirmed = true
	return nil
}

func (a *actor) confirmTeardown(ctx context.Context) error { return a.confirm(ctx) }

// planner is the performer that plans: it sends dry runs and does nothing else.
type planner struct{ applier Applier }

func (p planner) apply(ctx context.Context, decision ssa.Decision) (ssa.Result, error) {
	return p.applier.Execute(ctx, decision)
}

func (p planner) delete(ctx context.Context, action Delete, owner metav1.OwnerReference) error {
	return p.applier.Delete(ctx, action.Object, owner, action.Propagation)
}

// do: what follows depends on what the write leads to, which a plan cannot know.
func (planner) do(_ context.Context, action Do) (Verdict, error) {
	return Wait(action.Reason, action.What, 0), nil
}

func (planner) finalize(_ context.Context, owner client.Object) (client.Object, error) {
	return owner, nil
}
func (planner) release(context.Context) error         { return nil }
func (planner) confirmTeardown(context.Context) error { return nil }
func (planner) timed(*phaseMetrics, Verdict, error)   {}

// answered holds the versions of owners that the API server has just answered with: to confirm such a
// version costs no read. It decides nothing: an engine that has none reads.
type answered struct {
	versions *lru.Cache
	clock    clock.PassiveClock
}

type versionAt struct {
	version string
	at      time.Time
}

func newAnswered(clock clock.PassiveClock) *answered {
	const owners = 4096
	return &answered{versions: lru.New(owners), clock: clock}
}

func (a *answered) add(owner client.Object) {
	a.versions.Add(owner.GetUID(), versionAt{owner.GetResourceVersion(), a.clock.Now()})
}

func (a *answered) forget(owner client.Object) { a.versions.Remove(owner.GetUID()) }

func (a *answered) has(owner client.Object) bool {
	const fresh = 30 * time.Second
	last, _ := a.versions.Get(owner.GetUID())
	known, ok := last.(versionAt)
	return ok && known.version == owner.GetResourceVersion() && a.clock.Since(known.at) < fresh
}
