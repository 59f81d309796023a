package phases

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// Phase is one entry of the list. [Child], [Children] and [Step] implement it, and so may others.
// S is the scope, the controller's own record of what one reconcile has found so far.
type Phase[S any] interface {
	// PhaseName is the name, of which the condition <name>Ready is made.
	PhaseName() string
	// Declare checks the phase and says what the engine may ask of it. [New] calls it once.
	Declare(scheme *runtime.Scheme) (Declaration[S], error)
}

// Question is what a phase may be asked: what is next? It only reads. The engine performs the answer
// and asks again, until it is a verdict.
type Question[S any] func(ctx context.Context, p Reconcile[S]) (Next, error)

// Declaration is what a phase consists of.
type Declaration[S any] struct {
	// Next answers what is next to bring the phase about, and Undo what is next to undo it: done means that
	// earlier phases may be undone. Undo is optional for a phase that leaves nothing behind.
	Next, Undo Question[S]
	// Gone answers, past the cache, whether nothing of the phase is left. It is asked before a step of an earlier
	// phase is undone, and before the finalizer is removed. Optional: Undo being done says so.
	Gone Question[S]
	// Observe is asked where the phase does not run, or fails: it hands what exists to the scope. It answers
	// [NotConfigured] if the object does not ask for the phase and nothing of it is left, an [Apply] that
	// only reports drift, or nil. Optional.
	Observe Question[S]
	// First is asked before all phases, and Last after all are done, both in the reverse order of the
	// list; nil is nothing to do. Optional.
	First, Last Question[S]

	// Child is an empty object of the children's type, which is watched; nil if the phase has none.
	Child client.Object
	// Names are those of the phase's children, which no other phase deletes; an error spares all of the
	// type. Required beside Child.
	Names func(p Reconcile[S]) ([]string, error)
	// Namespace is that of the phase's children. Optional: by default that of the owner.
	Namespace func(p Reconcile[S]) string
	// HasOwnersName is true if a child has the name of its owner: that such a name is freed concerns the
	// owner, whoever held it.
	HasOwnersName bool
	// Settled says whether a child is ready, by its own fields. Optional: updates of a child's status
	// that do not change it are acted on after [ProgressInterval] and not at once.
	Settled func(child client.Object) bool
}

// Reconcile is what a phase is given: one reconcile of one object.
type Reconcile[S any] struct {
	// Scope is the controller's own record, through which phases hand on what they have found.
	Scope S
	// Owner is the object that is reconciled, and Reference the owner reference of what it controls.
	Owner     client.Object
	Reference metav1.OwnerReference
	// Before are the conditions that the object has. They tell a transition from a repetition, and a
	// child that was deleted from one that never existed; no phase goes by them otherwise.
	Before []metav1.Condition
	// Policies are those of the object.
	Policies Policies
	// Cluster reads.
	Cluster *Cluster

	slots []slot[S]
}

// Policies say what to do with objects that exist and are unmanaged, and about drift.
type Policies struct {
	Adoption ssa.AdoptionPolicy
	Drift    ssa.DriftPolicy
	// Redact is that of [ssa.Request]. Optional.
	Redact func(*ssa.Drift)
}

// MayHaveLeft says whether something of a phase that the object does not ask for may exist although the cache does not
// show it. The status, which has a condition as long as something is left, says that nothing does if it is about this
// generation or the one before, which the last edit or the deletion has incremented. Before the first generation, no
// other spec asked for anything.
func (p Reconcile[S]) MayHaveLeft(phase string) bool {
	ready := meta.FindStatusCondition(p.Before, ConditionReady)
	generation := p.Owner.GetGeneration()
	isReported := generation == 1 || ready != nil && ready.ObservedGeneration >= generation-1
	return !isReported || meta.FindStatusCondition(p.Before, ConditionOf(phase)) != nil
}

func (p Reconcile[S]) owns(live client.Object) bool {
	return !isNil(live) && metav1.IsControlledBy(live, p.Owner)
}

// namedByOthers are the names of other phases' children of a kind, in any version of its API, in a namespace. They are not
// all known if a phase cannot say, which it says itself when it runs.
func (p Reconcile[S]) namedByOthers(phase string, kind schema.GroupVersionKind, namespace string) (names []string, known bool) {
	known = true
	for i := range p.slots {
		other := &p.slots[i]
		if other.kind.GroupKind() != kind.GroupKind() || other.name == phase || other.Namespace(p) != namespace {
			continue
		}
		more, err := other.Names(p)
		names, known = append(names, more...), known && err == nil
	}
	return names, known
}

// Cluster is what a reconcile knows of the cluster: caches, and what the API server has answered since.
type Cluster struct {
	// Cached reads from the cache, and Uncached past it.
	Cached, Uncached client.Reader
	applier          Applier
	// lags is true once the cache has shown a version of the past: objects are read past it from then on.
	lags bool
	// answered are the objects that the API server answered with in this reconcile, newer than any cache.
	answered map[objectID]answer
}

