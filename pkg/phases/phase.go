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
//
// A phase reads and proposes; it never writes. The engine performs what it proposes and asks again,
// until the answer is a verdict.
type Phase[S any] interface {
	// PhaseName is the name, of which the condition <name>Ready is made.
	PhaseName() string
	// Declare checks the phase and says what the engine has to know of it. [New] calls it once.
	Declare(scheme *runtime.Scheme) (Declaration[S], error)
	// Next answers what is next to bring the phase about.
	Next(ctx context.Context, p Pass[S]) (Next, error)
	// NextUndo answers what is next to undo it; done means that nothing of it is left.
	NextUndo(ctx context.Context, p Pass[S]) (Next, error)
}

// Question is what a phase may be asked. It only reads.
type Question[S any] func(ctx context.Context, p Pass[S]) (Next, error)

// Declaration is what the engine knows of a phase before it runs.
type Declaration[S any] struct {
	// Child is an empty object of the children's type, which is watched; nil if the phase has none.
	Child client.Object
	// Names are those of the children that the phase has in this pass. Other children of the type that
	// the owner controls, and that no phase names, are deleted. An error spares them all.
	Names func(p Pass[S]) ([]string, error)
	// HasOwnersName is true if a child has the name of its owner: such a name that is freed is of
	// interest to the owner, whoever held it.
	HasOwnersName bool
	// Settled says whether a child is ready, by its own fields. Optional: updates of a child's status
	// that do not change it are acted on after [ProgressInterval] and not at once.
	Settled func(child client.Object) bool
	// Observe is asked where the phase does not run: it hands what exists to the scope. It answers
	// [NotConfigured] if the object does not ask for the phase and nothing of it is left, an [Apply] that
	// only reports drift, or nil. Optional.
	Observe Question[S]
	// First is asked before all phases, and Last after all are done, both in the reverse order of the
	// list. Optional.
	First, Last Question[S]

	// kind of the children, and of their list.
	kind, list schema.GroupVersionKind
}

// Pass is what a phase is given: one reconcile of one object.
type Pass[S any] struct {
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

	declared *Declaration[S]
	all      []Declaration[S]
}

// Policies say what to do with objects that exist and are unmanaged, and about drift.
type Policies struct {
	Adoption ssa.AdoptionPolicy
	Drift    ssa.DriftPolicy
}

// Cluster is what a pass knows of the cluster: caches, and what the API server has answered since.
type Cluster struct {
	// Cached reads from the cache, and Uncached past it.
	Cached, Uncached client.Reader
	scheme           *runtime.Scheme
	decider          interface {
		Decide(req ssa.Request) (ssa.Decision, error)
	}
	// answered are the objects that the API server answered with in this pass: newer than any cache.
	// An object that was deleted has a deletion timestamp; nil means that it does not exist.
	answered map[objectID]client.Object
	// applied are those of them that are as the phase wants them.
	applied map[objectID]bool
}

type objectID struct {
	goType reflect.Type
	key    client.ObjectKey
}

func idOf(object client.Object) objectID {
	return objectID{reflect.TypeOf(object), client.ObjectKeyFromObject(object)}
}

// learn keeps what the API server has answered with.
func (c *Cluster) learn(id objectID, object client.Object, applied bool) {
	if c.answered == nil {
		c.answered, c.applied = map[objectID]client.Object{}, map[objectID]bool{}
	}
	c.answered[id], c.applied[id] = object, applied
}

func (c *Cluster) isApplied(live client.Object) bool { return !isNil(live) && c.applied[idOf(live)] }

// Decide says what would bring an object to what is desired: see [ssa.Applier.Decide].
func (c *Cluster) Decide(req ssa.Request) (ssa.Decision, error) { return c.decider.Decide(req) }

// read gets an object: as the API server has answered in this pass, or else through the reader. Nil
// means that it does not exist, as nothing does of a kind that the cluster does not serve.
func read[L client.Object](ctx context.Context, c *Cluster, reader client.Reader, key client.ObjectKey) (L, error) {
	if object, known := c.answered[objectID{reflect.TypeFor[L](), key}]; known {
		typed, _ := object.(L)
		return typed, nil
	}
	return get[L](ctx, reader, key)
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

// owned lists what the owner controls of the phase's kind, from the cache. The result is nil for a kind
// that the cluster does not serve.
func (p Pass[S]) owned(ctx context.Context) ([]client.Object, error) {
	list, err := p.newList()
	if err != nil {
		return nil, err
	}
	objects, err := ssa.Owned(ctx, p.Cluster.Cached, p.Owner, list)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	for i, object := range objects {
		if newer, known := p.Cluster.answered[idOf(object)]; known && !isNil(newer) {
			objects[i] = newer
		}
	}
	return objects, err
}

func (p Pass[S]) newList() (client.ObjectList, error) {
	object, err := p.Cluster.scheme.New(p.declared.list)
	if err != nil {
		return nil, fmt.Errorf("creating a %s: %w", p.declared.list.Kind, err)
	}
	list, ok := object.(client.ObjectList)
	if !ok {
		return nil, fmt.Errorf("creating a %s: %T is not a list of objects", p.declared.list.Kind, object)
	}
	return list, nil
}

// unnamed finds a child of the phase's kind that no phase names, or nil: an earlier version of the
// operator, or an earlier spec, named it. Children are found by owner and kind alone.
func (p Pass[S]) unnamed(ctx context.Context) (client.Object, error) {
	objects, err := p.owned(ctx)
	if err != nil || len(objects) == 0 {
		return nil, err
	}
	named := map[string]bool{}
	for i := range p.all {
		if p.all[i].kind != p.declared.kind {
			continue
		}
		names, err := p.all[i].Names(p)
		if err != nil {
			return nil, nil //nolint:nilerr // that phase says so itself when it runs
		}
		for _, name := range names {
			named[name] = true
		}
	}
	var waiting client.Object
	for _, object := range objects {
		switch {
		case named[object.GetName()]:
		case object.GetDeletionTimestamp() == nil:
			return object, nil
		default:
			waiting = object
		}
	}
	return waiting, nil
}

// remove answers with the deletion of a child, or waits for one that terminates.
func (p Pass[S]) remove(live client.Object, propagation metav1.DeletionPropagation, reason, why string) Next {
	if live.GetDeletionTimestamp() == nil {
		return Delete{Object: live, Propagation: propagation}
	}
	return Wait(reason, "waiting for "+p.describe(live)+" to be deleted"+finalizersOf(live)+why, 0)
}

// finalizersOf names what a deletion waits for.
func finalizersOf(live client.Object) string {
	finalizers := live.GetFinalizers()
	if len(finalizers) == 0 {
		return ""
	}
	return " (finalizers: " + strings.Join(finalizers, ", ") + ")"
}

const noLongerDesired = "; it is no longer desired"

// describe names a child of the phase for people: its kind and name.
func (p Pass[S]) describe(child client.Object) string {
	return p.declared.kind.Kind + " " + child.GetName()
}

func (p Pass[S]) keyOf(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: p.Owner.GetNamespace(), Name: name}
}

func (p Pass[S]) owns(live client.Object) bool {
	return !isNil(live) && metav1.IsControlledBy(live, p.Owner)
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
		return schema.GroupVersionKind{}, fmt.Errorf("%T is not in the scheme: %w", object, err)
	}
	return gvk, nil
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
