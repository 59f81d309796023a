package bridge

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
)

// loggedIDLength is the length of the logged prefix of the random part of a session id:
// enough to distinguish sessions, not enough to hijack one.
const loggedIDLength = 8

// cancelledIDs is how many ids of cancelled requests a session remembers if they get no response, which servers should not
// send.
const cancelledIDs = 64

// session is one client and its child.
type session struct {
	bridge *Bridge
	id     string
	// caller is who started the session; see Bridge.caller.
	caller string
	log    logr.Logger
	child  *child
	begun  time.Time
	// evicted is true once another session has the place of this one. It is guarded by the lock of the
	// bridge.
	evicted bool
	// stopped is closed when the child has exited.
	stopped chan struct{}

	// lastUse is how long after begun the last use was. The wall clock may be set, also while the session is idle.
	lastUse  atomic.Int64
	used     atomic.Bool
	inFlight atomic.Int32
	// large is a semaphore for the large messages of the client.
	large chan struct{}

	mu sync.Mutex
	// over is why the session has ended; nil before.
	over        *failure
	initialized bool
	calls       map[string]*call
	// order lists the calls, oldest first.
	order []*call
	// cancelled are the keys of calls that the client has cancelled, oldest first. Until their response, a late one could
	// reach another call with the same id.
	cancelled  []string
	standalone *stream
	parked     parking
	idle       time.Duration
	idleTimer  *time.Timer
	startTimer *time.Timer
}

// call is a pending request of the client.
type call struct {
	id    json.RawMessage
	key   string
	token string
	// initialize is true for the call that starts the session.
	initialize bool
	begun      time.Time
	stream     *stream
}

func newSession(b *Bridge, caller string) (*session, error) {
	local := rand.Text()
	id, err := b.peers.Seal(local)
	if err != nil {
		return nil, err
	}
	return &session{
		bridge:  b,
		id:      id,
		caller:  caller,
		log:     b.opts.Log.WithValues("session", local[:loggedIDLength]),
		begun:   time.Now(),
		stopped: make(chan struct{}),
		large:   make(chan struct{}, 1),
		calls:   map[string]*call{},
		idle:    b.opts.IdleTimeout,
	}, nil
}

// run starts the child and relays its output.
func (s *session) run() error {
	c, err := s.bridge.launcher.start(s.log, s.bridge.sessionUsers)
	if err != nil {
		return err
	}
	s.child = c
	s.touch()
	s.mu.Lock()
	s.startTimer = time.AfterFunc(s.bridge.opts.StartTimeout, s.checkStart)
	s.idleTimer = time.AfterFunc(s.idle, s.checkIdle)
	s.mu.Unlock()
	s.log.Info("Session started", "pid", c.pid)
	go s.relay()
	return nil
}

// relay relays the output of the child until it ends.
func (s *session) relay() {
	defer s.child.stdout.Close()
	for {
		line, over, err := s.child.lines.next()
		switch {
		case err != nil:
			s.childGone()
			return
		case over != nil:
			s.tooLarge(over)
		case len(line) > 0:
			s.fromServer(line)
		}
	}
}

// childGone ends the session after the child closed its output.
func (s *session) childGone() {
	if !s.child.waitFor(s.child.grace) {
		s.end(ended(reasonServerExited, "the MCP server process closed its standard output"))
		return
	}
	<-s.child.stderr.done
	s.end(ended(reasonServerExited, "the MCP server process exited: "+s.child.exit()))
}

// add registers a call, before its message is sent.
func (s *session) add(c *call) *failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over != nil {
		return s.over
	}
	if _, ok := s.calls[c.key]; ok {
		f := badRequest(codeInvalidRequest, fmt.Sprintf("request id %s is used by another request in flight", c.id))
		return f
	}
	if slices.Contains(s.cancelled, c.key) {
		return badRequest(codeInvalidRequest, fmt.Sprintf("request id %s is that of a cancelled request, to which the server may still respond: use another id", c.id))
	}
	s.calls[c.key] = c
	s.order = append(s.order, c)
	s.bridge.metrics.inFlight.Inc()
	return nil
}

// take removes a call, and reports whether it existed.
func (s *session) take(key string) (*call, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.calls[key]
	if ok {
		s.drop(c)
	} else if i := slices.Index(s.cancelled, key); i >= 0 {
		s.cancelled = slices.Delete(s.cancelled, i, i+1)
	}
	return c, ok
}

// cancellable is the call that a client cancels; nil if there is none. Clients must not cancel the start of the session.
func (s *session) cancellable(key string) *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.calls[key]; c != nil && !c.initialize {
		return c
	}
	return nil
}

