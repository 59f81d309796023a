package faults_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fixpoint-dev/fixpoint/test/faults"
)

// FAULTS_SIMULATIONS is the number of seeds of TestSimulation, and FAULTS_CLEAN_SIMULATIONS that of
// TestCleanSimulation. FAULTS_SIMULATION is the first seed; without the others, it is the only seed. Without it,
// FAULTS_SEED selects the seeds.
const (
	defaultSimulations      = 200
	defaultCleanSimulations = 40

	// parallelSimulations keep two cores busy.
	parallelSimulations = 28
)

// TestSimulation runs random user actions, external changes and faults on objects of all kinds at once. When
// the faults end, every object must reach the state that its spec declares.
func TestSimulation(t *testing.T) {
	simulate(t, numberOf(t, "FAULTS_SIMULATIONS", defaultSimulations), true)
}

// TestCleanSimulation runs simulations without faults, to show that the comparison has no false positives.
func TestCleanSimulation(t *testing.T) {
	simulate(t, numberOf(t, "FAULTS_CLEAN_SIMULATIONS", defaultCleanSimulations), false)
}

// references is shared by both tests, whose seeds have final specs in common.
var references = sync.OnceValue(func() *faults.References { return faults.NewReferences(testCluster) })

func numberOf(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	number, err := strconv.Atoi(text)
	if err != nil || number < 0 {
		t.Fatalf("%s is %q, want a number such as %d", variable, text, otherwise)
	}
	return number
}

// seedsOf returns the range of seeds to run. It starts at FAULTS_SIMULATION, or at a multiple of a thousand that
// FAULTS_SEED selects, because the final specs of a thousand seeds have undisturbed states in common.
func seedsOf(t *testing.T, count int, variable string) (first, last int) {
	t.Helper()
	const blocks, block = 10_000, 1000
	first = numberOf(t, "FAULTS_SIMULATION", 1+block*(max(0, numberOf(t, "FAULTS_SEED", 1)-1)%blocks))
	if os.Getenv("FAULTS_SIMULATION") != "" && os.Getenv(variable) == "" {
		count = 1
	}
	return first, first + count - 1
}

func simulate(t *testing.T, count int, disturbed bool) {
	t.Helper()
	variable := "FAULTS_CLEAN_SIMULATIONS"
	if disturbed {
		variable = "FAULTS_SIMULATIONS"
	}
	first, last := seedsOf(t, count, variable)
	sum := &simulationTotals{began: time.Now(), faults: map[string]int{}}
	seeds := make(chan int)
	var workers sync.WaitGroup
	for range min(parallelSimulations, last-first+1) {
		workers.Go(func() {
			for seed := range seeds {
				s := faults.NewSimulation(uint64(seed), disturbed) //nolint:gosec // not negative
				o := testCluster.Simulate(context.Background(), s, references())
				sum.add(t, o)
				expectSimulated(t, s, o)
			}
		})
	}
	for seed := first; seed <= last; seed++ {
		seeds <- seed
	}
	close(seeds)
	workers.Wait()
	if err := references().Close(); err != nil {
		t.Error(err)
	}
	t.Logf("seeds %d to %d: %s; %d undisturbed states", first, last, sum, references().Count())
}

// expectSimulated reports a failed simulation: the command that replays it, the actions and faults, and the
// differences.
func expectSimulated(t *testing.T, s *faults.Simulation, o faults.SimulationOutcome) {
	t.Helper()
	if len(o.Failures) == 0 {
		return
	}
	t.Errorf("seed %d failed; replay with: cd test && FAULTS_SIMULATION=%d go test ./faults -run '%s'\n--- actions and faults\n%s\n--- failures\n%s\n--- plan\n%s\n%s",
		o.Seed, o.Seed, exactPattern(t.Name()), strings.Join(o.Log, "\n"), strings.Join(o.Failures, "\n"), s, o.Report)
}

// simulationTotals sums up simulations.
type simulationTotals struct {
	began time.Time

	mu                                              sync.Mutex
	runs, failed, operations, calls, managers, past int
	faults                                          map[string]int
	took, longest                                   time.Duration
	slowest                                         uint64
}

func (s *simulationTotals) add(t *testing.T, o faults.SimulationOutcome) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs++
	if len(o.Failures) > 0 {
		s.failed++
	}
	s.operations += o.Operations
	s.calls += o.Calls
	s.managers += o.Managers
	s.past += o.PastFinalizers
	for kind, times := range o.Faults {
		s.faults[kind] += times
	}
	s.took += o.Took
	if o.Took > s.longest {
		s.longest, s.slowest = o.Took, o.Seed
	}
	const every = 50
	if s.runs%every == 0 {
		t.Logf("so far: %s", s)
	}
}

// String must be called with the lock held, or after the last add.
func (s *simulationTotals) String() string {
	elapsed := time.Since(s.began).Seconds()
	crashes, all := 0, 0
	var kinds []string
	for _, kind := range (faults.SimulationOutcome{Faults: s.faults}).FaultKinds() {
		all += s.faults[kind]
		if strings.HasPrefix(kind, "crash") {
			crashes += s.faults[kind]
		}
		kinds = append(kinds, fmt.Sprintf("%s %d", kind, s.faults[kind]))
	}
	return fmt.Sprintf("%d runs, %d failed, %.2f seeds/s, %.1f s each and %.1f s at most (seed %d); %d operations, %d mutating calls, %d managers, %d deletions past a finalizer; %d faults, %d of them crashes: %s",
		s.runs, s.failed, float64(s.runs)/elapsed, s.took.Seconds()/float64(max(1, s.runs)), s.longest.Seconds(), s.slowest, s.operations, s.calls, s.managers, s.past, all, crashes, strings.Join(kinds, ", "))
}
