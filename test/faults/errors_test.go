package faults_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/fixpoint-dev/fixpoint/test/faults"
)

// maxCallsPerSecond limits the attempts of a failing call. Reconciles that conflict with a change of the
// object retry after 50 ms, in three attempts; all others back off.
const maxCallsPerSecond = 90

// TestFailingCalls fails each class of calls in each mode, once and for a second. The scenario must
// converge afterwards, and no call may be retried without backoff.
func TestFailingCalls(t *testing.T) {
	t.Parallel()
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
					t.Errorf("%s was called %d times while it failed, want at most %d", failure.Class, met(), maxCallsPerSecond)
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

// representative selects the scenarios that together make every class of calls.
func representative(scenarios []faults.Scenario) []faults.Scenario {
	names := []string{"create", "options-off", "drift", "rotation", "vault", "drift-key", "delete", "delete-policy", "create-policy"}
	return slices.DeleteFunc(scenarios, func(s faults.Scenario) bool { return !slices.Contains(names, s.Name) })
}
