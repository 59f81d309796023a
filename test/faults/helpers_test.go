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

// tally counts what a campaign has done, over all of its scenarios.
type tally struct {
	mu sync.Mutex
	// runs, and those of them that were disturbed as they were to be.
	runs, disturbed int
	// points are the sorts of calls at which managers crashed or that failed, and how often.
	points map[string]int
	took   time.Duration
	// hottest is how often a failing call was made at most.
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
	text := fmt.Sprintf("%d runs, %d disturbed, at %d sorts of calls, %.1f s each", s.runs, s.disturbed, len(s.points), s.took.Seconds()/float64(max(1, s.runs)))
	if s.maxCalls > 0 {
		text += fmt.Sprintf(", a failing call made %d times at most", s.maxCalls)
	}
	return text
}

// expectConvergent reports what failed: the line that replays it, the difference, and the world.
func expectConvergent(t *testing.T, o faults.Outcome) {
	t.Helper()
	if len(o.Failures) == 0 {
		return
	}
	var crashes []string
	for _, call := range o.Crashes {
		crashes = append(crashes, call.String())
	}
	t.Errorf("to replay: cd test && go test ./faults -run '%s'\ncrashed at %q\n%s\n%s", exactPattern(t.Name()), crashes, strings.Join(o.Failures, "\n"), o.Report)
}

// exactly is the pattern for one test.
func exactPattern(name string) string {
	return "^" + strings.ReplaceAll(regexp.QuoteMeta(name), "/", "$/^") + "$"
}

// forEachScenario runs a subtest for each scenario, with what comes of it undisturbed.
func forEachScenario(t *testing.T, scenarios []faults.Scenario, run func(t *testing.T, b *faults.Baseline)) {
	t.Helper()
	for _, s := range scenarios {
		t.Run(s.ID(), func(t *testing.T) {
			t.Parallel()
			b, err := testCluster.Undisturbed(context.Background(), s)
			if err != nil {
				t.Fatal(err)
			}
			run(t, b)
		})
	}
}
