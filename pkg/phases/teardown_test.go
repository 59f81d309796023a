package phases_test

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

func TestTheFinalizerIsThereBeforeTheFirstSideEffect(t *testing.T) {
	for name, first := range map[string]func(*world) phase{
		"a child": func(*world) phase { return gearOf("Axle") },
		"a step":  func(w *world) phase { return thingOf(w, "Axle") },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := newWorld()
			shop := newWorkshop(w, first(w))
			w.createToy(&Toy{Spec: map[string]string{"Axle": "red"}})

			shop.mustPass(t)

			g.Expect(w.writes[0]).To(Equal("finalize"))
			g.Expect(len(w.writes)).To(BeNumerically(">", 1))
		})
	}
}

func TestTeardownIsTheListReversed(t *testing.T) {
	g := NewWithT(t)
	// Given a settled Toy, whose wheel and thing take their time to go
	w := newWorld()
	w.goesAfter["rim"], w.goesAfter["rail"] = 2, 1
	shop := newWorkshop(w, gearOf("Axle"), thingOf(w, "Rail"), wheelOf("Rim"))
	w.createToy(&Toy{Spec: map[string]string{"Axle": "red", "Rail": "long", "Rim": "blue"}})
	shop.settle(t)
	w.writes = nil

	// When it is deleted
	w.deleteToy()
	result := shop.mustPass(t)

	// Then the last phase goes first, and the status says what is waited for
	g.Expect(w.writes).To(Equal([]string{"delete Wheel rim", "status"}))
	g.Expect(result).To(Equal(reconcile.Result{RequeueAfter: phases.SafetyNet}))
	g.Expect(shop.states()).To(Equal([]string{
		"Ready=False/Terminating", "AxleReady=Unknown/Blocked", "RailReady=Unknown/Blocked", "RimReady=False/Terminating",
		"Reconciling=True/Terminating",
	}))
	g.Expect(shop.condition(t, "Ready").Message).To(Equal("Rim: waiting for Wheel rim to be gone"))
	g.Expect(shop.condition(t, "AxleReady").Message).To(Equal("kept until Rim is gone"))

	// When it is still there at the next pass, it is not deleted again
	w.tick()
	shop.mustPass(t)
	g.Expect(w.writes).To(HaveLen(2))

	// When it is gone, the step is undone, with a wait of its own
	w.tick()
	result = shop.mustPass(t)
	g.Expect(w.writes).To(Equal([]string{"delete Wheel rim", "status", "unmake thing rail", "status"}))
	g.Expect(result).To(Equal(reconcile.Result{RequeueAfter: 3 * time.Second}))
	g.Expect(shop.condition(t, "Ready").Message).To(Equal("Rail: waiting for the thing to be gone"))
	g.Expect(shop.condition(t, "RimReady").Message).To(Equal("gone"))

	// When that is gone, too, so is the rest, and the finalizer last of all
	shop.settle(t)
	g.Expect(w.writes[4:]).To(Equal([]string{"delete Gear axle", "status", "unfinalize"}))
	g.Expect(w.toy()).To(BeNil())
	g.Expect(w.left()).To(BeEmpty())
}

func TestTeardownLeavesStrangersAlone(t *testing.T) {
	g := NewWithT(t)
	// Given a Toy that could not have its gear, because a stranger's has the name
	w := newWorld()
	shop := newWorkshop(w, gearOf("Axle"))
	w.put(&Gear{ObjectMeta: metav1.ObjectMeta{Name: "axle", Namespace: toyNamespace}})
	w.createToy(&Toy{Spec: map[string]string{"Axle": "red"}})
	shop.settle(t)

	// When it is deleted
	w.deleteToy()
	shop.settle(t)

	// Then it is gone and the stranger's gear is there
	g.Expect(w.toy()).To(BeNil())
	g.Expect(w.part("Gear", "axle")).NotTo(BeNil())
}

func TestTeardownDoesNotBelieveALaggingCache(t *testing.T) {
	g := NewWithT(t)
	// Given a cache that does not show the gear yet which the last pass has made
	w := newWorld()
	w.lags = true
	shop := newWorkshop(w, gearOf("Axle"))
	w.createToy(&Toy{Spec: map[string]string{"Axle": "red"}})
	w.sync()
	shop.mustPass(t)
	w.deleteToy()
	w.cache[ref{"Toy", toyName}] = w.toy()

	// When the Toy is torn down
	shop.mustPass(t)

	// Then the gear is deleted all the same
	g.Expect(w.writes).To(ContainElement("delete Gear axle"))
}

