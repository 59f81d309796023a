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

// config holds the values of the flags.
type config struct {
	listenOn       string
	adminOn        string
	peers          peerFlags
	terminationLog string
	noSelfCheck    bool
	verbosity      int
	options        bridge.Options
	protection     protectionFlags
}

func parse(args []string, stderr io.Writer) (config, error) {
	cfg := config{options: bridge.DefaultOptions()}
	flags := flag.NewFlagSet("mcp-bridge serve", flag.ContinueOnError)
	flags.SetOutput(stderr)
	cfg.register(flags)
	cfg.protection.register(flags)
	if err := flags.Parse(args); err != nil {
		return cfg, err
	}
	cfg.options.Command = flags.Args()
	cfg.options.AllowedHosts = withClusterDomains(cfg.options.AllowedHosts, resolverConfig)
	if len(cfg.options.Command) == 0 {
		return cfg, errors.New("no command: pass it after --")
	}
	return cfg, nil
}

func (c *config) register(flags *flag.FlagSet) {
	o := &c.options
	flags.StringVar(&c.listenOn, "listen", ":8080", "`address` of the MCP endpoint")
	flags.StringVar(&c.adminOn, "admin-listen", ":9191", "`address` of /healthz, /readyz and /metrics")
	c.peers.register(flags)
	flags.StringVar(&c.terminationLog, "termination-log", "/dev/termination-log", "existing `file` to write the error to if the bridge fails")
	flags.BoolVar(&c.noSelfCheck, "no-self-check", false, "become ready without a check of the command")
	flags.IntVar(&c.verbosity, "v", 0, "log `level`; 1 adds debug messages")
	flags.StringVar(&o.Path, "path", o.Path, "URL `path` of the MCP endpoint")
	flags.IntVar(&o.MaxSessions, "max-sessions", o.MaxSessions, "maximum number of sessions, each with its own server process")
	flags.IntVar(&o.MaxSessionsPerCaller, "max-sessions-per-caller", 0, "maximum number of sessions of one caller (default: nine tenths of -max-sessions)")
	flags.IntVar(&o.FirstSessionUser, "first-session-user", 0, "first user `ID` of those that sessions run as, each as a user of its own; requires root (default: all run as the user of the bridge)")
	flags.IntVar(&o.MaxRequests, "max-requests", o.MaxRequests, "maximum number of requests in flight per session, and of all requests without a session")
	flags.IntVar(&o.MaxMessageBytes, "max-message-bytes", o.MaxMessageBytes, "maximum size of a message in bytes, in either direction")
	flags.IntVar(&o.StderrLinesPerSecond, "stderr-lines", o.StderrLinesPerSecond, "maximum number of stderr lines of a server to log per second")
	flags.DurationVar(&o.IdleTimeout, "idle-timeout", o.IdleTimeout, "end a session after this time without messages")
	flags.DurationVar(&o.StartTimeout, "start-timeout", o.StartTimeout, "timeout for the first response of a server")
	flags.DurationVar(&o.IOTimeout, "io-timeout", o.IOTimeout, "timeout for a client to send or receive a message")
	flags.DurationVar(&o.KeepAlive, "keep-alive", o.KeepAlive, "interval of keep-alive comments on an idle event stream")
	flags.DurationVar(&o.StopGrace, "stop-grace", o.StopGrace, "time for a server to exit after its stdin is closed, and again after SIGTERM")
	flags.DurationVar(&o.DrainTimeout, "drain-timeout", o.DrainTimeout, "maximum time from SIGTERM to exit; must be shorter than the termination grace period of the pod")
	flags.DurationVar(&o.DrainIdleTimeout, "drain-idle-timeout", o.DrainIdleTimeout, "idle timeout while draining")
	flags.Var((*list)(&o.AllowedHosts), "allowed-host", "allowed `host` in the Host header beside localhost and IP addresses, or * for all; may be repeated")
	flags.Var((*list)(&o.AllowedOrigins), "allowed-origin", "allowed `origin` in the Origin header, or * for all; may be repeated (default: pages of an allowed host)")
}

// list is a flag that may be repeated or contain comma-separated values.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

func (l *list) Set(value string) error {
	*l = append(*l, strings.Split(value, ",")...)
	return nil
}

// listen opens the listeners.
func (c *config) listen() (bridge.Listeners, error) {
	l := bridge.Listeners{SkipCheck: c.noSelfCheck}
	var err error
	if l.MCP, err = net.Listen("tcp", c.listenOn); err != nil {
		return l, fmt.Errorf("listening: %w", err)
	}
	if l.Admin, err = net.Listen("tcp", c.adminOn); err != nil {
		return l, errors.Join(fmt.Errorf("listening for health and metrics: %w", err), l.MCP.Close())
	}
	if !c.peers.isSet() {
		return l, nil
	}
	if l.Peer, err = c.peers.listen(); err != nil {
		return l, errors.Join(err, l.MCP.Close(), l.Admin.Close())
	}
	c.options.Peers = &c.peers.options
	return l, nil
}
