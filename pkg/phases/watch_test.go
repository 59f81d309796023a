package phases_test

import (
	"context"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// queue keeps when what is to be reconciled.
type queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	added map[string]time.Duration
	// keys are the names with their namespaces.
	keys []string
}

func (q *queue) Add(request reconcile.Request) { q.AddAfter(request, 0) }

func (q *queue) AddAfter(request reconcile.Request, after time.Duration) {
	if q.added == nil {
		q.added = map[string]time.Duration{}
	}
	q.added[request.Name] = after
	q.keys = append(q.keys, request.String())
}

func watchesOf(t *testing.T, list ...phase) []phases.ChildWatch {
	t.Helper()
	return watchesOfScope(t, meta.RESTScopeNamespace, list...)
}

// watchesOfScope are those of a Machine that is namespaced or cluster-scoped.
func watchesOfScope(t *testing.T, scope meta.RESTScope, list ...phase) []phases.ChildWatch {
	t.Helper()
	engine, err := newHarness(newFakeCluster(), list...).engine()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{machineGroup})
	mapper.Add(machineGroup.WithKind("Machine"), scope)
	return phases.WatchesOf(engine, mapper)
}

func TestEachKindOfChildIsWatchedOnce(t *testing.T) {
	g := NewWithT(t)

	watches := watchesOf(t, diskOf("Boot"), nicOf("Uplink"), diskOf("Data"), observes("Address", phases.Done("")))

	g.Expect(watches).To(HaveLen(2))
	g.Expect(watches[0].Object).To(BeAssignableToTypeOf(&Disk{}))
	g.Expect(watches[1].Object).To(BeAssignableToTypeOf(&Nic{}))
}

// ownedDisk is a Disk that the Machine controls, as it was before something happened to it.
func ownedDisk() *Disk {
	machine := &Machine{ObjectMeta: metav1.ObjectMeta{Name: machineName, UID: "machine"}}
	return &Disk{ObjectMeta: metav1.ObjectMeta{
		Name: "boot", Namespace: machineNamespace, Generation: 1, ResourceVersion: "1",
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(machine, machineGroup.WithKind("Machine"))},
	}}
}

// digested makes the Disk what [ssa.Compact] leaves of one that is as it was applied.
func digested(disk *Disk) {
	disk.ManagedFields = []metav1.ManagedFieldsEntry{{FieldsType: "Digest", FieldsV1: metav1.NewFieldsV1("x")}}
}

func TestOnlyProgressOfAChildIsDelayed(t *testing.T) {
	cases := map[string]struct {
		before, after func(*Disk)
		want          time.Duration
	}{
		"a status that settles nothing": {want: phases.ProgressInterval},
		"it has become ready":           {after: func(disk *Disk) { disk.Attached = true }},
		"it is ready no longer":         {before: func(disk *Disk) { disk.Attached = true }},
		"its spec":                      {after: func(disk *Disk) { disk.Generation = 2 }},
		"a label that others add":       {after: func(disk *Disk) { disk.Labels = map[string]string{"a": "b"} }, want: phases.ProgressInterval},
		"an annotation that others add": {after: func(disk *Disk) { disk.Annotations = map[string]string{"a": "b"} }, want: phases.ProgressInterval},
		"a status, beside a label that stays": {
			before: func(disk *Disk) { disk.Labels = map[string]string{"a": "b"} },
			after:  func(disk *Disk) { disk.Labels = map[string]string{"a": "b"} }, want: phases.ProgressInterval},
		"a label without a value that is taken": {before: func(disk *Disk) { disk.Labels = map[string]string{"a": ""} }},
		"a label that is taken":                 {before: func(disk *Disk) { disk.Labels = map[string]string{"a": "b"} }},
		"an annotation that is changed": {
			before: func(disk *Disk) { disk.Annotations = map[string]string{"a": "b"} },
			after:  func(disk *Disk) { disk.Annotations = map[string]string{"a": "c"} }},
		"a status, in a cache of digests":  {before: digested, after: digested, want: phases.ProgressInterval},
		"a drift, in a cache of digests":   {before: digested},
		"its finalizers":                   {after: func(disk *Disk) { disk.Finalizers = []string{"a/b"} }},
		"its owner":                        {after: func(disk *Disk) { disk.OwnerReferences = nil }},
		"it is deleted":                    {after: func(disk *Disk) { disk.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }},
		"nothing: a resync":                {after: func(disk *Disk) { disk.ResourceVersion = "1" }},
		"a kind that counts no generation": {before: func(disk *Disk) { disk.Generation = 0 }, after: func(disk *Disk) { disk.Generation = 0 }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a disk before and after a change
			before, after := ownedDisk(), ownedDisk()
			after.ResourceVersion = "2"
			if c.before != nil {
				c.before(before)
			}
			if c.after != nil {
				c.after(after)
			}

			// When the watch delivers it
			q := &queue{}
			watchesOf(t, diskOf("Boot"))[0].Handler.Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)

			// Then its Machine is reconciled at once, or after the interval
			g.Expect(q.added).To(Equal(map[string]time.Duration{machineName: c.want}))
		})
	}
}

