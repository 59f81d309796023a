package faults_test

import (
	"context"
	"testing"

	"github.com/fixpoint-dev/fixpoint/test/faults"
)

// TestStaleCaches restarts the manager with a cache that lacks one event, for every create and delete and
// for every event before it.
func TestStaleCaches(t *testing.T) {
	t.Parallel()
	sum, share := &tally{}, shareOf(t, "FAULTS_STALE", defaultStale)
	t.Cleanup(func() { t.Logf("stale caches: %s; %s", sum, share) })
	forEachScenario(t, faults.Scenarios(), func(t *testing.T, b *faults.Baseline) {
		for _, pair := range b.Pairs() {
			if !share.includes(t, pair.String()) {
				continue
			}
			t.Run(pair.String(), func(t *testing.T) {
				t.Parallel()
				d, plan := faults.StaleCaches(pair)
				o := testCluster.Run(context.Background(), b, d)
				sum.add(o, plan.Left() == 0, pair.Call)
				expectConvergent(t, o)
			})
		}
	})
}
