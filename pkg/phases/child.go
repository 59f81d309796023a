package phases

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// PruneOrder says when a child that is no longer desired is deleted.
type PruneOrder int

const (
	// PruneInOrder deletes the child when its phase runs.
	PruneInOrder PruneOrder = iota
	// PruneFirst deletes the child before any phase runs: it would act against what the phases before
	// it are about to do, as an autoscaler does that gives way to a fixed number of replicas. Desired
	// must then depend on the object alone, and not on what other phases found.
	PruneFirst
	// PruneLast deletes the child when all phases are done: children of other phases use it until they
	// have changed, as pods do with their configuration.
	PruneLast
)

// Child is a phase that is one Kubernetes object of Go type L, applied with a configuration C.
// Desired is a function of values; the engine reads, applies if something differs, gates, prunes and
// tears down.
type Child[S any, C ssa.Configuration, L client.Object] struct {
	// Name of the phase, such as Deployment.
	Name string
	// Desired is what the child should be, or nil if there should be none: then it is pruned, and the
	// phase is not configured. Build it for each call: the owner reference is added to it.
	Desired func(scope S) (C, error)
	// ChildName is the child's name, by default that of the owner. Two children of one kind need it. It
	// must depend on nothing but the owner's identity.
	ChildName func(scope S) string
	// Requires checks what must exist before the child is applied, and that the child does not control,
	// such as the class of an ingress. It only reads; a verdict that is not done gates. Optional.
	Requires func(ctx context.Context, scope S) (Verdict, error)
	// Ready says when the child counts as ready. It may read to explain why it is not, which it should
	// avoid where all is well. Optional: a child that is applied is ready.
	Ready func(ctx context.Context, scope S, live L) Verdict
	// Settled says from the child alone whether it is ready: see [Declaration]. Optional.
	Settled func(live L) bool
	// Observed hands the live child to the phases that follow, through the scope. Optional.
	Observed func(scope S, live L)
	// Prune says when the child is deleted once Desired is nil.
	Prune PruneOrder
	// Propagation of the child's deletion. The default is Background for kinds of Kubernetes that have no
	// dependents of their own, such as ConfigMap, and Foreground for all others.
	Propagation metav1.DeletionPropagation
	// HandOver, RemoveFields and UniqueFields are those of [ssa.Request].
	HandOver, RemoveFields, UniqueFields []string
}

// PhaseName implements [Phase].
func (c Child[S, C, L]) PhaseName() string { return c.Name }

// Declare implements [Phase].
func (c Child[S, C, L]) Declare(scheme *runtime.Scheme) (Declaration[S], error) {
	if c.Desired == nil {
		return Declaration[S]{}, errors.New("Desired is nil")
	}
	d, err := declare[S](scheme, c.Settled, c.HandOver, c.RemoveFields, c.UniqueFields)
	if c.Ready == nil {
		d.Settled = always
	}
	d.HasOwnersName = c.ChildName == nil
	d.Names = func(p Pass[S]) ([]string, error) { return []string{c.nameIn(p)}, nil }
	d.Observe = c.observe
	switch c.Prune {
	case PruneFirst:
		d.First = c.retire
	case PruneLast:
		d.Last = c.retire
	case PruneInOrder:
	}
	return d, err
}

func (c Child[S, C, L]) nameIn(p Pass[S]) string {
	if c.ChildName == nil {
		return p.Owner.GetName()
	}
	return c.ChildName(p.Scope)
}

// Next implements [Phase].
func (c Child[S, C, L]) Next(ctx context.Context, p Pass[S]) (Next, error) {
	desired, err := c.Desired(p.Scope)
	if err != nil {
		return nil, err
	}
	if wrong := misnamed(p, desired, c.nameIn(p)); wrong != nil {
		return wrong, nil
	}
	if next, err := c.removeUnnamed(ctx, p, ReasonPruning); next != nil || err != nil {
		return next, err
	}
	live, err := find[S, L](ctx, p, c.nameIn(p))
	switch {
	case err != nil:
		return nil, err
	case isNil(desired):
		return c.unwanted(p, live), nil
	}
	if next, err := c.required(ctx, p, live); next != nil || err != nil {
		return next, err
	}
	if next, err := bring(p, c.request(p, desired, live), live, c.existed(p)); next != nil || err != nil {
		return next, err
	}
	if c.Observed != nil {
		c.Observed(p.Scope, live)
	}
	return readiness(ctx, p, c.Ready, live), nil
}