// answer is an object as the API server answered: with a deletion timestamp if it was deleted, nil if it
// does not exist. It is applied if it is as the phase wants it.
type answer struct {
	object  client.Object
	applied bool
}

type objectID struct {
	goType reflect.Type
	key    client.ObjectKey
}

func idOf(object client.Object) objectID {
	return objectID{reflect.TypeOf(object), client.ObjectKeyFromObject(object)}
}

func (c *Cluster) learn(id objectID, a answer) {
	if c.answered == nil {
		c.answered = map[objectID]answer{}
	}
	c.answered[id] = a
}

// newest is an object as the API server has answered in this reconcile, nil if it is gone, or else as it was given. The answer to a
// deletion does not say what it waits for, as an object read later does.
func (c *Cluster) newest(object client.Object) client.Object {
	a, known := c.answered[idOf(object)]
	isLater := a.object != nil && a.object.GetUID() == object.GetUID() && object.GetDeletionTimestamp() != nil
	if !known || isLater {
		return object
	}
	return a.object
}

// Get reads an object into another: as the API server has answered in this reconcile, or else from the cache. It
// says whether the object exists. What a phase proposes should rest on it, since a cache may not show yet
// what the same reconcile has written.
func (c *Cluster) Get(ctx context.Context, key client.ObjectKey, into client.Object) (exists bool, err error) {
	if a, known := c.answered[objectID{reflect.TypeOf(into), key}]; known {
		if a.object != nil {
			reflect.ValueOf(into).Elem().Set(reflect.ValueOf(a.object.DeepCopyObject()).Elem())
		}
		return a.object != nil, nil
	}
	err = c.newer(c.Cached).Get(ctx, key, into)
	return err == nil, client.IgnoreNotFound(err)
}

// isApplied says whether an object has been applied in this reconcile: it needs no decision any more.
func (c *Cluster) isApplied(live client.Object) bool {
	return !isNil(live) && c.answered[idOf(live)].applied
}

// Decide says what would bring an object to what is desired: see [ssa.Applier.Decide].
func (c *Cluster) Decide(req ssa.Request) (ssa.Decision, error) { return c.applier.Decide(req) }

// read gets an object: as the API server has answered in this reconcile, or else through the reader. Nil
// means that it does not exist, as nothing does of a kind that the cluster does not serve.
func read[L client.Object](ctx context.Context, c *Cluster, reader client.Reader, key client.ObjectKey) (L, error) {
	if a, known := c.answered[objectID{reflect.TypeFor[L](), key}]; known {
		typed, _ := a.object.(L)
		return typed, nil
	}
	return get[L](ctx, c.newer(reader), key)
}

func (c *Cluster) newer(reader client.Reader) client.Reader {
	if c.lags {
		return c.Uncached
	}
	return reader
}

func get[L client.Object](ctx context.Context, reader client.Reader, key client.ObjectKey) (L, error) {
	var none L
	live := newObject[L]()
	if err := reader.Get(ctx, key, live); err != nil {
		if client.IgnoreNotFound(err) == nil || meta.IsNoMatchError(err) {
			return none, nil
		}
		return none, fmt.Errorf("reading %s %s: %w", kindName(live), key, err)
	}
	return live, nil
}

// kindOf finds the kind of a Go type.
func kindOf[L client.Object](scheme *runtime.Scheme) (schema.GroupVersionKind, error) {
	if reflect.TypeFor[L]().Kind() != reflect.Pointer {
		return schema.GroupVersionKind{}, fmt.Errorf("%v is not a pointer to the Go type of one kind", reflect.TypeFor[L]())
	}
	return kindOfObject(newObject[L](), scheme)
}

func kindOfObject(object client.Object, scheme *runtime.Scheme) (schema.GroupVersionKind, error) {
	gvk, err := apiutil.GVKForObject(object, scheme)
	if err != nil {
		return schema.GroupVersionKind{}, fmt.Errorf("%T is not in the scheme: call its AddToScheme: %w", object, err)
	}
	return gvk, nil
}

// describe names a child for people, with its namespace if that is not the owner's.
func describe(child, owner client.Object) string {
	name := child.GetName()
	if child.GetNamespace() != owner.GetNamespace() {
		name = child.GetNamespace() + "/" + name
	}
	return kindName(child) + " " + name
}

// kindAndVersion names a kind for people, as a manifest does.
func kindAndVersion(kind schema.GroupVersionKind) string {
	return kind.GroupVersion().String() + " " + kind.Kind
}

func kindName(object any) string {
	name := fmt.Sprintf("%T", object)
	return name[strings.LastIndex(name, ".")+1:]
}

// newLike is an empty object of the type of another.
func newLike(object client.Object) client.Object {
	empty, _ := reflect.New(reflect.TypeOf(object).Elem()).Interface().(client.Object)
	return empty
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
