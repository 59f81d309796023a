package phases

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// Phase is one entry of the list: a [Child] or a [Step]. S is the scope, the typed carrier of what
// one reconcile has found out so far.
type Phase[S any] interface {
	// PhaseName is the name, of which the condition <name>Ready is made.
	PhaseName() string
	// validate finds what is wrong with the phase itself.
	validate(scheme *runtime.Scheme) error
	// childKind is the kind of the child, or the zero value for a step.
	childKind(scheme *runtime.Scheme) schema.GroupVersionKind
	// childName is the name of the child in this scope.
	childName(p *pass[S]) string
	// newChild is an empty object of the child's type, or nil for a step.
	newChild() client.Object
	// isDone says whether a live child is ready.
	isDone(live client.Object) bool
	// takesOwnersName says whether the child's name is the owner's.
	takesOwnersName() bool
	// run brings the phase about.
	run(ctx context.Context, p *pass[S]) (Verdict, error)
	// observe hands what is there to the scope, without judging or changing it.
	observe(ctx context.Context, p *pass[S]) error
	// findDrift notes what others have changed, without changing anything.
	findDrift(ctx context.Context, p *pass[S]) error
	// retire deletes what is no longer wanted at the given point of the walk, and says whether
	// it is on its way out.
	retire(ctx context.Context, p *pass[S], at PruneOrder) (Verdict, error)
	// undo takes it back; it is done when the thing is observed to be gone.
	undo(ctx context.Context, p *pass[S]) (Verdict, error)
}

// Applier is what the engine needs of [ssa.Applier], which implements it.
type Applier interface {
	Decide(req ssa.Request) (ssa.Decision, error)
	Execute(ctx context.Context, d ssa.Decision) (ssa.Result, error)
	ApplyStatus(ctx context.Context, desired ssa.Configuration, live client.Object) (ssa.Result, error)
	EnsureFinalizer(ctx context.Context, live client.Object, finalizer string) (client.Object, error)
	RemoveFinalizer(ctx context.Context, live client.Object, finalizer string) error
	Delete(ctx context.Context, live client.Object, owner metav1.OwnerReference, propagation metav1.DeletionPropagation) error
}

// PruneOrder says when a child that is no longer wanted is deleted.
type PruneOrder int

const (
	// PruneInOrder deletes the child when its phase comes.
	PruneInOrder PruneOrder = iota
	// PruneFirst deletes the child before any phase runs: it would act against what the phases
	// before it are about to do, as an autoscaler does that is to be replaced by a fixed number.
	// Desired must then depend on the object alone, and not on what other phases found.
	PruneFirst
	// PruneLast deletes the child when all phases are done: children of later phases use it
	// until they have been changed, as pods do with their configuration.
	PruneLast
)

// Child is a phase that is one Kubernetes object, of Go type L, applied with a configuration C.
// What it should be and when it is ready are functions of values; the engine reads, applies if
// something differs, gates, prunes and tears down.
type Child[S any, C ssa.Configuration, L client.Object] struct {
	// Name of the phase, such as Deployment.
	Name string
	// Desired is what the child should be, or nil if there should be none: then it is pruned.
	// The owner reference is added to it.
	Desired func(scope S) (C, error)
	// Absent is the message for when Desired is nil, such as "spec.ingress is not set". Optional.
	Absent string
	// Prune says when the child goes, once Desired is nil.
	Prune PruneOrder
	// Requires looks at what must be there before the child is applied, and that the child does
	// not control, such as the class of an ingress. It only reads; a verdict that is not Done
	// gates. Optional.
	Requires func(ctx context.Context, scope S) (Verdict, error)
	// ChildName is the child's name. Optional: it is the owner's name without it. Two children of
	// one kind need it. It must depend on nothing but the owner's identity.
	ChildName func(scope S) string
	// Ready judges the live child. Optional: a child that exists is ready without it.
	Ready func(live L) Verdict
	// Explain may look further than Ready can: for why a child is not ready, for what there is to say
	// about one that is, or at what earlier phases have observed, beside which a child that is ready
	// by itself may not be. Its verdict counts; whether an event settles the child is asked of Ready
	// alone. It may read, which it should not where all is well. Optional.
	Explain func(ctx context.Context, scope S, live L, verdict Verdict) Verdict
	// Observed hands the live child to the phases that follow, through the scope. Optional.
	Observed func(scope S, live L)
	// HandOver lists fields that keep their value when Desired no longer has them, such as
	// spec.replicas when an autoscaler takes over.
	HandOver []string
	// RemoveFields and UniqueFields: see [ssa.Request].
	RemoveFields []string
	UniqueFields []string
}

