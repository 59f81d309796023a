package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/fixpoint-dev/fixpoint/internal/bridge"
)

// config is what the flags say.
type config struct {
	listenOn       string
	adminOn        string
	terminationLog string
	noSelfCheck    bool
	verbosity      int
	options        bridge.Options
}

func parse(args []string, stderr io.Writer) (config, error) {
	cfg := config{options: bridge.DefaultOptions()}
	flags := flag.NewFlagSet("mcp-bridge serve", flag.ContinueOnError)
	flags.SetOutput(stderr)
	cfg.register(flags)
	if err := flags.Parse(args); err != nil {
		return cfg, err
	}
	cfg.options.Command = flags.Args()
	if len(cfg.options.Command) == 0 {
		return cfg, errors.New("no command to run: give it after --")
	}
	return cfg, nil
}

func (c *config) register(flags *flag.FlagSet) {
	o := &c.options
	flags.StringVar(&c.listenOn, "listen", ":8080", "`address` to serve on")
	flags.StringVar(&c.adminOn, "admin-listen", "", "`address` for /healthz, /readyz and /metrics, if not that of -listen")
	flags.StringVar(&c.terminationLog, "termination-log", "/dev/termination-log", "existing `file` that says why the bridge has ended")
	flags.BoolVar(&c.noSelfCheck, "no-self-check", false, "be ready without having tried the command")
	flags.IntVar(&c.verbosity, "v", 0, "log `level`; 1 adds what did not happen and why")
	flags.StringVar(&o.Path, "path", o.Path, "URL `path` of the protocol")
	flags.IntVar(&o.MaxSessions, "max-sessions", o.MaxSessions, "most sessions, and so server processes, at a time")
	flags.IntVar(&o.MaxRequests, "max-requests", o.MaxRequests, "most requests in flight of a session, and of all clients without one")
	flags.IntVar(&o.MaxMessageBytes, "max-message-bytes", o.MaxMessageBytes, "most bytes of a message, in either direction")
	flags.IntVar(&o.StderrLinesPerSecond, "stderr-lines", o.StderrLinesPerSecond, "most lines a second of a server's stderr in the log")
	flags.DurationVar(&o.IdleTimeout, "idle-timeout", o.IdleTimeout, "end a session after so long without a message")
	flags.DurationVar(&o.StartTimeout, "start-timeout", o.StartTimeout, "longest wait for a server's first answer")
	flags.DurationVar(&o.IOTimeout, "io-timeout", o.IOTimeout, "longest wait for a client to send or take a message")
	flags.DurationVar(&o.KeepAlive, "keep-alive", o.KeepAlive, "interval of comments on a quiet event stream")
	flags.DurationVar(&o.StopGrace, "stop-grace", o.StopGrace, "time for a server to end after its stdin is closed, and again after SIGTERM")
	flags.DurationVar(&o.DrainTimeout, "drain-timeout", o.DrainTimeout, "longest time from SIGTERM to the end; keep it below the pod's grace period")
	flags.DurationVar(&o.DrainIdleTimeout, "drain-idle-timeout", o.DrainIdleTimeout, "idle timeout while draining")
	flags.Var((*list)(&o.AllowedHosts), "allowed-host", "accept only requests for this `host`; may be repeated")
	flags.Var((*list)(&o.AllowedOrigins), "allowed-origin", "of requests with an Origin accept only this `origin`; may be repeated")
}

// list is a flag that may be repeated, or hold several values with commas.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

func (l *list) Set(value string) error {
	*l = append(*l, strings.Split(value, ",")...)
	return nil
}

// listen opens the addresses, so that a bad one is an error at once.
func (c *config) listen() (bridge.Listeners, error) {
	l := bridge.Listeners{SkipCheck: c.noSelfCheck}
	var err error
	if l.MCP, err = net.Listen("tcp", c.listenOn); err != nil {
		return l, fmt.Errorf("listening: %w", err)
	}
	if c.adminOn == "" {
		return l, nil
	}
	if l.Admin, err = net.Listen("tcp", c.adminOn); err != nil {
		return l, errors.Join(fmt.Errorf("listening for health and metrics: %w", err), l.MCP.Close())
	}
	return l, nil
}
