package phases_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// The property: whatever the list of phases, whatever the world does meanwhile, and at whatever
// instants the engine is stopped, a fresh engine reaches what an undisturbed one would have.
//
// A failure prints a seed and a file to replay it with:
//
//	go test ./pkg/phases -run TestCrash -rapid.seed=... (or -rapid.failfile=...)

// temper is how a phase behaves over time.
type temper struct {
	name  string
	sort  string
	prune phases.PruneOrder
	// turnsAfter and goesAfter are ticks.
	turnsAfter, goesAfter int
	// trouble is what the phase comes to until a tick: "", "error", "permanent", "stalled" or "wait".
	trouble      string
	troubleUntil int
}

// deed is what somebody does at a tick.
type deed struct {
	at    int
	phase int
	// kind is "edit", "drop" (the part is no longer wanted), "drift" or "delete" (of the part).
	// Drift that is to be left is waited with until the part is there and all else is over: how the
	// story ends depends on it, and that must not depend on when the part was made.
	kind  string
	value string
}

type story struct {
	tempers []temper
	deeds   []deed
	drift   ssa.DriftPolicy
	lags    bool
	// crashes of the first part of the story, and of the teardown, each counted in calls since the
	// one before.
	crashes, teardownCrashes []crash
}

// horizon is the tick by which everything that is going to happen has begun.
const horizon = 12

func stories() *rapid.Generator[story] {
	return rapid.Custom(func(t *rapid.T) story {
		s := story{
			drift: rapid.SampledFrom([]ssa.DriftPolicy{ssa.CorrectDrift, ssa.ReportDrift}).Draw(t, "drift"),
			lags:  rapid.Bool().Draw(t, "lags"),
		}
		for i := range rapid.IntRange(1, 6).Draw(t, "phases") {
			s.tempers = append(s.tempers, temper{
				name:         string(rune('A'+i)) + "part",
				sort:         rapid.SampledFrom([]string{"gear", "wheel", "step"}).Draw(t, "sort"),
				prune:        rapid.SampledFrom([]phases.PruneOrder{phases.PruneInOrder, phases.PruneFirst, phases.PruneLast}).Draw(t, "prune"),
				turnsAfter:   rapid.IntRange(0, 3).Draw(t, "turnsAfter"),
				goesAfter:    rapid.IntRange(0, 3).Draw(t, "goesAfter"),
				trouble:      rapid.SampledFrom([]string{"", "", "error", "permanent", "stalled", "wait"}).Draw(t, "trouble"),
				troubleUntil: rapid.IntRange(0, horizon).Draw(t, "troubleUntil"),
			})
		}
		for range rapid.IntRange(0, 5).Draw(t, "deeds") {
			s.deeds = append(s.deeds, deed{
				at:    rapid.IntRange(0, horizon).Draw(t, "at"),
				phase: rapid.IntRange(0, len(s.tempers)-1).Draw(t, "phase"),
				kind:  rapid.SampledFrom([]string{"edit", "drop", "drift", "delete"}).Draw(t, "kind"),
				value: rapid.SampledFrom([]string{"red", "green", "blue"}).Draw(t, "value"),
			})
		}
		strikes := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) crash {
			return crash{
				at:     rapid.IntRange(1, 20).Draw(t, "call"),
				landed: rapid.Bool().Draw(t, "landed"),
				panics: rapid.Bool().Draw(t, "panics"),
			}
		}), 1, 8)
		s.crashes, s.teardownCrashes = strikes.Draw(t, "crashes"), strikes.Draw(t, "teardownCrashes")
		return s
	})
}

// stage is a story that is being played.
type stage struct {
	*workshop
	story
	crashes []crash
	// late are the deeds that wait for all else to be over.
	late []deed
}

// open sets the scene: the Toy wants every part.
func open(s story, crashes []crash) *stage {
	w := newWorld()
	w.lags = s.lags
	list := make([]phase, 0, len(s.tempers))
	wanted := map[string]string{}
	for _, temper := range s.tempers {
		w.turnsAfter[strings.ToLower(temper.name)] = temper.turnsAfter
		w.goesAfter[strings.ToLower(temper.name)] = temper.goesAfter
		wanted[temper.name] = "red"
		list = append(list, phaseOf(w, temper))
	}
	shop := newWorkshop(w, list...)
	shop.definition.Policies = func(*Toy) (ssa.AdoptionPolicy, ssa.DriftPolicy) { return ssa.AdoptNever, s.drift }
	w.createToy(&Toy{Spec: wanted})
	w.sync()
	opened := &stage{workshop: shop, story: s, crashes: crashes}
	opened.deeds = nil
	for _, deed := range s.deeds {
		if deed.kind == "drift" && s.drift == ssa.ReportDrift {
			opened.late = append(opened.late, deed)
		} else {
			opened.deeds = append(opened.deeds, deed)
		}
	}
	return opened
}

