package phases_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// queue keeps when what is to be reconciled.
type queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	added map[string]time.Duration
}

func (q *queue) Add(request reconcile.Request) { q.AddAfter(request, 0) }

func (q *queue) AddAfter(request reconcile.Request, after time.Duration) {
	if q.added == nil {
		q.added = map[string]time.Duration{}
	}
	q.added[request.Name] = after
}

func watchesOf(t *testing.T, list ...phase) []phases.ChildWatch {
	t.Helper()
	engine, err := newWorkshop(newWorld(), list...).engine()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{toyGroup})
	mapper.Add(toyGroup.WithKind("Toy"), meta.RESTScopeNamespace)
	return engine.Watches(mapper)
}

func TestEachKindIsWatchedOnce(t *testing.T) {
	g := NewWithT(t)

	watches := watchesOf(t, gearOf("Axle"), wheelOf("Rim"), gearOf("Hub"), says("Rail", phases.Done("")))

	g.Expect(watches).To(HaveLen(2))
	g.Expect(watches[0].Object).To(BeAssignableToTypeOf(&Gear{}))
	g.Expect(watches[1].Object).To(BeAssignableToTypeOf(&Wheel{}))
}

// ownedGear is a Gear that the Toy controls, as it was before something happened to it.
func ownedGear() *Gear {
	toy := &Toy{ObjectMeta: metav1.ObjectMeta{Name: toyName, UID: "toy"}}
	return &Gear{ObjectMeta: metav1.ObjectMeta{
		Name: "axle", Namespace: toyNamespace, Generation: 1, ResourceVersion: "1",
		OwnerReferences: []metav1.OwnerReference{ssa.ControllerReference(toy, toyGroup.WithKind("Toy"))},
	}}
}

func TestOnlyProgressIsPutOff(t *testing.T) {
	cases := map[string]struct {
		before, after func(*Gear)
		want          time.Duration
	}{
		"a status that settles nothing": {want: phases.ProgressInterval},
		"it has become ready":           {after: func(gear *Gear) { gear.Turns = true }},
		"it has ceased to be":           {before: func(gear *Gear) { gear.Turns = true }},
		"its spec":                      {after: func(gear *Gear) { gear.Generation = 2 }},
		"a label that others add":       {after: func(gear *Gear) { gear.Labels = map[string]string{"a": "b"} }, want: phases.ProgressInterval},
		"an annotation that others add": {after: func(gear *Gear) { gear.Annotations = map[string]string{"a": "b"} }, want: phases.ProgressInterval},
		"a label that is taken":         {before: func(gear *Gear) { gear.Labels = map[string]string{"a": "b"} }},
		"an annotation that is changed": {
			before: func(gear *Gear) { gear.Annotations = map[string]string{"a": "b"} },
			after:  func(gear *Gear) { gear.Annotations = map[string]string{"a": "c"} }},
		"its finalizers":                   {after: func(gear *Gear) { gear.Finalizers = []string{"a/b"} }},
		"its owner":                        {after: func(gear *Gear) { gear.OwnerReferences = nil }},
		"it is deleted":                    {after: func(gear *Gear) { gear.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }},
		"nothing: a resync":                {after: func(gear *Gear) { gear.ResourceVersion = "1" }},
		"a kind that counts no generation": {before: func(gear *Gear) { gear.Generation = 0 }, after: func(gear *Gear) { gear.Generation = 0 }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a gear before and after a change
			before, after := ownedGear(), ownedGear()
			after.ResourceVersion = "2"
			if c.before != nil {
				c.before(before)
			}
			if c.after != nil {
				c.after(after)
			}

			// When the watch delivers it
			q := &queue{}
			watchesOf(t, gearOf("Axle"))[0].Handler.Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)

			// Then its Toy is looked at, at once or a little later
			g.Expect(q.added).To(Equal(map[string]time.Duration{toyName: c.want}))
		})
	}
}

func TestAStrangerThatGoesFreesItsName(t *testing.T) {
	unnamed := gearOf("Axle")
	unnamed.ChildName = nil
	stranger := &Gear{ObjectMeta: metav1.ObjectMeta{Name: toyName, Namespace: toyNamespace}}
	cases := map[string]struct {
		phase phase
		gone  *Gear
		want  []string
	}{
		"a stranger of the owner's name":                    {unnamed, stranger, []string{toyName}},
		"a stranger, where children are named by the phase": {gearOf("Axle"), stranger, nil},
		"a child of ours":                                   {gearOf("Axle"), ownedGear(), []string{toyName}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			q := &queue{}

			watchesOf(t, c.phase)[0].Handler.Delete(t.Context(), event.DeleteEvent{Object: c.gone}, q)

			var asked []string
			for name := range q.added {
				asked = append(asked, name)
			}
			g.Expect(asked).To(Equal(c.want))
		})
	}
}

func TestTheEchoOfWhatTheControllerWritesCanWait(t *testing.T) {
	cases := map[string]struct {
		before, after func(*Toy)
		waits         bool
	}{
		"its status":               {after: func(toy *Toy) { toy.Status.ObservedGeneration = 1 }, waits: true},
		"its finalizer is put on":  {after: func(toy *Toy) { toy.Finalizers = []string{toyFinalizer} }, waits: true},
		"a finalizer is taken off": {before: func(toy *Toy) { toy.Finalizers = []string{metav1.FinalizerOrphanDependents} }},
		"its spec":                 {after: func(toy *Toy) { toy.Generation = 2 }},
		"it is deleted":            {after: func(toy *Toy) { toy.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }},
		"nothing: a resync":        {after: func(toy *Toy) { toy.ResourceVersion = "1" }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			before := &Toy{ObjectMeta: metav1.ObjectMeta{Name: toyName, Namespace: toyNamespace, Generation: 1, ResourceVersion: "1"}}
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
			phases.InAWhile().Update(t.Context(), update, q)

			g.Expect(phases.AtOnce().Update(update)).To(Equal(!c.waits), "each update is handled by one of the two")
			if c.waits {
				g.Expect(q.added).To(Equal(map[string]time.Duration{toyName: phases.ProgressInterval}))
			} else {
				g.Expect(q.added).To(BeEmpty())
			}
		})
	}
}
