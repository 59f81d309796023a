package phases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

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
type Child[S any, C ssa.Configuration, L client.Object] struct {
	// Name of the phase, such as Deployment.
	Name string
	// Desired is what the child should be, or nil if there should be none: then it is pruned, and the
	// phase is not configured. It is a function of values. Build the configuration for each call: the
	// owner reference is added to it. If the spec is invalid, return a [reconcile.TerminalError]: others are retried.
	Desired func(scope S) (C, error)
	// ChildName is the child's name, by default that of the owner. Two children of one kind need it. It
	// must depend on nothing but the owner's identity, and no other phase may have a child of this kind and name.
	ChildName func(scope S) string
	// ChildNamespace is the child's namespace, by default that of the owner. A cluster-scoped owner needs it for
	// a child that is namespaced. It must depend on nothing but the owner's identity.
	ChildNamespace func(scope S) string
	// Adopt judges an existing object of the name that no controller owns, for instance by its UID: if it is done, the
	// object is adopted, and any other verdict gates. Optional: by default the [Policies] decide.
	Adopt func(scope S, live L) Verdict
	// Requires checks what must exist before the child is applied, and that the child does not control,
	// such as the class of an ingress. It only reads; a verdict that is not done gates. Optional.
	Requires func(ctx context.Context, scope S) (Verdict, error)
	// Health judges the child by its own fields, as a function of values. Updates that do not change
	// whether it is done are acted on after [ProgressInterval] and not at once. Optional: a child that is
	// applied is ready.
	Health func(live L) Verdict
	// Ready says when the child counts as ready, if that takes more than Health: what earlier phases
	// observed, or a read that explains why it is not, which it should avoid where all is well. Optional.
	Ready func(ctx context.Context, scope S, live L) Verdict
	// Observed hands the live child to the phases that follow, through the scope. It may be the object of the cache: only
	// read it. Optional.
	Observed func(scope S, live L)
	// Prune says when the child is deleted once Desired is nil.
	Prune PruneOrder
	// Propagation of the child's deletion. The default is Background for kinds of Kubernetes that have no
	// dependents of their own, such as ConfigMap, and Foreground for all others. A teardown waits for a child that
	// is deleted in the foreground before it deletes those of earlier phases, which its dependents may use. If the
	// owner is deleted in the foreground, so is the child.
	Propagation metav1.DeletionPropagation
	// HandOver, RemoveFields and UniqueFields are those of [ssa.Request].
	HandOver, RemoveFields, UniqueFields []string
}

// PhaseName implements [Phase].
func (c Child[S, C, L]) PhaseName() string { return c.Name }

// Declare implements [Phase]: a child is a set that has at most one member.
func (c Child[S, C, L]) Declare(scheme *runtime.Scheme) (Declaration[S], error) {
	if c.Desired == nil {
		return Declaration[S]{}, errors.New("Desired is nil")
	}
	set := Children[S, C, L]{
		Name: c.Name, ChildNamespace: c.ChildNamespace, Health: c.Health, Ready: c.Ready, Propagation: c.Propagation,
		HandOver: c.HandOver, RemoveFields: c.RemoveFields, UniqueFields: c.UniqueFields,
		Prune: c.Prune, onlyName: c.nameIn, adopt: c.Adopt, requires: c.Requires,
		Desired: func(scope S) ([]C, error) {
			desired, err := c.Desired(scope)
			if err != nil || isNil(desired) {
				return nil, err
			}
			return []C{desired}, nil
		},
	}
	if c.Observed != nil {
		set.Observed = func(scope S, live []L) {
			if len(live) > 0 {
				c.Observed(scope, live[0])
			}
		}
	}
	d, err := set.Declare(scheme)
	d.HasOwnersName = c.ChildName == nil
	return d, err
}

func (c Child[S, C, L]) nameIn(p Reconcile[S]) string {
	if c.ChildName == nil {
		return p.Owner.GetName()
	}
	return c.ChildName(p.Scope)
}

