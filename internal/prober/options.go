package prober

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/url"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

const (
	// DefaultConcurrency is the default number of concurrent probes.
	DefaultConcurrency = 64
	// DefaultListEvery is the default number of intervals between counts of tools, prompts and resources.
	DefaultListEvery = 20
)

// Options configure a Prober. The zero value is valid.
type Options struct {
	// Concurrency is the maximum number of concurrent probes; DefaultConcurrency if 0. Half of it is for
	// probes that take longer than a second, so that slow servers delay only each other.
	Concurrency int
	// ListEvery is the average number of intervals between counts of tools, prompts and resources;
	// DefaultListEvery if 0.
	ListEvery int
	// Clock is the clock of the scheduler; the real one if nil. Timeouts use real time.
	Clock clock.Clock
	// Dial opens connections; a net.Dialer if nil. The address is that of the replica, or the host of
	// the URL if the target has no addresses. If it returns an Error, that is the result of the probe.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Host, if set, replaces the host name in the Host of all requests. It is for a Dial that reaches the loopback
	// interface of replicas, where servers refuse other names than localhost, against DNS rebinding. TLS verifies the
	// host of the URL as always.
	Host string
	// Rewrite changes the URL of a probe in place, and replica addresses are then ignored. It is for
	// clusters with simulated nodes only: credentials are sent to the rewritten URL.
	Rewrite func(*url.URL)
	// Metrics registers the metrics; nil registers none.
	Metrics prometheus.Registerer
	// Notify is called when the Result of a key changes in what a status shows. It must not block, and
	// may call the Prober. See also Prober.Source.
	Notify func(types.NamespacedName)
	// Version is the client version in handshakes; "unknown" if empty.
	Version string
}

// New returns a prober without targets. It probes after Start.
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
	// The prober declares no capabilities, so honest servers send it no requests.
	client := mcp.NewClient(implementation, &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}})
	client.AddReceivingMiddleware(onlyPings)
	client.AddSendingMiddleware(withoutCache)
	p := &Prober{
		options:    options,
		client:     client,
		metrics:    metrics,
		entries:    map[types.NamespacedName]*entry{},
		texts:      newTexts(),
		namespaces: map[string]*namespace{},
		changed:    map[types.NamespacedName]struct{}{},
		queue:      newQueue(options.Concurrency),
		wake:       make(chan struct{}, 1),
		random:     rand.Float64,
	}
	p.probe = p.handshake
	if options.Notify != nil {
		p.subscribe(options.Notify)
	}
	return p, nil
}

// onlyPings ignores requests and notifications of servers, except for pings. The handlers of the SDK are not made for hostile
// servers: one panics if a notification has no params, and others send requests.
func onlyPings(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
		if method == "ping" {
			return next(ctx, method, request)
		}
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "a probe handles no requests and notifications"}
	}
}

// withoutCache makes the SDK request each page of a list. It takes a page that it has read before from a cache for as long as
// the server has allowed, so a list whose pages repeat would never end, without a request that counts against the limits.
func withoutCache(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
		result, err := next(ctx, method, request)
		if err != nil {
			return nil, err
		}
		switch list := result.(type) {
		case *mcp.ListToolsResult:
			list.TTLMs = 0
		case *mcp.ListPromptsResult:
			list.TTLMs = 0
		case *mcp.ListResourcesResult:
			list.TTLMs = 0
		case *mcp.ListResourceTemplatesResult:
			list.TTLMs = 0
		}
		return result, nil
	}
}

func setDefaults(options *Options) {
	options.Concurrency = cmp.Or(options.Concurrency, DefaultConcurrency)
	options.ListEvery = cmp.Or(options.ListEvery, DefaultListEvery)
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.Dial == nil {
		options.Dial = (&net.Dialer{}).DialContext
	}
	options.Version = cmp.Or(options.Version, "unknown")
}
