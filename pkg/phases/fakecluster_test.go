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

// fakeCluster is a small cluster in memory. It keeps what the engine relies on as the API server does:
// UIDs, resource versions, generations, finalizers, deletions that take their time, ownership, and an
// applier that sends nothing where nothing would change. Beside the cluster it holds IP addresses,
// which stand for what a step creates in a cloud.
//
// It checks what must hold at every instant: see violations.
type fakeCluster struct {
	clock   *clocktesting.FakePassiveClock
	objects map[ref]client.Object
	// cache is what the cached reader shows: the objects as of the last sync. A cluster that does not
	// lag is always in sync.
	cache map[ref]client.Object
	lags  bool
	// digests: the cache holds digests of the Disks that have not drifted, as ssa.Compact leaves them.
	digests bool
	// uncachedReads are the Disks that were read past the cache.
	uncachedReads []string
	// ips that steps have allocated, by name, with their kind.
	ips map[string]string

	// attachedAfter and goneAfter say how many ticks a device or an IP takes to be attached after it
	// was written, and to be gone after it was deleted.
	attachedAfter, goneAfter map[string]int
	// due holds what is under way, by the tick at which it happens.
	due map[string]int
	now int

	// writes is what has landed, in order, such as "create Disk boot".
	writes []string
	// fail lets a write fail, by what it is: "apply Disk boot", "status", "finalize", ...
	fail func(what string) error
	// violations lists what was done that must never be done, and check finds more of it. Optional.
	violations []string
	check      func(verb, kind, name string) error

	// calls counts the requests of the engine, and crash is when it is stopped.
	calls int
	crash *crash

	// machines are the UIDs of all Machines that ever existed.
	machines map[types.UID]bool

	version, uids int
}

// ref names an object of the cluster.
type ref struct{ kind, name string }

func (r ref) String() string { return r.kind + " " + r.name }

// crash stops the engine at one request: before it lands, or after.
type crash struct {
	at     int
	landed bool
	// panics ends the process; otherwise the connection is lost, and the engine lives on.
	panics bool
}

// crashed is what a stopped engine panics with.
type crashed struct{}

var errConnectionLost = errors.New("the connection was lost")

func newFakeCluster() *fakeCluster {
	return &fakeCluster{
		clock:         clocktesting.NewFakePassiveClock(time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)),
		objects:       map[ref]client.Object{},
		cache:         map[ref]client.Object{},
		ips:           map[string]string{},
		machines:      map[types.UID]bool{},
		attachedAfter: map[string]int{},
		goneAfter:     map[string]int{},
		due:           map[string]int{},
	}
}

// call carries out one request of the engine.
func (c *fakeCluster) call(do func() error) error {
	c.calls++
	strikes := c.crash != nil && c.calls == c.crash.at
	if strikes && !c.crash.landed {
		return c.crash.strike()
	}
	err := do()
	if strikes {
		return c.crash.strike()
	}
	return err
}

func (c *crash) strike() error {
	if c.panics {
		panic(crashed{})
	}
	return errConnectionLost
}

// What users and other controllers do.

func (c *fakeCluster) createMachine(machine *Machine) {
	machine.Name, machine.Namespace, machine.Generation = machineName, machineNamespace, 1
	c.store(machine)
}

// machine is the Machine as it is now, or nil.
func (c *fakeCluster) machine() *Machine {
	machine, ok := c.objects[ref{"Machine", machineName}].(*Machine)
	if !ok {
		return nil
	}
	return machine.DeepCopy()
}

func (c *fakeCluster) editMachine(edit func(*Machine)) {
	machine := c.machine()
	edit(machine)
	machine.Generation++
	c.store(machine)
}

func (c *fakeCluster) deleteMachine() { c.remove(ref{"Machine", machineName}, "") }

// device is a Disk or Nic as it is now, or nil.
func (c *fakeCluster) device(kind, name string) *Device {
	if found, ok := c.objects[ref{kind, name}].(device); ok {
		return found.device()
	}
	return nil
}

// modify changes a device without the engine.
func (c *fakeCluster) modify(kind, name string, edit func(device)) {
	found, ok := c.objects[ref{kind, name}].DeepCopyObject().(device)
	if !ok {
		panic(kind + " is not a device")
	}
	edit(found)
	c.store(found)
}

// tick lets time pass, and what is due happen.
func (c *fakeCluster) tick() {
	c.now++
	c.clock.SetTime(c.clock.Now().Add(time.Minute))
	for _, what := range slices.Sorted(maps.Keys(c.due)) {
		if c.due[what] <= c.now {
			c.happen(what)
		}
	}
}