// cancel ends a call that the client has cancelled. The server should "not send a response for the cancelled request"
// (specification 2025-11-25, Cancellation), so that nothing else would end it.
func (s *session) cancel(c *call) {
	s.mu.Lock()
	if s.calls[c.key] != c { // it has been answered
		s.mu.Unlock()
		return
	}
	s.drop(c)
	if len(s.cancelled) == cancelledIDs {
		s.cancelled = slices.Delete(s.cancelled, 0, 1)
	}
	s.cancelled = append(s.cancelled, c.key)
	s.mu.Unlock()
	// It makes the response a stream of events, which may end without any. Unlike that of open, it has no field retry: the
	// client has nothing to come back for.
	_ = c.stream.comment(": cancelled\n\n") // the client may have left
	c.stream.close()
}

// leave removes the call of a disconnected client.
func (s *session) leave(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[c.key] == c {
		s.drop(c)
	}
}

func (s *session) drop(c *call) {
	// A request in flight is use until its end, also if it has no response.
	s.touch()
	delete(s.calls, c.key)
	for i, other := range s.order {
		if other == c {
			s.order = append(s.order[:i], s.order[i+1:]...)
			break
		}
	}
	s.bridge.metrics.inFlight.Dec()
	s.bridge.metrics.requests.WithLabelValues("session").Observe(time.Since(c.begun).Seconds())
}

// end ends the session once, and stops the child.
func (s *session) end(why *failure) {
	s.mu.Lock()
	if s.over != nil {
		s.mu.Unlock()
		return
	}
	s.over = why
	calls := append([]*call(nil), s.order...)
	for _, c := range calls {
		s.drop(c)
	}
	standalone := s.standalone
	s.standalone = nil
	s.parked = parking{}
	s.startTimer.Stop()
	s.idleTimer.Stop()
	s.mu.Unlock()

	s.bridge.retire(s)
	go finishAll(calls, standalone, why)
	s.report(why)
	go func() {
		s.child.stop()
		s.bridge.stopped(s)
	}()
}

// finishAll fails the calls concurrently, so that slow clients do not delay
// others. It closes the standalone stream last, because some clients take its
// end as the end of the session.
func finishAll(calls []*call, standalone *stream, why *failure) {
	var answered sync.WaitGroup
	for _, c := range calls {
		answered.Go(func() { _ = c.stream.finish(why.Body(c.id)) })
	}
	answered.Wait()
	if standalone != nil {
		standalone.close()
	}
}

// ended is why the session has ended; nil before.
func (s *session) ended() *failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

func (s *session) report(why *failure) {
	m := s.bridge.metrics
	m.ended.WithLabelValues(why.Reason).Inc()
	m.lifetime.Observe(time.Since(s.begun).Seconds())
	if why.Reason != reasonServerExited {
		s.log.Info("Session ended", "reason", why.Reason)
		return
	}
	m.crashes.Inc()
	s.log.Error(nil, "Session ended because the server process exited", "reason", why.Reason,
		"cause", why.Message, "stderr", s.child.stderr.last())
}

func (s *session) touch() { s.lastUse.Store(int64(time.Since(s.begun))) }

// unused is how long ago the last use was.
func (s *session) unused() time.Duration {
	return time.Since(s.begun) - time.Duration(s.lastUse.Load())
}

// resident describes the session for the admission of another one.
func (s *session) resident() resident {
	s.mu.Lock()
	defer s.mu.Unlock()
	return resident{
		caller: s.caller, used: s.used.Load(), pending: len(s.calls) > 0, idle: s.unused(),
	}
}

// checkIdle ends an idle session, or resets its timer. A session that starts is not idle, even before its first call is
// registered; it has the start timeout.
func (s *session) checkIdle() {
	s.mu.Lock()
	left := s.idle - s.unused()
	if len(s.calls) > 0 || !s.initialized {
		left = s.idle
	}
	if s.over != nil || left > 0 {
		if s.over == nil {
			s.idleTimer.Reset(left)
		}
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	s.end(ended(reasonIdle, "the session was idle for longer than the idle timeout"))
}

// shortenIdleTimeout applies a shorter idle timeout.
func (s *session) shortenIdleTimeout(idle time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil && idle < s.idle {
		s.idle = idle
		s.idleTimer.Reset(0)
	}
}

// isInitialized reports whether the session has started. An initialize that its client sends later is a request like others.
func (s *session) isInitialized() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.initialized
}

func (s *session) checkStart() {
	if !s.isInitialized() {
		s.end(ended(reasonStartTimeout,
			fmt.Sprintf("the MCP server process did not respond to initialize within %s", s.bridge.opts.StartTimeout)))
	}
}
