package bridge

import (
	"context"
	"encoding/json"
	"sync"
	"time"
)

const (
	// quickDeath is how soon a shared child has to end to count as one that
	// does not work; the next is then started with a growing delay.
	quickDeath    = 10 * time.Second
	firstDelay    = time.Second
	longestDelay  = 30 * time.Second
	mailboxLength = 64
)

// shared keeps the one child that serves all requests without a session. The
// spec makes such requests independent of each other and of the connection, but
// what a server keeps in its memory is expected to be there for the next
// request: hence one process, as a server that speaks HTTP itself would be.
type shared struct {
	bridge *Bridge

	mu       sync.Mutex
	worker   *worker
	starting chan struct{}
	startErr *failure
	inFlight int
	// used is when a request was last answered.
	used     time.Time
	deaths   int
	notUntil time.Time
	closed   bool
}

// sharedCall is one client's request to the shared child.
type sharedCall struct {
	id        json.RawMessage
	token     json.RawMessage
	wantsLogs bool
	listens   bool
	begun     time.Time
	box       chan mail

	mu     sync.Mutex
	held   int
	failed *failure
}

// mail is a message on its way to a client; the last one completes the response.
type mail struct {
	message []byte
	last    bool
	status  int
}

func newSharedCall(e *envelope) *sharedCall {
	return &sharedCall{
		id: e.ID, token: e.Params.Meta.ProgressToken,
		wantsLogs: present(e.Params.Meta.LogLevel),
		listens:   e.Method == "subscriptions/listen",
		begun:     time.Now(),
		box:       make(chan mail, mailboxLength),
	}
}

// put hands a message to the client without waiting for it, since others wait
// behind. It reports whether the client keeps up.
func (c *sharedCall) put(m mail, limit int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		return true // It has its answer.
	}
	if c.held > 0 && c.held+len(m.message) > limit {
		return false
	}
	select {
	case c.box <- m:
		c.held += len(m.message)
		return true
	default:
		return false
	}
}

func (c *sharedCall) taken(m mail) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held -= len(m.message)
}

// enter counts a request in, if there is room for it.
func (s *shared) enter() *failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return drainFailure()
	}
	if s.inFlight >= s.bridge.opts.MaxRequests {
		return tooManyRequests()
	}
	s.inFlight++
	s.bridge.metrics.inFlight.Inc()
	return nil
}

func (s *shared) leave() {
	s.mu.Lock()
	s.inFlight--
	s.used = time.Now()
	s.mu.Unlock()
	s.bridge.metrics.inFlight.Dec()
	s.bridge.nudge()
}

// usedWithin says whether there was a request not longer ago than d, or is one.
func (s *shared) usedWithin(d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight > 0 || !s.used.IsZero() && time.Since(s.used) < d
}

func (s *shared) quiet() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight == 0
}

// get returns the shared child, which it starts if there is none.
func (s *shared) get(ctx context.Context) (*worker, *failure) {
	s.mu.Lock()
	switch {
	case s.closed:
		s.mu.Unlock()
		return nil, drainFailure()
	case s.worker != nil:
		defer s.mu.Unlock()
		return s.worker, nil
	case s.starting == nil && time.Now().Before(s.notUntil):
		defer s.mu.Unlock()
		seconds := int(time.Until(s.notUntil)/time.Second) + 1
		return nil, refused(reasonStartFailed, "the MCP server process keeps ending; it is started again in a while", seconds)
	case s.starting == nil:
		s.starting = make(chan struct{})
		go s.launch(s.starting)
	}
	starting := s.starting
	s.mu.Unlock()
	select {
	case <-starting:
	case <-ctx.Done():
		return nil, ended(reasonClientLeft, "the client has gone")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.worker == nil {
		return nil, s.startErr
	}
	return s.worker, nil
}

func (s *shared) launch(started chan struct{}) {
	log := s.bridge.opts.Log.WithValues("session", "shared")
	c, err := s.bridge.launcher.start(log)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(started)
	s.starting = nil
	if err != nil {
		log.Error(err, "Starting the shared server process failed")
		s.delay()
		s.startErr = refused(reasonStartFailed, "the MCP server process could not be started", 5)
		return
	}
	log.Info("Shared server process started", "pid", c.pid)
	s.worker = newWorker(s, c, log)
	go s.worker.relay()
}

// delay puts the next start off.
func (s *shared) delay() {
	d := min(firstDelay<<min(s.deaths, 8), longestDelay)
	s.deaths++
	s.notUntil = time.Now().Add(d)
}

// gone is told by a worker whose child has ended.
func (s *shared) gone(w *worker, crashed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.worker == w {
		s.worker = nil
	}
	switch {
	case crashed && time.Since(w.child.started) < quickDeath:
		s.delay()
	default:
		s.deaths = 0
	}
}

// close ends the child and refuses further requests.
func (s *shared) close() {
	s.mu.Lock()
	s.closed = true
	w, starting := s.worker, s.starting
	s.mu.Unlock()
	if starting != nil {
		<-starting
		s.mu.Lock()
		w = s.worker
		s.mu.Unlock()
	}
	if w != nil {
		w.end(drainFailure())
		w.child.stop()
	}
}

// stopListening ends the subscriptions, which would go on for ever.
func (s *shared) stopListening() {
	s.mu.Lock()
	w := s.worker
	s.mu.Unlock()
	if w != nil {
		w.stopListening()
	}
}