// removeUnnamed deletes children that no phase names, before the phase's own is brought about.
func (c Child[S, C, L]) removeUnnamed(ctx context.Context, p Pass[S], reason string) (Next, error) {
	extra, err := p.unnamed(ctx)
	if err != nil || extra == nil {
		return nil, err
	}
	return p.remove(extra, propagationOf(c.Propagation, p.declared.kind), reason, noLongerDesired), nil
}

func (c Child[S, C, L]) required(ctx context.Context, p Pass[S], live L) (Next, error) {
	if c.Requires == nil || p.Cluster.isApplied(live) {
		return nil, nil
	}
	verdict, err := c.Requires(ctx, p.Scope)
	if err != nil || verdict.IsDone() {
		return nil, err
	}
	return verdict, nil
}

func (c Child[S, C, L]) request(p Pass[S], desired C, live L) ssa.Request {
	return requestFor(p, desired, live, c.HandOver, c.RemoveFields, c.UniqueFields)
}

// existed says whether the status knows the child.
func (c Child[S, C, L]) existed(p Pass[S]) bool {
	before := meta.FindStatusCondition(p.Before, ConditionOf(c.Name))
	if before == nil || before.Reason == formerNotConfigured {
		return false
	}
	return before.Reason == ReasonRecreating || before.Status == metav1.ConditionTrue
}

// formerNotConfigured is the reason that an option which is off had in versions up to v1alpha1.
const formerNotConfigured = "NotConfigured"

func (c Child[S, C, L]) unwanted(p Pass[S], live L) Next {
	switch {
	case !p.owns(live):
		return NotConfigured()
	case c.Prune == PruneLast && live.GetDeletionTimestamp() == nil:
		return DoneBecause(ReasonPruning, p.describe(live)+" will be deleted once unused")
	default:
		return p.remove(live, propagationOf(c.Propagation, p.declared.kind), ReasonPruning, noLongerDesired)
	}
}

// retire deletes the child before or after all phases, if it is no longer desired.
func (c Child[S, C, L]) retire(ctx context.Context, p Pass[S]) (Next, error) {
	desired, err := c.Desired(p.Scope)
	if err != nil || !isNil(desired) {
		return nil, nil //nolint:nilerr // the phase says so itself when it runs
	}
	live, err := find[S, L](ctx, p, c.nameIn(p))
	if err != nil || !p.owns(live) {
		return nil, err
	}
	return p.remove(live, propagationOf(c.Propagation, p.declared.kind), ReasonPruning, noLongerDesired), nil
}

func (c Child[S, C, L]) observe(ctx context.Context, p Pass[S]) (Next, error) {
	live, err := read[L](ctx, p.Cluster, p.Cluster.Cached, p.keyOf(c.nameIn(p)))
	if err != nil {
		return nil, err
	}
	owned := p.owns(live)
	if owned && c.Observed != nil {
		c.Observed(p.Scope, live)
	}
	desired, err := c.Desired(p.Scope)
	switch {
	case err != nil:
		return nil, err
	case isNil(desired) && owned:
		return nil, nil
	case isNil(desired):
		return NotConfigured(), nil
	case !owned || misnamed(p, desired, c.nameIn(p)) != nil:
		return nil, nil
	default:
		return driftOnly(p, c.request(p, desired, live))
	}
}

// NextUndo implements [Phase]. The finalizer is removed by what is observed here, so a cache that lags must
// not decide.
func (c Child[S, C, L]) NextUndo(ctx context.Context, p Pass[S]) (Next, error) {
	if next, err := c.removeUnnamed(ctx, p, ReasonTerminating); next != nil || err != nil {
		return next, err
	}
	live, err := read[L](ctx, p.Cluster, p.Cluster.Uncached, p.keyOf(c.nameIn(p)))
	if err != nil {
		return nil, err
	}
	if !p.owns(live) {
		return Done("deleted"), nil
	}
	return p.remove(live, propagationOf(c.Propagation, p.declared.kind), ReasonTerminating, ""), nil
}