// phaseOf is a phase that has its trouble until the world has got over it.
func phaseOf(w *world, t temper) phase {
	trouble := func() (phases.Verdict, error) {
		if w.now >= t.troubleUntil {
			return phases.Done(""), nil
		}
		switch t.trouble {
		case "error":
			return phases.Verdict{}, errors.New("something is down")
		case "permanent":
			return phases.Verdict{}, &ssa.Error{Reason: ssa.ReasonInvalid, Object: t.name, Message: "no such part"}
		case "stalled":
			return phases.Stalled("Locked", "unlock it"), nil
		case "wait":
			return phases.Wait("Pending", "not yet", 0), nil
		}
		return phases.Done(""), nil
	}
	switch t.sort {
	case "step":
		made := thingOf(w, t.name)
		observe := made.Observe
		made.Observe = func(ctx context.Context, s *scope) (phases.Verdict, error) {
			if verdict, err := trouble(); err != nil || !verdict.IsDone() {
				return verdict, err
			}
			return observe(ctx, s)
		}
		return made
	case "wheel":
		made := wheelOf(t.name)
		made.Prune = t.prune
		made.Desired, made.Ready = troubled(made.Desired, trouble), troubledReady(turns[*Wheel], trouble)
		return made
	default:
		made := gearOf(t.name)
		made.Prune = t.prune
		made.Desired, made.Ready = troubled(made.Desired, trouble), troubledReady(turns[*Gear], trouble)
		return made
	}
}

// troubled is Desired with the errors of the trouble, and troubledReady is Ready with its verdicts.
func troubled(desired func(*scope) (*partConfiguration, error), trouble func() (phases.Verdict, error)) func(*scope) (*partConfiguration, error) {
	return func(s *scope) (*partConfiguration, error) {
		if _, err := trouble(); err != nil {
			return nil, err
		}
		return desired(s)
	}
}

func troubledReady[L child](ready func(L) phases.Verdict, trouble func() (phases.Verdict, error)) func(L) phases.Verdict {
	return func(live L) phases.Verdict {
		if verdict, err := trouble(); err == nil && !verdict.IsDone() {
			return verdict
		}
		return ready(live)
	}
}

// perform does what the story has at this tick.
func (s *stage) perform() {
	for _, deed := range s.deeds {
		if deed.at == s.now {
			s.do(deed)
		}
	}
}

func (s *stage) do(d deed) {
	temper := s.tempers[d.phase]
	at := ref{"Gear", strings.ToLower(temper.name)}
	if temper.sort == "wheel" {
		at.kind = "Wheel"
	}
	switch {
	case d.kind == "edit":
		s.editToy(func(toy *Toy) { toy.Spec[temper.name] = d.value })
	case d.kind == "drop":
		s.editToy(func(toy *Toy) { delete(toy.Spec, temper.name) })
	case s.objects[at] == nil:
	case d.kind == "drift":
		s.meddle(at.kind, at.name, func(c child) { c.part().Spec["colour"] = "dirty" })
	case d.kind == "delete":
		s.remove(at, "example.com/slow")
		s.due["go "+at.String()] = s.now + temper.goesAfter
	}
}

// pass makes one pass with a fresh engine, which the next crash may stop.
func (s *stage) pass(t *rapid.T) (result reconcile.Result, err error) {
	engine, err := s.engine()
	if err != nil {
		t.Fatal(err)
	}
	s.arm()
	defer func() {
		if stopped := recover(); stopped != nil {
			if _, ok := stopped.(crashed); !ok {
				panic(stopped)
			}
			err = errors.New("the engine was stopped")
		}
		s.disarm()
		if len(s.broken) > 0 {
			t.Fatalf("%v; writes: %v", s.broken, s.writes)
		}
	}()
	return engine.Reconcile(context.Background(), reconcile.Request{
		NamespacedName: types.NamespacedName{Namespace: toyNamespace, Name: toyName},
	})
}

func (s *stage) arm() {
	if s.crash == nil && len(s.crashes) > 0 {
		s.calls, s.crash, s.crashes = 0, &s.crashes[0], s.crashes[1:]
	}
}

func (s *stage) disarm() {
	if s.crash != nil && s.calls >= s.crash.at {
		s.crash = nil
	}
}

// live plays the first part until nothing happens any more.
func (s *stage) live(t *rapid.T) {
	for range 40 * horizon {
		s.perform()
		if !s.lags || s.now%2 == 0 {
			s.sync()
		}
		writes := len(s.writes)
		_, err := s.pass(t)
		quiet := err == nil && len(s.writes) == writes && len(s.due) == 0 && s.crash == nil && len(s.crashes) == 0
		if quiet && s.now > horizon && maps.Equal(s.cache, s.objects) {
			if len(s.late) == 0 {
				return
			}
			s.do(s.late[0])
			s.late = s.late[1:]
		}
		if len(s.crashes) > 0 && s.now > 2*horizon {
			s.crashes = nil // a quiet engine does not make enough calls to be stopped at
			s.crash = nil
		}
		s.tick()
	}
	t.Fatalf("no fixed point; writes: %v; conditions: %v", s.writes, s.states())
}