func TestAnObjectOfWhichTheFinalizerIsGoneIsLeftAlone(t *testing.T) {
	g := NewWithT(t)
	// Given a Toy on its way out that only somebody else's finalizer holds
	w := newWorld()
	shop := newWorkshop(w, gearOf("Axle"))
	w.createToy(&Toy{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"example.com/other"}}, Spec: map[string]string{"Axle": "red"}})
	shop.settle(t)
	w.deleteToy()
	shop.settle(t)
	g.Expect(w.toy().Finalizers).To(Equal([]string{"example.com/other"}))
	w.writes = nil

	// When a pass is made
	result := shop.mustPass(t)

	// Then nothing is done
	g.Expect(result).To(Equal(reconcile.Result{}))
	g.Expect(w.writes).To(BeEmpty())
}

func TestOrphanDeletionKeepsTheChildren(t *testing.T) {
	g := NewWithT(t)
	// Given a Toy that is deleted with its children to be kept
	w := newWorld()
	shop := newWorkshop(w, gearOf("Axle"), wheelOf("Rim"))
	w.createToy(&Toy{Spec: map[string]string{"Axle": "red", "Rim": "blue"}})
	shop.settle(t)
	w.remove(ref{"Toy", toyName}, metav1.FinalizerOrphanDependents)
	w.writes = nil

	// When a pass is made before the garbage collector has orphaned them
	result := shop.mustPass(t)

	// Then they are kept, and the status says on what the teardown waits
	g.Expect(w.writes).To(Equal([]string{"status"}))
	g.Expect(result.RequeueAfter).To(Equal(phases.SafetyNet))
	g.Expect(shop.condition(t, "Ready").Message).To(ContainSubstring("garbage collector"))

	// When it has
	for _, r := range []ref{{"Gear", "axle"}, {"Wheel", "rim"}} {
		w.meddle(r.kind, r.name, func(c child) { c.SetOwnerReferences(nil) })
	}
	toy := w.toy()
	toy.Finalizers = []string{toyFinalizer}
	w.put(toy)
	shop.settle(t)

	// Then the Toy is gone and they are there
	g.Expect(w.toy()).To(BeNil())
	g.Expect(w.part("Gear", "axle")).NotTo(BeNil())
	g.Expect(w.part("Wheel", "rim")).NotTo(BeNil())
}

func TestOrphansAreKeptWhenTheCacheHasNotSeenTheDeletion(t *testing.T) {
	for name, restarted := range map[string]bool{"by an engine that knows nothing": true, "by one that has just written the status": false} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a Toy that is deleted with its children to be kept, and a child that the garbage
			// collector has orphaned already, while the cache shows the Toy as it was
			w := newWorld()
			shop := newWorkshop(w, gearOf("Axle"))
			shop.definition.Policies = func(*Toy) (ssa.AdoptionPolicy, ssa.DriftPolicy) { return ssa.AdoptIfUnowned, ssa.CorrectDrift }
			w.createToy(&Toy{Spec: map[string]string{"Axle": "red"}})
			shop.settle(t)
			engine, err := shop.engine()
			g.Expect(err).NotTo(HaveOccurred())
			pass := func() reconcile.Result {
				result, err := engine.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: toyNamespace, Name: toyName}})
				g.Expect(err).NotTo(HaveOccurred())
				return result
			}
			w.writes = nil
			if !restarted {
				w.editToy(func(toy *Toy) { toy.Spec["Axle"] = "blue" })
				pass()
				g.Expect(w.writes).To(HaveExactElements(ContainSubstring("Gear axle"), "status"))
			}
			w.lags = true
			w.remove(ref{"Toy", toyName}, metav1.FinalizerOrphanDependents)
			w.meddle("Gear", "axle", func(c child) { c.SetOwnerReferences(nil) })
			w.cache[ref{"Gear", "axle"}] = w.objects[ref{"Gear", "axle"}]
			w.writes = nil

			// When a pass is made
			result := pass()

			// Then the child is not made the Toy's again, which would tear it down later
			g.Expect(w.writes).To(BeEmpty())
			g.Expect(result.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<", time.Second)), "the Toy is read again")
		})
	}
}

