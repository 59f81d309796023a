// Command manager runs the Fixpoint controllers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/internal/buildinfo"
)

func main() {
	err := run(ctrl.SetupSignalHandler(), os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "manager: "+err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	settings, err := parse(args, os.Stderr)
	if err != nil {
		return err
	}
	build := buildinfo.Get()
	if settings.version {
		_, err := fmt.Fprintln(os.Stdout, "manager", build)
		return err
	}
	if err := buildinfo.Register(metrics.Registry); err != nil {
		return err
	}
	ctrl.SetLogger(settings.options.Logger)
	cfg, err := settings.restConfig()
	if err != nil {
		return err
	}
	if err := settings.completeProbeDial(cfg); err != nil {
		return err
	}
	mgr, err := controllers.NewManager(ctx, cfg, settings.options)
	if err != nil {
		return err
	}
	settings.options.Logger.Info("Starting manager", "version", build.Version, "commit", build.Commit, "date", build.Date, "apiServer", cfg.Host,
		"controllers", orAll(settings.options.Controllers), "namespaces", settings.namespaces())
	go manageMemory(ctx)
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the manager: %w", err)
	}
	return nil
}

// namespaces returns what --namespaces or --namespace-selector select, for the log.
func (s *settings) namespaces() []string {
	if selector := s.options.NamespaceSelector; selector != nil {
		return []string{selector.String()}
	}
	return orAll(s.options.Namespaces)
}

// orAll returns the list for the log, where an empty list means all.
func orAll(chosen []string) []string {
	if len(chosen) == 0 {
		return []string{"all"}
	}
	return chosen
}
