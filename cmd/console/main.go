// Command console serves the web console in a cluster. It has no rights of its own: see docs/console.md.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"github.com/fixpoint-dev/fixpoint/internal/buildinfo"
	"github.com/fixpoint-dev/fixpoint/internal/console"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = run(ctx, s, os.Stderr)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "console: %v\n", err)
		os.Exit(1)
	}
}

// run serves until the context is canceled.
func run(ctx context.Context, s *settings, logs io.Writer) error {
	log := newLog(logs, s.verbose)
	klog.SetLogger(log)
	ctrl.SetLogger(log)
	s.options.Log = log
	server, err := console.New(s.options)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.listen)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	if s.certFile != "" {
		watcher, err := certwatcher.New(s.certFile, s.keyFile)
		if err != nil {
			return errors.Join(fmt.Errorf("reading the certificate (--tls-cert, --tls-key): %w", err), listener.Close())
		}
		go func() {
			if err := watcher.Start(ctx); err != nil {
				log.Error(err, "Failed to watch the certificate; restart the console when it is renewed")
			}
		}()
		listener = tls.NewListener(listener, &tls.Config{GetCertificate: watcher.GetCertificate, MinVersion: tls.VersionTLS12})
	}
	log.Info("Serving", "address", listener.Addr().String(), "tls", s.certFile != "", "mode", string(s.options.Mode), "version", buildinfo.Get().Version)
	return server.Serve(ctx, listener)
}

func newLog(out io.Writer, verbose bool) logr.Logger {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	return logr.FromSlogHandler(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: level}))
}
