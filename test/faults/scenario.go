package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Scenario is what a user does, from a state that is reached undisturbed to another.
type Scenario struct {
	// Name tells it from others of its kinds, such as create.
	Name string
	// Kinds that are in the world; a scenario of one kind is named after it.
	Kinds []string
	// Given is done, one after the other, and each awaited, before anything is disturbed.
	Given []Step
	// When is what is disturbed.
	When Step
	// Races is true where how far the managers come before they see what the user does is a matter of
	// moments: then things need not be created and deleted as often as undisturbed, but each at most
	// once, and deleted as often as created.
	Races bool
	// Unavoidable says of a difference that a crash at these calls cannot but make. Optional.
	Unavoidable func(difference string, crashes []Call) bool
}

// Step is something that a user does, and what comes of it.
type Step struct {
	// Do acts as a user.
	Do func(context.Context, *Environment) error
	// Done says whether what the user wants is there.
	Done func(*Environment) bool
	// During is done at each call that a manager makes meanwhile, if it says so. Optional.
	During func(*Environment, Call) Fault
}

// ID is such as AppService/create.
func (s Scenario) ID() string { return strings.Join(s.Kinds, "+") + "/" + s.Name }

// Baseline is what an undisturbed run of a scenario leads to.
type Baseline struct {
	Scenario Scenario
	// Given are the states after each step of what is given, and Then the state at the end.
	Given []Snapshot
	Then  Snapshot
	// Calls are those that the managers made after what was given.
	Calls []Call
	// Caches are the resources of which managers keep a cache.
	Caches []string
	// Versions are those of all objects, and From is the revision of the last that was there when the
	// last step began.
	Versions []Version
	From     int64
	// Took is how long the last step took.
	Took time.Duration
}

// Mutations are the mutating calls of the undisturbed run.
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
	// Patience is how long a run may take for what is bound to come, on a machine that does a lot else.
	Timeout = 90 * time.Second
	// atRest is longer than anything that a manager puts off by itself.
	settleTime = 2500 * time.Millisecond
)

// errNotThere is for a run that did not come where it should have.
var errNotReached = errors.New("it never came about")

// Undisturbed runs the scenario without a fault and notes what comes of it.
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
		if err := env.runStep(ctx, step); err != nil {
			return nil, fmt.Errorf("what is given (%d): %w", i+1, err)
		}
		env.WaitIdle(m)
		b.Given = append(b.Given, env.Snapshot())
	}
	calls, began := len(env.Calls()), time.Now()
	if versions := env.Versions(); len(versions) > 0 {
		b.From = versions[len(versions)-1].Revision
	}
	if err := env.runStep(ctx, s.When); err != nil {
		return nil, err
	}
	b.Took = time.Since(began)
	env.WaitIdle(m)
	b.Then, b.Calls, b.Versions, b.Caches = env.Snapshot(), env.Calls()[calls:], env.Versions(), env.caches()
	if violations := env.Violations(); len(violations) > 0 {
		return nil, errors.New(strings.Join(violations, "\n"))
	}
	if err := env.VerifyQuiet(); err != nil {
		return nil, err
	}
	if differences := env.Snapshot().Diff(b.Then); len(differences) > 0 {
		return nil, fmt.Errorf("it did not stay as it was: %s", strings.Join(differences, "\n"))
	}
	return b, nil
}

// caches are the resources of which the managers have listed all for their caches.
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

// take does a step and waits for what comes of it.
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

// Settle waits until a manager that is left alone has nothing more to do.
func (env *Environment) WaitIdle(m *Manager) {
	env.WaitUntil(Timeout, func() bool {
		return m.IdleFor() > settleTime && time.Since(env.record.quietSince()) > settleTime
	})
}
