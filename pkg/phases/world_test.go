package phases_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// world is a small cluster in memory. It keeps what the engine relies on as the API server does:
// UIDs, resource versions, generations, finalizers, deletion in the foreground that takes its
// time, ownership, and an applier that sends nothing where nothing would change. Beside the
// cluster it holds things, which stand for what a step makes elsewhere.
//
// It checks what must hold at every instant: see broken.
type world struct {
	clock   *clocktesting.FakePassiveClock
	objects map[ref]client.Object
	// cache is what the cached reader shows: the objects as they were at the last sync. A world
	// that does not lag is in sync always.
	cache map[ref]client.Object
	lags  bool
	// things that steps have made, by name, with the value that they were made with.
	things map[string]string

	// turnsAfter and goesAfter say how many ticks a part of the name, or a thing, takes to turn
	// after it was written, and to be gone after it was deleted.
	turnsAfter, goesAfter map[string]int
	// due holds what is under way, by the tick at which it happens.
	due map[string]int
	now int

	// writes is what has landed, in order, such as "create Gear axle".
	writes []string
	// refuse lets an applier's write fail.
	refuse func(what string) error
	// broken lists what was done that must never be done.
	broken []string

	// calls counts what the engine asks of the world, and crash is when it is stopped.
	calls int
	crash *crash

	version, uids int
}

// ref names an object of the world.
type ref struct{ kind, name string }

func (r ref) String() string { return r.kind + " " + r.name }

// crash stops the engine at one call to the world: before the call lands, or after it has.
type crash struct {
	at     int
	landed bool
	// panics is the end of the process; without it the connection is lost, and the engine lives on.
	panics bool
}

// crashed is what a stopped engine panics with.
type crashed struct{}

var errLost = errors.New("the connection was lost")

func newWorld() *world {
	return &world{
		clock:      clocktesting.NewFakePassiveClock(time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)),
		objects:    map[ref]client.Object{},
		cache:      map[ref]client.Object{},
		things:     map[string]string{},
		turnsAfter: map[string]int{},
		goesAfter:  map[string]int{},
		due:        map[string]int{},
	}
}

// call is the door through which the engine reaches the world.
func (w *world) call(do func() error) error {
	w.calls++
	struck := w.crash != nil && w.calls == w.crash.at
	if struck && !w.crash.landed {
		return w.crash.strike()
	}
	err := do()
	if struck {
		return w.crash.strike()
	}
	return err
}

func (c *crash) strike() error {
	if c.panics {
		panic(crashed{})
	}
	return errLost
}

// What people and other controllers do.

func (w *world) createToy(toy *Toy) {
	toy.Name, toy.Namespace, toy.Generation = toyName, toyNamespace, 1
	w.put(toy)
}

// toy is the Toy as it is now, or nil.
func (w *world) toy() *Toy {
	toy, ok := w.objects[ref{"Toy", toyName}].(*Toy)
	if !ok {
		return nil
	}
	return toy.DeepCopy()
}

func (w *world) editToy(edit func(*Toy)) {
	toy := w.toy()
	edit(toy)
	toy.Generation++
	w.put(toy)
}

func (w *world) deleteToy() { w.remove(ref{"Toy", toyName}, "") }

// part is a Gear or Wheel as it is now, or nil.
func (w *world) part(kind, name string) *Part {
	if part, ok := w.objects[ref{kind, name}].(child); ok {
		return part.part()
	}
	return nil
}

// meddle changes a part behind the engine's back.
func (w *world) meddle(kind, name string, edit func(child)) {
	part, ok := w.objects[ref{kind, name}].DeepCopyObject().(child)
	if !ok {
		panic(kind + " is no part")
	}
	edit(part)
	w.put(part)
}

// tick lets time pass, and what is due happen.
func (w *world) tick() {
	w.now++
	w.clock.SetTime(w.clock.Now().Add(time.Minute))
	for _, what := range slices.Sorted(maps.Keys(w.due)) {
		if w.due[what] <= w.now {
			w.happen(what)
		}
	}
}

func (w *world) happen(what string) {
	delete(w.due, what)
	verb, rest, _ := strings.Cut(what, " ")
	kind, name, _ := strings.Cut(rest, " ")
	switch {
	case verb == "turn" && kind != "thing" && w.objects[ref{kind, name}] != nil:
		w.meddle(kind, name, func(c child) { c.part().Turns = true })
	case verb == "go" && kind == "thing":
		delete(w.things, name)
	case verb == "go":
		delete(w.objects, ref{kind, name})
		w.changed()
	}
}