// PhaseName implements [Phase].
func (c Child[S, C, L]) PhaseName() string { return c.Name }

func (c Child[S, C, L]) validate(scheme *runtime.Scheme) error {
	if c.Desired == nil {
		return errors.New("Desired is nil")
	}
	kind, err := kindOf[L](scheme)
	if err != nil {
		return fmt.Errorf("the child's type: %w", err)
	}
	if !scheme.Recognizes(listOf(kind)) {
		return fmt.Errorf("the child's type: its list %s, by which leftovers are found, is not in the scheme", listOf(kind).Kind)
	}
	return nil
}

func (c Child[S, C, L]) childKind(scheme *runtime.Scheme) schema.GroupVersionKind {
	kind, err := kindOf[L](scheme)
	if err != nil {
		return schema.GroupVersionKind{} // validate has said so
	}
	return kind
}

func (c Child[S, C, L]) newChild() client.Object { return newObject[L]() }

func (c Child[S, C, L]) isDone(live client.Object) bool {
	typed, ok := live.(L)
	return ok && (c.Ready == nil || c.Ready(typed).IsDone())
}

func (c Child[S, C, L]) takesOwnersName() bool { return c.ChildName == nil }

func (c Child[S, C, L]) childName(p *pass[S]) string {
	if c.ChildName == nil {
		return p.owner.GetName()
	}
	return c.ChildName(p.scope)
}

func (c Child[S, C, L]) run(ctx context.Context, p *pass[S]) (Verdict, error) {
	desired, err := c.Desired(p.scope)
	if err != nil {
		return Verdict{}, err
	}
	if problem := c.misnamed(p, desired); problem != "" {
		return Stalled(ReasonFailed, problem+": this is a bug in the operator"), nil
	}
	if verdict, err := p.pruneLeftovers(ctx, c.Name); err != nil || !verdict.IsDone() {
		return verdict, err
	}
	live, err := c.find(ctx, p)
	if err != nil {
		return Verdict{}, err
	}
	if isNil(desired) {
		return c.prune(ctx, p, live)
	}
	if verdict, err := c.mayApply(ctx, p, live); err != nil || !verdict.IsDone() {
		return verdict, err
	}
	live, err = c.apply(ctx, p, desired, live)
	if err != nil {
		return Verdict{}, err
	}
	if c.Observed != nil {
		c.Observed(p.scope, live)
	}
	p.observed = p.current + 1
	return c.judge(ctx, p, live), nil
}

// mayApply is done if nothing stands in the way of applying the child.
func (c Child[S, C, L]) mayApply(ctx context.Context, p *pass[S], live L) (Verdict, error) {
	if c.Requires != nil {
		if verdict, err := c.Requires(ctx, p.scope); err != nil || !verdict.IsDone() {
			return verdict, err
		}
	}
	switch {
	case isNil(live):
		return Done(""), nil
	case !isOwnedBy(live, p.owner):
		// The deletion of an owner that orphans its children takes the references off them. Whoever has
		// not seen it yet would take that for drift, put them back, and later tear the children down.
		return Done(""), p.confirmAnew(ctx)
	case live.GetDeletionTimestamp() != nil:
		return Wait(ReasonRecreating, fmt.Sprintf("%s is being deleted; it is created anew once it is gone", p.describe(live)), 0), nil
	default:
		return Done(""), nil
	}
}

