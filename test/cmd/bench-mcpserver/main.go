// Command bench-mcpserver measures what MCPServers cost: the writes of the manager for each, the time
// until many are Ready as a multiple of what a bare client takes that applies the same children, the
// requests at rest and after a restart, and the repair of what others change. The protocol is not
// probed. All of it runs against one cluster, on the same cores.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fixpoint-dev/fixpoint/test/measure"
)

// settings are the flags.
type settings struct {
	count, rounds int
	rest          time.Duration
	repairs       int
	profiles      string
	document      string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var s settings
	flag.IntVar(&s.count, "n", 300, "how many MCPServers a round makes")
	flag.IntVar(&s.rounds, "rounds", 3, "how many rounds there are of the manager and of the bare client, in turn")
	flag.DurationVar(&s.rest, "rest", time.Minute, "how long requests at rest are counted; 0 leaves this and the restart out")
	flag.IntVar(&s.repairs, "repairs", 15, "how often each drift is repaired; 0 leaves it out")
	flag.StringVar(&s.profiles, "profiles", "", "write CPU profiles of this process and of the API server into this folder, one for each round")
	flag.StringVar(&s.document, "write", "", "write the tables into this Markdown `file` too")
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	if err := run(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "bench-mcpserver: "+err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings) (err error) {
	if s.count < 1 || s.rounds < 1 {
		return fmt.Errorf("-n is %d and -rounds %d: both must be at least 1", s.count, s.rounds)
	}
	a, err := newArena(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	var rows []measure.Row
	if s.repairs > 0 {
		repaired, err := a.driftRepair(ctx, s.repairs)
		if err != nil {
			return fmt.Errorf("measuring repairs: %w", err)
		}
		rows = append(rows, repaired...)
	}
	raced, split, err := a.race(ctx, s)
	if err != nil {
		return fmt.Errorf("measuring the way to Ready: %w", err)
	}
	rows = append(rows, raced...)
	if s.rest > 0 {
		rested, err := a.atRest(ctx, s.rest)
		if err != nil {
			return fmt.Errorf("counting at rest: %w", err)
		}
		rows = append(rows, rested...)
	}
	costs, err := a.costs(ctx, s.count)
	if err != nil {
		return fmt.Errorf("measuring single writes: %w", err)
	}
	tables := measure.Table(rows) + "\n" + split + costs
	fmt.Print(tables)
	if s.document == "" {
		return nil
	}
	return os.WriteFile(s.document, []byte(tables), 0o600)
}