func (w *world) under(verb, what, name string, after map[string]int) {
	w.due[verb+" "+what] = w.now + after[name]
	if after[name] == 0 {
		w.happen(verb + " " + what)
	}
}

// sync brings the cache up to date.
func (w *world) sync() { w.cache = maps.Clone(w.objects) }

func (w *world) changed() {
	if !w.lags {
		w.sync()
	}
}

func (w *world) put(object client.Object) {
	w.version++
	if object.GetUID() == "" {
		w.uids++
		object.SetUID(types.UID(fmt.Sprintf("uid-%d", w.uids)))
	}
	object.SetResourceVersion(fmt.Sprint(w.version))
	w.objects[refOf(object)] = object
	w.changed()
}

// remove marks an object as deleted, and lets it go if no finalizer holds it.
func (w *world) remove(r ref, finalizer string) {
	object, ok := w.objects[r].DeepCopyObject().(client.Object)
	if !ok || object.GetDeletionTimestamp() != nil {
		return
	}
	now := metav1.NewTime(w.clock.Now())
	object.SetDeletionTimestamp(&now)
	if finalizer != "" {
		object.SetFinalizers(append(object.GetFinalizers(), finalizer))
	}
	w.put(object)
	w.collect(r)
}

func (w *world) collect(r ref) {
	if object := w.objects[r]; object.GetDeletionTimestamp() != nil && len(object.GetFinalizers()) == 0 {
		delete(w.objects, r)
		w.changed()
	}
}

func refOf(object client.Object) ref {
	kind := strings.TrimPrefix(fmt.Sprintf("%T", object), "*phases_test.")
	return ref{kind, object.GetName()}
}

// landed keeps what was written, and sees to what must hold when anything is.
func (w *world) landed(what string) {
	w.writes = append(w.writes, what)
	verb, _, _ := strings.Cut(what, " ")
	if verb == "status" || verb == "unfinalize" {
		return
	}
	if toy := w.toy(); toy == nil || !slices.Contains(toy.Finalizers, toyFinalizer) {
		w.broken = append(w.broken, what+" without the finalizer")
	}
}

// left lists what the Toy has brought into the world and is still there.
func (w *world) left() []string {
	var left []string
	for r, object := range w.objects {
		if metav1.GetControllerOf(object) != nil {
			left = append(left, r.String())
		}
	}
	for name := range w.things {
		left = append(left, "thing "+name)
	}
	slices.Sort(left)
	return left
}

// Reading.

// reader reads from the world, or from what its cache shows.
type reader struct {
	*world
	cached bool
}

func (r reader) shown() map[ref]client.Object {
	if r.cached {
		return r.cache
	}
	return r.objects
}

func (r reader) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	return r.call(func() error {
		found, ok := r.shown()[ref{refOf(into).kind, key.Name}]
		if !ok {
			return apierrors.NewNotFound(schema.GroupResource{Resource: refOf(into).kind}, key.Name)
		}
		switch into := into.(type) {
		case *Toy:
			*into = *as[*Toy](found.DeepCopyObject())
		case *Gear:
			*into = *as[*Gear](found.DeepCopyObject())
		case *Wheel:
			*into = *as[*Wheel](found.DeepCopyObject())
		default:
			return fmt.Errorf("no %T in this world", into)
		}
		return nil
	})
}

func (r reader) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	return r.call(func() error {
		asked := client.ListOptions{}
		asked.ApplyOptions(options)
		owner, ok := asked.FieldSelector.RequiresExactMatch(ssa.ControllerIndex)
		if !ok {
			return errors.New("a list that asks for no owner is too broad")
		}
		shown := r.shown()
		for _, key := range slices.SortedFunc(maps.Keys(shown), func(a, b ref) int { return strings.Compare(a.name, b.name) }) {
			controller := metav1.GetControllerOf(shown[key])
			if controller == nil || string(controller.UID) != owner {
				continue
			}
			switch into := into.(type) {
			case *GearList:
				if gear, ok := shown[key].(*Gear); ok {
					into.Items = append(into.Items, *gear.DeepCopy())
				}
			case *WheelList:
				if wheel, ok := shown[key].(*Wheel); ok {
					into.Items = append(into.Items, *wheel.DeepCopy())
				}
			}
		}
		return nil
	})
}

