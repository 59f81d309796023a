package prober

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/url"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

const (
	// DefaultConcurrency is how many probes run at a time.
	DefaultConcurrency = 64
	// DefaultListEvery is after how many intervals tools, prompts and resources are counted again.
	DefaultListEvery = 20
)

// Options say how to probe. The zero value, with a Metrics registerer or without, is ready to use.
type Options struct {
	// Concurrency bounds the probes that run at a time; DefaultConcurrency if it is zero. Servers
	// that let their last probe time out share half of it, so that they delay only each other.
	Concurrency int
	// ListEvery is after how many intervals, give or take a half, tools, prompts and resources are
	// counted again; DefaultListEvery if it is zero.
	ListEvery int
	// Clock is what schedules are kept by; the real one if it is nil. Timeouts are kept by the
	// network, and so in real time.
	Clock clock.Clock
	// Dial opens the connections; a net.Dialer does if it is nil. It gets the address of the
	// replica, or the host of the URL if the target names no replica.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Rewrite points a probe somewhere else by changing its URL in place. The target's replica
	// addresses are not dialled then. It is for clusters whose nodes are simulated, on which no
	// server runs; leave it nil everywhere else, because credentials go where it points.
	Rewrite func(*url.URL)
	// Metrics is where the metrics are registered; nowhere if it is nil.
	Metrics prometheus.Registerer
	// Notify is called when the Result of a key has changed in what a status would show. It must
	// not block, and it may call the Prober. See also Prober.Source.
	Notify func(types.NamespacedName)
	// Version is what the client says it is; "unknown" if it is empty.
	Version string
}

// New returns a prober that knows no target. Nothing is probed before Start.
func New(options Options) (*Prober, error) {
	if options.Concurrency < 0 || options.ListEvery < 0 {
		return nil, errors.New("Concurrency and ListEvery must not be negative")
	}
	setDefaults(&options)
	metrics, err := newMetrics(options.Metrics)
	if err != nil {
		return nil, err
	}
	implementation := &mcp.Implementation{Name: "fixpoint-prober", Version: options.Version}
	// No capabilities: the prober has nothing to offer that a server could ask for.
	client := mcp.NewClient(implementation, &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}})
	p := &Prober{
		options: options,
		client:  client,
		metrics: metrics,
		entries: map[types.NamespacedName]*entry{},
		news:    map[types.NamespacedName]struct{}{},
		queue:   newQueue(options.Concurrency),
		wake:    make(chan struct{}, 1),
		random:  rand.Float64,
	}
	p.probe = p.shake
	if options.Notify != nil {
		p.subscribe(options.Notify)
	}
	return p, nil
}

func setDefaults(options *Options) {
	if options.Concurrency == 0 {
		options.Concurrency = DefaultConcurrency
	}
	if options.ListEvery == 0 {
		options.ListEvery = DefaultListEvery
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.Dial == nil {
		options.Dial = (&net.Dialer{}).DialContext
	}
	if options.Version == "" {
		options.Version = "unknown"
	}
}
