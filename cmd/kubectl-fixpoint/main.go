// Command kubectl-fixpoint is the kubectl plugin: kubectl fixpoint.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // the user's credentials, as kubectl loads them
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fixpoint-dev/fixpoint/internal/console"
	"github.com/fixpoint-dev/fixpoint/internal/plugin"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process: reading the standard input does not end with the context.
	context.AfterFunc(ctx, stop)
	// Errors are returned; nothing is logged.
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	code := plugin.Run(ctx, os.Args[1:], genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}, console.Command)
	stop()
	os.Exit(code)
}
