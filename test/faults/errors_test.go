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
const maxCallsPerSecond = 90

// TestFailingCalls lets each sort of call fail in each way, once and for a second: what the user wants
// comes about once that is over, and until then nobody calls without end.
func TestFailingCalls(t *testing.T) {
	sum, share := &tally{}, shareOf(t, "FAULTS_ERRORS", defaultErrors)
	t.Cleanup(func() { t.Logf("failing calls: %s; %s", sum, share) })
	forEachScenario(t, representative(faults.Scenarios()), func(t *testing.T, b *faults.Baseline) {
		for _, failure := range b.CallFailures() {
			name := strings.ReplaceAll(failure.String(), " ", "-")
			if !share.includes(t, name) {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				d, met := faults.FailingCalls(failure)
				o := testCluster.Run(context.Background(), b, d)
				sum.add(o, met() > 0)
				sum.recordCalls(met())
				expectConvergent(t, o)
				if met() > maxCallsPerSecond {
					t.Errorf("%s was tried %d times while it failed, and at most %d are in order", failure.Class, met(), maxCallsPerSecond)
				}
			})
		}
		for _, resource := range b.Caches {
			for name, expired := range map[string]bool{"cut": false, "expired": true} {
				if !share.includes(t, name+"-"+resource) {
					continue
				}
				t.Run(name+"-"+resource, func(t *testing.T) {
					t.Parallel()
					o := testCluster.Run(context.Background(), b, faults.CutWatches(resource, expired))
					sum.add(o, true)
					expectConvergent(t, o)
				})
			}
		}
	})
}

// ofInterest are the scenarios in which every sort of call is made: the others make them in another
// order.
func representative(scenarios []faults.Scenario) []faults.Scenario {
	names := []string{"create", "options-off", "drift", "rotation", "vault", "drift-key", "delete", "delete-policy", "create-policy"}
	return slices.DeleteFunc(scenarios, func(s faults.Scenario) bool { return !slices.Contains(names, s.Name) })
}