// die plays the teardown until the Toy is gone.
func (s *stage) die(t *rapid.T, crashes []crash) {
	s.crashes, s.crash = crashes, nil
	s.deleteToy()
	for range 100 {
		if s.toy() == nil {
			return
		}
		if !s.lags || s.now%2 == 0 {
			s.sync()
		}
		_, _ = s.pass(t)
		s.tick()
	}
	t.Fatalf("the Toy is still there; writes: %v; conditions: %v", s.writes, s.states())
}

// ending is all of the world that matters, without what depends on when it came about.
func (s *stage) ending() string {
	var lines []string
	for r, object := range s.objects {
		if part, ok := object.(child); ok {
			lines = append(lines, fmt.Sprintf("%s %v turns=%v going=%v", r, part.part().Spec, part.part().Turns, part.GetDeletionTimestamp() != nil))
		}
	}
	for name, value := range s.things {
		lines = append(lines, "thing "+name+" "+value)
	}
	toy := s.toy()
	lines = append(lines, fmt.Sprint("finalizers ", toy.Finalizers), fmt.Sprint("observed ", toy.Status.ObservedGeneration))
	for _, c := range toy.Status.Conditions {
		lines = append(lines, fmt.Sprintf("%s=%s %s %s %d", c.Type, c.Status, c.Reason, c.Message, c.ObservedGeneration))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// firsts lists the parts in the order in which a verb first happened to them.
func firsts(writes []string, verbs ...string) []string {
	var parts []string
	for _, write := range writes {
		words := strings.Fields(write)
		if slices.Contains(verbs, words[0]) && !slices.Contains(parts, words[len(words)-1]) {
			parts = append(parts, words[len(words)-1])
		}
	}
	return parts
}

// checkTeardown fails unless the parts that were there were torn down in the reverse of the list's
// order, and the finalizer went last.
func checkTeardown(t *rapid.T, s story, writes []string, there []string) {
	torn := firsts(writes, "delete", "unmake")
	var reversed []string
	for _, temper := range slices.Backward(s.tempers) {
		if slices.Contains(there, strings.ToLower(temper.name)) {
			reversed = append(reversed, strings.ToLower(temper.name))
		}
	}
	if !slices.Equal(torn, reversed) {
		t.Fatalf("torn down in the order %v, and the reverse of the list is %v; writes: %v", torn, reversed, writes)
	}
	if last := writes[len(writes)-1]; last != "unfinalize" {
		t.Fatalf("the last write was %q, and not that of the finalizer: %v", last, writes)
	}
}

func (s *stage) there() []string {
	var names []string
	for _, left := range s.left() {
		words := strings.Fields(left)
		names = append(names, words[len(words)-1])
	}
	return names
}

func TestCrashesChangeNothingAboutTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Given a story, and how it ends if the engine is left in peace
		s := stories().Draw(t, "story")
		undisturbed := open(s, nil)
		undisturbed.live(t)
		if !slices.Contains(undisturbed.states(), "Ready=True/Ready") {
			t.Fatalf("the undisturbed Toy is not Ready: %v", undisturbed.states())
		}
		if len(s.deeds) == 0 {
			made := firsts(undisturbed.writes, "create", "make")
			var listed []string
			for _, temper := range s.tempers {
				listed = append(listed, strings.ToLower(temper.name))
			}
			if !slices.Equal(made, listed) {
				t.Fatalf("made in the order %v, and the list is %v", made, listed)
			}
		}

		// When the engine is stopped at some instants
		disturbed := open(s, s.crashes)
		disturbed.live(t)

		// Then it ends in the same way, and there it writes nothing more
		if got, want := disturbed.ending(), undisturbed.ending(); got != want {
			t.Fatalf("it ended in\n%s\nand undisturbed in\n%s", got, want)
		}
		writes := len(disturbed.writes)
		if _, err := disturbed.pass(t); err != nil || len(disturbed.writes) != writes {
			t.Fatalf("at the fixed point it writes %v (error: %v)", disturbed.writes[writes:], err)
		}

		// When it is deleted, and the engine is stopped again, nothing is left in the end
		there := disturbed.there()
		disturbed.die(t, s.teardownCrashes)
		if left := disturbed.left(); len(left) > 0 {
			t.Fatalf("%v is left; writes: %v", left, disturbed.writes)
		}
		checkTeardown(t, s, disturbed.writes[writes:], there)
	})
}

// TestAToyDeletedAtAnyInstantGoes deletes it in the middle of its making, and crashes besides.
func TestAToyDeletedAtAnyInstantGoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Given a story, of which some ticks are played
		s := stories().Draw(t, "story")
		stage := open(s, s.crashes)
		for range rapid.IntRange(0, horizon).Draw(t, "ticks") {
			stage.perform()
			if !s.lags || stage.now%2 == 0 {
				stage.sync()
			}
			_, _ = stage.pass(t)
			stage.tick()
		}

		// When the Toy is deleted
		stage.die(t, s.teardownCrashes)

		// Then nothing is left
		if left := stage.left(); len(left) > 0 {
			t.Fatalf("%v is left; writes: %v", left, stage.writes)
		}
	})
}