// Writing.

// recordAnnotation holds what was applied last, as ssa's record does.
const recordAnnotation = "applied"

// applier stands for [ssa.Applier], by the contract of its methods. Fields have the value that
// was applied or have drifted; there is no finer bookkeeping in this world.
type applier struct {
	*world
	dryRun bool
}

func (a applier) Decide(req ssa.Request) (ssa.Decision, error) {
	d := ssa.Decision{Request: req, Action: ssa.ActionUpdate}
	desired, ok := req.Desired.(*partConfiguration)
	if !ok {
		return d, fmt.Errorf("no %T in this world", req.Desired)
	}
	a.looked(req)
	shown, ok := req.Live.(child)
	if !ok {
		return d, nil
	}
	if isQuiet(shown, desired, req) {
		d.Action = ssa.ActionNone
		return d, nil
	}
	if metav1.IsControlledBy(shown, &metav1.ObjectMeta{UID: req.Owner.UID}) {
		d.Drifts = driftsOf(shown)
	}
	if reportsOnly(shown, req) && len(d.Drifts) > 0 {
		d.Action, d.Left = ssa.ActionReport, true
	}
	return d, nil
}

func (a applier) Execute(_ context.Context, d ssa.Decision) (result ssa.Result, err error) {
	if !d.Writes() {
		return ssa.Result{Action: d.Action, Live: d.Request.Live, Drifts: d.Drifts, Left: d.Left}, nil
	}
	desired, ok := d.Request.Desired.(*partConfiguration)
	if !ok {
		return result, fmt.Errorf("no %T in this world", d.Request.Desired)
	}
	err = a.call(func() error {
		result, err = a.apply(desired, d.Request)
		return err
	})
	return result, err
}

// reportsOnly: all that is the matter has drifted, and is to be left.
func reportsOnly(live child, req ssa.Request) bool {
	desired, ok := req.Desired.(*partConfiguration)
	return ok && req.Drift == ssa.ReportDrift && maps.Equal(recordOf(live), desired.Spec)
}

// looked sees to it that a stranger is judged by what is there. What is ours may be judged by the
// cache, since every write of it carries what was judged.
func (w *world) looked(req ssa.Request) {
	if req.Live == nil || metav1.IsControlledBy(req.Live, &metav1.ObjectMeta{UID: req.Owner.UID}) {
		return
	}
	if there := w.objects[refOf(req.Live)]; there == nil || there.GetResourceVersion() != req.Live.GetResourceVersion() {
		w.broken = append(w.broken, "the stranger "+refOf(req.Live).String()+" was judged by the cache")
	}
}

func isQuiet(live child, desired *partConfiguration, req ssa.Request) bool {
	return metav1.IsControlledBy(live, &metav1.ObjectMeta{UID: req.Owner.UID}) &&
		maps.Equal(recordOf(live), desired.Spec) && len(driftsOf(live)) == 0
}

func (a applier) apply(desired *partConfiguration, req ssa.Request) (ssa.Result, error) {
	at := ref{*desired.GetKind(), *desired.GetName()}
	if a.refuse != nil {
		if err := a.refuse("apply " + at.String()); err != nil {
			return ssa.Result{}, err
		}
	}
	live, exists := a.objects[at].(child)
	if !exists {
		return a.create(at, desired, req)
	}
	if isQuiet(live, desired, req) {
		return ssa.Result{Action: ssa.ActionNone, Live: as[child](live.DeepCopyObject())}, nil
	}
	if live.GetDeletionTimestamp() != nil {
		return ssa.Result{}, &ssa.Error{Reason: ssa.ReasonTerminating, Object: at.String(), Message: "it is being deleted", Transient: true}
	}
	controller := metav1.GetControllerOf(live)
	switch {
	case controller == nil && req.Adoption != ssa.AdoptIfUnowned:
		return ssa.Result{}, &ssa.Error{Reason: ssa.ReasonNotOwned, Object: at.String(), Message: "it is not ours"}
	case controller == nil:
		return a.write(live, desired, req, ssa.Result{Action: ssa.ActionAdopt}), nil
	case controller.UID != req.Owner.UID:
		return ssa.Result{}, &ssa.Error{Reason: ssa.ReasonOwnedByAnother, Object: at.String(), Message: "it is controlled by " + controller.Name}
	}
	drifts := driftsOf(live)
	changed := !maps.Equal(recordOf(live), desired.Spec)
	result := ssa.Result{Action: ssa.ActionUpdate, Drifts: drifts, Left: len(drifts) > 0 && req.Drift == ssa.ReportDrift}
	switch {
	case !changed && result.Left:
		result.Action, result.Live = ssa.ActionReport, as[child](live.DeepCopyObject())
		return result, nil
	case !changed:
		result.Action = ssa.ActionCorrect
	}
	return a.write(live, desired, req, result), nil
}