// misnamed says what is wrong with a configuration that is not that of the phase's child. What
// it would make, nothing would find again: it would be pruned as a leftover and made anew for ever.
func (c Child[S, C, L]) misnamed(p *pass[S], desired C) string {
	if isNil(desired) {
		return ""
	}
	kind, namespace, name := valueOf(desired.GetKind()), valueOf(desired.GetNamespace()), valueOf(desired.GetName())
	if want := p.slots[p.current].kind.Kind; kind != want {
		return fmt.Sprintf("the configuration is of kind %q, and the phase's child is a %s", kind, want)
	}
	if want := c.childName(p); name != want {
		return fmt.Sprintf("the configuration names the child %q, and the phase names it %q", name, want)
	}
	if want := p.owner.GetNamespace(); want != "" && namespace != want {
		return fmt.Sprintf("the configuration puts the child into namespace %q, and its owner is in %q", namespace, want)
	}
	return ""
}

func valueOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// find reads the child from the cache. One that is not ours is read past the cache: what is known
// of strangers there may be incomplete, and touching them needs certainty.
func (c Child[S, C, L]) find(ctx context.Context, p *pass[S]) (L, error) {
	var none L
	key := client.ObjectKey{Namespace: p.owner.GetNamespace(), Name: c.childName(p)}
	live, err := get[L](ctx, p.reader, key)
	if err != nil || isNil(live) || isOwnedBy(live, p.owner) {
		return live, err
	}
	if live, err = get[L](ctx, p.uncached, key); err != nil {
		return none, err
	}
	return live, nil
}

func (c Child[S, C, L]) request(p *pass[S], desired C, live L) ssa.Request {
	request := ssa.Request{
		Desired:  desired,
		Owner:    &p.reference,
		Adoption: p.adoption,
		Drift:    p.drift,
		HandOver: c.HandOver,

		RemoveFields: c.RemoveFields,
		UniqueFields: c.UniqueFields,
	}
	if !isNil(live) {
		request.Live = live
	}
	return request
}

func (c Child[S, C, L]) apply(ctx context.Context, p *pass[S], desired C, live L) (L, error) {
	result, err := c.decideAndExecute(ctx, p, c.request(p, desired, live))
	if err != nil {
		var none L
		return none, err
	}
	p.note(ctx, c.Name, result)
	applied, ok := result.Live.(L)
	if !ok {
		var none L
		return none, fmt.Errorf("the phase's child is a %T, and its configuration applies a %T", none, result.Live)
	}
	return applied, nil
}

func (c Child[S, C, L]) decideAndExecute(ctx context.Context, p *pass[S], request ssa.Request) (ssa.Result, error) {
	for attempt := 1; ; attempt++ {
		decision, err := p.applier.Decide(request)
		if err == nil && decision.Writes() {
			err = p.confirm(ctx)
		}
		if err != nil {
			return ssa.Result{}, err
		}
		result, err := p.applier.Execute(ctx, decision)
		if !ssa.IsStale(err) || attempt == 3 {
			return result, err
		}
		live, err := get[L](ctx, p.uncached, client.ObjectKey{Namespace: p.owner.GetNamespace(), Name: c.childName(p)})
		if err != nil {
			return ssa.Result{}, err
		}
		if request.Live = nil; !isNil(live) {
			request.Live = live
		}
	}
}

func (c Child[S, C, L]) judge(ctx context.Context, p *pass[S], live L) Verdict {
	if c.Ready == nil {
		return Done(p.describe(live) + " is applied")
	}
	verdict := c.Ready(live)
	if c.Explain != nil {
		return c.Explain(ctx, p.scope, live, verdict)
	}
	return verdict
}