func (c *fakeCluster) happen(what string) {
	delete(c.due, what)
	verb, rest, _ := strings.Cut(what, " ")
	kind, name, _ := strings.Cut(rest, " ")
	switch {
	case verb == "attach" && kind != "ip" && c.objects[ref{kind, name}] != nil:
		c.modify(kind, name, func(d device) { d.device().Attached = true })
	case verb == "vanish" && kind == "ip":
		delete(c.ips, name)
	case verb == "vanish":
		delete(c.objects, ref{kind, name})
		c.changed()
	}
}

func (c *fakeCluster) schedule(verb, what, name string, after map[string]int) {
	c.due[verb+" "+what] = c.now + after[name]
	if after[name] == 0 {
		c.happen(verb + " " + what)
	}
}

// sync brings the cache up to date.
func (c *fakeCluster) sync() { c.cache = maps.Clone(c.objects) }

// syncKind brings the cache of one kind up to date.
func (c *fakeCluster) syncKind(kind string) {
	maps.DeleteFunc(c.cache, func(r ref, _ client.Object) bool { return r.kind == kind })
	for r, object := range c.objects {
		if r.kind == kind {
			c.cache[r] = object
		}
	}
}

func (c *fakeCluster) changed() {
	if !c.lags {
		c.sync()
	}
}

func (c *fakeCluster) store(object client.Object) {
	c.version++
	if object.GetUID() == "" {
		c.uids++
		object.SetUID(types.UID(fmt.Sprintf("uid-%d", c.uids)))
	}
	object.SetResourceVersion(fmt.Sprint(c.version))
	if _, ok := object.(*Machine); ok {
		c.machines[object.GetUID()] = true
	}
	c.objects[refOf(object)] = object
	c.changed()
}

// remove deletes an object, which is gone if it has no finalizer.
func (c *fakeCluster) remove(r ref, finalizer string) {
	object, ok := c.objects[r].DeepCopyObject().(client.Object)
	if !ok || object.GetDeletionTimestamp() != nil {
		return
	}
	now := metav1.NewTime(c.clock.Now())
	object.SetDeletionTimestamp(&now)
	if object.GetGeneration() > 0 {
		object.SetGeneration(object.GetGeneration() + 1)
	}
	if finalizer != "" {
		object.SetFinalizers(append(object.GetFinalizers(), finalizer))
	}
	c.store(object)
	c.collect(r)
}

func (c *fakeCluster) collect(r ref) {
	if object := c.objects[r]; object.GetDeletionTimestamp() != nil && len(object.GetFinalizers()) == 0 {
		delete(c.objects, r)
		c.changed()
	}
}

func refOf(object client.Object) ref {
	kind := strings.TrimPrefix(fmt.Sprintf("%T", object), "*phases_test.")
	return ref{kind, object.GetName()}
}

// landed records a write, and checks what must hold whenever anything is written.
func (c *fakeCluster) landed(what string) {
	c.writes = append(c.writes, what)
	verb, _, _ := strings.Cut(what, " ")
	if verb == "status" || verb == "unfinalize" {
		return
	}
	machine := c.machine()
	switch {
	case machine == nil || !slices.Contains(machine.Finalizers, machineFinalizer):
		c.violations = append(c.violations, what+" without the finalizer")
	case machine.DeletionTimestamp != nil && !slices.Contains([]string{"delete", "release"}, verb):
		c.violations = append(c.violations, what+" for an object that is being deleted")
	}
	if _, object, ok := strings.Cut(what, " "); ok && c.check != nil {
		kind, name, _ := strings.Cut(object, " ")
		if err := c.check(verb, kind, name); err != nil {
			c.violations = append(c.violations, what+": "+err.Error())
		}
	}
}

// left lists what the Machine has created and still exists.
func (c *fakeCluster) left() []string {
	var left []string
	for r, object := range c.objects {
		if controller := metav1.GetControllerOf(object); controller != nil && c.machines[controller.UID] {
			left = append(left, r.String())
		}
	}
	for name := range c.ips {
		left = append(left, "ip "+name)
	}
	slices.Sort(left)
	return left
}

// Reading.

// reader reads from the cluster, or from what its cache shows.
type reader struct {
	*fakeCluster
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
		case *Machine:
			*into = *as[*Machine](found.DeepCopyObject())
		case *Disk:
			*into = *r.disk(found)
			if !r.cached {
				r.uncachedReads = append(r.uncachedReads, refOf(into).String())
			}
		case *Nic:
			*into = *as[*Nic](found.DeepCopyObject())
		default:
			return fmt.Errorf("the cluster does not serve %T", into)
		}
		return nil
	})
}

