package faults_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fixpoint-dev/fixpoint/test/faults"
)

// tally counts the runs of a campaign over all scenarios.
type tally struct {
	mu sync.Mutex
	// runs is the number of runs; disturbed is the number in which the fault occurred.
	runs, disturbed int
	// points counts the injected faults by class of call.
	points map[string]int
	took   time.Duration
	// maxCalls is the largest number of attempts of a failing call.
	maxCalls int
}

func (s *tally) recordCalls(calls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.maxCalls = max(s.maxCalls, calls)
}

func (s *tally) add(o faults.Outcome, disturbed bool, at ...faults.Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.points == nil {
		s.points = map[string]int{}
	}
	s.runs++
	s.took += o.Took
	if !disturbed {
		return
	}
	s.disturbed++
	for _, call := range at {
		s.points[call.Class()]++
	}
}

func (s *tally) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := fmt.Sprintf("%d runs, %d of them disturbed, at %d classes of calls, %.1f s each", s.runs, s.disturbed, len(s.points), s.took.Seconds()/float64(max(1, s.runs)))
	if s.maxCalls > 0 {
		text += fmt.Sprintf(", at most %d attempts of a failing call", s.maxCalls)
	}
	return text
}

// expectConvergent reports a failed run: the command that replays it, the differences, and the history.
func expectConvergent(t *testing.T, o faults.Outcome) {
	t.Helper()
	if len(o.Failures) == 0 {
		return
	}
	var crashes []string
	for _, call := range o.Crashes {
		crashes = append(crashes, call.String())
	}
	t.Errorf("replay with: cd test && go test ./faults -run '%s'\nfaults at: %q\n%s\n%s", exactPattern(t.Name()), crashes, strings.Join(o.Failures, "\n"), o.Report)
}

// exactPattern returns the -run pattern that matches exactly this test.
func exactPattern(name string) string {
	return "^" + strings.ReplaceAll(regexp.QuoteMeta(name), "/", "$/^") + "$"
}

// forEachScenario runs a subtest for each scenario with the baseline of its undisturbed run.
func forEachScenario(t *testing.T, scenarios []faults.Scenario, run func(t *testing.T, b *faults.Baseline)) {
	t.Helper()
	for _, s := range scenarios {
		t.Run(s.ID(), func(t *testing.T) {
			t.Parallel()
			run(t, baselineOf(t, s))
		})
	}
}

// baselines caches the baselines by scenario, because all campaigns run the same scenarios.
var baselines sync.Map

// baselineOf returns the baseline of a scenario.
func baselineOf(t *testing.T, s faults.Scenario) *faults.Baseline {
	t.Helper()
	type result struct {
		baseline *faults.Baseline
		err      error
	}
	entry, _ := baselines.LoadOrStore(s.ID(), sync.OnceValue(func() result {
		b, err := testCluster.Undisturbed(context.Background(), s)
		return result{b, err}
	}))
	undisturbed, ok := entry.(func() result)
	if !ok {
		t.Fatalf("the cached baseline of %s is a %T", s.ID(), entry)
	}
	r := undisturbed()
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.baseline
}