// Children is a phase that is a set of Kubernetes objects of one kind whose members the object decides:
// a volume for each shard, a role binding for each team. Members that are no longer desired are
// deleted; they are found by owner and kind.
type Children[S any, C ssa.Configuration, L client.Object] struct {
	// Name of the phase, such as Volumes.
	Name string
	// Desired are the members, told apart by their names. None means that the phase is not configured. It must fail as
	// long as it cannot know them: other phases with children of this kind ask it too, before this phase runs, and delete
	// what it does not name.
	Desired func(scope S) ([]C, error)
	// ChildNamespace is the namespace of all members, as in [Child].
	ChildNamespace func(scope S) string
	// Health and Ready judge a member, as in [Child]. Optional.
	Health func(live L) Verdict
	Ready  func(ctx context.Context, scope S, live L) Verdict
	// Observed hands the live members to the phases that follow, as in [Child]. Optional.
	Observed func(scope S, live []L)
	// Prune says when a member that is no longer desired is deleted. A volume needs [PruneLast]: its finalizer keeps it while
	// a pod uses it, and in order it would gate the phase that changes the pods.
	Prune PruneOrder
	// Propagation of a member's deletion, as in [Child].
	Propagation metav1.DeletionPropagation
	// HandOver, RemoveFields and UniqueFields are those of [ssa.Request].
	HandOver, RemoveFields, UniqueFields []string

	// onlyName is the name of the only member there may be, whatever the spec says; nil in a set.
	onlyName func(p Reconcile[S]) string
	adopt    func(scope S, live L) Verdict
	requires func(ctx context.Context, scope S) (Verdict, error)
	// kind of the members, and an empty list of them. Declare sets them.
	kind schema.GroupVersionKind
	list client.ObjectList
}

// PhaseName implements [Phase].
func (m Children[S, C, L]) PhaseName() string { return m.Name }

// Declare implements [Phase].
func (m Children[S, C, L]) Declare(scheme *runtime.Scheme) (d Declaration[S], err error) {
	if m.Desired == nil {
		return d, errors.New("Desired is nil")
	}
	m.Desired = withoutNil(m.Desired)
	if m.kind, err = kindOf[L](scheme); err != nil {
		return d, fmt.Errorf("the child's type: %w", err)
	}
	list, _ := scheme.New(m.kind.GroupVersion().WithKind(m.kind.Kind + "List"))
	var isList bool
	if m.list, isList = list.(client.ObjectList); !isList {
		return d, fmt.Errorf("the child's type: its list %sList, by which children are found, is not in the scheme", m.kind.Kind)
	}
	if m.Propagation == "" {
		m.Propagation = defaultPropagation(m.kind)
	}
	d = Declaration[S]{Child: newObject[L](), Names: m.names, Namespace: m.namespaceIn, Next: m.next, Undo: m.undo, Observe: m.observe, Settled: m.settled()}
	for _, path := range slices.Concat(m.HandOver, m.RemoveFields, m.UniqueFields) {
		if err := ssa.CheckFieldPath(d.Child, path); err != nil {
			return d, fmt.Errorf("HandOver, RemoveFields or UniqueFields: %w", err)
		}
	}
	if m.Propagation != metav1.DeletePropagationForeground {
		d.Gone = m.gone
	}
	switch m.Prune {
	case PruneFirst:
		d.First = m.retire
	case PruneLast:
		d.Last = m.retire
	case PruneInOrder:
	}
	return d, nil
}

// withoutNil fails for members that are nil, which have no name to find them by.
func withoutNil[S any, C ssa.Configuration](desired func(S) ([]C, error)) func(S) ([]C, error) {
	return func(scope S) ([]C, error) {
		members, err := desired(scope)
		if err == nil && slices.ContainsFunc(members, func(member C) bool { return isNil(member) }) {
			return nil, reconcile.TerminalError(errors.New("Desired returns a member that is nil: this is a bug in the operator"))
		}
		return members, err
	}
}

// settled is nil if whether a member is ready does not follow from its own fields.
func (m *Children[S, C, L]) settled() func(client.Object) bool {
	switch {
	case m.Health != nil:
		return func(child client.Object) bool {
			typed, ok := child.(L)
			if !ok {
				return false
			}
			verdict := m.Health(typed)
			return verdict != nil && verdict.IsDone() // the phase says itself that it has none
		}
	case m.Ready == nil:
		return func(client.Object) bool { return true }
	default:
		return nil
	}
}

