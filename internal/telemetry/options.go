package telemetry

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/go-logr/logr"
)

// Arguments is what a line has of the arguments of a call.
type Arguments string

const (
	// Digest is the SHA-256 digest of the arguments as compact JSON.
	Digest Arguments = "Digest"
	// Full are the arguments, up to 12 KiB in a line; the digest of larger ones.
	Full Arguments = "Full"
	// None is nothing.
	None Arguments = "None"
)

// Options configure [New].
type Options struct {
	// Server, Namespace and Pod are in each record.
	Server, Namespace, Pod string
	// Lines is where the lines of the audit are written; nil writes none.
	Lines io.Writer
	// Arguments is what lines have of arguments; empty is Digest.
	Arguments Arguments
	// OTLP is the collector; nil exports nothing.
	OTLP *OTLP
	// MaxMessageBytes is the maximum size of a message that is read for a record. Its default is 4 MiB.
	MaxMessageBytes int
	Metrics         *Metrics
	Log             logr.Logger

	// instance identifies the process.
	instance string
	// maxQueued is the maximum size of lines that wait to be written.
	maxQueued int
	// maxWait is how long a request waits until its number is written.
	maxWait time.Duration
}

// OTLP is an OpenTelemetry collector.
type OTLP struct {
	// Endpoint is the base URL of OTLP over HTTP.
	Endpoint string
	// HeadersFile, if set, has headers for the collector, one per line. It is read for each export.
	HeadersFile string
	// CAFile, if set, has CA certificates in addition to those of the system. It need not exist.
	CAFile string
	// SamplePercent is the share of traces that begin here and are exported.
	SamplePercent int
	// MetricsInterval is the time between exports of metrics; 0 is a minute.
	MetricsInterval time.Duration

	// spanDelay is the time between exports of spans.
	spanDelay time.Duration
}

const (
	defaultMaxMessageBytes = 4 << 20
	defaultMaxQueued       = 4 << 20
	defaultMaxWait         = 50 * time.Millisecond
	defaultMetricsInterval = time.Minute
	defaultSpanDelay       = 2 * time.Second
)

// complete sets defaults and validates the options.
func (o *Options) complete() error {
	if o.Log.GetSink() == nil {
		o.Log = logr.Discard()
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	o.MaxMessageBytes = cmp.Or(o.MaxMessageBytes, defaultMaxMessageBytes)
	o.maxQueued = cmp.Or(o.maxQueued, defaultMaxQueued)
	o.maxWait = cmp.Or(o.maxWait, defaultMaxWait)
	o.Arguments = cmp.Or(o.Arguments, Digest)
	if o.Arguments != Digest && o.Arguments != Full && o.Arguments != None {
		return fmt.Errorf("arguments are %q: use Digest, Full or None", o.Arguments)
	}
	if o.Lines == nil && o.OTLP == nil {
		return errors.New("neither lines nor a collector are configured: configure at least one")
	}
	if o.instance == "" {
		var random [8]byte
		_, _ = rand.Read(random[:]) // It never fails.
		o.instance = hex.EncodeToString(random[:])
	}
	if o.OTLP == nil {
		return nil
	}
	collector := *o.OTLP
	o.OTLP = &collector
	return collector.complete()
}

func (o *OTLP) complete() error {
	o.MetricsInterval = cmp.Or(o.MetricsInterval, defaultMetricsInterval)
	o.spanDelay = cmp.Or(o.spanDelay, defaultSpanDelay)
	if o.SamplePercent < 0 || o.SamplePercent > 100 {
		return fmt.Errorf("the share of traces is %d percent: use 0 to 100", o.SamplePercent)
	}
	parsed, err := url.Parse(o.Endpoint)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "" || parsed.RawQuery != "" || parsed.User != nil {
		return fmt.Errorf("the collector %q is not an http or https URL without user and query: use a value such as http://collector:4318", o.Endpoint)
	}
	return nil
}
