package faults_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/fixpoint-dev/fixpoint/test/faults"
)

// TestCrashAtEveryCall crashes the manager at every mutating call of every scenario, in all modes.
// FAULTS_CRASHES selects a share.
func TestCrashAtEveryCall(t *testing.T) {
	t.Parallel()
	sum, share := &tally{}, shareOf(t, "FAULTS_CRASHES", defaultCrashes)
	t.Cleanup(func() { t.Logf("single crashes: %s; %s", sum, share) })
	forEachScenario(t, faults.Scenarios(), func(t *testing.T, b *faults.Baseline) {
		// The number of calls varies slightly, because one status write can cover several changes. The last
		// subtest continues until no further call occurs.
		last := len(b.Mutations()) + 2
		for k := 1; k <= last; k++ {
			for _, mode := range faults.CrashModes {
				name := fmt.Sprintf("%d/%s", k, mode)
				if !share.includes(t, name) {
					continue
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					for at := k; ; at++ {
						d, plan := faults.Crashing(faults.CrashStep{Call: at, Mode: mode})
						o := testCluster.Run(context.Background(), b, d)
						crashed := plan.Left() == 0
						sum.add(o, crashed, o.Crashes...)
						expectConvergent(t, o)
						if t.Failed() || k < last || !crashed {
							return
						}
					}
				})
			}
		}
	})
}