func (a applier) create(at ref, desired *partConfiguration, req ssa.Request) (ssa.Result, error) {
	var made child
	switch at.kind {
	case "Gear":
		made = &Gear{}
	case "Wheel":
		made = &Wheel{}
	default:
		return ssa.Result{}, fmt.Errorf("no %s in this world", at)
	}
	made.SetName(at.name)
	made.SetNamespace(*desired.GetNamespace())
	return a.write(made, desired, req, ssa.Result{Action: ssa.ActionCreate}), nil
}

// write brings live to what is desired, around the drifts that are left.
func (a applier) write(live child, desired *partConfiguration, req ssa.Request, result ssa.Result) ssa.Result {
	written := as[child](live.DeepCopyObject())
	part := written.part()
	for key := range recordOf(live) {
		if _, wanted := desired.Spec[key]; !wanted {
			delete(part.Spec, key)
		}
	}
	if part.Spec == nil {
		part.Spec = map[string]string{}
	}
	for key, value := range desired.Spec {
		if !result.Left || !slices.ContainsFunc(result.Drifts, func(d ssa.Drift) bool { return d.Path == ".spec."+key }) {
			part.Spec[key] = value
		}
	}
	record, err := json.Marshal(desired.Spec)
	if err != nil {
		panic(err)
	}
	written.SetAnnotations(map[string]string{recordAnnotation: string(record)})
	written.SetOwnerReferences([]metav1.OwnerReference{*req.Owner})
	part.Turns = a.dryRun && a.turnsAfter[live.GetName()] == 0
	if !a.dryRun {
		at := refOf(written)
		a.put(written)
		a.landed(strings.ToLower(string(result.Action)) + " " + at.String())
		a.under("turn", at.String(), at.name, a.turnsAfter)
		written = as[child](a.objects[at])
	}
	result.Live = as[child](written.DeepCopyObject())
	return result
}

func recordOf(live child) map[string]string {
	record := map[string]string{}
	if annotation := live.GetAnnotations()[recordAnnotation]; annotation != "" {
		if err := json.Unmarshal([]byte(annotation), &record); err != nil {
			panic(err)
		}
	}
	return record
}

func driftsOf(live child) []ssa.Drift {
	var drifts []ssa.Drift
	record := recordOf(live)
	for _, key := range slices.Sorted(maps.Keys(record)) {
		if actual := live.part().Spec[key]; actual != record[key] {
			drifts = append(drifts, ssa.Drift{Path: ".spec." + key, Manager: "somebody", Desired: record[key], Actual: actual})
		}
	}
	return drifts
}

func stale(what string) error {
	return &ssa.Error{Reason: ssa.ReasonStale, Object: what, Message: "it changed since it was read", Transient: true}
}

func (a applier) ApplyStatus(_ context.Context, desired ssa.Configuration, live client.Object) (ssa.Result, error) {
	raw, err := json.Marshal(as[*toyConfiguration](desired).Status)
	if err != nil {
		return ssa.Result{}, err
	}
	status := ToyStatus{}
	if err := json.Unmarshal(raw, &status); err != nil {
		return ssa.Result{}, err
	}
	if sameJSON(status, as[*Toy](live).Status) {
		return ssa.Result{Action: ssa.ActionNone, Live: live}, nil
	}
	result := ssa.Result{Action: ssa.ActionUpdate}
	err = a.call(func() error {
		if a.refuse != nil {
			if err := a.refuse("status"); err != nil {
				return err
			}
		}
		toy := a.toy()
		if toy == nil {
			return &ssa.Error{Reason: ssa.ReasonStale, Object: "Toy"}
		}
		if toy.ResourceVersion != live.GetResourceVersion() {
			return stale("Toy")
		}
		toy.Status = status
		if !a.dryRun {
			a.put(toy)
			a.landed("status")
			result.Live = a.toy()
		}
		return nil
	})
	return result, err
}

func sameJSON(a, b any) bool {
	rawA, errA := json.Marshal(a)
	rawB, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(rawA) == string(rawB)
}

