// Command bench-cost measures what AppServices cost with Fixpoint, and with the controller of package textbook in
// the same run, on the same cluster: one after the other, as processes of their own. Machines differ, the ratios
// differ less.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fixpoint-dev/fixpoint/test/contest"
	"github.com/fixpoint-dev/fixpoint/test/measure"
)

// The parts of the benchmark, in their order.
const (
	partEmpty   = "empty"
	partCreate  = "create"
	partRest    = "rest"
	partRestart = "restart"
	partDrift   = "drift"
	partDelete  = "delete"
)

var parts = []string{partEmpty, partCreate, partRest, partRestart, partDrift, partDelete}

// settings are the flags.
type settings struct {
	count, rounds, repairs int
	rest                   time.Duration
	only                   []string
	fixpointFirst          bool
	profiles               string
	document               string
}

func (s settings) selects(names ...string) bool {
	return len(s.only) == 0 || slices.ContainsFunc(names, func(name string) bool { return slices.Contains(s.only, name) })
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var s settings
	var only string
	flag.IntVar(&s.count, "n", 300, "number of AppServices")
	flag.IntVar(&s.rounds, "rounds", 1, "number of rounds; the table shows medians, and every second round has the other order")
	flag.StringVar(&only, "only", "", "comma-separated list of parts to run: "+strings.Join(parts, ", ")+"; all by default")
	flag.BoolVar(&s.fixpointFirst, "fixpoint-first", false, "measure Fixpoint before the textbook controller")
	flag.DurationVar(&s.rest, "rest", time.Minute, "how long requests at rest are counted")
	flag.IntVar(&s.repairs, "repairs", 20, "how often each drift is repaired")
	flag.StringVar(&s.profiles, "profile", "", "write CPU and heap profiles of both managers, and CPU profiles of the API server, into this `directory`")
	flag.StringVar(&s.document, "write", "", "write the tables into this Markdown `file` too")
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	if only != "" {
		s.only = strings.Split(only, ",")
	}
	if err := run(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "bench-cost: "+err.Error())
		stop()
		os.Exit(1)
	}
}

func (s settings) check() error {
	if s.count < 1 || s.rounds < 1 || s.repairs < 1 {
		return fmt.Errorf("-n is %d, -rounds %d and -repairs %d: all must be at least 1", s.count, s.rounds, s.repairs)
	}
	for _, name := range s.only {
		if !slices.Contains(parts, name) {
			return fmt.Errorf("-only contains %q: the parts are %s", name, strings.Join(parts, ", "))
		}
	}
	return nil
}

func run(ctx context.Context, s settings) (err error) {
	if err := s.check(); err != nil {
		return err
	}
	if s.profiles != "" {
		if err := os.MkdirAll(s.profiles, 0o755); err != nil {
			return fmt.Errorf("creating the directory of -profile: %w", err)
		}
	}
	b, err := newBench(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.cluster.Stop()) }()
	var peer, fixpoint []column
	for round := range s.rounds {
		order := []contest.Program{b.textbook, b.fixpoint}
		if (round%2 == 1) != s.fixpointFirst {
			slices.Reverse(order)
		}
		for i, c := range order {
			last := round == s.rounds-1 && i == len(order)-1
			found, err := b.measure(ctx, c, last)
			if err != nil {
				return fmt.Errorf("measuring %s: %w", c.Name, err)
			}
			if c.Name == b.fixpoint.Name {
				fixpoint = append(fixpoint, found)
			} else {
				peer = append(peer, found)
			}
		}
	}
	tables := measure.Compare(b.textbook.Name, b.fixpoint.Name, rows(s), values(peer), values(fixpoint)) + requestTables(s, peer, fixpoint)
	fmt.Print(tables)
	if s.document == "" {
		return nil
	}
	return os.WriteFile(s.document, []byte(tables), 0o600)
}