// Children is a phase that is a set of Kubernetes objects of one kind whose members the object decides:
// a volume for each shard, a role binding for each team. Members that are no longer desired are
// deleted; they are found by owner and kind.
type Children[S any, C ssa.Configuration, L client.Object] struct {
	// Name of the phase, such as Volumes.
	Name string
	// Desired are the members, told apart by their names. None means that the phase is not configured.
	Desired func(scope S) ([]C, error)
	// Ready says when a member counts as ready, as in [Child]. Optional.
	Ready func(ctx context.Context, scope S, live L) Verdict
	// Settled says from a member alone whether it is ready: see [Declaration]. Optional.
	Settled func(live L) bool
	// Observed hands the live members to the phases that follow, in the order of Desired. Optional.
	Observed func(scope S, live []L)
	// Propagation of a member's deletion, as in [Child].
	Propagation metav1.DeletionPropagation
	// HandOver, RemoveFields and UniqueFields are those of [ssa.Request].
	HandOver, RemoveFields, UniqueFields []string
}

// PhaseName implements [Phase].
func (c Children[S, C, L]) PhaseName() string { return c.Name }

// Declare implements [Phase].
func (c Children[S, C, L]) Declare(scheme *runtime.Scheme) (Declaration[S], error) {
	if c.Desired == nil {
		return Declaration[S]{}, errors.New("Desired is nil")
	}
	d, err := declare[S](scheme, c.Settled, c.HandOver, c.RemoveFields, c.UniqueFields)
	if c.Ready == nil {
		d.Settled = always
	}
	d.Names = c.names
	d.Observe = c.observe
	return d, err
}

func (c Children[S, C, L]) names(p Pass[S]) ([]string, error) {
	desired, err := c.Desired(p.Scope)
	names := make([]string, 0, len(desired))
	for _, member := range desired {
		names = append(names, valueOf(member.GetName()))
	}
	return names, err
}

// Next implements [Phase]. All members are applied before one that is not ready gates.
func (c Children[S, C, L]) Next(ctx context.Context, p Pass[S]) (Next, error) {
	desired, err := c.Desired(p.Scope)
	if err != nil {
		return nil, err
	}
	var verdict Verdict = Done("all " + strings.ToLower(c.Name) + " are ready")
	lives := make([]L, 0, len(desired))
	for i, member := range desired {
		if wrong := c.wrong(p, desired[:i], member); wrong != nil {
			return wrong, nil
		}
		live, err := find[S, L](ctx, p, valueOf(member.GetName()))
		if err != nil {
			return nil, err
		}
		next, err := bring(p, requestFor(p, member, live, c.HandOver, c.RemoveFields, c.UniqueFields), live, wasDone(p, c.Name))
		if err != nil {
			return nil, err
		}
		switch waiting := next.(type) {
		case nil:
			lives, verdict = append(lives, live), graver(verdict, readiness(ctx, p, c.Ready, live))
		case Verdict:
			verdict = graver(verdict, waiting)
		default:
			return next, nil
		}
	}
	if c.Observed != nil {
		c.Observed(p.Scope, lives)
	}
	return c.prune(ctx, p, len(desired), verdict)
}

func (c Children[S, C, L]) wrong(p Pass[S], earlier []C, member C) Verdict {
	name := valueOf(member.GetName())
	if slices.ContainsFunc(earlier, func(other C) bool { return valueOf(other.GetName()) == name }) {
		return bug(fmt.Sprintf("two members of phase %s have the name %q", c.Name, name))
	}
	return misnamed(p, member, name)
}

// prune deletes one member after the other that is no longer desired.
func (c Children[S, C, L]) prune(ctx context.Context, p Pass[S], desired int, verdict Verdict) (Next, error) {
	extra, err := p.unnamed(ctx)
	switch {
	case err != nil:
		return nil, err
	case extra == nil && desired == 0:
		return NotConfigured(), nil
	case extra == nil:
		return verdict, nil
	}
	next := p.remove(extra, propagationOf(c.Propagation, p.declared.kind), ReasonPruning, noLongerDesired)
	if waiting, ok := next.(Verdict); ok {
		return graver(verdict, waiting), nil
	}
	return next, nil
}

