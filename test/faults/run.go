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
	Begin func(*Environment, *Manager) error
	// Restart starts the manager after a crash; with fresh caches if it is nil.
	Restart func(*Environment) (*Manager, error)
	// Meanwhile runs beside the scenario from the moment that the user acts. Optional.
	Meanwhile func(context.Context, *Environment) error
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
func (c *Cluster) Run(ctx context.Context, baseline *Baseline, d Disturbance) Outcome {
	began := time.Now()
	o := Outcome{}
	env, err := c.NewEnvironment(ctx, baseline.Scenario.Kinds...)
	if err != nil {
		return Outcome{Failures: []string{err.Error()}}
	}
	if err := env.run(ctx, baseline, d, &o); err != nil {
		o.Failures = append(o.Failures, err.Error())
	}
	if d.Crashes != nil {
		o.Crashes = d.Crashes()
	}
	o.Failures = append(o.Failures, env.Violations()...)
	if len(o.Failures) > 0 {
		o.Report = env.Report()
	}
	if err := env.Close(); err != nil {
		o.Failures = append(o.Failures, err.Error())
	}
	o.Took = time.Since(began)
	return o
}

func (env *Environment) run(ctx context.Context, baseline *Baseline, d Disturbance, o *Outcome) error {
	m, err := env.Start()
	if err != nil {
		return err
	}
	if err := env.runGiven(ctx, baseline, m); err != nil {
		return err
	}
	if d.Begin != nil {
		if err := d.Begin(env, m); err != nil {
			return err
		}
	}
	calls, began := len(env.Calls()), time.Now()
	err = env.runWhen(ctx, baseline, d, m)
	o.Settled, o.Calls = time.Since(began), len(env.Calls())-calls
	env.SetPlan(nil)
	if err != nil {
		return err
	}
	if err := env.VerifyQuiet(); err != nil {
		return err
	}
	return env.verifyUnchanged(baseline, d)
}

// give does what is given, undisturbed.
func (env *Environment) runGiven(ctx context.Context, baseline *Baseline, m *Manager) error {
	for i, step := range baseline.Scenario.Given {
		if err := env.runStep(ctx, step); err != nil {
			return fmt.Errorf("what is given (%d): %w", i+1, err)
		}
		if err := env.converge(step, baseline.Given[i], nil, func() (*Manager, error) { return m, nil }); err != nil {
			return fmt.Errorf("what is given (%d): %w", i+1, err)
		}
	}
	return nil
}

