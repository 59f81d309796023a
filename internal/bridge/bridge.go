package bridge

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fixpoint-dev/fixpoint/internal/peers"
	"github.com/fixpoint-dev/fixpoint/internal/requestbody"
)

// Paths of the administrative endpoints.
const (
	healthPath  = "/healthz"
	readyPath   = "/readyz"
	metricsPath = "/metrics"
)

// Bridge serves one command over HTTP. Create it with New, and stop it with Drain or Close.
type Bridge struct {
	opts     Options
	times    times
	metrics  *metrics
	reaper   *reaper
	launcher *launcher
	shared   *shared
	// peers is nil without other replicas.
	peers *peers.Peers
	// sessionUsers are the users of sessions, sharedUser is that of processes without a session.
	sessionUsers, sharedUser *users

	// places are those of large messages of clients.
	places  *requestbody.Places
	allowed allowList
	// probing is a mutex for finding out what the server speaks; speaks is the result.
	probing chan struct{}
	speaks  atomic.Pointer[generations]
	// changed signals Drain that a session or request has ended.
	changed chan struct{}
	ready   atomic.Bool
	closing sync.Once
	jobs    sync.WaitGroup
	// closed is done when Close begins. After that, no job begins except by shared, which has a state of its own.
	closed context.Context
	end    context.CancelFunc

	mu        sync.Mutex
	sessions  map[string]*session
	stopping  map[*session]struct{}
	admission admission
	draining  bool
}

// times are those that are not options. Only tests change them.
type times struct {
	bodyGrace, discover, lastRequest, shutdown time.Duration
	// place is the time to wait for the place of a large message.
	place time.Duration
}

// New returns a bridge that has not started a process. It is not ready before MarkReady.
func New(opts Options) (*Bridge, error) {
	if err := opts.complete(); err != nil {
		return nil, fmt.Errorf("configuring the bridge: %w", err)
	}
	allowed, err := newAllowList(opts.AllowedHosts, opts.AllowedOrigins)
	if err != nil {
		return nil, fmt.Errorf("configuring the bridge: %w", err)
	}
	sessionUsers, sharedUser, err := newUsers(opts.FirstSessionUser, opts.MaxSessions)
	if err != nil {
		return nil, fmt.Errorf("configuring the bridge: %w", err)
	}
	b := &Bridge{
		sessionUsers: sessionUsers, sharedUser: sharedUser,
		allowed:  allowed,
		opts:     opts,
		times:    times{bodyGrace, discoverTimeout, lastRequestTime, shutdownGrace, opts.IOTimeout},
		metrics:  newMetrics(opts.Collectors...),
		reaper:   newReaper(opts.ReapAll),
		places:   requestbody.NewPlaces(opts.largeMessages()),
		probing:  make(chan struct{}, 1),
		changed:  make(chan struct{}, 1),
		sessions: map[string]*session{},
		stopping: map[*session]struct{}{},
		admission: admission{
			maxSessions: opts.MaxSessions, maxPerCaller: opts.MaxSessionsPerCaller, counts: map[string]int{},
		},
	}
	b.closed, b.end = context.WithCancel(context.Background())
	b.launcher = &launcher{
		command: opts.Command, maxBytes: opts.MaxMessageBytes, stderrLines: opts.StderrLinesPerSecond,
		grace: opts.StopGrace, reaper: b.reaper, metrics: b.metrics,
	}
	b.shared = &shared{bridge: b, perCaller: map[string]int{}}
	if b.peers, err = newPeers(b, opts.Peers); err != nil {
		return nil, fmt.Errorf("configuring the bridge: %w", err)
	}
	return b, nil
}

// MarkReady makes /readyz respond with 200 until the bridge drains.
func (b *Bridge) MarkReady() { b.ready.Store(true) }

// Handler serves MCP at Options.Path, and what Options.Protect adds.
func (b *Bridge) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(b.opts.Path, b.serveMCP)
	if b.opts.Protect != nil {
		return b.limitSending(b.opts.Protect(mux))
	}
	return b.limitSending(mux)
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
		http.Error(w, "waiting for the first MCP handshake with the command", http.StatusServiceUnavailable)
	default:
		_, _ = fmt.Fprintln(w, "ready")
	}
}

// background runs a function that Close waits for. It must not be called once Close waits.
func (b *Bridge) background(job func()) {
	b.jobs.Go(job)
}

// beginJob begins a job that Close waits for. It is not ok after Close has begun; else the job ends with done.
func (b *Bridge) beginJob() (done func(), ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isClosed() {
		return nil, false
	}
	b.jobs.Add(1)
	return b.jobs.Done, true
}

func (b *Bridge) isClosed() bool { return b.closed.Err() != nil }

// waitForSessions starts no new sessions and waits until clients end the running ones, or they are idle for
// DrainIdleTimeout. Shortly before DrainTimeout, or when ctx is done, it leaves the others to Close: pending requests get
// an error, and children are stopped within StopGrace. It reports whether all sessions ended by themselves. Serve shuts the
// HTTP servers down before Close, so that requests on open connections still get a response.
func (b *Bridge) waitForSessions(ctx context.Context) bool {
	b.mu.Lock()
	b.draining = true
	b.mu.Unlock()
	b.metrics.draining.Set(1)
	b.opts.Log.Info("Draining", "sessions", len(b.all()), "timeout", b.opts.DrainTimeout.String())
	b.shared.stopListening()
	for _, s := range b.all() {
		s.shortenIdleTimeout(b.opts.DrainIdleTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, b.opts.DrainTimeout-2*b.opts.StopGrace)
	defer cancel()
	b.waitForLastRequests(ctx)
	complete := b.await(ctx, b.finished)
	b.peers.FinishStreams()
	if !complete {
		b.opts.Log.Info("Drain timed out; ending what remains", "sessions", len(b.all()), "requestsWithoutSession", b.shared.pending())
	}
	return complete
}

// waitForLastRequests gives clients without a session, and those with a session of another replica, time for one more
// request on a kept connection. Its response tells them to close the connection; closing it during a request would fail
// that request.
func (b *Bridge) waitForLastRequests(ctx context.Context) {
	if !b.shared.usedWithin(keepAlive) && !b.peers.UsedWithin(keepAlive) {
		return
	}
	select {
	case <-time.After(min(b.times.lastRequest, b.opts.DrainIdleTimeout)):
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
		b.end()
		b.mu.Unlock()
		for _, s := range b.all() {
			s.end(drainFailure())
		}
		b.peers.Close()
		b.shared.close()
		b.jobs.Wait()
		// Every child is killed eventually, so this returns.
		_ = b.await(context.Background(), b.noSessions)
		b.reaper.close()
		b.sessionUsers.close()
	})
}
