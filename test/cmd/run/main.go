// Command run starts a local cluster from source, runs the manager against it, applies
// the samples, shows a table of their Ready conditions, and suggests commands to try. It
// runs until it is interrupted, and then stops and removes everything. It neither reads
// nor writes your kubeconfig.
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

	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

// options are the command-line flags.
type options struct {
	root       string
	samples    []string
	crds       string
	roles      string
	manager    string
	nodes      int
	untilReady bool
	timeout    time.Duration
	buildOnly  bool
}

func main() {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	// A second interrupt terminates the process immediately.
	context.AfterFunc(ctx, cancel)
	go endWithGoRun(cancel)

	err = run(ctx, o)
	switch {
	case err == nil:
	case ctx.Err() == nil:
		fmt.Fprintf(os.Stderr, "\n%v\n", err)
		os.Exit(1)
	case o.untilReady: // interrupted before all were Ready; without -until-ready an interrupt is the normal exit
		os.Exit(130)
	}
}

func parse(args []string) (options, error) {
	o := options{}
	var samples string
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	flags.StringVar(&o.root, "root", "", "root directory of the project (default: searched upwards from the working directory)")
	flags.StringVar(&samples, "samples", "", "files and directories to apply, separated by commas or spaces; arguments are added to them (default config/samples)")
	flags.StringVar(&o.crds, "crds", "", "file or directory with the CustomResourceDefinitions (default config/crd)")
	flags.StringVar(&o.roles, "roles", "", "directory with the manager's ClusterRoles; without it, the manager is bound to cluster-admin (default config/rbac/manager/roles)")
	flags.StringVar(&o.manager, "manager", "", "manager binary to run (default: build cmd/manager)")
	flags.IntVar(&o.nodes, "nodes", 3, "number of simulated nodes")
	flags.BoolVar(&o.untilReady, "until-ready", false, "exit with code 0 once all resources are Ready, or with code 1 after -timeout")
	flags.DurationVar(&o.timeout, "timeout", 3*time.Minute, "how long -until-ready waits after the samples are applied")
	flags.BoolVar(&o.buildOnly, "build-only", false, "build the binaries of the local cluster and exit")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.nodes < 1 {
		return o, fmt.Errorf("-nodes is %d: it must be at least 1", o.nodes)
	}
	o.samples = append(split(samples), flags.Args()...)
	return o, o.complete()
}

// complete sets defaults that depend on the root of the project.
func (o *options) complete() error {
	if o.root == "" {
		root, err := findRoot()
		if err != nil {
			return err
		}
		o.root = root
	}
	defaultTo(&o.crds, filepath.Join(o.root, "config", "crd"))
	defaultTo(&o.roles, filepath.Join(o.root, "config", "rbac", "manager", "roles"))
	if len(o.samples) == 0 {
		o.samples = []string{filepath.Join(o.root, "config", "samples")}
	}
	for _, sample := range o.samples {
		if _, err := os.Stat(sample); err != nil {
			return fmt.Errorf("-samples: %w", err)
		}
	}
	return nil
}

func defaultTo(value *string, fallback string) {
	if *value == "" {
		*value = fallback
	}
}

func run(ctx context.Context, o options) (err error) {
	say := newDisplay(os.Stdout)
	if o.buildOnly {
		_, err := cluster.Build(ctx, say.progress)
		say.endProgress()
		return err
	}
	c, err := cluster.Start(ctx, cluster.Options{
		Parts: cluster.All, Nodes: o.nodes, CRDPaths: []string{o.crds}, Progress: say.progress,
	})
	if err != nil {
		return err
	}
	defer func() {
		say.line("stopping the local cluster")
		err = errors.Join(err, c.Stop())
	}()
	external, err := startExternal()
	if err != nil {
		return err
	}
	defer external.stop()
	say.line("fake cloud: " + external.endpoint.URL + " (open it in a browser)")
	m, err := startManager(ctx, c, o, external, say)
	if err != nil {
		return err
	}
	defer m.stop()
	if err := applySamples(ctx, c, o, say); err != nil {
		return m.explain(err)
	}
	page, err := startConsole(ctx, c, external)
	if err != nil {
		return err
	}
	return m.explain(show(ctx, c, m, o, say, page.URL()))
}
