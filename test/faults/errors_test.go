package faults_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/fixpoint-dev/fixpoint/test/faults"
)

// mostCalls is how often a call may be made in a second in which each fails. Passes over an object
// that changed under them come back after 50 ms, and make three attempts; all others back off.
const mostCalls = 90

// TestFailingCalls lets each sort of call fail in each way, once and for a second: what the user wants
// comes about once that is over, and until then nobody calls without end.
func TestFailingCalls(t *testing.T) {
	sum, share := &tally{}, shareOf(t, "FAULTS_ERRORS", errorsInCI)
	t.Cleanup(func() { t.Logf("failing calls: %s; %s", sum, share) })
	forEachScenario(t, ofInterest(faults.Scenarios()), func(t *testing.T, b *faults.Baseline) {
		for _, trouble := range b.Troubles() {
			name := strings.ReplaceAll(trouble.String(), " ", "-")
			if !share.takes(t, name) {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				d, met := faults.Troubled(trouble)
				o := bench.Run(context.Background(), b, d)
				sum.add(o, met() > 0)
				sum.most(met())
				expectConvergent(t, o)
				if met() > mostCalls {
					t.Errorf("%s was tried %d times while it failed, and at most %d are in order", trouble.Class, met(), mostCalls)
				}
			})
		}
		for _, resource := range b.Caches {
			for name, expired := range map[string]bool{"cut": false, "expired": true} {
				if !share.takes(t, name+"-"+resource) {
					continue
				}
				t.Run(name+"-"+resource, func(t *testing.T) {
					t.Parallel()
					o := bench.Run(context.Background(), b, faults.CutStreams(resource, expired))
					sum.add(o, true)
					expectConvergent(t, o)
				})
			}
		}
	})
}

// ofInterest are the scenarios in which every sort of call is made: the others make them in another
// order.
func ofInterest(scenarios []faults.Scenario) []faults.Scenario {
	names := []string{"create", "options-off", "drift", "rotation", "vault", "drift-key", "delete", "delete-policy", "create-policy"}
	return slices.DeleteFunc(scenarios, func(s faults.Scenario) bool { return !slices.Contains(names, s.Name) })
}
