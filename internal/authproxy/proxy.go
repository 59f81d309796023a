package authproxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fixpoint-dev/fixpoint/internal/bridge"
	"github.com/fixpoint-dev/fixpoint/internal/peers"
	"github.com/fixpoint-dev/fixpoint/internal/requestbody"
	"github.com/fixpoint-dev/fixpoint/internal/streams"
)

// Paths of the administrative endpoints.
const (
	healthPath  = "/healthz"
	readyPath   = "/readyz"
	metricsPath = "/metrics"
)

const (
	// idleConnection is how long a connection to the server is kept. Some servers close idle ones after two seconds, and
	// a request that is sent at that moment would fail.
	idleConnection = time.Second
	// lastRequestTime is the time, while draining, for a last request on kept connections.
	lastRequestTime = 3 * time.Second
	// closeGrace is the time to send completed responses after the drain.
	closeGrace = time.Second
	// A server that refuses connections endedProbes times in a row, after each endedProbeInterval, has ended.
	endedProbes        = 2
	endedProbeInterval = 500 * time.Millisecond
)

// Options configure [New].
type Options struct {
	// Port is the port of the server on this host.
	Port int
	// Protect returns the handler that clients reach, in front of the one that forwards to the server.
	Protect func(http.Handler) http.Handler
	// Caller identifies the caller of a request that Protect has let through. A session serves only the caller that
	// started it. Without, a session serves all, and places for large messages are shared by client addresses.
	Caller func(*http.Request) string
	// MaxMessageBytes is the maximum size of a message that is read, in bytes; 0 is the default of the bridge.
	MaxMessageBytes int
	// AllowsHost reports whether a Host header may be replaced by localhost, for a server that listens only there. Requests
	// with another host keep it, so that the server can refuse it: it may be one that an attacker gave the address of this
	// host (DNS rebinding). If nil, all may, because requests without a token are refused.
	AllowsHost func(host string) bool
	// DrainTimeout is how long requests may continue after SIGTERM.
	DrainTimeout time.Duration
	// Sessions, if set, makes every replica of a server accept the requests of all sessions.
	Sessions *SessionOptions
	// Collectors are served at /metrics.
	Collectors []prometheus.Collector
	Log        logr.Logger
}

// Proxy forwards requests to one server.
type Proxy struct {
	opts     Options
	upstream *upstream
	// transport connects to the server.
	transport http.RoundTripper
	messages  *requestbody.Reader
	params    *bridge.ParamChecker
	handler   http.Handler
	metrics   http.Handler
	streams   *streams.Group
	// peers and peerHandler are nil without Options.Sessions.
	peers       *peers.Peers
	peerHandler http.Handler
	draining    atomic.Bool
}

// New returns a proxy. It does not connect to the server before the first request.
func New(opts Options) (*Proxy, error) {
	if opts.Port < 1 || opts.Port > 65535 {
		return nil, fmt.Errorf("the port of the server is %d: it must be from 1 to 65535", opts.Port)
	}
	if opts.MaxMessageBytes == 0 {
		opts.MaxMessageBytes = bridge.DefaultOptions().MaxMessageBytes
	}
	p := &Proxy{
		opts: opts, upstream: newUpstream(opts.Port, opts.AllowsHost),
		transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
			MaxIdleConnsPerHost: 64,
			IdleConnTimeout:     idleConnection,
			DisableCompression:  true, // so that the encoding is what client and server agree on
		},
		streams:  streams.NewGroup(opts.Log),
		messages: requestbody.NewReader(opts.MaxMessageBytes),
		params:   bridge.NewParamChecker(listTimeout, opts.Log),
	}
	forward := &httputil.ReverseProxy{
		Rewrite:        p.rewrite,
		Transport:      &streamTransport{RoundTripper: p.transport, dialer: net.Dialer{Timeout: dialTimeout}},
		ModifyResponse: p.modify,
		BufferPool:     &buffers{},
		ErrorHandler:   p.failed,
		ErrorLog:       slog.NewLogLogger(logr.ToSlogHandler(opts.Log.V(1)), slog.LevelInfo),
	}
	server := p.mirrored(p.located(p.streamed(forward)))
	if opts.Sessions == nil {
		p.metrics = newMetrics(opts.Collectors)
		p.handler = p.closing(p.streams.Handler(opts.Protect(server)))
		return p, nil
	}
	var err error
	forwarded := newForwarded()
	p.metrics = newMetrics(append(slices.Clone(opts.Collectors), forwarded))
	count := func(outcome string) { forwarded.WithLabelValues(outcome).Inc() }
	if p.peers, err = peers.New(&opts.Sessions.Options, peers.Program{Log: opts.Log, Count: count}); err != nil {
		return nil, fmt.Errorf("configuring the proxy: %w", err)
	}
	p.handler = p.closing(p.streams.Handler(opts.Protect(p.routed(server))))
	p.peerHandler = p.streams.Handler(p.servePeer(server))
	return p, nil
}

