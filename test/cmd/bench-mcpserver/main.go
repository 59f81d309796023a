// Command bench-mcpserver measures what many MCPServers cost: the manager's writes for each, the
// time until all are Ready against that of a bare client which applies the same children, and the
// requests at rest. The protocol is not probed. Both run against one cluster, one after the other.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

const (
	managerUser = "fixpoint-manager"
	bareUser    = "bare"
	// concurrency is that of the manager's workers, of the user and of the bare client.
	concurrency = 10
	// patience is how long everything together may take to become ready.
	patience = 10 * time.Minute
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	count := flag.Int("n", 300, "how many MCPServers there are")
	rest := flag.Duration("rest", time.Minute, "how long requests at rest are counted")
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	if err := run(ctx, *count, *rest); err != nil {
		fmt.Fprintln(os.Stderr, "bench-mcpserver: "+err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context, count int, rest time.Duration) (err error) {
	c, err := cluster.Start(ctx, cluster.Options{
		Parts: cluster.All, Audit: true, Nodes: 10,
		CRDPaths: []string{filepath.Join("..", "config", "crd", "bases")},
		Progress: func(line string) { fmt.Fprintln(os.Stderr, line) },
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	api, err := client.New(unlimited(c, "user"), client.Options{Scheme: controllers.NewScheme()})
	if err != nil {
		return err
	}
	b := &bench{cluster: c, user: api, count: count}
	stop, err := b.startManager(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	return b.measure(ctx, rest)
}

// startManager runs the manager of MCPServers in this process until it is stopped.
func (b *bench) startManager(ctx context.Context) (stop func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	mgr, err := controllers.NewManager(ctx, b.cluster.Config(managerUser, cluster.Masters), controllers.Options{
		Controllers: []string{mcpserver.Name}, Concurrency: concurrency, Logger: logr.Discard(),
	})
	if err != nil {
		cancel()
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}, nil
}

func (b *bench) measure(ctx context.Context, rest time.Duration) error {
	children, err := b.children(ctx)
	if err != nil {
		return fmt.Errorf("finding out the children: %w", err)
	}
	bare, err := b.bare(ctx, children)
	if err != nil {
		return fmt.Errorf("applying children: %w", err)
	}
	ours, writes, err := b.managed(ctx)
	if err != nil {
		return fmt.Errorf("making MCPServers: %w", err)
	}
	atRest, err := b.atRest(ctx, rest)
	if err != nil {
		return fmt.Errorf("counting at rest: %w", err)
	}
	fmt.Printf("MCPServers                      %d\n", b.count)
	fmt.Printf("writes by the manager for each  %.2f (bar: 7)\n", float64(len(writes))/float64(b.count))
	fmt.Printf("until all are Ready             %s; a bare client takes %s: %.2f times (bar: 1.25)\n",
		ours.Round(time.Millisecond), bare.Round(time.Millisecond), ours.Seconds()/bare.Seconds())
	fmt.Printf("requests in %s at rest        %d (bar: 0)\n", rest, len(atRest))
	fmt.Printf("\nwrites:\n%s", writes.Summary())
	return nil
}
