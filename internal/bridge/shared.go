package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

const (
	// quickExit is the run time below which a crash of the shared child delays
	// the next start with backoff.
	quickExit = 10 * time.Second
	minDelay  = time.Second
	maxDelay  = 30 * time.Second
	// mailBytes is what a message in a mailbox takes in addition to its bytes.
	mailBytes = 64
)

// shared manages the one child that serves all requests without a session. Such
// requests are independent by the spec, but clients expect the in-memory state of
// a server to persist, as it does in a server that speaks HTTP itself.
type shared struct {
	bridge *Bridge

	mu       sync.Mutex
	worker   *worker
	starting *start
	inFlight int
	// perCaller is how many of them each caller has.
	perCaller map[string]int
	// unawaited is how many of them are notifications that are being sent, or requests whose client has left. While the
	// child does not read, they do not end.
	unawaited int
	// used is when the last request ended.
	used       time.Time
	quickExits int
	nextStart  time.Time
	closed     bool
}

// start is a start of the shared child. Its result, one of the two, is valid when done is closed.
type start struct {
	done   chan struct{}
	worker *worker
	failed *failure
}

// sharedCall is one request to the shared child.
type sharedCall struct {
	id        json.RawMessage
	token     json.RawMessage
	wantsLogs bool
	listens   bool
	begun     time.Time
	// arrived signals that there is a message, or that the call has failed.
	arrived chan struct{}

	mu sync.Mutex
	// box has messages that the client has not read yet, held is what they take.
	box    []mail
	held   int
	failed *failure
}

// mail is a message for a client; the last one completes the response.
type mail struct {
	message []byte
	last    bool
	status  int
}

func newSharedCall(e *envelope) *sharedCall {
	return &sharedCall{
		id: bytes.Clone(e.ID), token: bytes.Clone(e.Params.Meta.ProgressToken),
		wantsLogs: present(e.Params.Meta.LogLevel),
		listens:   e.Method == "subscriptions/listen",
		begun:     time.Now(),
		arrived:   make(chan struct{}, 1),
	}
}

// put queues a message without blocking other calls. It reports whether the client keeps up. The number of messages has no
// limit: a server may send many at once, faster than any client reads.
func (c *sharedCall) put(m mail, limit int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		return true // the call has failed already
	}
	if c.held > 0 && c.held+m.takes() > limit {
		return false
	}
	c.box = append(c.box, m)
	c.held += m.takes()
	c.signal()
	return true
}

func (m mail) takes() int { return len(m.message) + mailBytes }

// take removes the oldest message. Without one, it returns why the call has failed, or nothing if the caller has to wait
// until something has arrived.
func (c *sharedCall) take() (m mail, ok bool, failed *failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.box) == 0 {
		return mail{}, false, c.failed
	}
	m, c.box[0] = c.box[0], mail{}
	if c.box = c.box[1:]; len(c.box) == 0 {
		c.box = nil // not the room of a burst
	}
	c.held -= m.takes()
	return m, true, nil
}

// fail completes the response with an error, after the messages in the mailbox.
func (c *sharedCall) fail(why *failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = why
		c.signal()
	}
}

func (c *sharedCall) signal() {
	select {
	case c.arrived <- struct{}{}:
	default:
	}
}

// enter counts a request of a caller, if the limits allow it. As of sessions, one caller gets nine tenths.
func (s *shared) enter(caller string) *failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return drainFailure()
	}
	most := s.bridge.opts.MaxRequests
	perCaller := most - most/10
	switch {
	case s.inFlight >= most:
		return tooManyRequests()
	case s.perCaller[caller] >= perCaller:
		f := tooManyRequests()
		f.Message = fmt.Sprintf("the limit of %d requests without a session per caller is reached; try again later", perCaller)
		return f
	}
	s.inFlight++
	s.perCaller[caller]++
	s.bridge.metrics.inFlight.Inc()
	return nil
}

