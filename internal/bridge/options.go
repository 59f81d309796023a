package bridge

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
)

// Options say what a bridge runs and where its limits are. The zero value of a
// limit takes the value of DefaultOptions; New refuses negative ones.
type Options struct {
	// Command is the child's program and arguments. It is run as it stands,
	// without a shell, in the bridge's own environment and folder.
	Command []string
	// Path is where the protocol is served.
	Path string

	// MaxSessions bounds the children that serve sessions, those that are
	// being ended among them.
	MaxSessions int
	// MaxRequests bounds the HTTP requests in flight of one session, and the
	// requests in flight of all clients without one.
	MaxRequests int
	// MaxMessageBytes bounds one message, in either direction.
	MaxMessageBytes int

	// IdleTimeout ends a session, and the shared child, when no message has
	// reached either side for so long and none is awaited. An open event stream alone does
	// not keep a session.
	IdleTimeout time.Duration
	// StartTimeout is how long a child may take to answer its first request.
	StartTimeout time.Duration
	// IOTimeout is how long a client may take to send a message, or to take
	// one, before its connection is given up.
	IOTimeout time.Duration
	// KeepAlive is the interval of the comments on an event stream that is
	// quiet. They keep proxies from closing it, and find clients that are gone.
	KeepAlive time.Duration
	// StopGrace is how long a child has to end after its standard input was
	// closed, and once more after SIGTERM; then its process group is killed.
	StopGrace time.Duration
	// DrainTimeout is how long Drain takes at most, the end of the children
	// included.
	DrainTimeout time.Duration
	// DrainIdleTimeout takes the place of a longer IdleTimeout while draining.
	DrainIdleTimeout time.Duration

	// StderrLinesPerSecond bounds what a child's standard error adds to the log.
	StderrLinesPerSecond int

	// AllowedHosts and AllowedOrigins, if there are any, are the only values
	// that the Host and Origin headers may have (a request without an Origin
	// passes). They protect a bridge that a browser can reach against DNS
	// rebinding. A host stands without its port, an origin as the header has it.
	AllowedHosts   []string
	AllowedOrigins []string

	// ReapAll makes the bridge wait for every process that ends, also for
	// orphans that it has inherited. It is for a program that is PID 1 or a
	// subreaper and starts no processes but the bridge's.
	ReapAll bool

	Log logr.Logger
}

// DefaultOptions are the limits that a bridge has if nothing else is said.
func DefaultOptions() Options {
	return Options{
		Path:                 "/mcp",
		MaxSessions:          100,
		MaxRequests:          64,
		MaxMessageBytes:      4 << 20,
		IdleTimeout:          30 * time.Minute,
		StartTimeout:         time.Minute,
		IOTimeout:            30 * time.Second,
		KeepAlive:            15 * time.Second,
		StopGrace:            2 * time.Second,
		DrainTimeout:         25 * time.Second,
		DrainIdleTimeout:     5 * time.Second,
		StderrLinesPerSecond: 50,
		Log:                  logr.Discard(),
	}
}

// complete fills in what was left out, and refuses what cannot work.
func (o *Options) complete() error {
	d := DefaultOptions()
	if o.Path == "" {
		o.Path = d.Path
	}
	if o.Log.GetSink() == nil {
		o.Log = d.Log
	}
	var errs []error
	if len(o.Command) == 0 || o.Command[0] == "" {
		errs = append(errs, errors.New("no command to run: give it after --"))
	}
	if err := o.validPath(); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs,
		limit("MaxSessions", &o.MaxSessions, d.MaxSessions),
		limit("MaxRequests", &o.MaxRequests, d.MaxRequests),
		limit("MaxMessageBytes", &o.MaxMessageBytes, d.MaxMessageBytes),
		limit("StderrLinesPerSecond", &o.StderrLinesPerSecond, d.StderrLinesPerSecond),
		limit("IdleTimeout", &o.IdleTimeout, d.IdleTimeout),
		limit("StartTimeout", &o.StartTimeout, d.StartTimeout),
		limit("IOTimeout", &o.IOTimeout, d.IOTimeout),
		limit("KeepAlive", &o.KeepAlive, d.KeepAlive),
		limit("StopGrace", &o.StopGrace, d.StopGrace),
		limit("DrainTimeout", &o.DrainTimeout, d.DrainTimeout),
		limit("DrainIdleTimeout", &o.DrainIdleTimeout, d.DrainIdleTimeout),
	)
	return errors.Join(errs...)
}

func (o *Options) validPath() error {
	if !strings.HasPrefix(o.Path, "/") || strings.ContainsAny(o.Path, "{} ?#") {
		return fmt.Errorf("Path %q has to start with / and be a plain path", o.Path)
	}
	for _, own := range []string{healthPath, readyPath, metricsPath} {
		if o.Path == own {
			return fmt.Errorf("Path %s is taken by the bridge itself", own)
		}
	}
	return nil
}

// limit puts the default in the place of a zero.
func limit[T int | time.Duration](name string, value *T, def T) error {
	switch {
	case *value == 0:
		*value = def
	case *value < 0:
		return fmt.Errorf("%s must not be negative", name)
	}
	return nil
}
