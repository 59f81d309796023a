// Command bench-memory measures how much memory the manager needs: it runs as its Deployment says
// against an API server, which is filled with objects until all are Ready. What it prints is the ground for the limits in config/manager and the
// table in docs/operations.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/deploy"
	"github.com/fixpoint-dev/fixpoint/test/standin"
)

// options are the command line.
type options struct {
	root                                string
	appServices, mcpServers, secureOnes int
	limit                               string
	timeout                             time.Duration
}

func main() {
	var o options
	each := flag.Int("each", 0, "how many objects of each kind, 0 to measure the manager alone; the other numbers win")
	flag.IntVar(&o.appServices, "appservices", -1, "how many AppServices, of two pods each")
	flag.IntVar(&o.mcpServers, "mcpservers", -1, "how many MCPServers")
	flag.IntVar(&o.secureOnes, "securestorages", -1, "how many SecureStorages")
	flag.StringVar(&o.root, "root", "..", "folder of the project")
	flag.StringVar(&o.limit, "limit", "", "memory limit of the manager, such as 1Gi; that of config/manager by default")
	flag.DurationVar(&o.timeout, "timeout", 20*time.Minute, "how long all may take")
	flag.Parse()
	for _, count := range []*int{&o.appServices, &o.mcpServers, &o.secureOnes} {
		if *count < 0 {
			*count = *each
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	ctrl.SetLogger(logr.Discard())
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench-memory: "+err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	c, err := cluster.Start(ctx, cluster.Options{Parts: cluster.EtcdAndAPI})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	outside, err := deploy.StartOutside()
	if err != nil {
		return err
	}
	defer outside.Stop()
	manager, err := startManager(ctx, c, o, outside)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, manager.Stop()) }()

	fleet, err := newFleet(c, o, outside.Demo.Subscription)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		if err := standin.Run(ctx, c.Admin()); err != nil {
			cancel(err)
		}
	})
	defer group.Wait()
	defer cancel(nil)
	began := time.Now()
	if err := fleet.create(ctx); err != nil {
		return manager.Failure(err)
	}
	if err := fleet.await(ctx); err != nil {
		return manager.Failure(err)
	}
	took := time.Since(began)
	memory, err := settle(ctx, manager.PID())
	if err != nil {
		return err
	}
	fmt.Printf("| %d AppServices, %d MCPServers, %d SecureStorages | at rest %d MiB | peak %d MiB | all Ready after %s |\n",
		o.appServices, o.mcpServers, o.secureOnes, int64(memory.Resident)>>20, int64(memory.Peak)>>20, took.Round(time.Second))
	return nil
}

func startManager(ctx context.Context, c *cluster.Cluster, o options, outside *deploy.Outside) (*deploy.Manager, error) {
	kubectl, err := deploy.NewKubectl(c)
	if err != nil {
		return nil, err
	}
	if _, err := kubectl.Run(ctx, "apply", "--server-side", "-k", filepath.Join(o.root, "config", "default")); err != nil {
		return nil, err
	}
	if o.limit != "" {
		if _, err := kubectl.Run(ctx, "-n", namespace, "set", "resources", "deployment", deploy.DeploymentName, "--limits=memory="+o.limit); err != nil {
			return nil, err
		}
	}
	program, err := deploy.Build(ctx, o.root, c.Dir())
	if err != nil {
		return nil, err
	}
	arguments, err := outside.Arguments(ctx, program)
	if err != nil {
		return nil, err
	}
	return deploy.Pod{Program: program, Namespace: namespace, Name: "bench", Args: arguments}.Start(ctx, c)
}

// namespace is where config/default puts the manager.
const namespace = "fixpoint-system"