func (m *Children[S, C, L]) names(p Reconcile[S]) ([]string, error) {
	if m.onlyName != nil {
		return []string{m.onlyName(p)}, nil
	}
	desired, err := m.Desired(p.Scope)
	return namesOf(desired), err
}

func (m *Children[S, C, L]) namespaceIn(p Reconcile[S]) string {
	if m.ChildNamespace == nil {
		return p.Owner.GetNamespace()
	}
	return m.ChildNamespace(p.Scope)
}

func (m *Children[S, C, L]) keyOf(p Reconcile[S], name string) client.ObjectKey {
	return client.ObjectKey{Namespace: m.namespaceIn(p), Name: name}
}

// next applies all members before one that is not ready gates, and deletes what is no longer desired.
// With a verdict, the phase hands what exists to the scope.
func (m *Children[S, C, L]) next(ctx context.Context, p Reconcile[S]) (Next, error) {
	lives, next, err := m.propose(ctx, p)
	if _, isVerdict := next.(Verdict); m.Observed == nil || !isVerdict {
		return next, err
	}
	if lives == nil {
		lives, _ = m.existing(ctx, p)
	}
	m.Observed(p.Scope, lives)
	return next, err
}

// propose also returns the members, if it got as far as to know them all.
func (m *Children[S, C, L]) propose(ctx context.Context, p Reconcile[S]) ([]L, Next, error) {
	desired, err := m.Desired(p.Scope)
	if err != nil {
		return nil, nil, err
	}
	if wrong := m.wrong(p, desired); wrong != nil {
		return nil, wrong, nil
	}
	if m.requires != nil && len(desired) > 0 {
		if verdict, err := m.requires(ctx, p.Scope); err != nil || verdict == nil || !verdict.IsDone() {
			return nil, verdict, err
		}
	}
	var verdict Verdict
	lives := make([]L, 0, len(desired))
	for _, member := range desired {
		next, live, err := m.bring(ctx, p, member)
		if err != nil {
			return nil, nil, err
		}
		switch waiting := next.(type) {
		case nil:
			lives, verdict = append(lives, live), graver(verdict, m.readiness(ctx, p, live))
		case Verdict:
			lives, verdict = append(lives, live), graver(verdict, waiting)
		default:
			// Each of two phases with the same child would revert what the other applies. One that cannot name its children
			// finds out when it runs.
			others, _ := p.namedByOthers(m.Name, m.kind, m.namespaceIn(p))
			if name := ptr.Deref(member.GetName(), ""); slices.Contains(others, name) {
				next = bug(fmt.Sprintf("phase %s has the same child as another phase, %s %s", m.Name, m.kind.Kind, name))
			}
			return nil, next, nil
		}
	}
	next, err := m.pruneInOrder(ctx, p, desired, verdict)
	return lives, next, err
}

// bring answers with the apply that brings a member to what is desired, or with nil and the member if
// it needs none.
func (m *Children[S, C, L]) bring(ctx context.Context, p Reconcile[S], desired C) (Next, L, error) {
	name := ptr.Deref(desired.GetName(), "")
	live, err := m.find(ctx, p, name)
	if err != nil || p.Cluster.isApplied(live) {
		return nil, live, err
	}
	next, err := m.bringFrom(ctx, p, desired, live)
	if ssa.IsStale(err) { // the cache holds a digest of the object
		if live, err = read[L](ctx, p.Cluster, p.Cluster.Uncached, m.keyOf(p, name)); err != nil {
			return nil, live, err
		}
		next, err = m.bringFrom(ctx, p, desired, live)
	}
	return next, live, err
}

func (m *Children[S, C, L]) bringFrom(ctx context.Context, p Reconcile[S], desired C, live L) (Next, error) {
	if p.owns(live) && live.GetDeletionTimestamp() != nil {
		return Wait(ReasonRecreating, describe(live, p.Owner)+" is being deleted"+finalizersOf(live)+"; it will be recreated", 0), nil
	}
	request := m.request(p, desired, live)
	decision, err := p.Cluster.Decide(request)
	if refused, ok := errors.AsType[*ssa.Error](err); ok && refused.Reason == ssa.ReasonNotOwned && m.adopt != nil {
		verdict := m.adopt(p.Scope, live)
		if verdict == nil {
			return bug("phase " + m.Name + " gave no verdict on the adoption of " + describe(live, p.Owner)), nil
		}
		if !verdict.IsDone() {
			return verdict, nil
		}
		request.Adoption = ssa.AdoptIfUnowned
		decision, err = p.Cluster.Decide(request)
	}
	if err != nil {
		return nil, err
	}
	if decision.Action == ssa.ActionNone {
		if quiet := log.FromContext(ctx).V(1); quiet.Enabled() {
			quiet.Info("Child is as desired", "phase", m.Name, "child", klog.KObj(live))
		}
		return nil, nil
	}
	return Apply{Decision: decision, Existed: m.existed(p)}, nil
}

