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
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

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
		pair := &certificate{certFile: s.certFile, keyFile: s.keyFile}
		if _, err := pair.get(nil); err != nil {
			return errors.Join(err, listener.Close())
		}
		listener = tls.NewListener(listener, &tls.Config{GetCertificate: pair.get, MinVersion: tls.VersionTLS12})
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

// certificate reads its files again, since the Secret that they come from is renewed.
type certificate struct {
	certFile, keyFile string

	mu   sync.Mutex
	pair *tls.Certificate
	read time.Time
}

// reread is how long a certificate is used before its files are read again.
const reread = time.Minute

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pair != nil && time.Since(c.read) < reread {
		return c.pair, nil
	}
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil && c.pair == nil {
		return nil, fmt.Errorf("reading the certificate: %w", err)
	}
	if err == nil { // otherwise the files are being replaced
		c.pair = &pair
	}
	c.read = time.Now()
	return c.pair, nil
}
