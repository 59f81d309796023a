// Command run shows Fixpoint at work: it brings up a local cluster from source,
// runs the manager against it, applies the samples, shows them on their way to
// Ready, says what to try, and stays up until it is interrupted. Then nothing is
// left of it. No kubeconfig of the user is read or written.
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

// options are the command line.
type options struct {
	root       string
	samples    []string
	crds       string
	role       string
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
	// A second interrupt, by somebody who does not want to wait, has its usual effect.
	context.AfterFunc(ctx, cancel)
	go endWithGoRun(cancel)

	err = run(ctx, o)
	switch {
	case err == nil:
	case ctx.Err() == nil:
		fmt.Fprintf(os.Stderr, "\n%v\n", err)
		os.Exit(1)
	case o.untilReady: // an interrupt, which is the usual end otherwise
		os.Exit(130)
	}
}

func parse(args []string) (options, error) {
	o := options{}
	var samples string
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	flags.StringVar(&o.root, "root", "", "folder of the project; by default found from the working directory upwards")
	flags.StringVar(&samples, "samples", "", "files and folders to apply, separated by commas or spaces; more may follow as arguments (default config/samples)")
	flags.StringVar(&o.crds, "crds", "", "file or folder of the CustomResourceDefinitions (default config/crd)")
	flags.StringVar(&o.role, "role", "", "file with the manager's ClusterRole; if it does not exist, the manager may do anything (default config/rbac/role.yaml)")
	flags.StringVar(&o.manager, "manager", "", "program to run as the manager; by default cmd/manager is built")
	flags.IntVar(&o.nodes, "nodes", 3, "how many nodes are simulated")
	flags.BoolVar(&o.untilReady, "until-ready", false, "end as soon as all resources are Ready, and fail if they are not in time")
	flags.DurationVar(&o.timeout, "timeout", 3*time.Minute, "how long -until-ready waits, after the samples are applied")
	flags.BoolVar(&o.buildOnly, "build-only", false, "build the local cluster's programs, and no more")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.nodes < 1 {
		return o, fmt.Errorf("-nodes is %d: a pod needs at least one", o.nodes)
	}
	o.samples = append(split(samples), flags.Args()...)
	return o, o.complete()
}

// complete fills in what is found by the project's root.
func (o *options) complete() error {
	if o.root == "" {
		root, err := findRoot()
		if err != nil {
			return err
		}
		o.root = root
	}
	defaultTo(&o.crds, filepath.Join(o.root, "config", "crd"))
	defaultTo(&o.role, filepath.Join(o.root, "config", "rbac", "role.yaml"))
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
	beside, err := startOutside()
	if err != nil {
		return err
	}
	defer beside.stop()
	say.line("the fake cloud: " + beside.endpoint.URL + " (open it in a browser)")
	m, err := startManager(ctx, c, o, beside, say)
	if err != nil {
		return err
	}
	defer m.stop()
	if err := applySamples(ctx, c, o, say); err != nil {
		return m.explain(err)
	}
	return m.explain(show(ctx, c, m, o, say))
}