// find reads a member from the cache. One that the owner does not control is read past it: what a cache
// shows of unmanaged objects may be old, and to touch them needs certainty.
func (m *Children[S, C, L]) find(ctx context.Context, p Reconcile[S], name string) (L, error) {
	live, err := read[L](ctx, p.Cluster, p.Cluster.Cached, m.keyOf(p, name))
	if isNil(live) || p.owns(live) {
		return live, err
	}
	return read[L](ctx, p.Cluster, p.Cluster.Uncached, m.keyOf(p, name))
}

func (m *Children[S, C, L]) request(p Reconcile[S], desired C, live L) ssa.Request {
	request := ssa.Request{
		Desired: desired, Owner: &p.Reference, Adoption: p.Policies.Adoption, Drift: p.Policies.Drift, Redact: p.Policies.Redact,
		HandOver: m.HandOver, RemoveFields: m.RemoveFields, UniqueFields: m.UniqueFields,
	}
	if !isNil(live) {
		request.Live = live
	}
	if m.adopt != nil { // no policy that a message could name
		request.Adoption = ""
	}
	return request
}

// existed says whether the status knows the member: if it is missing, it was deleted. A set may have
// gained a member with this generation.
func (m *Children[S, C, L]) existed(p Reconcile[S]) bool {
	before := meta.FindStatusCondition(p.Before, ConditionOf(m.Name))
	if before == nil {
		return false
	}
	isSame := m.onlyName != nil || before.ObservedGeneration == p.Owner.GetGeneration()
	return isSame && (before.Reason == ReasonRecreating || before.Status == metav1.ConditionTrue)
}

func (m *Children[S, C, L]) readiness(ctx context.Context, p Reconcile[S], live L) Verdict {
	switch {
	case m.Ready != nil:
		return given(m.Ready(ctx, p.Scope, live), m.Name)
	case m.Health != nil:
		return given(m.Health(live), m.Name)
	case m.onlyName == nil:
		return Done("all " + m.kind.Kind + " objects applied")
	default:
		return Done(describe(live, p.Owner) + " applied")
	}
}

func (m *Children[S, C, L]) pruneInOrder(ctx context.Context, p Reconcile[S], desired []C, verdict Verdict) (Next, error) {
	extra, err := m.unwanted(ctx, p, desired, m.owned)
	if err == nil && extra == nil && verdict == nil && p.MayHaveLeft(m.Name) {
		// Without its condition, a teardown does not look for what the phase left. A cache that lags after a restart
		// may show nothing of it.
		extra, err = m.unwanted(ctx, p, desired, m.ownedPastCache)
	}
	switch {
	case err != nil:
		return nil, err
	case extra == nil && len(desired) == 0:
		return NotConfigured(), nil
	case extra == nil:
		return verdict, nil
	}
	next := m.delete(p, extra, ReasonPruning, noLongerDesired)
	waiting, isWait := next.(Verdict)
	switch {
	case m.Prune == PruneLast && isWait:
		waiting = DoneBecause(ReasonPruning, waiting.Message())
	case m.Prune == PruneLast:
		waiting = DoneBecause(ReasonPruning, describe(extra, p.Owner)+" will be deleted once unused")
	case !isWait:
		return next, nil
	}
	return graver(verdict, waiting), nil
}

// retire deletes what is no longer desired before or after all phases.
func (m *Children[S, C, L]) retire(ctx context.Context, p Reconcile[S]) (Next, error) {
	desired, err := m.Desired(p.Scope)
	if err != nil {
		return nil, nil //nolint:nilerr // the phase says so itself when it runs
	}
	extra, err := m.unwanted(ctx, p, desired, m.owned)
	if extra == nil {
		return nil, err
	}
	return m.delete(p, extra, ReasonPruning, noLongerDesired), nil
}

