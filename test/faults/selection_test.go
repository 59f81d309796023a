package faults_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// A campaign runs a share of its cases, selected by FAULTS_SEED, which it prints. FAULTS_CRASHES,
// FAULTS_STALE, FAULTS_PAIRS and FAULTS_ERRORS set the shares in percent.
const (
	defaultSeed = "1"

	defaultCrashes = 100
	defaultStale   = 10
	defaultPairs   = 5
	defaultErrors  = 15
)

// share selects cases by the seed and their names, so that the selection of a case does not depend on other
// cases. A case that -run names is always selected.
type share struct {
	seed    string
	percent float64

	mu             sync.Mutex
	included, seen int
}

func shareOf(t *testing.T, variable string, percent float64) *share {
	t.Helper()
	s := &share{seed: defaultSeed, percent: percent}
	if seed := os.Getenv("FAULTS_SEED"); seed != "" {
		s.seed = seed
	}
	if text := os.Getenv(variable); text != "" {
		var err error
		if s.percent, err = strconv.ParseFloat(text, 64); err != nil {
			t.Fatalf("%s is %q, want a percentage", variable, text)
		}
	}
	return s
}

func (s *share) includes(t *testing.T, name string) bool {
	t.Helper()
	const all = 100
	chosen := s.random(t, name).Float64()*all < s.percent || isSelectedByRun(t.Name()+"/"+name)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen++
	if chosen {
		s.included++
	}
	return chosen
}

// random returns an independent source for each case.
func (s *share) random(t *testing.T, name string) *rand.Rand {
	hash := fnv.New64a()
	fmt.Fprint(hash, s.seed, " ", t.Name(), " ", name)
	return rand.New(rand.NewPCG(hash.Sum64(), 0)) //nolint:gosec // it must be reproducible
}

// isSelectedByRun reports whether -run names exactly this test.
func isSelectedByRun(name string) bool {
	for _, arg := range os.Args {
		if strings.HasSuffix(arg, exactPattern(name)) {
			return true
		}
	}
	return false
}

func (s *share) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%d of %d cases with FAULTS_SEED=%s (%g %%)", s.included, s.seen, s.seed, s.percent)
}
