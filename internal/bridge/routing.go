package bridge

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

const (
	parkedMessages = 64
	parkedBytes    = 256 << 10
)

// fromServer relays one message of the child.
func (s *session) fromServer(line []byte) {
	e, err := parse(line)
	if err != nil {
		s.bridge.metrics.dropped.WithLabelValues(reasonNotMessage).Inc()
		s.log.Info("Server printed a line that is not a JSON-RPC message", "bytes", len(line))
		return
	}
	if line, err = oneLine(line); err != nil {
		return
	}
	s.bridge.metrics.relayed(toClient, len(line))
	if e.kind() == response {
		s.answer(&e, line)
		return
	}
	s.deliver(&e, line)
}

// answer relays a response to its request.
func (s *session) answer(e *envelope, line []byte) {
	c, ok := s.take(idKey(e.ID))
	if !ok {
		s.bridge.metrics.dropped.WithLabelValues(reasonNoStream).Inc()
		return
	}
	if !c.initialize {
		s.countUndelivered(c.stream.finish(line))
		return
	}
	s.initializeAnswered(c, e, line)
}

// initializeAnswered completes the start of the session, or ends it if the
// server rejected initialize.
func (s *session) initializeAnswered(c *call, e *envelope, line []byte) {
	s.bridge.metrics.startTime.Observe(time.Since(s.begun).Seconds())
	if present(e.Error) {
		c.stream.dropSession()
		if e.errorCode() == codeMethodNotFound { // see checkGeneration
			s.countUndelivered(c.stream.refuse(http.StatusNotFound, line))
		} else {
			s.countUndelivered(c.stream.finish(line))
		}
		s.end(ended(reasonInitRefused, "the MCP server rejected initialize"))
		return
	}
	s.mu.Lock()
	s.initialized = true
	s.startTimer.Stop()
	s.mu.Unlock()
	s.countUndelivered(c.stream.finish(line))
}

// deliver sends a request or notification of the server to a stream. If a
// stream is closed, it tries the next one.
func (s *session) deliver(e *envelope, line []byte) {
	for {
		target := s.target(e, line)
		if target == nil {
			return
		}
		if target.send(line) == nil {
			// Only delivered messages count as use of the session: the client may
			// have disconnected permanently.
			s.touch()
			return
		}
		s.abandon(target)
	}
}

// target is the stream for a message of the server. If none is open, it parks
// the message and returns nil.
func (s *session) target(e *envelope, line []byte) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over != nil {
		return nil
	}
	if stream := s.choose(e); stream != nil {
		return stream
	}
	m := parked{line: bytes.Clone(line)}
	if e.kind() == request {
		m.id = bytes.Clone(e.ID)
	}
	s.park(m)
	return nil
}

// choose follows the spec: messages related to a request are sent on its
// response, others on the standalone stream. Over stdio only progress names its
// request; other messages during a request (sampling, elicitation, logging) most
// likely belong to the newest one. Clients read all streams alike.
func (s *session) choose(e *envelope) *stream {
	if e.Method == "notifications/progress" {
		token := idKey(e.Params.ProgressToken)
		for _, c := range s.order {
			if c.token != "" && c.token == token {
				return c.stream
			}
		}
	}
	if s.standalone != nil && (unrelated(e.Method) || len(s.order) == 0) {
		return s.standalone
	}
	if len(s.order) > 0 {
		return s.order[len(s.order)-1].stream
	}
	return nil
}

// unrelated reports whether a notification is about changes, independent of requests.
func unrelated(method string) bool {
	return method == "notifications/resources/updated" || strings.HasSuffix(method, "/list_changed")
}

// abandon drops a stream after a failed write.
func (s *session) abandon(gone *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.standalone == gone {
		s.standalone = nil
	}
	for _, c := range s.order {
		if c.stream == gone {
			s.drop(c)
			return
		}
	}
}

func (s *session) countUndelivered(err error) {
	if err != nil {
		s.bridge.metrics.dropped.WithLabelValues(reasonNoStream).Inc()
		s.log.V(1).Info("Failed to deliver a response to the client", "error", err.Error())
	}
}

// attach sets the standalone stream. The newest one wins: a client that
// reconnects has lost the previous one, even if that is not detected yet.
func (s *session) attach(fresh *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over != nil {
		return false
	}
	if s.standalone != nil {
		go s.standalone.close()
	}
	s.standalone = fresh
	return true
}

func (s *session) detach(gone *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.standalone == gone {
		s.standalone = nil
	}
}

// parking holds a bounded number of messages while no stream is open.
type parking struct {
	messages []parked
	bytes    int
}

type parked struct {
	id   json.RawMessage
	line []byte
}

func (s *session) park(m parked) {
	p := &s.parked
	if len(m.line) > parkedBytes {
		s.dropParked(m)
		return
	}
	p.messages = append(p.messages, m)
	p.bytes += len(m.line)
	for len(p.messages) > parkedMessages || p.bytes > parkedBytes {
		oldest := p.messages[0]
		p.messages = p.messages[1:]
		p.bytes -= len(oldest.line)
		s.dropParked(oldest)
	}
}

// dropParked drops a message. A request of the server gets an error.
func (s *session) dropParked(m parked) {
	s.bridge.metrics.dropped.WithLabelValues(reasonNoStream).Inc()
	if m.id != nil {
		s.child.answer(ended(reasonNoStream, "the client has no open stream for requests of the server").Body(m.id))
	}
}

// flush sends the parked messages to a new stream. If it is closed, the rest waits for the next one.
func (s *session) flush(to *stream) {
	s.mu.Lock()
	waiting := s.parked.messages
	s.parked = parking{}
	s.mu.Unlock()
	for i, m := range waiting {
		if to.send(m.line) != nil {
			s.parkAgain(waiting[i:])
			return
		}
	}
}

// parkAgain parks messages in front of those that were parked in the meantime.
func (s *session) parkAgain(waiting []parked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over != nil {
		return
	}
	waiting = append(waiting, s.parked.messages...)
	s.parked = parking{}
	for _, m := range waiting {
		s.park(m)
	}
}

// tooLarge responds to a message of the server that exceeds the limit.
func (s *session) tooLarge(o *oversize) {
	s.touch()
	s.bridge.tooLarge(s.log, o)
	switch f := s.bridge.largeFailure(o); {
	case o.id == nil:
	case o.method != "":
		s.child.answer(f.Body(o.id))
	default:
		if c, ok := s.take(idKey(o.id)); ok {
			s.fail(c, f)
		}
	}
}

// fail responds to a request with an error, and ends the session if it cannot start without the response.
func (s *session) fail(c *call, why *failure) {
	if c.initialize {
		c.stream.dropSession()
		defer s.end(why)
	}
	s.countUndelivered(c.stream.finish(why.Body(c.id)))
}