func (s *shared) leave(caller string) {
	s.mu.Lock()
	s.inFlight--
	if s.perCaller[caller]--; s.perCaller[caller] == 0 {
		delete(s.perCaller, caller)
	}
	s.used = time.Now()
	s.mu.Unlock()
	s.bridge.metrics.inFlight.Dec()
	s.bridge.signalChange()
}

// countUnawaited changes the number of requests that no client waits for.
func (s *shared) countUnawaited(by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unawaited += by
}

// usedWithin reports whether a request is pending or ended less than d ago.
func (s *shared) usedWithin(d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight > 0 || !s.used.IsZero() && time.Since(s.used) < d
}

// pending is the number of requests in flight.
func (s *shared) pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight
}

// get returns the shared child, and starts it if necessary. The child may have exited; then its calls fail.
func (s *shared) get(ctx context.Context) (*worker, *failure) {
	s.mu.Lock()
	switch {
	case s.closed:
		s.mu.Unlock()
		return nil, drainFailure()
	case s.worker != nil:
		defer s.mu.Unlock()
		return s.worker, nil
	case s.starting == nil && time.Now().Before(s.nextStart):
		defer s.mu.Unlock()
		seconds := int(time.Until(s.nextStart)/time.Second) + 1
		return nil, refused(reasonStartFailed, "the MCP server process exits repeatedly; retry later", seconds)
	case s.starting == nil:
		s.starting = &start{done: make(chan struct{})}
		go s.launch(s.starting)
	}
	starting := s.starting
	s.mu.Unlock()
	select {
	case <-starting.done:
		return starting.worker, starting.failed
	case <-ctx.Done():
		return nil, ended(reasonClientLeft, "the client disconnected")
	}
}

func (s *shared) launch(starting *start) {
	log := s.bridge.opts.Log.WithValues("session", "shared")
	c, err := s.bridge.launcher.start(log, s.bridge.sharedUser)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(starting.done)
	s.starting = nil
	if err != nil {
		log.Error(err, "Failed to start the shared server process")
		s.delay()
		starting.failed = refused(reasonStartFailed, "the MCP server process could not be started", 5)
		return
	}
	log.Info("Shared server process started", "pid", c.pid)
	s.worker = newWorker(s, c, log)
	starting.worker = s.worker
	go s.worker.relay()
}

// delay delays the next start with backoff.
func (s *shared) delay() {
	d := min(minDelay<<min(s.quickExits, 8), maxDelay)
	s.quickExits++
	s.nextStart = time.Now().Add(d)
}

// gone removes a worker whose child has exited.
func (s *shared) gone(w *worker, crashed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(w)
	switch {
	case crashed && time.Since(w.child.started) < quickExit:
		s.delay()
	default:
		s.quickExits = 0
	}
}

// dismiss removes an idle worker, so that the next request starts another child. A request in flight may have this one
// before it is one of its calls. One that no client waits for does not keep it.
func (s *shared) dismiss(w *worker) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inFlight > s.unawaited {
		return false
	}
	if s.remove(w) {
		s.quickExits = 0
	}
	return true
}

// remove reports whether the worker was the one of new requests. Its child is stopped by the caller; until then, it keeps the
// bridge from being closed. It is called with the lock held.
func (s *shared) remove(w *worker) bool {
	if s.worker != w {
		return false
	}
	s.worker = nil
	if !s.closed { // otherwise close waits for it
		s.bridge.background(func() { <-w.child.exited })
	}
	return true
}

// close stops the child and refuses further requests.
func (s *shared) close() {
	s.mu.Lock()
	s.closed = true
	w, starting := s.worker, s.starting
	s.mu.Unlock()
	if starting != nil {
		<-starting.done
		w = starting.worker
	}
	if w != nil {
		w.end(drainFailure())
		w.child.stop()
	}
}

// stopListening ends subscriptions, which never end by themselves.
func (s *shared) stopListening() {
	s.mu.Lock()
	w := s.worker
	s.mu.Unlock()
	if w != nil {
		w.stopListening()
	}
}
