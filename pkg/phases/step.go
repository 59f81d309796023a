package phases

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
)

// Step is a phase that is not a Kubernetes object: a cloud's resource, a protocol's handshake. Every
// function must be safe to repeat after a crash at any instant within it.
type Step[S any] struct {
	// Name of the phase, such as KeyAccess.
	Name string
	// Configured says whether the spec of the object asks for the phase. Optional. One that it does not ask for is
	// undone, if Undo is set, until nothing is left of it, and has no condition then.
	Configured func(scope S) bool
	// Observe only reads. It answers [Done] if there is nothing to do, [Missing] if there is, and [Wait]
	// or [Stalled] if nothing can be done now.
	Observe func(ctx context.Context, scope S) (Observation, error)
	// Ensure writes, after Observe has answered Missing. Optional for a step that only observes.
	Ensure func(ctx context.Context, scope S) (Verdict, error)
	// Planned stands for Ensure in a plan: it only changes the scope, as if Ensure had succeeded at once, so that the plan
	// also names what follows. Optional: without it a plan ends with the step.
	Planned func(scope S) Verdict
	// Undo takes back what Ensure did and answers Done when it is observed to be gone. It is called until
	// then. Optional for a step that leaves nothing behind.
	Undo func(ctx context.Context, scope S) (Verdict, error)
}

// PhaseName implements [Phase].
func (s Step[S]) PhaseName() string { return s.Name }

// Declare implements [Phase].
func (s Step[S]) Declare(*runtime.Scheme) (Declaration[S], error) {
	switch {
	case s.Observe == nil:
		return Declaration[S]{}, errors.New("Observe is nil")
	case s.Undo != nil && s.Ensure == nil:
		return Declaration[S]{}, errors.New("it has an Undo and no Ensure: nothing to undo")
	}
	d := Declaration[S]{Next: s.next, Observe: s.observe}
	if s.Undo != nil {
		d.Undo = s.undo
	}
	return d, nil
}

// observe keeps the condition of a step that is turned off until Undo has observed that nothing is left.
//
//nolint:unparam // the signature is that of a Question
func (s Step[S]) observe(_ context.Context, p Reconcile[S]) (Next, error) {
	if s.isOff(p) {
		return NotConfigured(), nil
	}
	return nil, nil
}

// isOff says whether the object does not ask for the step and nothing of it is left.
func (s Step[S]) isOff(p Reconcile[S]) bool {
	return !s.isConfigured(p) && (s.Undo == nil || !p.MayHaveLeft(s.Name))
}

func (s Step[S]) isConfigured(p Reconcile[S]) bool {
	return s.Configured == nil || s.Configured(p.Scope)
}

func (s Step[S]) next(ctx context.Context, p Reconcile[S]) (Next, error) {
	if !s.isConfigured(p) {
		return s.turnOff(p), nil
	}
	observed, err := s.Observe(ctx, p.Scope)
	if err != nil {
		return nil, err
	}
	if missing, ok := observed.(MissingObservation); ok {
		return s.ensure(p, missing)
	}
	verdict, _ := observed.(Verdict)
	return verdict, nil
}

func (s Step[S]) ensure(p Reconcile[S], missing MissingObservation) (Next, error) {
	if s.Ensure == nil {
		return nil, fmt.Errorf("the step %s observed that it has to %s, and has no Ensure", s.Name, missing.message)
	}
	do := Do{Action: ActionEnsure, What: missing.message, Reason: missing.reason,
		Func: func(ctx context.Context) (Verdict, error) { return s.Ensure(ctx, p.Scope) }}
	if s.Planned != nil {
		do.Planned = func() Verdict { return s.Planned(p.Scope) }
	}
	if wasDone(p, s.Name) {
		do.Drifts = missing.drifts
	}
	return do, nil
}

// turnOff undoes a step that the object does not ask for, until nothing is left of it.
func (s Step[S]) turnOff(p Reconcile[S]) Next {
	if s.isOff(p) {
		return NotConfigured()
	}
	return Do{Action: ActionUndo, What: s.Name, Reason: ReasonPruning, Func: func(ctx context.Context) (Verdict, error) {
		verdict, err := s.Undo(ctx, p.Scope)
		if err == nil && verdict != nil && verdict.IsDone() {
			return NotConfigured(), nil
		}
		return verdict, err
	}}
}

//nolint:unparam // the signature is that of a Question
func (s Step[S]) undo(_ context.Context, p Reconcile[S]) (Next, error) {
	return Do{Action: ActionUndo, What: s.Name, Reason: ReasonTerminating,
		Func: func(ctx context.Context) (Verdict, error) { return s.Undo(ctx, p.Scope) }}, nil
}