func (c Child[S, C, L]) prune(ctx context.Context, p *pass[S], live L) (Verdict, error) {
	if isNil(live) || !isOwnedBy(live, p.owner) {
		return NotConfigured(c.Absent), nil
	}
	if c.Prune == PruneLast {
		return DoneBecause(ReasonPruning, p.describe(live)+" goes when nothing uses it any more"), nil
	}
	if err := p.delete(ctx, c.Name, live); err != nil {
		return Verdict{}, err
	}
	return Wait(ReasonPruning, fmt.Sprintf("waiting for %s to be gone, which is no longer wanted", p.describe(live)), 0), nil
}

func (c Child[S, C, L]) observe(ctx context.Context, p *pass[S]) error {
	if c.Observed == nil {
		return nil
	}
	live, err := get[L](ctx, p.reader, client.ObjectKey{Namespace: p.owner.GetNamespace(), Name: c.childName(p)})
	if err == nil && isOwnedBy(live, p.owner) {
		c.Observed(p.scope, live)
	}
	return err
}

func (c Child[S, C, L]) findDrift(ctx context.Context, p *pass[S]) error {
	desired, err := c.Desired(p.scope)
	if err != nil || isNil(desired) || c.misnamed(p, desired) != "" {
		return err
	}
	live, err := c.find(ctx, p)
	if err != nil || isNil(live) {
		return err
	}
	request := c.request(p, desired, live)
	request.Drift, request.Adoption = ssa.ReportDrift, ssa.AdoptNever
	decision, err := p.applier.Decide(request)
	if err != nil || len(decision.Drifts) == 0 {
		return err
	}
	drifts := decision.Drifts
	p.changes = append(p.changes, Change{Phase: c.Name, Action: ssa.ActionReport, Object: p.describe(live), Drifts: drifts, Left: true})
	return nil
}

func (c Child[S, C, L]) retire(ctx context.Context, p *pass[S], at PruneOrder) (Verdict, error) {
	if c.Prune != at {
		return Done(""), nil
	}
	// If Desired fails, the phase says so itself when it runs.
	desired, err := c.Desired(p.scope)
	isUnwanted := err == nil && isNil(desired)
	if !isUnwanted {
		return Done(""), nil
	}
	live, err := c.find(ctx, p)
	if err != nil || !isOwnedBy(live, p.owner) {
		return Done(""), err
	}
	if err := p.delete(ctx, c.Name, live); err != nil {
		return Verdict{}, err
	}
	return Wait(ReasonPruning, fmt.Sprintf("waiting for %s to be gone, which is no longer wanted", p.describe(live)), 0), nil
}

func (c Child[S, C, L]) undo(ctx context.Context, p *pass[S]) (Verdict, error) {
	if verdict, err := p.pruneLeftovers(ctx, c.Name); err != nil || !verdict.IsDone() {
		return verdict, err
	}
	// The finalizer goes by what is observed here, so a cache that lags must not decide.
	live, err := get[L](ctx, p.uncached, client.ObjectKey{Namespace: p.owner.GetNamespace(), Name: c.childName(p)})
	if err != nil {
		return Verdict{}, err
	}
	if isNil(live) || !isOwnedBy(live, p.owner) {
		return Done(""), nil
	}
	if err := p.delete(ctx, c.Name, live); err != nil {
		return Verdict{}, err
	}
	return Wait(ReasonTerminating, fmt.Sprintf("waiting for %s to be gone", p.describe(live)), 0), nil
}

// Step is a phase that is not a Kubernetes object: a cloud's resource, a protocol's handshake.
// Every function must be safe to repeat after a crash at any instant within it.
type Step[S any] struct {
	// Name of the phase, such as KeyAccess.
	Name string
	// Observe only reads. It answers [Done] if there is nothing to do, [Missing] if there is,
	// and [Wait] or [Stalled] if nothing can be done now.
	Observe func(ctx context.Context, scope S) (Verdict, error)
	// Ensure writes, after Observe has answered Missing. Optional for a step that only observes.
	Ensure func(ctx context.Context, scope S) (Verdict, error)
	// Undo takes back what Ensure did and answers Done when it is observed to be gone.
	// Optional for a step that leaves nothing behind.
	Undo func(ctx context.Context, scope S) (Verdict, error)
}