func TestWhatSettlesAChildDecidesWhetherItsProgressWaits(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*diskPhase)
		want   time.Duration
	}{
		"its health":     {func(*diskPhase) {}, phases.ProgressInterval},
		"that it exists": {func(boot *diskPhase) { boot.Health = nil }, phases.ProgressInterval},
		"more than the child, which only the phase can tell": {func(boot *diskPhase) {
			boot.Health = nil
			boot.Ready = func(context.Context, *scope, *Disk) phases.Verdict { return phases.Done("") }
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			boot := diskOf("Boot")
			c.change(&boot)
			progressed := ownedDisk()
			progressed.ResourceVersion = "2"
			q := &queue{}

			watchesOf(t, boot)[0].Handler.Update(t.Context(), event.UpdateEvent{ObjectOld: ownedDisk(), ObjectNew: progressed}, q)

			NewWithT(t).Expect(q.added).To(Equal(map[string]time.Duration{machineName: c.want}))
		})
	}
}

func TestChildIsSettledAsItsHealthSays(t *testing.T) {
	g := NewWithT(t)
	declaration, err := diskOf("Boot").Declare(machineScheme())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(declaration.Settled(&Disk{Device: Device{Attached: true}})).To(BeTrue())
	g.Expect(declaration.Settled(&Disk{})).To(BeFalse())
	g.Expect(declaration.Settled(&Nic{})).To(BeFalse(), "an object of another type")

	boot := diskOf("Boot")
	boot.Health = nil
	declaration, err = boot.Declare(machineScheme())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(declaration.Settled(&Disk{})).To(BeTrue(), "a child that is applied is ready")

	boot.Health = func(*Disk) phases.Verdict { return nil }
	declaration, err = boot.Declare(machineScheme())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(declaration.Settled(&Disk{})).To(BeFalse(), "no verdict")
}

// priorityQueue keeps with which priority, and when, what is to be reconciled.
type priorityQueue struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	added []priorityqueue.AddOpts
}

func (q *priorityQueue) AddWithOpts(o priorityqueue.AddOpts, _ ...reconcile.Request) {
	q.added = append(q.added, o)
}

