// Command bench-scale measures thousands of objects against a real API server: AppServices with Fixpoint and with the
// controller of package textbook, MCPServers that are probed, and SecureStorages that poll a fake cloud. No pods run:
// package standin sets the status of the children.
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
)

// The parts of the benchmark, in their order.
const (
	partApps     = "appservices"
	partServers  = "mcpservers"
	partStorages = "securestorages"
)

var parts = []string{partApps, partServers, partStorages}

// settings are the flags.
type settings struct {
	apps, servers, storages int
	edits, drifts           float64
	churn, probing, poll    time.Duration
	only                    []string
	fixpointFirst           bool
	document, picture       string
}

func (s settings) selects(part string) bool { return len(s.only) == 0 || slices.Contains(s.only, part) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var s settings
	var only string
	flag.IntVar(&s.apps, "appservices", 10000, "number of AppServices")
	flag.IntVar(&s.servers, "mcpservers", 2000, "number of MCPServers, which are probed every 30 s")
	flag.IntVar(&s.storages, "securestorages", 2500, "number of SecureStorages")
	flag.Float64Var(&s.edits, "edits", 10, "edits of AppServices per second")
	flag.Float64Var(&s.drifts, "drifts", 10, "drifts per second")
	flag.DurationVar(&s.churn, "churn", time.Minute, "how long AppServices are edited and drift")
	flag.DurationVar(&s.probing, "probing", 2*time.Minute, "how long the processor time of probing is measured")
	flag.DurationVar(&s.poll, "poll", 5*time.Minute, "interval at which SecureStorages are polled, and for which requests to the cloud are counted")
	flag.StringVar(&only, "only", "", "comma-separated list of parts to run: "+strings.Join(parts, ", ")+"; all by default")
	flag.BoolVar(&s.fixpointFirst, "fixpoint-first", false, "measure Fixpoint before the textbook controller")
	flag.StringVar(&s.document, "write", "", "write the tables, and what others have published, into this Markdown `file`")
	flag.StringVar(&s.picture, "svg", "", "draw memory and latency over the number of AppServices into this `file`")
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	if only != "" {
		s.only = strings.Split(only, ",")
	}
	if err := run(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "bench-scale: "+err.Error())
		stop()
		os.Exit(1)
	}
}

func (s settings) check() error {
	var problems []error
	for _, name := range s.only {
		if !slices.Contains(parts, name) {
			problems = append(problems, fmt.Errorf("-only contains %q: the parts are %s", name, strings.Join(parts, ", ")))
		}
	}
	if s.apps < 2 || s.servers < 1 || s.storages < 1 {
		problems = append(problems, fmt.Errorf("-appservices is %d, -mcpservers %d and -securestorages %d: set at least 2, 1 and 1; -only leaves kinds out", s.apps, s.servers, s.storages))
	}
	if s.edits <= 0 || s.drifts <= 0 {
		problems = append(problems, fmt.Errorf("-edits is %g and -drifts %g: both must be positive", s.edits, s.drifts))
	}
	const shortestPoll = 10 * time.Second // by the CRD
	if s.poll < shortestPoll {
		problems = append(problems, fmt.Errorf("-poll is %s: set at least %s", s.poll, shortestPoll))
	}
	return errors.Join(problems...)
}

// heading says what the numbers are about.
const heading = `Thousands of objects against an API server and etcd on the same machine. No controller manager, scheduler or
nodes run: a stand-in completes every rollout as soon as it sees it, so AppServices have no pods.

`

func run(ctx context.Context, s settings) error {
	if err := s.check(); err != nil {
		return err
	}
	tables := heading
	for _, part := range []struct {
		name string
		run  func(context.Context, settings) (string, error)
	}{
		{partApps, benchApps}, {partServers, benchServers}, {partStorages, benchStorages},
	} {
		if !s.selects(part.name) {
			continue
		}
		table, err := part.run(ctx, s)
		if err != nil {
			return fmt.Errorf("part %s: %w", part.name, err)
		}
		tables += table + "\n"
	}
	fmt.Print(tables)
	if s.document == "" {
		return nil
	}
	return writePage(s, tables)
}
