// Command bench measures what the libraries and one reconcile cost, with the Go benchmark harness.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fixpoint-dev/fixpoint/test/measure"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	document := flag.String("write", "", "write the table into this Markdown `file` too")
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	if err := run(ctx, *document); err != nil {
		fmt.Fprintln(os.Stderr, "bench: "+err.Error())
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, document string) error {
	// The libraries first, before the cluster makes the machine busy.
	rows, err := microbenchmarks(ctx)
	if err != nil {
		return err
	}
	row, err := oneReconcile(ctx)
	if err != nil {
		return fmt.Errorf("measuring a reconcile: %w", err)
	}
	table := measure.Table(append(rows, row))
	fmt.Print(table)
	if document == "" {
		return nil
	}
	return os.WriteFile(document, []byte(table), 0o600)
}