func (c Children[S, C, L]) observe(ctx context.Context, p Pass[S]) (Next, error) {
	owned, err := p.owned(ctx)
	if err != nil {
		return nil, err
	}
	desired, err := c.Desired(p.Scope)
	if err != nil {
		return nil, err
	}
	if len(desired)+len(owned) == 0 {
		return NotConfigured(), nil
	}
	var lives []L
	for _, member := range desired {
		i := slices.IndexFunc(owned, func(live client.Object) bool { return live.GetName() == valueOf(member.GetName()) })
		if i < 0 {
			continue
		}
		live, _ := owned[i].(L)
		lives = append(lives, live)
		if next, err := driftOnly(p, requestFor(p, member, live, c.HandOver, c.RemoveFields, c.UniqueFields)); next != nil || err != nil {
			return next, err
		}
	}
	if c.Observed != nil {
		c.Observed(p.Scope, lives)
	}
	return nil, nil
}

// NextUndo implements [Phase]. Members are listed past the cache, for the reason given at [Child.NextUndo].
func (c Children[S, C, L]) NextUndo(ctx context.Context, p Pass[S]) (Next, error) {
	list, err := p.newList()
	if err != nil {
		return nil, err
	}
	if err := p.Cluster.Uncached.List(ctx, list, client.InNamespace(p.Owner.GetNamespace())); err != nil {
		if meta.IsNoMatchError(err) {
			return Done("deleted"), nil
		}
		return nil, fmt.Errorf("listing %s objects: %w", p.declared.kind.Kind, err)
	}
	var next Next = Done("deleted")
	err = meta.EachListItem(list, func(item runtime.Object) error {
		live, ok := item.(client.Object)
		if newer, known := p.Cluster.answered[idOf(live)]; ok && known {
			live = newer
		}
		if _, deleting := next.(Delete); !deleting && p.owns(live) {
			next = p.remove(live, propagationOf(c.Propagation, p.declared.kind), ReasonTerminating, "")
		}
		return nil
	})
	return next, err
}

// declare checks what both sorts of children have in common.
func declare[S any, L client.Object](scheme *runtime.Scheme, settled func(L) bool, paths ...[]string) (Declaration[S], error) {
	kind, err := kindOf[L](scheme)
	if err != nil {
		return Declaration[S]{}, fmt.Errorf("the child's type: %w", err)
	}
	d := Declaration[S]{Child: newObject[L](), kind: kind, list: kind.GroupVersion().WithKind(kind.Kind + "List")}
	if !scheme.Recognizes(d.list) {
		return d, fmt.Errorf("the child's type: its list %s, by which children are found, is not in the scheme", d.list.Kind)
	}
	for _, path := range slices.Concat(paths...) {
		if err := ssa.CheckFieldPath(d.Child, path); err != nil {
			return d, fmt.Errorf("HandOver, RemoveFields and UniqueFields: %w", err)
		}
	}
	if settled != nil {
		d.Settled = func(child client.Object) bool {
			typed, ok := child.(L)
			return ok && settled(typed)
		}
	}
	return d, nil
}

// always is Settled for children whose status does not matter.
func always(client.Object) bool { return true }

// find reads a child from the cache. One that the owner does not control is read past it: what a cache
// shows of unmanaged objects may be old, and to touch them needs certainty.
func find[S any, L client.Object](ctx context.Context, p Pass[S], name string) (L, error) {
	live, err := read[L](ctx, p.Cluster, p.Cluster.Cached, p.keyOf(name))
	if err != nil || isNil(live) || p.owns(live) {
		return live, err
	}
	return read[L](ctx, p.Cluster, p.Cluster.Uncached, p.keyOf(name))
}

func requestFor[S any, C ssa.Configuration, L client.Object](p Pass[S], desired C, live L, handOver, remove, unique []string) ssa.Request {
	request := ssa.Request{
		Desired: desired, Owner: &p.Reference, Adoption: p.Policies.Adoption, Drift: p.Policies.Drift,
		HandOver: handOver, RemoveFields: remove, UniqueFields: unique,
	}
	if !isNil(live) {
		request.Live = live
	}
	return request
}

