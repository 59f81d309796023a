package faults_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/fixpoint-dev/fixpoint/test/faults"
)

// TestCrashPairs crashes the manager and then its successor, at a share of all pairs of calls.
func TestCrashPairs(t *testing.T) {
	t.Parallel()
	sum, share := &tally{}, shareOf(t, "FAULTS_PAIRS", defaultPairs)
	t.Cleanup(func() { t.Logf("pairs of crashes: %s; %s", sum, share) })
	forEachScenario(t, faults.Scenarios(), func(t *testing.T, b *faults.Baseline) {
		calls := len(b.Mutations())
		modes := faults.CrashModes
		for first := 1; first <= calls; first++ {
			// After the first crash, about as many calls remain as without it, or one or two more.
			for second := 1; second <= calls-first+2; second++ {
				name := fmt.Sprintf("%d-then-%d", first, second)
				if !share.includes(t, name) {
					continue
				}
				random := share.random(t, name)
				steps := []faults.CrashStep{
					{Call: first, Mode: modes[random.IntN(len(modes))]}, {Call: second, Mode: modes[random.IntN(len(modes))]},
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					d, plan := faults.Crashing(steps...)
					o := testCluster.Run(context.Background(), b, d)
					sum.add(o, plan.Left() == 0, o.Crashes...)
					expectConvergent(t, o)
				})
			}
		}
	})
}