func (r reader) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	return r.call(func() error {
		asked := client.ListOptions{}
		asked.ApplyOptions(options)
		owner := ""
		if r.cached {
			var ok bool
			if owner, ok = asked.FieldSelector.RequiresExactMatch(ssa.ControllerIndex); !ok {
				return errors.New("a list from the cache that does not select by owner is too broad")
			}
		} else if asked.FieldSelector != nil || asked.Namespace == "" {
			return errors.New("the API server has no index of owners, and a list of all namespaces is too broad")
		}
		shown := r.shown()
		for _, key := range slices.SortedFunc(maps.Keys(shown), func(a, b ref) int { return strings.Compare(a.name, b.name) }) {
			controller := metav1.GetControllerOf(shown[key])
			if owner != "" && (controller == nil || string(controller.UID) != owner) {
				continue
			}
			switch into := into.(type) {
			case *DiskList:
				if disk, ok := shown[key].(*Disk); ok {
					into.Items = append(into.Items, *r.disk(disk))
				}
			case *NicList:
				if nic, ok := shown[key].(*Nic); ok {
					into.Items = append(into.Items, *nic.DeepCopy())
				}
			}
		}
		return nil
	})
}

// disk is a Disk as it is shown.
func (r reader) disk(found client.Object) *Disk {
	shown := as[*Disk](found.DeepCopyObject())
	if r.cached && r.digests && len(driftsOf(shown)) == 0 {
		digested(shown)
	}
	return shown
}

// Writing.

// recordAnnotation holds what was applied last, as ssa's record does.
const recordAnnotation = "applied"

// applier stands for [ssa.Applier], by the contract of its methods. Fields have the value that was
// applied or have drifted; this cluster keeps no finer managed fields.
type applier struct {
	*fakeCluster
	dryRun bool
}

// Decide implements [phases.Applier].
func (a applier) Decide(req ssa.Request) (ssa.Decision, error) {
	desired, ok := req.Desired.(*deviceConfiguration)
	if !ok {
		return ssa.Decision{}, fmt.Errorf("the cluster does not serve %T", req.Desired)
	}
	if req.Live == nil {
		return ssa.Decision{Request: req, Action: ssa.ActionCreate}, nil
	}
	live, ok := req.Live.(device)
	if !ok {
		return ssa.Decision{}, fmt.Errorf("%T is not a device", req.Live)
	}
	a.checkFresh(live, req)
	drifts, owned := driftsOf(live), metav1.IsControlledBy(live, &metav1.ObjectMeta{UID: req.Owner.UID})
	changed := !maps.Equal(recordOf(live), desired.Spec)
	for i := range drifts {
		if req.Redact != nil {
			req.Redact(&drifts[i])
		}
	}
	decision := ssa.Decision{Request: req, Drifts: drifts, Left: len(drifts) > 0 && req.Drift == ssa.ReportDrift}
	switch controller := metav1.GetControllerOf(live); {
	case owned && !changed && len(drifts) == 0:
		decision.Action = ssa.ActionNone
	case live.GetDeletionTimestamp() != nil:
		return ssa.Decision{}, &ssa.Error{Reason: ssa.ReasonTerminating, Object: refOf(live).String(), Message: "it is being deleted", Transient: true}
	case controller == nil && req.Adoption != ssa.AdoptIfUnowned:
		return ssa.Decision{}, &ssa.Error{Reason: ssa.ReasonNotOwned, Object: refOf(live).String(), Message: "it has no owner"}
	case controller == nil:
		return ssa.Decision{Request: req, Action: ssa.ActionAdopt}, nil
	case !owned:
		return ssa.Decision{}, &ssa.Error{Reason: ssa.ReasonOwnedByAnother, Object: refOf(live).String(), Message: "it is controlled by " + controller.Name}
	case !changed && decision.Left:
		decision.Action = ssa.ActionReport
	case !changed:
		decision.Action = ssa.ActionCorrect
	default:
		decision.Action = ssa.ActionUpdate
	}
	if ssa.IsCompact(live) && decision.Action != ssa.ActionNone {
		return ssa.Decision{}, &ssa.Error{Reason: ssa.ReasonStale, Object: refOf(live).String(), Message: "the cache holds a digest"}
	}
	return decision, nil
}

