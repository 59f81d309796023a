package bridge

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Paths of the bridge's own endpoints.
const (
	healthPath  = "/healthz"
	readyPath   = "/readyz"
	metricsPath = "/metrics"
)

// readersOutside bounds the messages outside of sessions that are held at once.
const readersOutside = 32

// Bridge serves one command. Make it with New, and end it with Drain or Close.
type Bridge struct {
	opts     Options
	metrics  *metrics
	reaper   *reaper
	launcher *launcher
	shared   *shared

	// readers has a place for each message outside of sessions.
	readers chan struct{}
	// probing is held by the one who asks the server for its spec versions;
	// known is what has come of it.
	probing chan struct{}
	known   atomic.Pointer[bool]
	// changed wakes the one who drains.
	changed chan struct{}
	ready   atomic.Bool
	closing sync.Once
	jobs    sync.WaitGroup

	mu       sync.Mutex
	sessions map[string]*session
	places   int
	draining bool
}

// New returns a bridge that runs nothing yet. It is not ready before MarkReady.
func New(opts Options) (*Bridge, error) {
	if err := opts.complete(); err != nil {
		return nil, fmt.Errorf("configuring the bridge: %w", err)
	}
	b := &Bridge{
		opts:     opts,
		metrics:  newMetrics(),
		reaper:   newReaper(opts.ReapAll),
		readers:  make(chan struct{}, readersOutside),
		probing:  make(chan struct{}, 1),
		changed:  make(chan struct{}, 1),
		sessions: map[string]*session{},
	}
	b.launcher = &launcher{
		command: opts.Command, maxBytes: opts.MaxMessageBytes, stderrLines: opts.StderrLinesPerSecond,
		grace: opts.StopGrace, reaper: b.reaper, metrics: b.metrics,
	}
	b.shared = &shared{bridge: b}
	return b, nil
}

// MarkReady makes the readiness endpoint answer with 200 until the bridge drains.
func (b *Bridge) MarkReady() { b.ready.Store(true) }

// Handler serves the protocol, and nothing else, at the path of the options.
func (b *Bridge) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(b.opts.Path, b.serveMCP)
	return mux
}

// AdminHandler serves /healthz, /readyz and /metrics.
func (b *Bridge) AdminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+healthPath, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "alive")
	})
	mux.HandleFunc("GET "+readyPath, b.serveReady)
	mux.Handle("GET "+metricsPath, b.metrics.handler())
	return mux
}

func (b *Bridge) serveReady(w http.ResponseWriter, _ *http.Request) {
	switch {
	case b.isDraining():
		http.Error(w, "draining", http.StatusServiceUnavailable)
	case !b.ready.Load():
		http.Error(w, "the command has not been checked yet", http.StatusServiceUnavailable)
	default:
		_, _ = fmt.Fprintln(w, "ready")
	}
}

// background runs something that Close waits for.
func (b *Bridge) background(job func()) {
	b.jobs.Go(job)
}

// Drain lets sessions come to their end: none begins any more, the running ones
// go on until their clients end them, or they are idle for DrainIdleTimeout.
// What is left when DrainTimeout is nearly over, or ctx ends, is ended in order:
// requests in flight get an error, children end as StopGrace says. No child is
// left when Drain returns. It reports whether all sessions came to their end.
func (b *Bridge) Drain(ctx context.Context) bool {
	complete := b.finish(ctx)
	b.Close()
	return complete
}

// finish is Drain without the end. Whoever serves HTTP shuts that down in between:
// requests that come on connections which are open still get their answers.
func (b *Bridge) finish(ctx context.Context) bool {
	b.mu.Lock()
	b.draining = true
	b.mu.Unlock()
	b.metrics.draining.Set(1)
	b.opts.Log.Info("Draining", "sessions", len(b.all()), "timeout", b.opts.DrainTimeout.String())
	b.shared.stopListening()
	for _, s := range b.all() {
		s.hurry(b.opts.DrainIdleTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, b.opts.DrainTimeout-2*b.opts.StopGrace)
	defer cancel()
	b.letConnectionsGo(ctx)
	complete := b.await(ctx, b.finished)
	if !complete {
		b.opts.Log.Info("Ending what has not ended by itself", "sessions", len(b.all()))
	}
	return complete
}

// letConnectionsGo gives clients that keep connections, and have no session, the time for one more
// request, whose answer tells them to close: a connection that is closed under a client's request
// costs it that request.
func (b *Bridge) letConnectionsGo(ctx context.Context) {
	if !b.shared.usedWithin(keepAlive) {
		return
	}
	timer := time.NewTimer(min(lastRequests, b.opts.DrainIdleTimeout))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (b *Bridge) isDraining() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.draining
}

// Close ends all sessions and children now, and returns when they have ended.
func (b *Bridge) Close() {
	b.closing.Do(func() {
		b.mu.Lock()
		b.draining = true
		b.mu.Unlock()
		for _, s := range b.all() {
			s.end(drainFailure())
		}
		b.shared.close()
		b.jobs.Wait()
		// Every child is killed in the end, so this ends too.
		_ = b.await(context.Background(), b.vacant)
		b.reaper.close()
	})
}