func TestATeardownThatFailsSaysSoAndStaysRemovable(t *testing.T) {
	down := errors.New("the cloud is down")
	cases := map[string]struct {
		verdict phases.Verdict
		failure error
		retried error
		after   time.Duration
		reason  string
	}{
		"an error is retried with backoff": {failure: down, retried: down, reason: "Failed"},
		// Nobody edits the spec of an object that is going, and the cloud is not watched.
		"a stall is looked at again":           {verdict: phases.Stalled("Locked", "remove the lock"), after: phases.SafetyNet, reason: "Locked"},
		"so is a permanent error":              {failure: &ssa.Error{Reason: ssa.ReasonInvalid, Object: "x", Message: "y"}, after: phases.SafetyNet, reason: "Invalid"},
		"a wait says how long":                 {verdict: phases.Wait("Going", "", time.Minute), after: time.Minute, reason: "Going"},
		"no verdict does not let the thing go": {after: phases.SafetyNet, reason: "Failed"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a step that cannot be undone yet, after a gear
			w := newWorld()
			var broken bool
			rail := says("Rail", phases.Done(""))
			rail.Ensure = rail.Observe
			rail.Undo = func(context.Context, *scope) (phases.Verdict, error) {
				if broken {
					return c.verdict, c.failure
				}
				return phases.Done(""), nil
			}
			shop := newWorkshop(w, gearOf("Axle"), rail)
			w.createToy(&Toy{Spec: map[string]string{"Axle": "red"}})
			shop.settle(t)
			w.deleteToy()

			// When a pass tries
			broken = true
			result, err := shop.pass(t)

			// Then it comes again, says why, and does not go on to the gear
			if c.retried != nil {
				g.Expect(err).To(MatchError(c.retried))
			} else {
				g.Expect(err).NotTo(HaveOccurred())
			}
			g.Expect(result.RequeueAfter).To(Equal(c.after))
			g.Expect(shop.condition(t, "Ready").Reason).To(Equal(c.reason))
			g.Expect(w.part("Gear", "axle")).NotTo(BeNil())

			// When it can be undone, the Toy goes
			broken = false
			shop.settle(t)
			g.Expect(w.toy()).To(BeNil())
		})
	}
}

func TestASpecThatIsWrongCanBeDeleted(t *testing.T) {
	g := NewWithT(t)
	// Given a Toy of whose spec no gear can be made any more
	w := newWorld()
	wrong := false
	axle := gearOf("Axle")
	build := axle.Desired
	axle.Desired = func(s *scope) (*partConfiguration, error) {
		if wrong {
			return nil, errors.New("no such colour")
		}
		return build(s)
	}
	shop := newWorkshop(w, axle)
	w.createToy(&Toy{Spec: map[string]string{"Axle": "red"}})
	shop.settle(t)
	wrong = true

	// When it is deleted
	w.deleteToy()
	shop.settle(t)

	// Then it goes
	g.Expect(w.toy()).To(BeNil())
	g.Expect(w.left()).To(BeEmpty())
}

// unserved is a reader of a cluster that does not serve Wheels.
type unserved struct{ reader }

func (u unserved) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if _, ok := into.(*Wheel); ok {
		return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: toyGroup.Group, Kind: "Wheel"}}
	}
	return u.reader.Get(ctx, key, into, options...)
}

func (u unserved) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	if _, ok := into.(*WheelList); ok {
		return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: toyGroup.Group, Kind: "Wheel"}}
	}
	return u.reader.List(ctx, into, options...)
}

func TestAKindThatIsNotServedIsNoObstacle(t *testing.T) {
	g := NewWithT(t)
	// Given a cluster that does not serve Wheels, which the Toy does not ask for
	w := newWorld()
	shop := newWorkshop(w, gearOf("Axle"), wheelOf("Rim"))
	shop.dependencies.Reader = unserved{reader{world: w, cached: true}}
	shop.dependencies.Uncached = unserved{reader{world: w}}
	w.createToy(&Toy{Spec: map[string]string{"Axle": "red"}})

	// When it is settled, it is Ready
	shop.settle(t)
	g.Expect(shop.states()).To(ContainElements("Ready=True/Ready", "RimReady=True/NotConfigured"))

	// When it is deleted, it goes
	w.deleteToy()
	shop.settle(t)
	g.Expect(w.toy()).To(BeNil())
}

func TestAFinalizerThatCannotBeRemovedIsSaid(t *testing.T) {
	g := NewWithT(t)
	// Given a Toy of which all is gone, in a world that refuses to remove the finalizer
	w := newWorld()
	refusal := &ssa.Error{Reason: ssa.ReasonForbidden, Object: "Toy train", Message: "grant the permission"}
	shop := newWorkshop(w, gearOf("Axle"))
	w.createToy(&Toy{Spec: map[string]string{"Axle": "red"}})
	shop.settle(t)
	w.deleteToy()
	shop.mustPass(t)
	w.refuse = func(what string) error {
		if what == "unfinalize" {
			return refusal
		}
		return nil
	}

	// When a pass is made
	_, err := shop.pass(t)

	// Then it is retried, and the status says what the deletion waits for
	g.Expect(err).To(MatchError(refusal))
	g.Expect(shop.condition(t, "Ready").Reason).To(Equal("Forbidden"))
	g.Expect(shop.condition(t, "Ready").Message).To(ContainSubstring("removing the finalizer"))
}