// checkFresh sees to it that what is done about an unmanaged object does not rest on the cache. A
// child may be decided on by the cache, since every write of it carries its UID.
func (c *fakeCluster) checkFresh(live device, req ssa.Request) {
	if metav1.IsControlledBy(live, &metav1.ObjectMeta{UID: req.Owner.UID}) {
		return
	}
	if now := c.objects[refOf(live)]; now == nil || now.GetResourceVersion() != live.GetResourceVersion() {
		c.violations = append(c.violations, "decided on the unmanaged "+refOf(live).String()+" by the cache")
	}
}

// Execute implements [phases.Applier].
func (a applier) Execute(_ context.Context, d ssa.Decision) (result ssa.Result, err error) {
	if !d.Writes() {
		return ssa.Result{Action: d.Action, Live: d.Request.Live, Drifts: d.Drifts, Left: d.Left}, nil
	}
	if d.Request.Desired == nil {
		return ssa.Result{}, errors.New("executing a decision that Decide did not return")
	}
	err = a.call(func() error {
		result, err = a.execute(d)
		return err
	})
	return result, err
}

func (a applier) execute(d ssa.Decision) (ssa.Result, error) {
	desired := as[*deviceConfiguration](d.Request.Desired)
	at := ref{*desired.GetKind(), *desired.GetName()}
	if err := a.failure("apply " + at.String()); err != nil {
		return ssa.Result{}, err
	}
	live, exists := a.objects[at].(device)
	if exists != (d.Request.Live != nil) || exists && live.GetUID() != d.Request.Live.GetUID() {
		return ssa.Result{}, stale(at.String())
	}
	if !exists {
		if live = newDeviceOf(at.kind); live == nil {
			return ssa.Result{}, fmt.Errorf("the cluster does not serve %s", at)
		}
		live.SetName(at.name)
		live.SetNamespace(*desired.GetNamespace())
	}
	return a.write(live, desired, d), nil
}

func (c *fakeCluster) failure(what string) error {
	if c.fail == nil {
		return nil
	}
	return c.fail(what)
}

func newDeviceOf(kind string) device {
	switch kind {
	case "Disk":
		return &Disk{}
	case "Nic":
		return &Nic{}
	default:
		return nil
	}
}

// write brings live to what is desired, around the drifts that are left.
func (a applier) write(live device, desired *deviceConfiguration, d ssa.Decision) ssa.Result {
	written := as[device](live.DeepCopyObject())
	part := written.device()
	for key := range recordOf(live) {
		if _, isDesired := desired.Spec[key]; !isDesired {
			delete(part.Spec, key)
		}
	}
	if part.Spec == nil {
		part.Spec = map[string]string{}
	}
	for key, value := range desired.Spec {
		if !d.Left || !slices.ContainsFunc(d.Drifts, func(drift ssa.Drift) bool { return drift.Path == ".spec."+key }) {
			part.Spec[key] = value
		}
	}
	record, err := json.Marshal(desired.Spec)
	if err != nil {
		panic(err)
	}
	written.SetAnnotations(map[string]string{recordAnnotation: string(record)})
	written.SetOwnerReferences([]metav1.OwnerReference{*d.Request.Owner})
	part.Attached = a.dryRun && a.attachedAfter[live.GetName()] == 0
	if !a.dryRun {
		at := refOf(written)
		a.store(written)
		a.landed(strings.ToLower(string(d.Action)) + " " + at.String())
		a.schedule("attach", at.String(), at.name, a.attachedAfter)
		written = as[device](a.objects[at])
	}
	return ssa.Result{Action: d.Action, Live: as[device](written.DeepCopyObject()), Drifts: d.Drifts, Left: d.Left}
}

func recordOf(live device) map[string]string {
	record := map[string]string{}
	if annotation := live.GetAnnotations()[recordAnnotation]; annotation != "" {
		if err := json.Unmarshal([]byte(annotation), &record); err != nil {
			panic(err)
		}
	}
	return record
}

func driftsOf(live device) []ssa.Drift {
	var drifts []ssa.Drift
	record := recordOf(live)
	for _, key := range slices.Sorted(maps.Keys(record)) {
		if actual := live.device().Spec[key]; actual != record[key] {
			drifts = append(drifts, ssa.Drift{Path: ".spec." + key, Manager: "kubectl-edit", Desired: record[key], Actual: actual})
		}
	}
	return drifts
}

func stale(what string) error {
	return &ssa.Error{Reason: ssa.ReasonStale, Object: what, Message: "it changed since it was read", Transient: true}
}

