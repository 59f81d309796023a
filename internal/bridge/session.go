package bridge

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
)

// shownID is how much of a session's id stands in the log: enough to tell
// sessions apart, too little to take one over.
const shownID = 8

// session is one client and its child.
type session struct {
	bridge *Bridge
	id     string
	log    logr.Logger
	child  *child
	begun  time.Time

	lastUse  atomic.Int64
	inFlight atomic.Int32
	// reading is held while a message is read: one at a time.
	reading sync.Mutex

	mu sync.Mutex
	// over says why the session has ended, once it has.
	over        *failure
	initialized bool
	calls       map[string]*call
	// order has the calls from the oldest to the newest.
	order      []*call
	standalone *stream
	parked     parking
	idle       time.Duration
	idleTimer  *time.Timer
	startTimer *time.Timer
}

// call is a request of the client that waits for its response.
type call struct {
	id         json.RawMessage
	key        string
	token      string
	initialize bool
	begun      time.Time
	stream     *stream
}

func newSession(b *Bridge) *session {
	id := rand.Text()
	return &session{
		bridge: b,
		id:     id,
		log:    b.opts.Log.WithValues("session", id[:shownID]),
		begun:  time.Now(),
		calls:  map[string]*call{},
		idle:   b.opts.IdleTimeout,
	}
}

// run starts the child and the relaying of what it says.
func (s *session) run() error {
	c, err := s.bridge.launcher.start(s.log)
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

// relay hands on what the child says until it says no more.
func (s *session) relay() {
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

// childGone ends the session after the child has closed its output.
func (s *session) childGone() {
	if !s.child.waitFor(s.child.grace) {
		s.end(ended(reasonServerExited, "the MCP server process closed its output"))
		return
	}
	<-s.child.stderr.done
	s.end(ended(reasonServerExited, "the MCP server process ended: "+s.child.exit()))
}

// add registers a call before its message is sent, since the answer may be
// quick.
func (s *session) add(c *call) *failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over != nil {
		return s.over
	}
	if _, ok := s.calls[c.key]; ok {
		f := badRequest(codeInvalidRequest, fmt.Sprintf("request id %s is in use by a request in flight", c.id))
		return f
	}
	s.calls[c.key] = c
	s.order = append(s.order, c)
	s.bridge.metrics.inFlight.Inc()
	return nil
}

// take removes a call, and reports whether it was still there.
func (s *session) take(key string) (*call, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.calls[key]
	if ok {
		s.drop(c)
	}
	return c, ok
}

// leave forgets a call whose client has gone.
func (s *session) leave(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[c.key] == c {
		s.drop(c)
	}
}

func (s *session) drop(c *call) {
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

// end ends the session for the reason given, once; the child's end follows.
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

	s.bridge.forget(s)
	go finishAll(calls, standalone, why)
	s.report(why)
	go func() {
		s.child.stop()
		s.bridge.release()
	}()
}

// finishAll answers the calls, each by itself: one that is slow must not keep
// the others waiting. The standalone stream comes last, because some clients
// take its end for that of everything.
func finishAll(calls []*call, standalone *stream, why *failure) {
	var answered sync.WaitGroup
	for _, c := range calls {
		answered.Go(func() { _ = c.stream.finish(why.response(c.id)) })
	}
	answered.Wait()
	if standalone != nil {
		standalone.close()
	}
}

// ended says why the session is over, or nothing.
func (s *session) ended() *failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

func (s *session) report(why *failure) {
	m := s.bridge.metrics
	m.ended.WithLabelValues(why.reason).Inc()
	m.lifetime.Observe(time.Since(s.begun).Seconds())
	if why.reason != reasonServerExited {
		s.log.Info("Session ended", "reason", why.reason)
		return
	}
	m.crashes.Inc()
	s.log.Error(nil, "Session ended with its server process", "reason", why.reason,
		"cause", why.message, "lastStderr", s.child.stderr.last())
}

func (s *session) touch() { s.lastUse.Store(time.Now().UnixNano()) }

// checkIdle ends the session if it is not in use, and comes again otherwise.
func (s *session) checkIdle() {
	s.mu.Lock()
	left := s.idle - time.Since(time.Unix(0, s.lastUse.Load()))
	if len(s.calls) > 0 {
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
	s.end(ended(reasonIdle, "the session was idle for too long"))
}

// hurry shortens the time that the session may be idle.
func (s *session) hurry(idle time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil && idle < s.idle {
		s.idle = idle
		s.idleTimer.Reset(0)
	}
}

func (s *session) checkStart() {
	s.mu.Lock()
	initialized := s.initialized
	s.mu.Unlock()
	if !initialized {
		s.end(ended(reasonStartTimeout,
			fmt.Sprintf("the MCP server process did not answer initialize within %s", s.bridge.opts.StartTimeout)))
	}
}
