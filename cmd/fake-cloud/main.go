// Command fake-cloud serves a fake Azure for the official SDK. See docs/fakecloud.md.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = run(ctx, s, os.Stdout)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "fake-cloud: %v\n", err)
		os.Exit(1)
	}
}

// run serves until the context is canceled.
func run(ctx context.Context, s *settings, out io.Writer) error {
	cloud, err := fakecloud.Open(s.options)
	if err != nil {
		return err
	}
	for id, secret := range s.clients {
		cloud.RegisterClient(id, secret)
	}
	listener, err := net.Listen("tcp", s.listen)
	if err != nil {
		return errors.Join(fmt.Errorf("listening: %w", err), cloud.Close())
	}
	secured, err := s.secure(listener)
	if err != nil {
		return errors.Join(err, listener.Close(), cloud.Close())
	}
	s.announce(out, cloud, listener.Addr())
	return errors.Join(serve(ctx, cloud, secured), cloud.Close())
}

// stopTime is the timeout of requests in progress when the server stops.
const stopTime = 5 * time.Second

func serve(ctx context.Context, handler http.Handler, listener net.Listener) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	if err := server.Shutdown(ending); err != nil {
		return errors.Join(fmt.Errorf("stopping: %w", err), server.Close())
	}
	return nil
}

// secure adds TLS to the listener if --tls is set.
func (s *settings) secure(listener net.Listener) (net.Listener, error) {
	if !s.tls {
		return listener, nil
	}
	certificate, err := s.certificate()
	if err != nil {
		return nil, err
	}
	return tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}), nil
}

func (s *settings) certificate() (tls.Certificate, error) {
	if s.certFile != "" {
		certificate, err := tls.LoadX509KeyPair(s.certFile, s.keyFile)
		if err != nil {
			return tls.Certificate{}, fmt.Errorf("reading the certificate: %w", err)
		}
		return certificate, nil
	}
	authority, err := fakecloud.NewAuthority()
	if err != nil {
		return tls.Certificate{}, err
	}
	if err := os.WriteFile(s.caFile, authority.PEM(), 0o644); err != nil {
		return tls.Certificate{}, fmt.Errorf("writing the CA certificate: %w", err)
	}
	return authority.Issue(append([]string{"localhost", "127.0.0.1", "::1"}, s.hosts...)...)
}

// announce prints the address and the configuration.
func (s *settings) announce(out io.Writer, cloud *fakecloud.Server, address net.Addr) {
	scheme := "http"
	if s.tls {
		scheme = "https"
	}
	fmt.Fprintf(out, "fake-cloud serves %s://%s with knobs %q, seed %d\n", scheme, address, s.preset, s.options.Seed)
	fmt.Fprintf(out, "  web page     %s://%s/\n", scheme, address)
	if s.tls && s.certFile == "" {
		fmt.Fprintf(out, "  CA           %s\n", s.caFile)
	}
	if s.options.StateFile != "" {
		fmt.Fprintf(out, "  state        %s\n", s.options.StateFile)
	}
	if s.options.Tokens == nil {
		fmt.Fprintf(out, "  tokens       %s for a caller called NAME\n", fakecloud.Token("NAME"))
	}
	if s.demo {
		demo := cloud.SeedDemo()
		fmt.Fprintf(out, "  demo         subscription %s, resource group %s (%s), vault %s with key %s\n", demo.Subscription, demo.Group, demo.Location, demo.Vault, demo.Key)
	}
}
