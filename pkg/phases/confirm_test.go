package phases_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// countingReader counts what is read of the Toy.
type countingReader struct {
	client.Reader
	toys *int
	fail error
}

func (r countingReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if _, ok := object.(*Toy); ok {
		*r.toys++
		if r.fail != nil {
			return r.fail
		}
	}
	return r.Reader.Get(ctx, key, object, opts...)
}

// lagging is a workshop with an axle, a rim and a thing, all settled, whose cache shows the Toy as it
// was from now on, and all else as it is.
func lagging(t *testing.T, spec map[string]string) (*workshop, *int) {
	t.Helper()
	w := newWorld()
	shop := newWorkshop(w, gearOf("Axle"), wheelOf("Rim"), thingOf(w, "Paint"))
	w.createToy(&Toy{Spec: spec})
	shop.settle(t)
	reads := 0
	shop.dependencies.Uncached = countingReader{Reader: shop.dependencies.Uncached, toys: &reads}
	w.writes = nil
	return shop, &reads
}

// showOnlyTheToyAsItWas brings the cache up to date, but for the Toy.
func (w *world) showOnlyTheToyAsItWas(before client.Object) {
	w.sync()
	w.cache[ref{"Toy", toyName}] = before
}

func TestNothingIsWrittenForAnOwnerThatHasChanged(t *testing.T) {
	all := map[string]string{"Axle": "red", "Rim": "black", "Paint": "blue"}
	changes := map[string]func(*world){
		"its spec":            func(w *world) { w.editToy(func(toy *Toy) { toy.Spec = map[string]string{} }) },
		"it is being deleted": func(w *world) { w.deleteToy() },
		"it is another one": func(w *world) {
			delete(w.objects, ref{"Toy", toyName})
			w.createToy(&Toy{Spec: all})
		},
		"it is gone": func(w *world) { delete(w.objects, ref{"Toy", toyName}) },
	}
	// What a pass would write if the Toy were still what the cache shows.
	writes := map[string]func(*world){
		"a child is missing":  func(w *world) { delete(w.objects, ref{"Gear", "axle"}) },
		"a child has drifted": func(w *world) { w.meddle("Gear", "axle", func(c child) { c.part().Spec["colour"] = "green" }) },
		"a thing is missing":  func(w *world) { delete(w.things, "paint") },
	}
	for change, happen := range changes {
		for write, need := range writes {
			t.Run(change+", and "+write, func(t *testing.T) {
				g := NewWithT(t)
				shop, _ := lagging(t, all)
				before := shop.toy()
				shop.lags = true
				happen(shop.world)
				need(shop.world)
				shop.showOnlyTheToyAsItWas(before)
				shop.writes = nil

				result, err := shop.pass(t)

				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(shop.writes).To(BeEmpty())
				g.Expect(result.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<", time.Second)))
			})
		}
	}
}

func TestAnObjectThatIsBeingDeletedIsNotBegunAnew(t *testing.T) {
	g := NewWithT(t)
	// Given a Toy that is being torn down, which the cache shows as it was when it was new
	w := newWorld()
	shop := newWorkshop(w, gearOf("Axle"), gearOf("Hub"))
	w.createToy(&Toy{Spec: map[string]string{"Axle": "red", "Hub": "blue"}})
	before := w.toy()
	shop.settle(t)
	w.deleteToy()
	shop.mustPass(t)
	g.Expect(w.part("Gear", "hub")).To(BeNil())
	w.lags = true
	w.showOnlyTheToyAsItWas(before)
	w.writes = nil

	// When a pass is made
	shop.mustPass(t)

	// Then the teardown goes on
	g.Expect(w.writes).NotTo(ContainElement(HavePrefix("create")))
	g.Expect(w.part("Gear", "hub")).To(BeNil())
	g.Expect(w.part("Gear", "axle")).To(BeNil())
}

func TestNothingIsPrunedForASpecOfThePast(t *testing.T) {
	g := NewWithT(t)
	// Given a Toy that the cache shows without a rim, which it has just been given
	shop, _ := lagging(t, map[string]string{"Axle": "red"})
	before := shop.toy()
	shop.editToy(func(toy *Toy) { toy.Spec["Rim"] = "black" })
	shop.settle(t)
	shop.lags = true
	shop.showOnlyTheToyAsItWas(before)
	shop.writes = nil

	// When a pass is made
	shop.mustPass(t)

	// Then the rim stays
	g.Expect(shop.writes).To(BeEmpty())
	g.Expect(shop.part("Wheel", "rim")).NotTo(BeNil())
}

func TestAPassGoesByTheNewestStatus(t *testing.T) {
	g := NewWithT(t)
	// Given a Toy whose status somebody has just written, which the cache does not show yet
	shop, reads := lagging(t, map[string]string{"Axle": "red", "Paint": "blue"})
	before := shop.toy()
	newest := shop.toy()
	newest.Status.Drifts = []string{"what the newest status says"}
	shop.put(newest)
	var seen [][]string
	shop.definition.Scope = func(toy *Toy) *scope {
		seen = append(seen, toy.Status.Drifts)
		return &scope{toy: toy}
	}
	shop.definition.Status = func(s *scope, summary phases.Summary) ssa.Configuration {
		status := toyStatus(s.toy.Name, summary)
		status.Status.Drifts = append(status.Status.Drifts, s.toy.Status.Drifts...)
		return status
	}
	for missing, take := range map[string]func(){
		"thing": func() { delete(shop.things, "paint") },
		"child": func() { delete(shop.objects, ref{"Gear", "axle"}) },
		"drift": func() { shop.meddle("Gear", "axle", func(c child) { c.part().Spec["colour"] = "green" }) },
	} {
		shop.lags = true
		take()
		shop.showOnlyTheToyAsItWas(before)
		shop.writes, seen, *reads = nil, nil, 0
		shop.events.take()

		// When a pass has something to make
		shop.mustPass(t)

		// Then it makes it by the newest status, which it takes one read to know
		g.Expect(seen).To(HaveExactElements(BeEmpty(), ContainElement("what the newest status says")), missing)
		g.Expect(shop.writes).To(HaveExactElements(MatchRegexp("^(make|create|correct) "), "status"), missing)
		said := strings.Join(shop.events.take(), "\n")
		g.Expect(strings.Count(said, "DriftCorrected")).To(BeNumerically("<=", 1), said)
		g.Expect(shop.toy().Status.Drifts).To(ContainElement("what the newest status says"), missing)
		g.Expect(*reads).To(Equal(1), missing)
	}
}

func TestATeardownGoesByTheNewestStatus(t *testing.T) {
	// Given a Toy that is being deleted, which the cache shows as it was just then
	newShop := func(t *testing.T) (shop *workshop, before *Toy, undone *[]string) {
		undone = &[]string{}
		w := newWorld()
		shop = newWorkshop(w, &phases.Step[*scope]{
			Name:    "Paint",
			Observe: func(context.Context, *scope) (phases.Verdict, error) { return phases.Done(""), nil },
			Ensure:  func(context.Context, *scope) (phases.Verdict, error) { return phases.Done(""), nil },
			Undo: func(_ context.Context, s *scope) (phases.Verdict, error) {
				*undone = append(*undone, strings.Join(s.toy.Status.Drifts, ""))
				return phases.Done(""), nil
			},
		})
		w.createToy(&Toy{})
		shop.settle(t)
		w.lags = true
		w.deleteToy()
		w.writes = nil
		return shop, w.toy(), undone
	}

	t.Run("that has changed", func(t *testing.T) {
		g := NewWithT(t)
		shop, before, undone := newShop(t)
		newest := shop.toy()
		newest.Status.Drifts = []string{"newest"}
		shop.put(newest)
		shop.showOnlyTheToyAsItWas(before)
		reads := 0
		shop.dependencies.Uncached = countingReader{Reader: shop.dependencies.Uncached, toys: &reads}

		shop.mustPass(t)

		g.Expect(*undone).To(Equal([]string{"newest"}))
		g.Expect(shop.toy()).To(BeNil())
		g.Expect(reads).To(Equal(1))
	})
	t.Run("that is gone", func(t *testing.T) {
		g := NewWithT(t)
		shop, before, undone := newShop(t)
		delete(shop.objects, ref{"Toy", toyName})
		shop.showOnlyTheToyAsItWas(before)

		g.Expect(shop.mustPass(t)).To(Equal(reconcile.Result{}))

		g.Expect(*undone).To(BeEmpty())
		g.Expect(shop.writes).To(BeEmpty())
	})
	t.Run("that is another's", func(t *testing.T) {
		g := NewWithT(t)
		shop, before, undone := newShop(t)
		delete(shop.objects, ref{"Toy", toyName})
		shop.createToy(&Toy{})
		shop.showOnlyTheToyAsItWas(before)
		shop.writes = nil

		g.Expect(shop.mustPass(t).RequeueAfter).To(BeNumerically(">", 0))

		g.Expect(*undone).To(BeEmpty())
		g.Expect(shop.writes).To(BeEmpty())
	})
	t.Run("that cannot be read", func(t *testing.T) {
		g := NewWithT(t)
		shop, before, undone := newShop(t)
		shop.showOnlyTheToyAsItWas(before)
		reads, down := 0, errors.New("the API server is down")
		shop.dependencies.Uncached = countingReader{Reader: shop.dependencies.Uncached, toys: &reads, fail: down}

		_, err := shop.pass(t)

		g.Expect(err).To(MatchError(down))
		g.Expect(*undone).To(BeEmpty())
	})
}

func TestTheOwnerIsConfirmedOnceAndOnlyBeforeWrites(t *testing.T) {
	all := map[string]string{"Axle": "red", "Rim": "black", "Paint": "blue"}

	t.Run("not at rest", func(t *testing.T) {
		shop, reads := lagging(t, all)
		shop.mustPass(t)
		NewWithT(t).Expect(*reads).To(BeZero())
	})
	t.Run("once for several writes", func(t *testing.T) {
		g := NewWithT(t)
		shop, reads := lagging(t, all)
		for _, part := range []ref{{"Gear", "axle"}, {"Wheel", "rim"}} {
			shop.meddle(part.kind, part.name, func(c child) { c.part().Spec["colour"] = "green" })
		}
		shop.writes = nil
		shop.mustPass(t)
		g.Expect(shop.writes).To(ContainElements("correct Gear axle", "correct Wheel rim"))
		g.Expect(*reads).To(Equal(1))
	})
	t.Run("not for a new object, which the finalizer's apply has shown", func(t *testing.T) {
		g := NewWithT(t)
		w := newWorld()
		shop := newWorkshop(w, gearOf("Axle"))
		reads := 0
		shop.dependencies.Uncached = countingReader{Reader: shop.dependencies.Uncached, toys: &reads}
		w.createToy(&Toy{Spec: all})
		shop.settle(t)
		g.Expect(w.part("Gear", "axle")).NotTo(BeNil())
		g.Expect(reads).To(BeZero())
	})
	t.Run("not again for a write that is tried again", func(t *testing.T) {
		g := NewWithT(t)
		shop, reads := lagging(t, all)
		delete(shop.objects, ref{"Gear", "axle"})
		shop.sync()
		tries := 0
		shop.refuse = func(what string) error {
			if what != "apply Gear axle" {
				return nil
			}
			tries++
			return &ssa.Error{Reason: ssa.ReasonQuotaExceeded, Object: "Gear axle", Message: "there is no room", Transient: true}
		}
		engine, err := shop.engine()
		g.Expect(err).NotTo(HaveOccurred())
		pass := func() {
			_, err := engine.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: toyNamespace, Name: toyName}})
			g.Expect(err).To(HaveOccurred())
		}
		for range 5 {
			pass()
		}
		g.Expect(tries).To(Equal(5))
		g.Expect(*reads).To(Equal(1))

		shop.clock.SetTime(shop.clock.Now().Add(29 * time.Second))
		pass()
		g.Expect(*reads).To(Equal(1))

		// That somebody asked meanwhile makes it no fresher.
		shop.clock.SetTime(shop.clock.Now().Add(2 * time.Second))
		pass()
		g.Expect(*reads).To(Equal(2), "what was seen half a minute ago is not fresh")
	})
	t.Run("again for another version", func(t *testing.T) {
		g := NewWithT(t)
		shop, reads := lagging(t, all)
		engine, err := shop.engine()
		g.Expect(err).NotTo(HaveOccurred())
		for n := range 2 {
			shop.editToy(func(toy *Toy) { toy.Spec["Axle"] = "colour " + strconv.Itoa(n) })
			_, err = engine.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: toyNamespace, Name: toyName}})
			g.Expect(err).NotTo(HaveOccurred())
		}
		g.Expect(*reads).To(Equal(2))
	})
	t.Run("not for drift that is only reported", func(t *testing.T) {
		g := NewWithT(t)
		shop, reads := lagging(t, all)
		shop.definition.Policies = func(*Toy) (ssa.AdoptionPolicy, ssa.DriftPolicy) { return ssa.AdoptNever, ssa.ReportDrift }
		shop.meddle("Gear", "axle", func(c child) { c.part().Spec["colour"] = "green" })
		shop.mustPass(t)
		g.Expect(*reads).To(BeZero())
	})
	t.Run("not for a plan", func(t *testing.T) {
		g := NewWithT(t)
		shop, reads := lagging(t, all)
		delete(shop.objects, ref{"Gear", "axle"})
		shop.sync()
		g.Expect(shop.plan(t).Changes()).To(HaveLen(1))
		g.Expect(*reads).To(BeZero())
	})
	t.Run("and if that fails, so does the pass", func(t *testing.T) {
		g := NewWithT(t)
		shop, reads := lagging(t, all)
		down := errors.New("the API server is down")
		shop.dependencies.Uncached = countingReader{Reader: shop.dependencies.Uncached, toys: reads, fail: down}
		delete(shop.objects, ref{"Gear", "axle"})
		shop.sync()
		shop.writes = nil
		_, err := shop.pass(t)
		g.Expect(err).To(MatchError(down))
		g.Expect(shop.writes).To(Equal([]string{"status"}))
		g.Expect(shop.condition(t, phases.ConditionReady).Message).To(ContainSubstring("the API server is down"))
	})
}
