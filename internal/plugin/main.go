package plugin

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Main runs the plugin with the arguments and the streams of the process until a signal ends it, and exits.
func Main(more ...Command) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process: reading the standard input does not end with the context.
	context.AfterFunc(ctx, stop)
	// Errors are returned; nothing is logged.
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	code := Run(ctx, os.Args[1:], genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}, more...)
	stop()
	os.Exit(code)
}