// bring answers with the apply that brings a child to what is desired, or nil if it needs none.
func bring[S any, L client.Object](p Pass[S], request ssa.Request, live L, existed bool) (Next, error) {
	switch {
	case p.Cluster.isApplied(live):
		return nil, nil
	case p.owns(live) && live.GetDeletionTimestamp() != nil:
		return Wait(ReasonRecreating, p.describe(live)+" is being deleted"+finalizersOf(live)+"; it will be recreated", 0), nil
	}
	decision, err := p.Cluster.Decide(request)
	if err != nil || decision.Action == ssa.ActionNone {
		return nil, err
	}
	return Apply{Decision: decision, Existed: existed}, nil
}

// driftOnly answers with what would be reported of an object that is not to be applied just now.
func driftOnly[S any](p Pass[S], request ssa.Request) (Next, error) {
	if p.Policies.Drift != ssa.ReportDrift {
		return nil, nil
	}
	decision, err := p.Cluster.Decide(request)
	if err != nil || len(decision.Drifts) == 0 {
		return nil, err
	}
	decision.Action, decision.Left = ssa.ActionReport, true
	return Apply{Decision: decision}, nil
}

// misnamed says what is wrong with a configuration that is not that of the phase's child, or nil. What
// it would create, nothing would find again: it would be pruned and recreated forever.
func misnamed[S any, C ssa.Configuration](p Pass[S], desired C, want string) Verdict {
	if isNil(desired) {
		return nil
	}
	kind, namespace, name := valueOf(desired.GetKind()), valueOf(desired.GetNamespace()), valueOf(desired.GetName())
	switch owners := p.Owner.GetNamespace(); {
	case kind != p.declared.kind.Kind:
		return bug(fmt.Sprintf("the configuration is of kind %q, and the phase's child is a %s", kind, p.declared.kind.Kind))
	case name != want:
		return bug(fmt.Sprintf("the configuration has the name %q, and the phase's child is named %q", name, want))
	case owners != "" && namespace != owners:
		return bug(fmt.Sprintf("the configuration has the namespace %q, and its owner is in %q", namespace, owners))
	default:
		return nil
	}
}

func bug(what string) Verdict {
	return Stalled(ReasonFailed, what+": this is a bug in the operator")
}

func readiness[S any, L client.Object](ctx context.Context, p Pass[S], ready func(context.Context, S, L) Verdict, live L) Verdict {
	if ready == nil {
		return Done(p.describe(live) + " applied")
	}
	return ready(ctx, p.Scope, live)
}

// graver is what a set says whose members say a and b: the first that is not done, or else the first
// that has not finished; and the earlier of two times to reconcile again.
func graver(a, b Verdict) Verdict {
	one, other := a.data(), b.data()
	if one.IsDone() && (!other.IsDone() || one.beside == "" && other.beside != "") {
		one, other = other, one
	}
	if other.IsDone() && other.after > 0 && (one.IsDone() || one.kind == kindWait) && (one.after == 0 || other.after < one.after) {
		one.after = other.after
	}
	return one
}

// propagationOf is the propagation of a deletion. A kind that may have dependents is deleted in the
// foreground, so that it is observed to be gone when they are.
func propagationOf(chosen metav1.DeletionPropagation, kind schema.GroupVersionKind) metav1.DeletionPropagation {
	isBuiltIn := !strings.Contains(kind.Group, ".") || strings.HasSuffix(kind.Group, ".k8s.io")
	switch {
	case chosen != "":
		return chosen
	case kind.Group == "apps" || kind.Group == "batch" || kind.Kind == "ReplicationController" || !isBuiltIn:
		return metav1.DeletePropagationForeground
	default:
		return metav1.DeletePropagationBackground
	}
}

// wasDone says whether the status says that the phase was done for the object as it is: what is missing
// now was taken away.
func wasDone[S any](p Pass[S], phase string) bool {
	before := meta.FindStatusCondition(p.Before, ConditionOf(phase))
	return before != nil && before.Status == metav1.ConditionTrue && before.ObservedGeneration == p.Owner.GetGeneration()
}

func valueOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
