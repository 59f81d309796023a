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

// Disturbance is what happens to the managers during the last step of a scenario.
type Disturbance struct {
	// Name is part of the command that replays the run.
	Name string
	// Plan injects faults into calls. Optional.
	Plan Plan
	// Begin is called after the given steps, before the user acts. Optional.
	Begin func(*Environment, *Manager) error
	// Restart starts the manager after a crash. If nil, it starts with fresh caches.
	Restart func(*Environment) (*Manager, error)
	// Meanwhile runs concurrently with the last step. Optional.
	Meanwhile func(context.Context, *Environment) error
	// Over reports whether the disturbance has ended. Nothing is compared before. Optional.
	Over func() bool
	// KeepEvents sends the managers' Events to the API server. Otherwise they are discarded, because they are more
	// than half of its load.
	KeepEvents bool
	// Crashes returns the calls at which managers crashed, or that failed, so far. Optional.
	Crashes func() []Call
}

// Crashing returns the disturbance that crashes the manager, and with two steps also its successor.
func Crashing(steps ...CrashStep) (Disturbance, *CrashAt) {
	plan := NewCrashAt(steps...)
	names := make([]string, 0, len(steps))
	for _, step := range steps {
		names = append(names, step.String())
	}
	return Disturbance{Name: strings.Join(names, ","), Plan: plan, Crashes: plan.Hits}, plan
}

// Outcome is the result of a disturbed run.
type Outcome struct {
	// Failures lists differences from the undisturbed run and violated invariants.
	Failures []string
	// Report describes the environment if the run failed.
	Report string
	// Crashes are the calls at which managers crashed, or that failed.
	Crashes []Call
	// Calls is the number of calls after the given steps.
	Calls int
	// Took is the duration of the whole run; Settled is the duration from the user's action to the final state.
	Took, Settled time.Duration
}

// Run runs the scenario of a baseline under a disturbance and compares it with the baseline.
func (c *Cluster) Run(ctx context.Context, baseline *Baseline, d Disturbance) Outcome {
	began := time.Now()
	o := Outcome{}
	env, err := c.NewEnvironment(ctx, baseline.Scenario.Kinds...)
	if err != nil {
		return Outcome{Failures: []string{err.Error()}}
	}
	env.DiscardEvents = !d.KeepEvents
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

// runGiven runs the given steps without faults.
func (env *Environment) runGiven(ctx context.Context, baseline *Baseline, m *Manager) error {
	for i, step := range baseline.Scenario.Given {
		if err := env.runStep(ctx, step); err != nil {
			return fmt.Errorf("given step %d: %w", i+1, err)
		}
		if err := env.converge(step, baseline.Given[i], nil, func() (*Manager, error) { return m, nil }); err != nil {
			return fmt.Errorf("given step %d: %w", i+1, err)
		}
	}
	return nil
}

// runWhen runs the last step with the disturbance until the environment has converged.
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

// tolerated returns a function that reports whether a difference is acceptable after a disturbance.
func (b *Baseline) tolerated(d Disturbance) func(difference string) bool {
	s := b.Scenario
	return func(difference string) bool {
		return s.Races && isCountDifference(difference) ||
			s.Unavoidable != nil && d.Crashes != nil && s.Unavoidable(difference, d.Crashes())
	}
}

// verifyUnchanged returns an error if the final state has changed again.
func (env *Environment) verifyUnchanged(baseline *Baseline, d Disturbance) error {
	end := env.Snapshot()
	if differences := slices.DeleteFunc(end.Diff(baseline.Then), baseline.tolerated(d)); len(differences) > 0 {
		return fmt.Errorf("the state changed after convergence: %s", strings.Join(differences, "\n"))
	}
	if !baseline.Scenario.When.Done(env) {
		return errors.New("the result of the last step did not last")
	}
	if unbalanced := end.unbalancedCounts(baseline.Then); baseline.Scenario.Races && len(unbalanced) > 0 {
		return errors.New(strings.Join(unbalanced, "\n"))
	}
	return nil
}

// errDisturbed means that a disturbance has not ended yet.
var errDisturbed = errors.New("the disturbance has not ended")

// runMeanwhile starts the concurrent part of a disturbance. The returned function fails until that part
// has ended, and if it failed.
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

// converge waits until the step is done and the environment equals the undisturbed one, except for
// tolerated differences. It calls nextManager before every check, and checks nothing while that returns
// errDisturbed. It also waits for the writes that a manager defers, because an intermediate state can
// equal the final one.
func (env *Environment) converge(step Step, undisturbed Snapshot, tolerated func(string) bool, nextManager func() (*Manager, error)) error {
	differences := []string{"the result of the step does not exist"}
	var failure error
	seen := -1
	if env.WaitUntil(Timeout, func() bool {
		m, err := nextManager()
		if err != nil {
			if !errors.Is(err, errDisturbed) {
				failure = err
			}
			return failure != nil
		}
		if !step.Done(env) || !env.reconciledBy(m) || m.IdleFor() < maxDeferral {
			return false
		}
		// The cloud changes without events.
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
	return fmt.Errorf("not converged after %s:\n  %s", Timeout, strings.Join(differences, "\n  "))
}

// maxDeferral is longer than a manager defers a status write without an error.
const maxDeferral = phases.ProgressInterval + 200*time.Millisecond

// VerifyQuiet stops all managers and starts a fresh one, which must reconcile every object without a write.
func (env *Environment) VerifyQuiet() error {
	env.mu.Lock()
	managers := slices.Clone(env.managers)
	env.mu.Unlock()
	for _, m := range managers {
		m.Crash()
	}
	owners := env.ownerNames()
	if len(owners) == 0 {
		return nil
	}
	before := len(env.Calls())
	m, err := env.Start()
	if err != nil {
		return err
	}
	const idle = 250 * time.Millisecond
	reconciled := env.WaitUntil(Timeout, func() bool {
		return env.reconciledBy(m) && m.IdleFor() > idle
	})
	if !reconciled {
		return fmt.Errorf("a fresh manager did not reconcile all of %q", owners)
	}
	for _, call := range env.Calls()[before:] {
		if call.Mutates() {
			return fmt.Errorf("not quiet: a fresh manager sent %s: %s", call, call.Body)
		}
	}
	return nil
}

// reconciledBy reports whether a manager has reconciled every Fixpoint object. A manager that is still starting is idle
// without having done its work.
func (env *Environment) reconciledBy(m *Manager) bool {
	return !slices.ContainsFunc(env.ownerNames(), func(name string) bool { return m.Reconciles(name) == 0 })
}

// ownerNames returns the names of the Fixpoint objects in the environment.
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