func TestWhatChangedInAChildHasPriority(t *testing.T) {
	attached, progressed, unchanged := ownedDisk(), ownedDisk(), ownedDisk()
	attached.ResourceVersion, attached.Attached = "2", true
	progressed.ResourceVersion = "2"
	handle := watchesOf(t, diskOf("Boot"))[0].Handler
	update := func(to *Disk) func(*priorityQueue) {
		return func(q *priorityQueue) {
			handle.Update(t.Context(), event.UpdateEvent{ObjectOld: ownedDisk(), ObjectNew: to}, q)
		}
	}
	for name, c := range map[string]struct {
		happens  func(*priorityQueue)
		priority *int
		after    time.Duration
	}{
		"it is ready":       {happens: update(attached), priority: ptr.To(10)},
		"it has progressed": {happens: update(progressed), priority: ptr.To(10), after: phases.ProgressInterval},
		"nothing: a resync": {happens: update(unchanged), priority: ptr.To(handler.LowPriority)},
		"it is deleted":     {happens: func(q *priorityQueue) { handle.Delete(t.Context(), event.DeleteEvent{Object: ownedDisk()}, q) }, priority: ptr.To(10)},
		"it was found first": {happens: func(q *priorityQueue) {
			handle.Create(t.Context(), event.CreateEvent{Object: ownedDisk(), IsInInitialList: true}, q)
		}, priority: ptr.To(handler.LowPriority)},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			q := &priorityQueue{}

			c.happens(q)

			g.Expect(q.added).To(HaveLen(1))
			g.Expect(q.added[0].Priority).To(Equal(c.priority))
			g.Expect(q.added[0].After).To(Equal(c.after))
		})
	}
}

func TestDeletedObjectFreesTheNameOfAChild(t *testing.T) {
	unnamed := diskOf("Boot")
	unnamed.ChildName = nil
	unmanaged := &Disk{ObjectMeta: metav1.ObjectMeta{Name: machineName, Namespace: machineNamespace}}
	ofAnother := unmanaged.DeepCopy()
	ofAnother.OwnerReferences = []metav1.OwnerReference{{APIVersion: machineGroup.String(), Kind: "Machine", Name: "another", UID: "another", Controller: ptr.To(true)}}
	controlledBy := func(kind string) *Disk {
		disk := unmanaged.DeepCopy()
		disk.OwnerReferences = []metav1.OwnerReference{{APIVersion: machineGroup.String(), Kind: kind, Name: machineName, UID: "machine", Controller: ptr.To(true)}}
		return disk
	}
	cases := map[string]struct {
		phase phase
		gone  *Disk
		want  []string
	}{
		"an unmanaged object of the owner's name":              {unnamed, unmanaged, []string{machineName}},
		"an unmanaged object, where the phase names its child": {diskOf("Boot"), unmanaged, nil},
		"a child":                               {diskOf("Boot"), ownedDisk(), []string{machineName}},
		"a child of the owner's name":           {unnamed, controlledBy("Machine"), []string{machineName}},
		"a child of another kind of owner":      {unnamed, controlledBy("Rack"), []string{machineName}},
		"a child of another object of the kind": {unnamed, ofAnother, []string{"another", machineName}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			q := &queue{}

			watchesOf(t, c.phase)[0].Handler.Delete(t.Context(), event.DeleteEvent{Object: c.gone}, q)

			var asked []string
			for _, key := range q.keys {
				asked = append(asked, strings.TrimPrefix(key, machineNamespace+"/"))
			}
			g.Expect(asked).To(ConsistOf(c.want), "each once")
		})
	}
}

func TestReleasedObjectConcernsTheObjectOfItsName(t *testing.T) {
	unnamed := diskOf("Boot")
	unnamed.ChildName = nil
	disk := func(edits ...func(*Disk)) *Disk {
		disk := &Disk{ObjectMeta: metav1.ObjectMeta{Name: machineName, Namespace: machineNamespace, Generation: 1, ResourceVersion: "1"}}
		for _, edit := range edits {
			edit(disk)
		}
		return disk
	}
	by := func(kind string) func(*Disk) {
		return func(disk *Disk) {
			disk.ResourceVersion = "2"
			disk.OwnerReferences = []metav1.OwnerReference{{APIVersion: machineGroup.String(), Kind: kind, Name: "another", UID: "another", Controller: ptr.To(true)}}
		}
	}
	labelled := func(disk *Disk) { disk.ResourceVersion, disk.Labels = "3", map[string]string{"a": "b"} }
	cases := map[string]struct {
		scope         meta.RESTScope
		phase         phase
		before, after *Disk
		want          []string
	}{
		"released":                                  {meta.RESTScopeNamespace, unnamed, disk(by("Rack")), disk(), []string{"lab/vm1"}},
		"released, with a cluster-scoped owner":     {meta.RESTScopeRoot, unnamed, disk(by("Rack")), disk(), []string{"/vm1"}},
		"released, where the phase names its child": {meta.RESTScopeNamespace, diskOf("Boot"), disk(by("Rack")), disk(), nil},
		"unmanaged, and nothing was released":       {meta.RESTScopeNamespace, unnamed, disk(), disk(labelled), nil},
		"released to another Machine":               {meta.RESTScopeNamespace, unnamed, disk(by("Rack")), disk(by("Machine")), []string{"lab/another"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			q := &queue{}

			watchesOfScope(t, c.scope, c.phase)[0].Handler.Update(t.Context(), event.UpdateEvent{ObjectOld: c.before, ObjectNew: c.after}, q)

			g.Expect(q.keys).To(ConsistOf(c.want))
		})
	}
}

