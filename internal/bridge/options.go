package bridge

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fixpoint-dev/fixpoint/internal/peers"
)

// Options configure a bridge. A limit that is 0 takes the value of
// DefaultOptions; New rejects negative limits.
type Options struct {
	// Command is the program and arguments of the child. It runs without a
	// shell, in the environment and working directory of the bridge.
	Command []string
	// Path is the URL path of the MCP endpoint.
	Path string

	// FirstSessionUser makes each session run as a user and group of its own, with a directory of its own as HOME and
	// TMPDIR: one of MaxSessions users from this one on. Processes without a session have the next user. It
	// requires ReapAll, root and capabilities. 0 is the user of the bridge for all processes.
	FirstSessionUser int
	// MaxSessions is the maximum number of sessions, including those whose
	// child is being stopped.
	MaxSessions int
	// MaxSessionsPerCaller is the maximum number of sessions of one caller; 0 is nine tenths of MaxSessions.
	MaxSessionsPerCaller int
	// MaxRequests is the maximum number of requests in flight per session, and
	// of all requests in flight without a session, of which one caller gets
	// nine tenths.
	MaxRequests int
	// MaxMessageBytes is the maximum size of a message, in either direction.
	MaxMessageBytes int
	// MemoryBytes is the memory that the bridge should use. It limits how many
	// large messages of clients are held at once.
	MemoryBytes int64

	// IdleTimeout ends a session, or the shared child, after this time without
	// messages and pending requests. An open event stream does not keep a
	// session alive.
	IdleTimeout time.Duration
	// StartTimeout is the timeout for the first response of a child.
	StartTimeout time.Duration
	// IOTimeout is the timeout for a client to send or receive one message.
	IOTimeout time.Duration
	// KeepAlive is the interval of comments on an idle event stream, which
	// prevent proxies from closing it and detect disconnected clients.
	KeepAlive time.Duration
	// StopGrace is the time for a child to exit after its standard input is
	// closed, and again after SIGTERM; then its process group is killed.
	StopGrace time.Duration
	// DrainTimeout is the maximum duration of Drain, including the stop of the
	// children: it must be more than twice StopGrace.
	DrainTimeout time.Duration
	// DrainIdleTimeout replaces a longer IdleTimeout while draining.
	DrainIdleTimeout time.Duration

	// StderrLinesPerSecond limits the logged lines of the standard error of a child.
	StderrLinesPerSecond int

	// AllowedHosts and AllowedOrigins are the allowed values of the Host and
	// Origin headers, against DNS rebinding. IP addresses and localhost are
	// always allowed hosts. Requests without an Origin are allowed, and those
	// of pages of the same host, unless only Any allows it. Hosts have no port; origins
	// are written as in the header. Any allows all.
	AllowedHosts   []string
	AllowedOrigins []string

	// Protect returns the handler that clients reach, in front of the one that serves MCP; nil serves all clients.
	Protect func(http.Handler) http.Handler
	// Caller identifies the caller of a request that Protect has let through. A session serves only the caller that
	// started it. If it is nil, a session serves all, and the limits are those of the address of the client, or of the
	// proxy in front of it.
	Caller func(*http.Request) string

	// Peers, if set, makes every replica of a server accept the requests of all sessions.
	Peers *peers.Options

	// ReapAll makes the bridge reap all exited processes, including orphans. It
	// is for a program that is PID 1 or a subreaper and starts no other
	// processes.
	ReapAll bool

	Log logr.Logger
	// Collectors are served at /metrics, too.
	Collectors []prometheus.Collector
}

// DefaultOptions returns the default limits.
func DefaultOptions() Options {
	return Options{
		Path:                 "/mcp",
		MaxSessions:          100,
		MaxRequests:          64,
		MaxMessageBytes:      4 << 20,
		MemoryBytes:          256 << 20,
		IdleTimeout:          30 * time.Minute,
		StartTimeout:         time.Minute,
		IOTimeout:            30 * time.Second,
		KeepAlive:            15 * time.Second,
		StopGrace:            2 * time.Second,
		DrainTimeout:         25 * time.Second,
		DrainIdleTimeout:     5 * time.Second,
		StderrLinesPerSecond: 50,
	}
}

// complete sets defaults and validates the options.
func (o *Options) complete() error {
	d := DefaultOptions()
	if o.Path == "" {
		o.Path = d.Path
	}
	errs := []error{o.validPath()}
	if len(o.Command) == 0 || o.Command[0] == "" {
		errs = append(errs, errors.New("no command: pass it after --"))
	}
	if o.Peers != nil {
		errs = append(errs, o.Peers.Complete())
	}
	errs = append(errs,
		limit("MaxSessions", &o.MaxSessions, d.MaxSessions),
		limit("MaxRequests", &o.MaxRequests, d.MaxRequests),
		limit("MaxMessageBytes", &o.MaxMessageBytes, d.MaxMessageBytes),
		limit("MemoryBytes", &o.MemoryBytes, d.MemoryBytes),
		limit("StderrLinesPerSecond", &o.StderrLinesPerSecond, d.StderrLinesPerSecond),
		limit("IdleTimeout", &o.IdleTimeout, d.IdleTimeout),
		limit("StartTimeout", &o.StartTimeout, d.StartTimeout),
		limit("IOTimeout", &o.IOTimeout, d.IOTimeout),
		limit("KeepAlive", &o.KeepAlive, d.KeepAlive),
		limit("StopGrace", &o.StopGrace, d.StopGrace),
		limit("DrainTimeout", &o.DrainTimeout, d.DrainTimeout),
		limit("DrainIdleTimeout", &o.DrainIdleTimeout, d.DrainIdleTimeout),
	)
	// A tenth of the sessions is left for other callers.
	errs = append(errs, limit("MaxSessionsPerCaller", &o.MaxSessionsPerCaller, o.MaxSessions-o.MaxSessions/10))
	if o.DrainTimeout > 0 && o.StopGrace >= o.DrainTimeout/2 {
		errs = append(errs, fmt.Errorf("-drain-timeout leaves %s to drain, which must be more than twice -stop-grace (%s): "+
			"use a longer -drain-timeout or a shorter -stop-grace", o.DrainTimeout, o.StopGrace))
	}
	if !validUsers(o.FirstSessionUser, o.MaxSessions) {
		errs = append(errs, fmt.Errorf("-first-session-user must be at least 10000, and the users up to %d more must be below 2^31, and not be from 60000 to 65535: "+
			"use a value such as 100000", o.MaxSessions+1))
	}
	return errors.Join(errs...)
}

func (o *Options) validPath() error {
	if !strings.HasPrefix(o.Path, "/") || strings.ContainsAny(o.Path, "{} ?#") {
		return fmt.Errorf("Path %q must start with / and must not contain {, }, space, ? or #", o.Path)
	}
	return nil
}

// largeMessages is the number of large messages of clients that are held at once: a quarter of the memory,
// because a message may be copied while it is read and relayed.
func (o *Options) largeMessages() int {
	return int(min(max(o.MemoryBytes/4/int64(o.MaxMessageBytes), 2), 64))
}

// limit replaces 0 by the default.
func limit[T int | int64 | time.Duration](name string, value *T, def T) error {
	switch {
	case *value == 0:
		*value = def
	case *value < 0:
		return fmt.Errorf("%s must not be negative", name)
	}
	return nil
}