func (a applier) ApplyStatus(_ context.Context, desired ssa.Configuration, live client.Object) (ssa.Result, error) {
	raw, err := json.Marshal(as[*machineConfiguration](desired).Status)
	if err != nil {
		return ssa.Result{}, err
	}
	status := MachineStatus{}
	if err := json.Unmarshal(raw, &status); err != nil {
		return ssa.Result{}, err
	}
	if sameJSON(status, as[*Machine](live).Status) {
		return ssa.Result{Action: ssa.ActionNone, Live: live}, nil
	}
	result := ssa.Result{Action: ssa.ActionUpdate}
	err = a.call(func() error {
		if err := a.failure("status"); err != nil {
			return err
		}
		machine := a.machine()
		if machine == nil || machine.ResourceVersion != live.GetResourceVersion() {
			return stale("Machine")
		}
		machine.Status = status
		if !a.dryRun {
			a.store(machine)
			a.landed("status")
			result.Live = a.machine()
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
		if err := a.failure("finalize"); err != nil {
			return err
		}
		machine := a.machine()
		switch {
		case machine == nil || machine.UID != live.GetUID():
			return stale("Machine")
		case slices.Contains(machine.Finalizers, finalizer):
			return nil // the cache was late
		case machine.DeletionTimestamp != nil:
			return &ssa.Error{Reason: ssa.ReasonInvalid, Object: "Machine", Message: "no new finalizers can be added if the object is being deleted"}
		}
		machine.Finalizers = append(machine.Finalizers, finalizer)
		a.store(machine)
		a.landed("finalize")
		return nil
	})
	if err != nil {
		return nil, err
	}
	return a.machine(), nil
}

func (a applier) RemoveFinalizer(_ context.Context, live client.Object, finalizer string) error {
	return a.call(func() error {
		if err := a.failure("unfinalize"); err != nil {
			return err
		}
		machine := a.machine()
		if machine == nil || machine.UID != live.GetUID() {
			return stale("Machine")
		}
		if left := a.left(); len(left) > 0 {
			a.violations = append(a.violations, fmt.Sprintf("the finalizer was removed while %v existed", left))
		}
		machine.Finalizers = slices.DeleteFunc(machine.Finalizers, func(f string) bool { return f == finalizer })
		a.store(machine)
		a.landed("unfinalize")
		a.collect(refOf(machine))
		return nil
	})
}

func (a applier) Delete(_ context.Context, live client.Object, owner metav1.OwnerReference, propagation metav1.DeletionPropagation) (gone bool, err error) {
	err = a.call(func() error {
		at := refOf(live)
		if err := a.failure("delete " + at.String()); err != nil {
			return err
		}
		target, ok := a.objects[at].(device)
		if !ok || target.GetUID() != live.GetUID() || !metav1.IsControlledBy(target, &metav1.ObjectMeta{UID: owner.UID}) {
			return nil
		}
		if target.GetDeletionTimestamp() != nil || a.dryRun {
			return nil
		}
		finalizer := "example.com/slow"
		if propagation == metav1.DeletePropagationForeground {
			finalizer = metav1.FinalizerDeleteDependents
		}
		a.landed("delete " + at.String())
		a.remove(at, finalizer)
		a.schedule("vanish", at.String(), at.name, a.goneAfter)
		gone = propagation == metav1.DeletePropagationBackground && a.objects[at] == nil
		return nil
	})
	return gone, err
}

// allocate and release are what a step does to an IP.

func (c *fakeCluster) allocate(name, value string) error {
	return c.call(func() error {
		c.ips[name] = value
		c.landed("allocate ip " + name)
		c.due["attach ip "+name] = c.now + c.attachedAfter[name]
		if c.attachedAfter[name] == 0 {
			delete(c.due, "attach ip "+name)
		}
		return nil
	})
}

func (c *fakeCluster) release(name string) error {
	return c.call(func() error {
		if _, exists := c.ips[name]; !exists {
			return nil
		}
		if _, underway := c.due["vanish ip "+name]; underway {
			return nil
		}
		c.landed("release ip " + name)
		delete(c.due, "attach ip "+name)
		c.schedule("vanish", "ip "+name, name, c.goneAfter)
		return nil
	})
}

// ip is the kind of an IP, whether it exists, and whether it is being released or not ready yet.
func (c *fakeCluster) ip(name string) (value string, exists, underway bool, err error) {
	err = c.call(func() error {
		value, exists = c.ips[name]
		_, attaching := c.due["attach ip "+name]
		_, vanishing := c.due["vanish ip "+name]
		underway = attaching || vanishing
		return nil
	})
	return value, exists, underway, err
}

// as is a value of the type that it must have in this cluster.
func as[T any](value any) T {
	typed, ok := value.(T)
	if !ok {
		panic(fmt.Sprintf("%T is not a %T", value, typed))
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