// disturb does what the scenario is about, with the disturbance, until it has come to its end.
func (env *Environment) runWhen(ctx context.Context, baseline *Baseline, d Disturbance, m *Manager) error {
	when := baseline.Scenario.When
	env.SetPlan(planOf(env, when, d))
	if err := when.Do(ctx, env); err != nil {
		return err
	}
	wait := env.runMeanwhile(ctx, d)
	return env.converge(when, baseline.Then, baseline.tolerated(d), func() (*Manager, error) {
		if m.IsCrashed() {
			var err error
			if m, err = env.startAfterCrash(d); err != nil {
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
		return s.Races && isCountDifference(difference) ||
			s.Unavoidable != nil && d.Crashes != nil && s.Unavoidable(difference, d.Crashes())
	}
}

// stays says what has changed at the end, when nothing may change any more.
func (env *Environment) verifyUnchanged(baseline *Baseline, d Disturbance) error {
	end := env.Snapshot()
	if differences := slices.DeleteFunc(end.Diff(baseline.Then), baseline.tolerated(d)); len(differences) > 0 {
		return fmt.Errorf("it did not stay as it was: %s", strings.Join(differences, "\n"))
	}
	if !baseline.Scenario.When.Done(env) {
		return errors.New("what the user wants did not stay")
	}
	if odd := end.unbalancedCounts(); baseline.Scenario.Races && len(odd) > 0 {
		return errors.New(strings.Join(odd, "\n"))
	}
	return nil
}

// errGoesOn says that a disturbance is not over yet.
var errDisturbed = errors.New("the disturbance goes on")

// meanwhile runs what happens beside the scenario. What it returns fails for as long as that goes on,
// and if it has failed.
func (env *Environment) runMeanwhile(ctx context.Context, d Disturbance) (over func() error) {
	ended := make(chan error, 1)
	if d.Meanwhile == nil {
		ended <- nil
	} else {
		go func() { ended <- d.Meanwhile(ctx, env) }()
	}
	result := errDisturbed
	return func() error {
		if errors.Is(result, errDisturbed) {
			select {
			case result = <-ended:
			default:
			}
		}
		if result == nil && d.Over != nil && !d.Over() {
			return errDisturbed
		}
		return result
	}
}

func planOf(env *Environment, step Step, d Disturbance) Plan {
	return PlanFunc(func(call Call) Fault {
		if step.During != nil {
			if fault := step.During(env, call); !fault.IsNone() {
				return fault
			}
		}
		if d.Plan == nil {
			return Fault{}
		}
		return d.Plan.Decide(call)
	})
}

func (env *Environment) startAfterCrash(d Disturbance) (*Manager, error) {
	if d.Restart != nil {
		return d.Restart(env)
	}
	return env.Start()
}

// reach waits until the step is done and the world is as it is undisturbed, but for what is tolerated.
// The manager is tended at every look; as long as the disturbance goes on, nothing is judged. What a
// manager puts off, as a second look at a status, is awaited: a state on the way may be like the last.
func (env *Environment) converge(step Step, undisturbed Snapshot, tolerated func(string) bool, tend func() (*Manager, error)) error {
	differences := []string{"what the user wants is not there"}
	var failure error
	seen := -1
	if env.WaitUntil(Timeout, func() bool {
		m, err := tend()
		if err != nil {
			if !errors.Is(err, errDisturbed) {
				failure = err
			}
			return failure != nil
		}
		if !step.Done(env) || m.IdleFor() < maxDeferral {
			return false
		}
		// The cloud changes without an event.
		if count := env.history.count(); count != seen || env.Cloud != nil {
			seen = count
			differences = env.Snapshot().Diff(undisturbed)
			if tolerated != nil {
				differences = slices.DeleteFunc(differences, tolerated)
			}
		}
		return len(differences) == 0
	}) {
		return failure
	}
	return fmt.Errorf("divergent after %s:\n  %s", Timeout, strings.Join(differences, "\n  "))
}

// putOff is longer than what a manager puts off by itself when nothing is wrong.
const maxDeferral = phases.ProgressInterval + 200*time.Millisecond

// Quiet ends all managers and looks at everything once more with a fresh one, which must find nothing to
// do.
func (env *Environment) VerifyQuiet() error {
	env.mu.Lock()
	managers := slices.Clone(env.managers)
	env.mu.Unlock()
	for _, m := range managers {
		m.Crash()
	}
	primaries := env.ownerNames()
	if len(primaries) == 0 {
		return nil
	}
	before := len(env.Calls())
	m, err := env.Start()
	if err != nil {
		return err
	}
	const idle = 250 * time.Millisecond
	looked := env.WaitUntil(Timeout, func() bool {
		for _, name := range primaries {
			if m.Reconciles(name) == 0 {
				return false
			}
		}
		return m.IdleFor() > idle
	})
	if !looked {
		return fmt.Errorf("a fresh manager did not look at all of %q", primaries)
	}
	for _, call := range env.Calls()[before:] {
		if call.Mutates() {
			return fmt.Errorf("not quiet: a fresh manager that finds everything as it should be sent %s: %s", call, call.Body)
		}
	}
	return nil
}

// primaries are the names of the world's objects of the three kinds.
func (env *Environment) ownerNames() []string {
	env.history.mu.Lock()
	defer env.history.mu.Unlock()
	var names []string
	for id := range env.history.live {
		if isOwnerKind(id.Kind) {
			names = append(names, id.Name)
		}
	}
	slices.Sort(names)
	return names
}
