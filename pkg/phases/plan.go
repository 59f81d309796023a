package phases

import "strings"

// PlannedPhase is what a plan says of one phase.
type PlannedPhase struct {
	Name string
	// Changes that the phase would make.
	Changes []Change
	// Verdict that it would come to; nil if an earlier phase gates it.
	Verdict Verdict
	// Err is what would fail.
	Err error
}

// Plan is what a reconcile would do.
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
		state := "not reached"
		if phase.Verdict != nil {
			state = phase.Verdict.String()
		}
		b.WriteString(phase.Name + ": " + state + "\n")
		for _, change := range phase.Changes {
			b.WriteString("  " + change.String() + "\n")
		}
	}
	return b.String()
}

func (o *outcome) plan() Plan {
	gate, _ := o.gate()
	plan := Plan{}
	for _, p := range o.phases {
		planned := PlannedPhase{Name: p.name, Verdict: p.verdict}
		for _, change := range o.changes {
			if change.Phase == p.name {
				planned.Changes = append(planned.Changes, change)
			}
		}
		if p.name == gate {
			planned.Err = o.err
		}
		plan.Phases = append(plan.Phases, planned)
	}
	return plan
}