// unwanted finds an object of the kind that the owner controls and that neither this phase desires nor
// another one names: an earlier spec, or an earlier version of the operator, created it.
func (m *Children[S, C, L]) unwanted(ctx context.Context, p Reconcile[S], desired []C, list func(context.Context, Reconcile[S]) ([]client.Object, error)) (client.Object, error) {
	owned, err := list(ctx, p)
	if err != nil {
		return nil, err
	}
	named, known := p.namedByOthers(m.Name, m.kind, m.namespaceIn(p))
	if !known {
		return nil, nil
	}
	return nextOf(owned, append(named, namesOf(desired)...)), nil
}

// nextOf is the next object to delete that is not spared: one that is not being deleted comes first.
func nextOf(objects []client.Object, spared []string) (next client.Object) {
	for _, object := range objects {
		if slices.Contains(spared, object.GetName()) {
			continue
		}
		if next = object; object.GetDeletionTimestamp() == nil {
			break
		}
	}
	return next
}

// owned lists what the owner controls of the kind, from the cache: nothing of a kind that the cluster does
// not serve.
func (m *Children[S, C, L]) owned(ctx context.Context, p Reconcile[S]) ([]client.Object, error) {
	objects, err := ssa.OwnedIn(ctx, p.Cluster.Cached, p.Owner, m.namespaceIn(p), m.newList())
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	existing := objects[:0]
	for _, object := range objects {
		if newest := p.Cluster.newest(object); newest != nil {
			existing = append(existing, newest)
		}
	}
	return existing, err
}

func (m *Children[S, C, L]) newList() client.ObjectList {
	list, _ := m.list.DeepCopyObject().(client.ObjectList)
	return list
}

// observe hands what exists to the scope, after the drift that is to be reported.
func (m *Children[S, C, L]) observe(ctx context.Context, p Reconcile[S]) (Next, error) {
	existing, err := m.existing(ctx, p)
	if err != nil {
		return nil, err
	}
	next, err := m.report(p, existing)
	if _, isApply := next.(Apply); m.Observed != nil && !isApply {
		m.Observed(p.Scope, existing)
	}
	return next, err
}

// existing lists the members that exist, desired or not.
func (m *Children[S, C, L]) existing(ctx context.Context, p Reconcile[S]) ([]L, error) {
	owned, err := m.owned(ctx, p)
	if err != nil {
		return nil, err
	}
	names, _ := m.names(p)
	others, _ := p.namedByOthers(m.Name, m.kind, m.namespaceIn(p))
	var existing []L
	for _, object := range owned {
		isMember := !slices.Contains(others, object.GetName()) && (m.onlyName == nil || slices.Contains(names, object.GetName()))
		if live, _ := object.(L); isMember {
			existing = append(existing, live)
		}
	}
	return existing, nil
}

// report proposes the report of the next drift that is not to be reverted.
func (m *Children[S, C, L]) report(p Reconcile[S], existing []L) (Next, error) {
	desired, err := m.Desired(p.Scope)
	if err != nil || m.wrong(p, desired) != nil {
		return nil, err
	}
	if len(desired)+len(existing) == 0 && !p.MayHaveLeft(m.Name) {
		return NotConfigured(), nil
	}
	if p.Policies.Drift != ssa.ReportDrift {
		return nil, nil
	}
	for _, member := range desired {
		i := slices.IndexFunc(existing, func(live L) bool { return live.GetName() == ptr.Deref(member.GetName(), "") })
		if i < 0 || p.Cluster.isApplied(existing[i]) || ssa.IsCompact(existing[i]) { // the last has not drifted
			continue
		}
		decision, err := p.Cluster.Decide(m.request(p, member, existing[i]))
		if err != nil {
			return nil, err
		}
		if len(decision.Drifts) > 0 {
			decision.Action, decision.Left = ssa.ActionReport, true
			return Apply{Decision: decision}, nil
		}
	}
	return nil, nil
}

