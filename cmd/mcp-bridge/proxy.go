package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/fixpoint-dev/fixpoint/internal/authorization"
	"github.com/fixpoint-dev/fixpoint/internal/authproxy"
	"github.com/fixpoint-dev/fixpoint/internal/bridge"
)

// proxyConfig holds the values of the flags of mcp-bridge proxy.
type proxyConfig struct {
	listenOn        string
	adminOn         string
	terminationLog  string
	verbosity       int
	serverPort      int
	maxMessageBytes int
	drainTimeout    time.Duration
	allowedHosts    []string
	protection      protectionFlags
	peers           peerFlags
}

func parseProxy(args []string, stderr io.Writer) (proxyConfig, error) {
	var cfg proxyConfig
	d := bridge.DefaultOptions()
	flags := flag.NewFlagSet("mcp-bridge proxy", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&cfg.listenOn, "listen", ":9190", "`address` for clients")
	flags.StringVar(&cfg.adminOn, "admin-listen", ":9191", "`address` of /healthz, /readyz and /metrics")
	flags.IntVar(&cfg.serverPort, "server-port", 0, "`port` of the MCP server on this host")
	flags.StringVar(&cfg.terminationLog, "termination-log", "/dev/termination-log", "existing `file` to write the error to if the proxy fails")
	flags.IntVar(&cfg.verbosity, "v", 0, "log `level`; 1 adds debug messages")
	flags.IntVar(&cfg.maxMessageBytes, "max-message-bytes", d.MaxMessageBytes, "maximum size of a message that is read, in bytes; with -max-body-bytes that is the limit")
	flags.DurationVar(&cfg.drainTimeout, "drain-timeout", d.DrainTimeout, "maximum time from SIGTERM to exit; must be shorter than the termination grace period of the pod")
	flags.Var((*list)(&cfg.allowedHosts), "allowed-host", "`host` in the Host header that becomes localhost for a server that listens only there, beside localhost and IP addresses; may be repeated (default: all)")
	cfg.protection.register(flags)
	cfg.protection.authorization.registerExchange(flags)
	cfg.peers.register(flags)
	if err := flags.Parse(args); err != nil {
		return cfg, err
	}
	switch {
	case flags.NArg() > 0:
		return cfg, fmt.Errorf("unexpected argument %q: the proxy starts no command", flags.Arg(0))
	case cfg.serverPort < 1 || cfg.serverPort > 65535:
		return cfg, errors.New("-server-port must be from 1 to 65535: set the port of the MCP server")
	case !cfg.protection.isComplete(cfg.peers.isSet()):
		return cfg, errors.New("no -issuer: set at least one, or only limits, tools, -audit, -otlp-endpoint and -session-keys")
	case cfg.protection.authorization.exchange.TokenURL == "" && cfg.protection.authorization.exchange.Credentials != "":
		return cfg, errors.New("no -exchange-url: set the token endpoint")
	case cfg.maxMessageBytes < 1 || cfg.drainTimeout <= 0:
		return cfg, errors.New("-max-message-bytes and -drain-timeout must be greater than 0")
	}
	return cfg, nil
}

func runProxy(args []string, stdout, stderr io.Writer) int {
	cfg, err := parseProxy(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		report(stderr, cfg.terminationLog, err)
		return exitUsage
	}
	ctx, force, stop := signals()
	defer stop()
	if err := proxy(ctx, force, cfg, stdout, stderr); err != nil {
		report(stderr, cfg.terminationLog, err)
		return exitFailed
	}
	return 0
}

func proxy(ctx, force context.Context, cfg proxyConfig, stdout, stderr io.Writer) error {
	log := newLogger(stderr, cfg.verbosity)
	limitMemory(os.Getenv, cgroup)
	maxMessageBytes := cmp.Or(cfg.protection.policy.options.MaxBodyBytes, cfg.maxMessageBytes)
	front, err := newProtection(stdout, log, &cfg.protection, maxMessageBytes)
	if err != nil {
		return err
	}
	defer closeRecorder(front.recorder, log)
	clients, err := net.Listen("tcp", cfg.listenOn)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	admin, err := net.Listen("tcp", cfg.adminOn)
	if err != nil {
		return errors.Join(fmt.Errorf("listening for health: %w", err), clients.Close())
	}
	options := authproxy.Options{
		Port: cfg.serverPort, Protect: front.protectProxy, MaxMessageBytes: maxMessageBytes,
		DrainTimeout: cfg.protection.telemetry.drainTimeout(cfg.drainTimeout), Collectors: front.metrics.Collectors(), Log: log,
	}
	if front.authorizer != nil {
		options.Caller = authorization.Caller
	}
	if len(cfg.allowedHosts) > 0 {
		if options.AllowsHost, err = bridge.AllowsHosts(withClusterDomains(cfg.allowedHosts, resolverConfig)); err != nil {
			return errors.Join(err, clients.Close(), admin.Close())
		}
	}
	if cfg.peers.isSet() {
		if options.Sessions, err = cfg.sessions(); err != nil {
			return errors.Join(err, clients.Close(), admin.Close())
		}
	}
	p, err := authproxy.New(options)
	if err != nil {
		return errors.Join(err, clients.Close(), admin.Close())
	}
	if front.authorizer != nil {
		go front.authorizer.Prefetch(ctx)
	}
	return p.Serve(ctx, force, clients, admin)
}

// sessions lets other replicas serve the sessions of this one, and the reverse.
func (c *proxyConfig) sessions() (*authproxy.SessionOptions, error) {
	listener, err := c.peers.listen()
	if err != nil {
		return nil, err
	}
	return &authproxy.SessionOptions{Options: c.peers.options, Listener: listener}, nil
}
