package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// Disturbance is what happens to the managers while the user does what the scenario is about.
type Disturbance struct {
	// Name is in the line that replays it.
	Name string
	// Plan decides about calls. Optional.
	Plan Plan
	// Begin is called when all that is given is there, before the user acts. Optional.
	Begin func(*World, *Manager) error
	// Restart starts the manager after a crash; with fresh caches if it is nil.
	Restart func(*World) (*Manager, error)
	// Meanwhile runs beside the scenario from the moment that the user acts. Optional.
	Meanwhile func(context.Context, *World) error
	// Over says that the disturbance is over, before which nothing is judged. Optional.
	Over func() bool
	// Crashes are the calls at which a manager was crashed so far, or that failed. Optional.
	Crashes func() []Call
}

// Crashing is the disturbance of a manager that crashes, and of the next one, if there are two steps.
func Crashing(steps ...CrashStep) (Disturbance, *CrashAt) {
	plan := NewCrashAt(steps...)
	names := make([]string, 0, len(steps))
	for _, step := range steps {
		names = append(names, step.String())
	}
	return Disturbance{Name: strings.Join(names, ","), Plan: plan, Crashes: plan.Hits}, plan
}

// Outcome is what came of a disturbed run.
type Outcome struct {
	// Failures say in words what is not as in the undisturbed run, or must never be.
	Failures []string
	// Report is the state of the world, if something failed.
	Report string
	// Crashes are the calls at which managers crashed, or that failed.
	Crashes []Call
	// Calls is how many calls managers made after what was given.
	Calls int
	// Took is how long the run took, and Settled how long it took from the user's act to the end state.
	Took, Settled time.Duration
}

// Run runs the scenario of a baseline under a disturbance, and holds it against the baseline.
func (b *Bench) Run(ctx context.Context, baseline *Baseline, d Disturbance) Outcome {
	began := time.Now()
	o := Outcome{}
	w, err := b.NewWorld(ctx, baseline.Scenario.Kinds...)
	if err != nil {
		return Outcome{Failures: []string{err.Error()}}
	}
	if err := w.run(ctx, baseline, d, &o); err != nil {
		o.Failures = append(o.Failures, err.Error())
	}
	if d.Crashes != nil {
		o.Crashes = d.Crashes()
	}
	o.Failures = append(o.Failures, w.Violations()...)
	if len(o.Failures) > 0 {
		o.Report = w.Report()
	}
	if err := w.Close(); err != nil {
		o.Failures = append(o.Failures, err.Error())
	}
	o.Took = time.Since(began)
	return o
}

func (w *World) run(ctx context.Context, baseline *Baseline, d Disturbance, o *Outcome) error {
	m, err := w.Start()
	if err != nil {
		return err
	}
	if err := w.give(ctx, baseline, m); err != nil {
		return err
	}
	if d.Begin != nil {
		if err := d.Begin(w, m); err != nil {
			return err
		}
	}
	calls, began := len(w.Calls()), time.Now()
	err = w.disturb(ctx, baseline, d, m)
	o.Settled, o.Calls = time.Since(began), len(w.Calls())-calls
	w.SetPlan(nil)
	if err != nil {
		return err
	}
	if err := w.Quiet(); err != nil {
		return err
	}
	return w.stays(baseline, d)
}

// give does what is given, undisturbed.
func (w *World) give(ctx context.Context, baseline *Baseline, m *Manager) error {
	for i, step := range baseline.Scenario.Given {
		if err := w.take(ctx, step); err != nil {
			return fmt.Errorf("what is given (%d): %w", i+1, err)
		}
		if err := w.reach(step, baseline.Given[i], nil, func() (*Manager, error) { return m, nil }); err != nil {
			return fmt.Errorf("what is given (%d): %w", i+1, err)
		}
	}
	return nil
}

// disturb does what the scenario is about, with the disturbance, until it has come to its end.
func (w *World) disturb(ctx context.Context, baseline *Baseline, d Disturbance, m *Manager) error {
	when := baseline.Scenario.When
	w.SetPlan(planOf(w, when, d))
	if err := when.Do(ctx, w); err != nil {
		return err
	}
	wait := w.meanwhile(ctx, d)
	return w.reach(when, baseline.Then, baseline.tolerated(d), func() (*Manager, error) {
		if m.IsCrashed() {
			var err error
			if m, err = w.restart(d); err != nil {
				return nil, err
			}
		}
		return m, wait()
	})
}

// tolerated says which differences are in order after a disturbance.
func (b *Baseline) tolerated(d Disturbance) func(difference string) bool {
	s := b.Scenario
	return func(difference string) bool {
		return s.Races && isCount(difference) ||
			s.Unavoidable != nil && d.Crashes != nil && s.Unavoidable(difference, d.Crashes())
	}
}