func TestFreedNameConcernsAClusterScopedOwnerWithoutNamespace(t *testing.T) {
	g := NewWithT(t)
	unnamed := diskOf("Boot")
	unnamed.ChildName = nil
	q := &queue{}

	watchesOfScope(t, meta.RESTScopeRoot, unnamed)[0].Handler.Delete(t.Context(),
		event.DeleteEvent{Object: &Disk{ObjectMeta: metav1.ObjectMeta{Name: machineName, Namespace: machineNamespace}}}, q)

	g.Expect(q.keys).To(ConsistOf("/vm1"))
}

func TestNameOfOneOfTwoChildrenOfAKindConcernsTheOwner(t *testing.T) {
	unnamed := diskOf("Boot")
	unnamed.ChildName = nil
	q := &queue{}

	watchesOf(t, unnamed, diskOf("Data"))[0].Handler.Delete(t.Context(),
		event.DeleteEvent{Object: &Disk{ObjectMeta: metav1.ObjectMeta{Name: machineName, Namespace: machineNamespace}}}, q)

	NewWithT(t).Expect(q.keys).To(ConsistOf("lab/vm1"))
}

func TestChildrenOfAnOwnerWhoseKindIsNotServedAreWatched(t *testing.T) {
	g := NewWithT(t)
	engine, err := newHarness(newFakeCluster(), diskOf("Boot")).engine()
	g.Expect(err).NotTo(HaveOccurred())

	g.Expect(phases.WatchesOf(engine, meta.NewDefaultRESTMapper(nil))).To(HaveLen(1))
}

func TestUpdatesByTheControllerItselfAreDelayed(t *testing.T) {
	cases := map[string]struct {
		before, after func(*Machine)
		waits         bool
	}{
		"its status":             {after: func(machine *Machine) { machine.Status.ObservedGeneration = 1 }, waits: true},
		"its finalizer is added": {after: func(machine *Machine) { machine.Finalizers = []string{machineFinalizer} }, waits: true},
		"a finalizer is removed": {before: func(machine *Machine) { machine.Finalizers = []string{metav1.FinalizerOrphanDependents} }},
		"its spec":               {after: func(machine *Machine) { machine.Generation = 2 }},
		"it is deleted":          {after: func(machine *Machine) { machine.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }},
		"nothing: a resync":      {after: func(machine *Machine) { machine.ResourceVersion = "1" }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			before := &Machine{ObjectMeta: metav1.ObjectMeta{Name: machineName, Namespace: machineNamespace, Generation: 1, ResourceVersion: "1"}}
			after := before.DeepCopy()
			after.ResourceVersion = "2"
			if c.before != nil {
				c.before(before)
			}
			if c.after != nil {
				c.after(after)
			}
			update := event.UpdateEvent{ObjectOld: before, ObjectNew: after}

			q := &queue{}
			phases.AfterInterval().Update(t.Context(), update, q)

			g.Expect(phases.AtOnce().Update(update)).To(Equal(!c.waits), "each update is handled by one of the two")
			if c.waits {
				g.Expect(q.added).To(Equal(map[string]time.Duration{machineName: phases.ProgressInterval}))
			} else {
				g.Expect(q.added).To(BeEmpty())
			}
		})
	}
}