// PhaseName implements [Phase].
func (s Step[S]) PhaseName() string { return s.Name }

func (s Step[S]) validate(*runtime.Scheme) error {
	if s.Observe == nil {
		return errors.New("Observe is nil")
	}
	if s.Undo != nil && s.Ensure == nil {
		return errors.New("it has an Undo and no Ensure")
	}
	return nil
}

func (s Step[S]) childKind(*runtime.Scheme) schema.GroupVersionKind { return schema.GroupVersionKind{} }

func (s Step[S]) childName(*pass[S]) string { return "" }

func (s Step[S]) takesOwnersName() bool { return false }

func (s Step[S]) run(ctx context.Context, p *pass[S]) (Verdict, error) {
	verdict, err := s.Observe(ctx, p.scope)
	if err != nil || verdict.kind != verdictMissing {
		return verdict, err
	}
	if s.Ensure == nil {
		return Verdict{}, fmt.Errorf("the step %s observed that it has to %s, and has no Ensure", s.Name, verdict.message)
	}
	change := Change{Phase: s.Name, Action: ActionEnsure, Object: verdict.message}
	if p.wasDone() {
		change.Drifts = verdict.drifts
	}
	p.changes = append(p.changes, change)
	if p.planning {
		// What follows depends on what the write leads to, which a plan cannot know.
		return Wait(verdict.reason, verdict.message, 0), nil
	}
	if err := p.confirm(ctx); err != nil {
		p.changes = p.changes[:len(p.changes)-1]
		return Verdict{}, err
	}
	log.FromContext(ctx).Info("Ensuring step", "phase", s.Name, "missing", verdict.message)
	at := len(p.changes) - 1
	verdict, err = s.Ensure(ctx, p.scope)
	p.changes[at].Pending = err != nil || !verdict.IsDone()
	return verdict, err
}

func (s Step[S]) newChild() client.Object { return nil }

func (s Step[S]) isDone(client.Object) bool { return true }

func (s Step[S]) observe(context.Context, *pass[S]) error { return nil }

func (s Step[S]) findDrift(context.Context, *pass[S]) error { return nil }

//nolint:unparam // the signature is that of the interface
func (s Step[S]) retire(context.Context, *pass[S], PruneOrder) (Verdict, error) { return Done(""), nil }

func (s Step[S]) undo(ctx context.Context, p *pass[S]) (Verdict, error) {
	if s.Undo == nil {
		return Done(""), nil
	}
	if p.planning {
		p.changes = append(p.changes, Change{Phase: s.Name, Action: ActionUndo, Object: s.Name})
		return Wait(ReasonTerminating, "undoing "+s.Name, 0), nil
	}
	return s.Undo(ctx, p.scope)
}

// get reads an object; nil means that there is none, as there is none of a kind that the cluster
// does not serve.
func get[L client.Object](ctx context.Context, reader client.Reader, key client.ObjectKey) (L, error) {
	var none L
	live := newObject[L]()
	if err := reader.Get(ctx, key, live); err != nil {
		if client.IgnoreNotFound(err) == nil || meta.IsNoMatchError(err) {
			return none, nil
		}
		return none, fmt.Errorf("reading %T %s: %w", live, key, err)
	}
	return live, nil
}

func newObject[L client.Object]() L {
	object, _ := reflect.New(reflect.TypeFor[L]().Elem()).Interface().(L)
	return object
}

// isNil also sees a nil pointer inside an interface.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	value := reflect.ValueOf(v)
	return value.Kind() == reflect.Pointer && value.IsNil()
}

func isOwnedBy(live, owner client.Object) bool {
	return !isNil(live) && metav1.IsControlledBy(live, owner)
}
