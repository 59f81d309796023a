package main

import (
	"context"
	"flag"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/go-logr/logr"

	"github.com/fixpoint-dev/fixpoint/internal/telemetry"
)

// telemetryFlags configure the records of requests.
type telemetryFlags struct {
	server, namespace string
	arguments         string
	otlp              telemetry.OTLP
}

func (f *telemetryFlags) register(flags *flag.FlagSet) {
	flags.StringVar(&f.arguments, "audit", "", "write a JSON line for each request to the standard output, with the `arguments` of calls: Digest, Full or None (default: no lines)")
	flags.StringVar(&f.server, "server-name", "mcp-server", "`name` of the server in records of requests")
	flags.StringVar(&f.namespace, "server-namespace", "", "`namespace` of the server in records of requests")
	flags.StringVar(&f.otlp.Endpoint, "otlp-endpoint", "", "base `URL` of an OpenTelemetry collector to export spans and metrics to over HTTP (default: no export)")
	flags.StringVar(&f.otlp.HeadersFile, "otlp-headers", "", "`file` with headers for the collector, one per line; it is read for each export")
	flags.StringVar(&f.otlp.CAFile, "otlp-ca", "", "`file` with CA certificates of the collector in PEM format, in addition to those of the system; it need not exist")
	flags.IntVar(&f.otlp.SamplePercent, "otlp-sample-percent", 100, "share of the traces that begin here and are exported, in `percent`; clients decide about their own")
	flags.DurationVar(&f.otlp.MetricsInterval, "otlp-metrics-interval", 0, "`time` between exports of metrics (default 1m)")
}

// isSet reports whether requests are recorded.
func (f *telemetryFlags) isSet() bool { return f.arguments != "" || f.otlp.Endpoint != "" }

// recorder returns nil if requests are not recorded.
func (f *telemetryFlags) recorder(stdout io.Writer, log logr.Logger, metrics *telemetry.Metrics, maxMessageBytes int) (*telemetry.Recorder, error) {
	if !f.isSet() {
		return nil, nil
	}
	options := telemetry.Options{
		Server: f.server, Namespace: f.namespace, Arguments: telemetry.Arguments(f.arguments),
		MaxMessageBytes: maxMessageBytes, Metrics: metrics, Log: log,
	}
	options.Pod, _ = os.Hostname() // Records have a name of the process, too.
	if f.arguments != "" {
		options.Lines = stdout
	}
	if f.otlp.Endpoint != "" {
		options.OTLP = &f.otlp
	}
	return telemetry.New(options)
}

// recordTimeout is the time at the end of the process to write and export records. Only tests change it.
var recordTimeout = 1500 * time.Millisecond

// drainTimeout leaves time for records, of which those of the last requests are known at the end of the drain.
func (f *telemetryFlags) drainTimeout(timeout time.Duration) time.Duration {
	if !f.isSet() {
		return timeout
	}
	return timeout - min(recordTimeout, timeout/4)
}

// closeRecorder writes what is not written yet.
func closeRecorder(recorder *telemetry.Recorder, log logr.Logger) {
	if recorder == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	defer cancel()
	if err := recorder.Close(ctx); err != nil {
		log.Info("Failed to write or export the last records of requests", "error", err.Error())
	}
}

// recorded is the handler with records, which are those of all requests, also of those that next refuses.
func recorded(recorder *telemetry.Recorder, next http.Handler) http.Handler {
	if recorder == nil {
		return next
	}
	return recorder.Protect(next)
}