func (a applier) EnsureFinalizer(_ context.Context, live client.Object, finalizer string) (client.Object, error) {
	if slices.Contains(live.GetFinalizers(), finalizer) {
		return live, nil
	}
	err := a.call(func() error {
		if a.refuse != nil {
			if err := a.refuse("finalize"); err != nil {
				return err
			}
		}
		toy := a.toy()
		switch {
		case toy == nil || toy.UID != live.GetUID():
			return stale("Toy")
		case slices.Contains(toy.Finalizers, finalizer):
			return nil // the cache was late
		case toy.DeletionTimestamp != nil:
			return &ssa.Error{Reason: ssa.ReasonInvalid, Object: "Toy", Message: "no new finalizers can be added if the object is being deleted"}
		}
		toy.Finalizers = append(toy.Finalizers, finalizer)
		a.put(toy)
		a.landed("finalize")
		return nil
	})
	if err != nil {
		return nil, err
	}
	return a.toy(), nil
}

func (a applier) RemoveFinalizer(_ context.Context, live client.Object, finalizer string) error {
	return a.call(func() error {
		if a.refuse != nil {
			if err := a.refuse("unfinalize"); err != nil {
				return err
			}
		}
		toy := a.toy()
		if toy == nil || toy.UID != live.GetUID() {
			return stale("Toy")
		}
		if left := a.left(); len(left) > 0 {
			a.broken = append(a.broken, fmt.Sprintf("the finalizer went while %v was there", left))
		}
		toy.Finalizers = slices.DeleteFunc(toy.Finalizers, func(f string) bool { return f == finalizer })
		a.put(toy)
		a.landed("unfinalize")
		a.collect(refOf(toy))
		return nil
	})
}

func (a applier) Delete(_ context.Context, live client.Object, owner metav1.OwnerReference, propagation metav1.DeletionPropagation) error {
	return a.call(func() error {
		at := refOf(live)
		if a.refuse != nil {
			if err := a.refuse("delete " + at.String()); err != nil {
				return err
			}
		}
		target, ok := a.objects[at].(child)
		if !ok || target.GetUID() != live.GetUID() || !metav1.IsControlledBy(target, &metav1.ObjectMeta{UID: owner.UID}) {
			return nil
		}
		if target.GetDeletionTimestamp() != nil || a.dryRun {
			return nil
		}
		if propagation != metav1.DeletePropagationForeground {
			return fmt.Errorf("no deletion by %s in this world", propagation)
		}
		a.landed("delete " + at.String())
		a.remove(at, metav1.FinalizerDeleteDependents)
		a.under("go", at.String(), at.name, a.goesAfter)
		return nil
	})
}

// make and unmake are what a step does to a thing.

func (w *world) make(name, value string) error {
	return w.call(func() error {
		w.things[name] = value
		w.landed("make thing " + name)
		w.due["turn thing "+name] = w.now + w.turnsAfter[name]
		if w.turnsAfter[name] == 0 {
			delete(w.due, "turn thing "+name)
		}
		return nil
	})
}

func (w *world) unmake(name string) error {
	return w.call(func() error {
		if _, under := w.due["go thing "+name]; under {
			return nil
		}
		w.landed("unmake thing " + name)
		delete(w.due, "turn thing "+name)
		w.under("go", "thing "+name, name, w.goesAfter)
		return nil
	})
}

// thing is the value of a thing, whether it is there, and whether it is going or not ready yet.
func (w *world) thing(name string) (value string, exists, underway bool, err error) {
	err = w.call(func() error {
		value, exists = w.things[name]
		_, turning := w.due["turn thing "+name]
		_, going := w.due["go thing "+name]
		underway = turning || going
		return nil
	})
	return value, exists, underway, err
}

// as is what a value must be in this world.
func as[T any](value any) T {
	typed, ok := value.(T)
	if !ok {
		panic(fmt.Sprintf("a %T is no %T", value, typed))
	}
	return typed
}

// recorder keeps Events as text.
type recorder struct{ events []string }

func (r *recorder) Eventf(_, _ runtime.Object, kind, reason, action, note string, args ...any) {
	r.events = append(r.events, fmt.Sprintf("%s %s (%s): %s", kind, reason, action, fmt.Sprintf(note, args...)))
}

func (r *recorder) take() []string {
	taken := r.events
	r.events = nil
	return taken
}
