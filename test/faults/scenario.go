package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Scenario is a sequence of user actions. Only the last step is disturbed.
type Scenario struct {
	// Name identifies the scenario among those of the same kinds, such as create.
	Name string
	// Kinds are the kinds in the environment.
	Kinds []string
	// Given are the steps before the disturbance. Each is awaited.
	Given []Step
	// When is the step that is disturbed.
	When Step
	// Races is true if the number of creates and deletes depends on when the manager sees the user's
	// action. Then each object must be created at most once and deleted as often as created.
	Races bool
	// Unavoidable reports whether a crash at these calls necessarily causes the difference. Optional.
	Unavoidable func(difference string, crashes []Call) bool
}

// Step is a user action and its expected result.
type Step struct {
	// Do performs the action.
	Do func(context.Context, *Environment) error
	// Done reports whether the expected result exists.
	Done func(*Environment) bool
	// During is called at every call of a manager and can inject a fault. Optional.
	During func(*Environment, Call) Fault
}

// ID returns, for example, "AppService/create".
func (s Scenario) ID() string { return strings.Join(s.Kinds, "+") + "/" + s.Name }

// Baseline is the result of a scenario without faults.
type Baseline struct {
	Scenario Scenario
	// Given are the states after each given step, and Then is the final state.
	Given []Snapshot
	Then  Snapshot
	// Calls are the calls of the managers after the given steps.
	Calls []Call
	// Caches are the resources that the managers cache.
	Caches []string
	// Versions are those of all objects. From is the latest revision before the last step.
	Versions []Version
	From     int64
}

// Mutations returns the mutating calls.
func (b *Baseline) Mutations() []Call {
	var mutations []Call
	for _, call := range b.Calls {
		if call.Number > 0 {
			mutations = append(mutations, call)
		}
	}
	return mutations
}

const (
	// Timeout limits every wait of a run, also on a busy machine.
	Timeout = 90 * time.Second
	// settleTime is longer than any manager defers a write.
	settleTime = 2500 * time.Millisecond
)

// errNotReached means that an undisturbed step timed out.
var errNotReached = errors.New("the step was not done in time")

// Undisturbed runs the scenario without faults and records the baseline.
func (c *Cluster) Undisturbed(ctx context.Context, s Scenario) (*Baseline, error) {
	env, err := c.NewEnvironment(ctx, s.Kinds...)
	if err != nil {
		return nil, err
	}
	baseline, err := env.recordBaseline(ctx, s)
	if err != nil {
		err = fmt.Errorf("%s, undisturbed: %w\n%s", s.ID(), err, env.Report())
	}
	return baseline, errors.Join(err, env.Close())
}

func (env *Environment) recordBaseline(ctx context.Context, s Scenario) (*Baseline, error) {
	m, err := env.Start()
	if err != nil {
		return nil, err
	}
	b := &Baseline{Scenario: s}
	for i, step := range s.Given {
		if err := env.runUndisturbed(ctx, m, step); err != nil {
			return nil, fmt.Errorf("given step %d: %w", i+1, err)
		}
		b.Given = append(b.Given, env.Snapshot())
	}
	calls := len(env.Calls())
	if versions := env.Versions(); len(versions) > 0 {
		b.From = versions[len(versions)-1].Revision
	}
	if err := env.runUndisturbed(ctx, m, s.When); err != nil {
		return nil, err
	}
	b.Then, b.Calls, b.Versions, b.Caches = env.Snapshot(), env.Calls()[calls:], env.Versions(), env.caches()
	if violations := env.Violations(); len(violations) > 0 {
		return nil, errors.New(strings.Join(violations, "\n"))
	}
	if err := env.VerifyQuiet(); err != nil {
		return nil, err
	}
	if differences := env.Snapshot().Diff(b.Then); len(differences) > 0 {
		return nil, fmt.Errorf("the state changed after convergence: %s", strings.Join(differences, "\n"))
	}
	return b, nil
}

// caches returns the resources that the managers have listed for their caches.
func (env *Environment) caches() []string {
	var resources []string
	for _, call := range env.Calls() {
		if call.Cached && !slices.Contains(resources, call.Resource) {
			resources = append(resources, call.Resource)
		}
	}
	slices.Sort(resources)
	return resources
}

// runStep performs a step and waits for its result.
func (env *Environment) runStep(ctx context.Context, step Step) error {
	if step.During != nil {
		env.SetPlan(PlanFunc(func(call Call) Fault { return step.During(env, call) }))
		defer env.SetPlan(nil)
	}
	if err := step.Do(ctx, env); err != nil {
		return err
	}
	if !env.WaitUntil(Timeout, func() bool { return step.Done(env) }) {
		return errNotReached
	}
	return nil
}

// runUndisturbed performs a step and waits until its result exists and nobody has more work. On a busy machine the status
// can be that of before the action for long, and the simulated controllers can be slower than settleTime.
func (env *Environment) runUndisturbed(ctx context.Context, m *Manager, step Step) error {
	if err := env.runStep(ctx, step); err != nil {
		return err
	}
	if !env.WaitUntil(Timeout, func() bool { return env.isIdle(m) && step.Done(env) }) {
		return errNotReached
	}
	return nil
}

// WaitIdle waits until neither the manager nor the simulated controllers have more work.
func (env *Environment) WaitIdle(m *Manager) {
	env.WaitUntil(Timeout, func() bool { return env.isIdle(m) })
}

func (env *Environment) isIdle(m *Manager) bool {
	return m.IdleFor() > settleTime && time.Since(env.record.quietSince()) > settleTime && env.controllers.isIdle()
}