// undo deletes one object after the other, by what the cache shows. Children with dependents gate the phases before
// until they are gone; others are only deleted, and read past the cache in the end.
func (m *Children[S, C, L]) undo(ctx context.Context, p Reconcile[S]) (Next, error) {
	left, err := m.owned(ctx, p)
	if err != nil {
		return nil, err
	}
	next := m.deleteNext(p, left)
	switch waiting, isWait := next.(Verdict); {
	case next == nil && m.Propagation == metav1.DeletePropagationForeground:
		return m.gone(ctx, p)
	case next == nil:
		return Done("deleted"), nil
	case isWait && m.Propagation != metav1.DeletePropagationForeground:
		return DoneBecause(ReasonTerminating, waiting.Message()), nil
	}
	return next, nil
}

// gone reads what is left past the cache, since the finalizer is removed by it.
func (m *Children[S, C, L]) gone(ctx context.Context, p Reconcile[S]) (Next, error) {
	if desired, err := m.Desired(p.Scope); err == nil && len(desired) == 0 && !p.MayHaveLeft(m.Name) {
		return Done("deleted"), nil // nothing exists that the cache does not show
	}
	left, err := m.ownedPastCache(ctx, p)
	if err != nil {
		return nil, err
	}
	if next := m.deleteNext(p, left); next != nil {
		return next, nil
	}
	return Done("deleted"), nil
}

// deleteNext answers with the deletion of the next object, or waits for those that are being deleted, or with nil if
// none is left.
func (m *Children[S, C, L]) deleteNext(p Reconcile[S], left []client.Object) Next {
	others, _ := p.namedByOthers(m.Name, m.kind, m.namespaceIn(p))
	if live := nextOf(left, others); live != nil {
		return m.delete(p, live, ReasonTerminating, "")
	}
	return nil
}

// ownedPastCache lists what is left: a single child by its name, and a set by its kind.
func (m *Children[S, C, L]) ownedPastCache(ctx context.Context, p Reconcile[S]) ([]client.Object, error) {
	if m.onlyName != nil {
		key := m.keyOf(p, m.onlyName(p))
		if a, known := p.Cluster.answered[objectID{reflect.TypeFor[L](), key}]; known && a.object == nil {
			return nil, nil
		}
		live, err := get[L](ctx, p.Cluster.Uncached, key)
		if !p.owns(live) {
			return nil, err
		}
		return []client.Object{p.Cluster.newest(live)}, nil
	}
	list := m.newList()
	if err := p.Cluster.Uncached.List(ctx, list, client.InNamespace(m.namespaceIn(p))); err != nil {
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) { // of a kind that is not served, or not any more
			return nil, nil
		}
		return nil, fmt.Errorf("listing %s objects: %w", m.kind.Kind, err)
	}
	var owned []client.Object
	err := meta.EachListItem(list, func(item runtime.Object) error {
		if live, _ := item.(client.Object); p.owns(live) {
			owned = append(owned, cmp.Or(p.Cluster.newest(live), live))
		}
		return nil
	})
	return owned, err
}

const noLongerDesired = "; it is no longer desired"

// delete answers with the deletion of an object, or waits for one that is being deleted.
func (m *Children[S, C, L]) delete(p Reconcile[S], live client.Object, reason, why string) Next {
	if live.GetDeletionTimestamp() != nil {
		return Wait(reason, "waiting for "+describe(live, p.Owner)+" to be deleted"+finalizersOf(live)+why, 0)
	}
	propagation := m.Propagation
	if slices.Contains(p.Owner.GetFinalizers(), metav1.FinalizerDeleteDependents) {
		propagation = metav1.DeletePropagationForeground // the user waits for all dependents, those of the child too
	}
	return Delete{Object: live, Propagation: propagation}
}

// inNamespace finds the finalizers in the condition of a Namespace that says which of its content have some.
var inNamespace = regexp.MustCompile(`([^\s,]+) in \d+ resource instances`)

// finalizersOf names what a deletion waits for: for a Namespace, also the finalizers of what is in it.
func finalizersOf(live client.Object) string {
	finalizers := slices.Clone(live.GetFinalizers())
	if namespace, ok := live.(*corev1.Namespace); ok {
		for _, finalizer := range namespace.Spec.Finalizers {
			finalizers = append(finalizers, string(finalizer))
		}
		for _, c := range namespace.Status.Conditions {
			if c.Type != corev1.NamespaceFinalizersRemaining || c.Status != corev1.ConditionTrue {
				continue
			}
			for _, found := range inNamespace.FindAllStringSubmatch(c.Message, -1) {
				finalizers = append(finalizers, found[1])
			}
		}
	}
	slices.Sort(finalizers)
	finalizers = slices.Compact(finalizers)
	if len(finalizers) == 0 {
		return ""
	}
	return " (finalizers: " + strings.Join(finalizers, ", ") + ")"
}