// stays says what has changed at the end, when nothing may change any more.
func (w *World) stays(baseline *Baseline, d Disturbance) error {
	end := w.Snapshot()
	if differences := slices.DeleteFunc(end.Diff(baseline.Then), baseline.tolerated(d)); len(differences) > 0 {
		return fmt.Errorf("it did not stay as it was: %s", strings.Join(differences, "\n"))
	}
	if !baseline.Scenario.When.Done(w) {
		return errors.New("what the user wants did not stay")
	}
	if odd := end.odd(); baseline.Scenario.Races && len(odd) > 0 {
		return errors.New(strings.Join(odd, "\n"))
	}
	return nil
}

// errGoesOn says that a disturbance is not over yet.
var errGoesOn = errors.New("the disturbance goes on")

// meanwhile runs what happens beside the scenario. What it returns fails for as long as that goes on,
// and if it has failed.
func (w *World) meanwhile(ctx context.Context, d Disturbance) (over func() error) {
	ended := make(chan error, 1)
	if d.Meanwhile == nil {
		ended <- nil
	} else {
		go func() { ended <- d.Meanwhile(ctx, w) }()
	}
	result := errGoesOn
	return func() error {
		if errors.Is(result, errGoesOn) {
			select {
			case result = <-ended:
			default:
			}
		}
		if result == nil && d.Over != nil && !d.Over() {
			return errGoesOn
		}
		return result
	}
}

func planOf(w *World, step Step, d Disturbance) Plan {
	return PlanFunc(func(call Call) Fault {
		if step.During != nil {
			if fault := step.During(w, call); !fault.IsNone() {
				return fault
			}
		}
		if d.Plan == nil {
			return Fault{}
		}
		return d.Plan.Decide(call)
	})
}

func (w *World) restart(d Disturbance) (*Manager, error) {
	if d.Restart != nil {
		return d.Restart(w)
	}
	return w.Start()
}

// reach waits until the step is done and the world is as it is undisturbed, but for what is tolerated.
// The manager is tended at every look; as long as the disturbance goes on, nothing is judged. What a
// manager puts off, as a second look at a status, is awaited: a state on the way may be like the last.
func (w *World) reach(step Step, undisturbed Snapshot, tolerated func(string) bool, tend func() (*Manager, error)) error {
	differences := []string{"what the user wants is not there"}
	var failure error
	seen := -1
	if w.Await(Patience, func() bool {
		m, err := tend()
		if err != nil {
			if !errors.Is(err, errGoesOn) {
				failure = err
			}
			return failure != nil
		}
		if !step.Done(w) || m.IdleFor() < putOff {
			return false
		}
		// The cloud changes without an event.
		if count := w.history.count(); count != seen || w.Cloud != nil {
			seen = count
			differences = w.Snapshot().Diff(undisturbed)
			if tolerated != nil {
				differences = slices.DeleteFunc(differences, tolerated)
			}
		}
		return len(differences) == 0
	}) {
		return failure
	}
	return fmt.Errorf("divergent after %s:\n  %s", Patience, strings.Join(differences, "\n  "))
}

// putOff is longer than what a manager puts off by itself when nothing is wrong.
const putOff = phases.ProgressInterval + 200*time.Millisecond

// Quiet ends all managers and looks at everything once more with a fresh one, which must find nothing to
// do.
func (w *World) Quiet() error {
	w.mu.Lock()
	managers := slices.Clone(w.managers)
	w.mu.Unlock()
	for _, m := range managers {
		m.Crash()
	}
	primaries := w.primaries()
	if len(primaries) == 0 {
		return nil
	}
	before := len(w.Calls())
	m, err := w.Start()
	if err != nil {
		return err
	}
	const idle = 250 * time.Millisecond
	looked := w.Await(Patience, func() bool {
		for _, name := range primaries {
			if m.Looked(name) == 0 {
				return false
			}
		}
		return m.IdleFor() > idle
	})
	if !looked {
		return fmt.Errorf("a fresh manager did not look at all of %q", primaries)
	}
	for _, call := range w.Calls()[before:] {
		if call.Mutates() {
			return fmt.Errorf("not quiet: a fresh manager that finds everything as it should be sent %s: %s", call, call.Body)
		}
	}
	return nil
}

// primaries are the names of the world's objects of the three kinds.
func (w *World) primaries() []string {
	w.history.mu.Lock()
	defer w.history.mu.Unlock()
	var names []string
	for id := range w.history.live {
		if isPrimary(id.Kind) {
			names = append(names, id.Name)
		}
	}
	slices.Sort(names)
	return names
}
