package faults_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/fixpoint-dev/fixpoint/test/faults"
)

// TestCrashAtEveryCall crashes the manager at every mutating call of every scenario, in all modes.
func TestCrashAtEveryCall(t *testing.T) {
	sum := &tally{}
	t.Cleanup(func() { t.Logf("single crashes: %s", sum) })
	forEachScenario(t, faults.Scenarios(), func(t *testing.T, b *faults.Baseline) {
		// The number of calls varies a little, since what is told by one status at one time is told by two
		// at another: the last subtest goes on until there is no further call.
		last := len(b.Mutations()) + 2
		for k := 1; k <= last; k++ {
			for _, mode := range faults.CrashModes {
				t.Run(fmt.Sprintf("%d/%s", k, mode), func(t *testing.T) {
					t.Parallel()
					for at := k; ; at++ {
						d, plan := faults.Crashing(faults.CrashStep{Call: at, Mode: mode})
						o := bench.Run(context.Background(), b, d)
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