// wrong says what is wrong with the configurations, or nil. What one of another kind, name or namespace
// would create, nothing would find again: it would be pruned and recreated forever.
func (m *Children[S, C, L]) wrong(p Reconcile[S], desired []C) Verdict {
	names, _ := m.names(p)
	owners := p.Owner.GetNamespace()
	for i, member := range desired {
		kind := schema.FromAPIVersionAndKind(ptr.Deref(member.GetAPIVersion(), ""), ptr.Deref(member.GetKind(), ""))
		namespace, name := ptr.Deref(member.GetNamespace(), ""), ptr.Deref(member.GetName(), "")
		switch {
		case kind.Empty():
			return bug(fmt.Sprintf("Desired returns a %T without a kind (its constructor sets it)", member))
		case kind != m.kind:
			return bug(fmt.Sprintf("Desired returns a configuration of %s, and the child's Go type is of %s",
				kindAndVersion(kind), kindAndVersion(m.kind)))
		case owners != "" && namespace != owners:
			return bug(fmt.Sprintf("Desired returns a configuration in the namespace %q, and the owner is in %q "+
				"(a cluster-scoped child needs a cluster-scoped owner)", namespace, owners))
		case namespace != m.namespaceIn(p):
			return bug(fmt.Sprintf("Desired returns a configuration in the namespace %q, and ChildNamespace is %q",
				namespace, m.namespaceIn(p)))
		case !slices.Contains(names, name):
			return bug(fmt.Sprintf("Desired returns a configuration with the name %q, and ChildName is %q "+
				"(by default, it is the name of the owner)", name, names[0]))
		case slices.Contains(namesOf(desired[:i]), name):
			return bug(fmt.Sprintf("Desired returns two members with the name %q", name))
		}
	}
	return nil
}

// given is a verdict of the operator, or what says that it gave none.
func given(verdict Verdict, phase string) Verdict {
	if verdict == nil || verdict.data().kind == "" {
		return bug("phase " + phase + " gave no verdict and no error (a function returned nil, or the zero value of a verdict)")
	}
	return verdict
}

func bug(what string) Verdict {
	return Stalled(ReasonFailed, what+": this is a bug in the operator")
}

func namesOf[C ssa.Configuration](desired []C) []string {
	names := make([]string, 0, len(desired))
	for _, member := range desired {
		names = append(names, ptr.Deref(member.GetName(), ""))
	}
	return names
}

// graver is what a set says whose members say a and b: the first that is not done, or else the first
// that has not finished; and the earlier of two times to reconcile again. Nil says nothing.
func graver(a, b Verdict) Verdict {
	if a == nil {
		return b
	}
	one, other := a.data(), b.data()
	if one.IsDone() && (!other.IsDone() || one.beside == "" && other.beside != "") {
		one, other = other, one
	}
	if after := other.After(); after > 0 && !one.IsStalled() && (one.After() == 0 || after < one.After()) {
		one.after = after
	}
	return one
}

// defaultPropagation is the propagation of a deletion. A kind that may have dependents is deleted in the
// foreground, so that it is observed to be gone when they are.
func defaultPropagation(kind schema.GroupVersionKind) metav1.DeletionPropagation {
	isBuiltIn := !strings.Contains(kind.Group, ".") || strings.HasSuffix(kind.Group, ".k8s.io")
	if kind.Group == "apps" || kind.Group == "batch" || kind.Kind == "ReplicationController" || !isBuiltIn {
		return metav1.DeletePropagationForeground
	}
	return metav1.DeletePropagationBackground
}

// wasDone says whether the status says that the phase was done for the object as it is: what is missing
// now was taken away.
func wasDone[S any](p Reconcile[S], phase string) bool {
	before := meta.FindStatusCondition(p.Before, ConditionOf(phase))
	return before != nil && before.Status == metav1.ConditionTrue && before.ObservedGeneration == p.Owner.GetGeneration()
}
