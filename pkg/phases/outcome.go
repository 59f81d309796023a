package phases

import (
	"errors"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// outcome is what one pass came to.
type outcome[S any] struct {
	pass *pass[S]
	// verdicts of the phases that ran, in the order of the list; while deleting, one for each
	// phase, of which those that were not reached are the zero value.
	verdicts  []Verdict
	err       error
	deleting  bool
	suspended bool
	// putBack was put back by a pass before, whose status could not be written.
	putBack []ObservedDrift
	// gone: the teardown is complete, and the object is about to vanish.
	gone bool
}

// corrected are the drifts that the pass has put back.
func (o *outcome[S]) corrected() []ObservedDrift {
	return slices.DeleteFunc(o.drifts(), func(d ObservedDrift) bool { return !d.Corrected })
}

// retryable is the error of the pass if trying again may help.
func (o *outcome[S]) retryable() error {
	if o.err == nil {
		return nil
	}
	var reasoner conditionReasoner
	if errors.As(o.err, &reasoner) && reasoner.Permanent() {
		return nil
	}
	return o.err
}

// result tells controller-runtime when to come again. An error is retried with backoff; a stalled
// object is not retried; otherwise the smallest wait wins.
func (o *outcome[S]) result() (reconcile.Result, error) {
	if err := o.retryable(); err != nil {
		return reconcile.Result{}, err
	}
	var smallest time.Duration
	for _, verdict := range o.verdicts {
		if after := verdict.After(); after > 0 && (smallest == 0 || after < smallest) {
			smallest = after
		}
	}
	return reconcile.Result{RequeueAfter: smallest}, nil
}

// PlannedPhase is what a plan says of one phase.
type PlannedPhase struct {
	Name string
	// Changes that the phase would make.
	Changes []Change
	// Verdict that it would come to; the zero value if an earlier phase gates it.
	Verdict Verdict
	// Err is what would fail.
	Err error
}

// Plan is what a pass would do.
type Plan struct {
	Phases []PlannedPhase
}

// Changes lists all that the plan would change, in order.
func (p Plan) Changes() []Change {
	var all []Change
	for _, phase := range p.Phases {
		all = append(all, phase.Changes...)
	}
	return all
}

// String is a table for people: a line for each phase and, below it, its changes.
func (p Plan) String() string {
	var b strings.Builder
	for _, phase := range p.Phases {
		b.WriteString(phase.Name + ": " + phase.Verdict.String() + "\n")
		for _, change := range phase.Changes {
			b.WriteString("  " + change.String() + "\n")
		}
	}
	return b.String()
}

func (o *outcome[S]) plan() Plan {
	plan := Plan{}
	for i, slot := range o.pass.slots {
		planned := PlannedPhase{Name: slot.name}
		if i < len(o.verdicts) {
			planned.Verdict = o.verdicts[i]
		}
		for _, change := range o.pass.changes {
			if change.Phase == planned.Name {
				planned.Changes = append(planned.Changes, change)
			}
		}
		plan.Phases = append(plan.Phases, planned)
	}
	if gate := o.gate(); gate >= 0 {
		plan.Phases[gate].Err = o.err
	}
	return plan
}
