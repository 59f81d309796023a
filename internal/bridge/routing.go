package bridge

import (
	"encoding/json"
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
		s.log.Info("Server printed a line that is no message", "bytes", len(line))
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

// answer hands a response to the request it belongs to.
func (s *session) answer(e *envelope, line []byte) {
	c, ok := s.take(idKey(e.ID))
	if !ok {
		s.bridge.metrics.dropped.WithLabelValues(reasonNobody).Inc()
		return
	}
	s.touch()
	if !c.initialize {
		s.lost(c.stream.finish(line))
		return
	}
	s.initializeAnswered(c, e, line)
}

// initializeAnswered opens the session to further requests, or ends one that
// the server did not want.
func (s *session) initializeAnswered(c *call, e *envelope, line []byte) {
	s.bridge.metrics.startTime.Observe(time.Since(s.begun).Seconds())
	if present(e.Error) {
		c.stream.sessionID = ""
		s.lost(c.stream.finish(line))
		s.end(ended(reasonInitRefused, "the MCP server refused to initialize"))
		return
	}
	s.mu.Lock()
	s.initialized = true
	s.startTimer.Stop()
	s.mu.Unlock()
	s.lost(c.stream.finish(line))
}

// deliver hands a request or a notification of the server to a stream. One that
// is gone is not an error of the message: it tries the next.
func (s *session) deliver(e *envelope, line []byte) {
	for {
		target := s.target(e, line)
		if target == nil {
			return
		}
		if target.send(line) == nil {
			// Only what reaches the client keeps the session: a server may talk
			// to one who has gone for ever.
			s.touch()
			return
		}
		s.abandon(target)
	}
}

// target is the stream that a message of the server goes to; it is nil if there
// is none, and then the message is parked until there is one.
func (s *session) target(e *envelope, line []byte) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over != nil {
		return nil
	}
	if stream := s.choose(e); stream != nil {
		return stream
	}
	s.park(e, line)
	return nil
}

// choose follows the spec: what belongs to a request goes to that request's
// response, what belongs to none to the standalone stream. Over stdio only
// progress says what it belongs to; anything else that a server says while a
// request is in flight (sampling, elicitation, logging) most likely belongs to
// the newest one. A client reads all of its streams alike.
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

// unrelated tells the notifications of changes, which no request asks for.
func unrelated(method string) bool {
	return method == "notifications/resources/updated" || strings.HasSuffix(method, "/list_changed")
}

// abandon gives up a stream that a message could not be written to.
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

func (s *session) lost(err error) {
	if err != nil {
		s.bridge.metrics.dropped.WithLabelValues(reasonNobody).Inc()
		s.log.V(1).Info("Client did not take a response", "error", err.Error())
	}
}

// attach makes a stream the standalone one. The newest wins: a client that
// comes again has lost the other, whether or not that has been noticed.
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

// parking holds what a server says while no stream is open, within bounds: a
// client that is absent cannot be waited for.
type parking struct {
	messages []parked
	bytes    int
}

type parked struct {
	id   json.RawMessage
	line []byte
}

func (s *session) park(e *envelope, line []byte) {
	p := &s.parked
	var id json.RawMessage
	if e.kind() == request {
		id = e.ID
	}
	if len(line) > parkedBytes {
		s.unpark(parked{id: id, line: line})
		return
	}
	p.messages = append(p.messages, parked{id: id, line: append([]byte(nil), line...)})
	p.bytes += len(line)
	for len(p.messages) > parkedMessages || p.bytes > parkedBytes {
		oldest := p.messages[0]
		p.messages = p.messages[1:]
		p.bytes -= len(oldest.line)
		s.unpark(oldest)
	}
}

// unpark drops a message. A server that has asked is told.
func (s *session) unpark(m parked) {
	s.bridge.metrics.dropped.WithLabelValues(reasonNobody).Inc()
	if m.id != nil {
		answer := ended(reasonNobody, "the client has no stream open to be asked on").response(m.id)
		// Not here: a child that does not read must not stop the reading of it.
		go func() { _ = s.child.send(answer) }()
	}
}

// flush sends what was parked to a stream that has opened.
func (s *session) flush(to *stream) {
	s.mu.Lock()
	waiting := s.parked.messages
	s.parked = parking{}
	s.mu.Unlock()
	for _, m := range waiting {
		s.lost(to.send(m.line))
	}
}

// tooLarge answers for a message of the server that is beyond the limit.
func (s *session) tooLarge(o *oversize) {
	s.touch()
	s.bridge.tooLarge(s.log, o)
	switch f := s.bridge.largeFailure(o); {
	case o.id == nil:
	case o.method != "":
		go func() { _ = s.child.send(f.response(o.id)) }()
	default:
		if c, ok := s.take(idKey(o.id)); ok {
			s.lost(c.stream.finish(f.response(c.id)))
		}
	}
}