// bufferBytes is the size of the buffer that each response has until its end: idle streams have one, too.
const bufferBytes = 2 << 10

// buffers are used again.
type buffers struct{ pool sync.Pool }

// Get returns a buffer.
func (b *buffers) Get() []byte {
	if buffer, ok := b.pool.Get().(*[bufferBytes]byte); ok {
		return buffer[:]
	}
	return make([]byte, bufferBytes)
}

// Put takes a buffer back.
func (b *buffers) Put(buffer []byte) { b.pool.Put((*[bufferBytes]byte)(buffer)) }

// newForwarded counts requests that other replicas serve.
func newForwarded() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "fixpoint", Subsystem: "proxy", Name: "forwarded_requests_total",
		Help: "Number of requests forwarded to the replica that has the session, by outcome.",
	}, []string{"outcome"})
}

// newMetrics serves those of the process, and others.
func newMetrics(others []prometheus.Collector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(others...)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

// addressKey is the key of the address of the server in the context of a request.
type addressKey struct{}

// located finds the server before a request is forwarded.
func (p *Proxy) located(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, err := p.upstream.address(r.Context())
		if err != nil {
			p.failed(w, r, err)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), addressKey{}, at))
		requestbody.EndAtLength(r)
		requestbody.MarkErrors(r)
		next.ServeHTTP(w, r)
	})
}

// forwarded are the headers of proxies in front of this one, which are kept.
var forwarded = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}

// rewrite makes the request for the server.
func (p *Proxy) rewrite(r *httputil.ProxyRequest) {
	at, _ := r.In.Context().Value(addressKey{}).(netip.AddrPort)
	r.Out.URL.Scheme = "http"
	r.Out.URL.Host = at.String()
	r.Out.Host = p.upstream.host(at, r.In.Host)
	for _, name := range forwarded {
		if values, ok := r.In.Header[name]; ok {
			r.Out.Header[name] = slices.Clone(values)
		}
	}
	if client, _, err := net.SplitHostPort(r.In.RemoteAddr); err == nil {
		hops := append(r.Out.Header["X-Forwarded-For"], client)
		r.Out.Header.Set("X-Forwarded-For", strings.Join(hops, ", "))
	}
	if r.Out.Header.Get("X-Forwarded-Host") == "" {
		r.Out.Header.Set("X-Forwarded-Host", r.In.Host)
	}
	if p.peers != nil {
		setSession(r.Out.Header, sessionOf(r.In).own)
	}
	r.Out.Trailer = nil
	for _, name := range []string{"Connection", "Upgrade"} { // Another protocol would not be checked.
		r.Out.Header.Del(name)
	}
}

// failed responds to a request that the server has not responded to.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	var large *http.MaxBytesError
	var unread *requestbody.ReadError
	var invalid *invalidServerID
	switch {
	case errors.As(err, &invalid):
		p.opts.Log.Info("Refused a session of the server", "cause", invalid.cause)
		peers.InvalidID(invalid.cause).Write(w, nil)
		return
	case p.draining.Load() && sessionOf(r).own != "" && isGone(err):
		p.upstream.forget()
		peers.Gone().Write(w, nil)
		return
	case errors.As(err, &large):
		respond(w, http.StatusRequestEntityTooLarge, "invalid_request", fmt.Sprintf("the message is larger than the limit of %d bytes: send a smaller one", large.Limit))
		return
	case r.Context().Err() != nil:
		w.WriteHeader(http.StatusBadGateway) // the client has left
		return
	case errors.As(err, &unread):
		respond(w, http.StatusBadRequest, "invalid_request", "the message could not be read: send it again")
		return
	}
	p.upstream.forget()
	p.opts.Log.Info("Failed to forward a request", "error", err.Error())
	w.Header().Set("Retry-After", "1")
	respond(w, http.StatusBadGateway, "server_unreachable",
		fmt.Sprintf("the MCP server does not respond on port %d of its pod: retry, and check the log of the server and that it listens on spec.port", p.opts.Port))
}

