package bridge

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// errGone says that nobody reads a stream any more.
var errGone = errors.New("the client has closed the stream")

// An event is a message between these.
const (
	eventStart = "event: message\ndata: "
	eventEnd   = "\n\n"
)

// stream is the response to one HTTP request. Its header is written with the
// first message, so that an error can still choose the status.
type stream struct {
	timeout time.Duration
	// sessionID, if there is one, is told to the client.
	sessionID string
	// done is closed when the response is complete.
	done chan struct{}

	mu       sync.Mutex
	w        http.ResponseWriter
	rc       *http.ResponseController
	begun    bool
	complete bool
}

func newStream(w http.ResponseWriter, timeout time.Duration) *stream {
	return &stream{timeout: timeout, done: make(chan struct{}), w: w, rc: http.NewResponseController(w)}
}

// send hands a message to the client, and waits for a slow one.
func (s *stream) send(message []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.event(message); err != nil {
		return err
	}
	return s.failed(s.rc.Flush())
}

// finish sends the last message. What is left in the buffer goes out with the
// end of the response, by the handler's return: one write instead of two.
//
// If it is the only message, the response has a length: a client that acts on the
// message knows that the response is over, and its next request takes the same
// connection. Another one might lead to another pod, which does not have the session.
func (s *stream) finish(message []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.end()
	if !s.begun && s.w != nil {
		s.w.Header().Set("Content-Length", strconv.Itoa(len(eventStart)+len(message)+len(eventEnd)))
	}
	return s.event(message)
}

// refuse answers with an HTTP status, or with an event if it is too late for
// that.
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

// open writes the header, and a comment after it, because some proxies hold the
// header back until there is a body.
func (s *stream) open() error {
	return s.comment(": open\n\n")
}

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

// wait keeps the handler until the response is complete or the client has gone,
// and says which. A quiet stream gets a comment every interval.
func (s *stream) wait(ctx context.Context, interval time.Duration) bool {
	defer s.detach()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-s.done:
			return true
		case <-ctx.Done():
			return false
		case <-ticker.C:
			if s.comment(": keep-alive\n\n") != nil {
				return false
			}
		}
	}
}

// detach ends the use of the writer, which is the HTTP server's again when the
// handler returns.
func (s *stream) detach() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.w != nil {
		// The connection serves further requests.
		_ = s.rc.SetWriteDeadline(time.Time{})
	}
	s.w, s.rc = nil, nil
}

// event is called with the lock held, as are the following.
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

// deadline bounds how long a client that does not read may hold its child up.
func (s *stream) deadline() {
	// A writer without deadlines is one of a test.
	_ = s.rc.SetWriteDeadline(time.Now().Add(s.timeout))
}

// failed gives the stream up after the first write that did not succeed.
func (s *stream) failed(err error) error {
	if err == nil || errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	s.end()
	return err
}

func (s *stream) end() {
	if !s.complete {
		s.complete = true
		close(s.done)
	}
}
