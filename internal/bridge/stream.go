package bridge

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// errGone is the error of a stream whose client has disconnected.
var errGone = errors.New("the client closed the stream")

// An event is a message between these.
const (
	eventStart = "event: message\ndata: "
	eventEnd   = "\n\n"
)

// openEvent is the start of a stream that a client opens again after its end. The specification 2025-11-25 says that a
// server that closes the connection "SHOULD send an SSE event with a standard retry field before closing" (Transports,
// Listening for Messages). It comes first, because a stream may also end without notice. In milliseconds.
const openEvent = ": open\nretry: 1000\n\n"

// stream is the response to one HTTP request. Its headers are written with the
// first message, so that an error before it can set the status.
type stream struct {
	timeout time.Duration
	// sessionID, if set, is sent in the headers.
	sessionID string
	// done is closed when the response is complete.
	done chan struct{}

	mu       sync.Mutex
	w        http.ResponseWriter
	rc       *http.ResponseController
	begun    bool
	complete bool
	// broken is true after a failed write.
	broken bool
}

func newStream(w http.ResponseWriter, timeout time.Duration) *stream {
	return &stream{timeout: timeout, done: make(chan struct{}), w: w, rc: http.NewResponseController(w)}
}

// send writes a message, and blocks while the client is slow.
func (s *stream) send(message []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.event(message); err != nil {
		return err
	}
	return s.failed(s.rc.Flush())
}

// finish writes the last message. It does not flush: the return of the handler
// does, which saves a write.
//
// If it is the only message, the response has a Content-Length, so that the client
// can reuse the connection immediately. A new connection could reach another pod,
// which does not have the session.
func (s *stream) finish(message []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.end()
	if !s.begun && s.w != nil {
		s.w.Header().Set("Content-Length", strconv.Itoa(len(eventStart)+len(message)+len(eventEnd)))
	}
	return s.event(message)
}

// refuse responds with an HTTP status, or with an event if the headers are
// already sent.
func (s *stream) refuse(status int, message []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.end()
	if s.begun || s.complete || s.w == nil {
		return s.event(message)
	}
	s.begun = true
	s.deadline()
	s.w.Header().Set("Content-Type", "application/json")
	s.w.WriteHeader(status)
	_, err := s.w.Write(message)
	return s.failed(err)
}

// close completes the response without a further message.
func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
}

// open writes the headers and an event without data, because some proxies delay headers
// until the body starts.
func (s *stream) open() error { return s.comment(openEvent) }

// comment writes what is no message.
func (s *stream) comment(text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.complete || s.w == nil {
		return errGone
	}
	s.begin()
	s.deadline()
	if _, err := s.w.Write([]byte(text)); err != nil {
		return s.failed(err)
	}
	return s.failed(s.rc.Flush())
}

// wait blocks until the response is complete (true), or the client has
// disconnected or does not read (false). It writes a comment to idle streams every interval.
func (s *stream) wait(ctx context.Context, interval time.Duration) bool {
	defer s.detach()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-s.done:
			return s.sent()
		case <-ctx.Done():
			return false
		case <-ticker.C:
			if s.comment(": keep-alive\n\n") != nil {
				return false
			}
		}
	}
}

// sent reports whether no write of the complete response has failed. That with a session is flushed for this: a client that
// does not receive the id can neither use nor end the session.
func (s *stream) sent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.broken && s.sessionID != "" {
		_ = s.failed(s.rc.Flush())
	}
	return !s.broken
}

// dropSession keeps the id of a session that does not start out of the headers.
func (s *stream) dropSession() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessionID = ""
}

// detach stops using the writer, which must not be used after the handler
// returns.
func (s *stream) detach() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.w != nil {
		// The connection may serve further requests.
		_ = s.rc.SetWriteDeadline(time.Time{})
	}
	s.w, s.rc = nil, nil
}

// event and the following methods are called with the lock held.
func (s *stream) event(message []byte) error {
	if s.complete || s.w == nil {
		return errGone
	}
	s.begin()
	s.deadline()
	if _, err := s.w.Write([]byte(eventStart)); err != nil {
		return s.failed(err)
	}
	if _, err := s.w.Write(message); err != nil {
		return s.failed(err)
	}
	_, err := s.w.Write([]byte(eventEnd))
	return s.failed(err)
}

func (s *stream) begin() {
	if s.begun {
		return
	}
	s.begun = true
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	if s.sessionID != "" {
		h.Set(headerSession, s.sessionID)
	}
	s.w.WriteHeader(http.StatusOK)
}

// deadline limits how long a client that does not read blocks its child.
func (s *stream) deadline() {
	// Only writers in tests have no deadlines.
	_ = s.rc.SetWriteDeadline(time.Now().Add(s.timeout))
}

// failed ends the stream after a failed write.
func (s *stream) failed(err error) error {
	if err == nil || errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	s.broken = true
	s.end()
	return err
}

func (s *stream) end() {
	if !s.complete {
		s.complete = true
		close(s.done)
	}
}