// respond responds with an error.
func respond(w http.ResponseWriter, status int, code, description string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": code, "error_description": description}) // The client may be gone.
}

// closing tells clients to close their connections while the proxy drains, so that the next request reaches
// another pod.
func (p *Proxy) closing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// AdminHandler serves /healthz, /readyz and /metrics, without tokens.
func (p *Proxy) AdminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+healthPath, func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "alive") })
	mux.HandleFunc("GET "+readyPath, func(w http.ResponseWriter, r *http.Request) {
		if p.draining.Load() {
			http.Error(w, "draining", http.StatusServiceUnavailable)
			return
		}
		if _, err := p.upstream.probe(r.Context()); err != nil {
			http.Error(w, fmt.Sprintf("the server does not accept connections on port %d: check that it listens on spec.port", p.opts.Port), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ready")
	})
	mux.Handle("GET "+metricsPath, p.metrics)
	return mux
}

// Serve serves until ctx is done, then drains: requests continue for at most DrainTimeout. Cancelling force ends them
// immediately.
func (p *Proxy) Serve(ctx, force context.Context, clients, admin net.Listener) error {
	front, back := newServer(p.handler), newServer(p.AdminHandler())
	back.WriteTimeout = sendTimeout
	serving := map[net.Listener]*http.Server{admin: back}
	for _, listener := range keepIdle(front, clients) {
		serving[listener] = front
	}
	fronts := []*http.Server{front}
	if p.peers != nil {
		defer p.peers.Close()
		forwarded := p.peers.Server(p.peerHandler)
		serving[p.peers.Listen(p.opts.Sessions.Listener)] = forwarded
		fronts = append(fronts, forwarded)
	}
	failed := make(chan error, len(serving))
	for listener, server := range serving {
		go func() {
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				failed <- err
			}
		}()
	}
	defer shutDown(context.Background(), back, closeGrace)
	p.opts.Log.Info("Serving", "address", clients.Addr().String(), "adminAddress", admin.Addr().String(), "serverPort", p.opts.Port)
	select {
	case err := <-failed:
		for _, s := range fronts {
			_ = s.Close()
		}
		_ = p.streams.Close()
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}
	p.drain(force, fronts)
	return nil
}

// drain lets requests continue. With other replicas, it waits until the server ends: its sessions may have no request at the
// moment, and their next ones arrive from other replicas.
func (p *Proxy) drain(force context.Context, fronts []*http.Server) {
	p.draining.Store(true)
	p.opts.Log.Info("Draining", "timeout", p.opts.DrainTimeout.String())
	end := time.Now().Add(p.opts.DrainTimeout)
	pause(force, min(lastRequestTime, p.opts.DrainTimeout/2))
	if p.peers != nil {
		p.waitForServer(force, time.Until(end)-min(closeGrace, p.opts.DrainTimeout/4))
		p.peers.FinishStreams()
	}
	var ending sync.WaitGroup
	var cut atomic.Bool
	for _, s := range fronts {
		ending.Go(func() {
			if !shutDown(force, s, time.Until(end)) {
				cut.Store(true)
			}
		})
	}
	ending.Wait()
	// After the requests, of which some may become streams.
	if !shutDown(force, p.streams, time.Until(end)) || cut.Load() {
		p.opts.Log.Info("Drain timed out; ended the remaining requests")
	}
}

// waitForServer waits until the server accepts no connections any more.
func (p *Proxy) waitForServer(force context.Context, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(force, timeout)
	defer cancel()
	for failures := 0; failures < endedProbes && ctx.Err() == nil; pause(ctx, endedProbeInterval) {
		failures++
		if _, err := p.upstream.probe(ctx); err == nil {
			failures = 0
		}
	}
}

// shutter is an [http.Server] or a group of streams.
type shutter interface {
	Shutdown(ctx context.Context) error
	Close() error
}

func newServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: keepAlive, MaxHeaderBytes: 64 << 10}
}

// pause waits for a time, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// shutDown waits until all requests have ended, and reports whether they did in time.
func shutDown(ctx context.Context, s shutter, timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if s.Shutdown(ctx) != nil {
		_ = s.Close()
		return false
	}
	return true
}
