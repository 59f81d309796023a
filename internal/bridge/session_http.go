package bridge

import (
	"net/http"
	"time"
)

// initialize starts a session.
func (b *Bridge) initialize(w http.ResponseWriter, r *http.Request, message []byte, e *envelope) {
	s, f := b.begin()
	if f != nil {
		b.refuse(w, e.ID, f)
		return
	}
	s.inFlight.Add(1)
	defer s.inFlight.Add(-1)
	s.request(w, r, message, e)
}

// post handles a message of the session.
func (s *session) post(w http.ResponseWriter, r *http.Request) {
	b := s.bridge
	if int(s.inFlight.Add(1)) > b.opts.MaxRequests {
		s.inFlight.Add(-1)
		b.refuse(w, nil, tooManyRequests())
		return
	}
	defer s.inFlight.Add(-1)
	message, e, f := s.receive(w, r)
	if f != nil {
		b.refuse(w, nil, f)
		return
	}
	s.touch()
	if e.kind() == request {
		s.request(w, r, message, e)
		return
	}
	if err := s.forward(message); err != nil {
		b.refuse(w, nil, s.why())
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

// receive reads a message; a session reads one at a time, to bound memory.
func (s *session) receive(w http.ResponseWriter, r *http.Request) ([]byte, *envelope, *failure) {
	s.reading.Lock()
	defer s.reading.Unlock()
	return s.bridge.read(w, r)
}

func (s *session) forward(message []byte) error {
	s.bridge.metrics.relayed(toServer, len(message))
	return s.child.send(message)
}

// request sends a request to the child and serves its response.
func (s *session) request(w http.ResponseWriter, r *http.Request, message []byte, e *envelope) {
	c := &call{
		id: e.ID, key: idKey(e.ID), token: idKey(e.Params.Meta.ProgressToken),
		initialize: e.Method == methodInit, begun: time.Now(),
		stream: newStream(w, s.bridge.opts.IOTimeout),
	}
	if c.initialize {
		c.stream.sessionID = s.id
	}
	if f := s.add(c); f != nil {
		s.bridge.refuse(w, e.ID, f)
		return
	}
	s.flush(c.stream)
	if err := s.forward(message); err != nil {
		// The child has exited; the end of the session fails the call.
		s.log.V(1).Info("Failed to send a message to the server", "error", err.Error())
	}
	if c.stream.wait(r.Context(), s.bridge.opts.KeepAlive) {
		return
	}
	s.leave(c)
	if c.initialize {
		// The client did not receive the session id.
		s.end(ended(reasonClientLeft, "the client disconnected while the session started"))
	}
}

// why is the error of a message that could not be sent to the child.
func (s *session) why() *failure {
	f := &failure{
		status: http.StatusNotFound, code: codeSessionNotFound, reason: reasonNoSession,
		message: "the session has ended; initialize again",
	}
	if over := s.ended(); over != nil {
		f.message = over.message
	}
	return f
}

func (s *session) listen(w http.ResponseWriter, r *http.Request) {
	standalone := newStream(w, s.bridge.opts.IOTimeout)
	defer standalone.detach()
	s.flush(standalone)
	// Before the response headers are sent, so that a stream opened later by the client is the newer one.
	if !s.attach(standalone) {
		f := s.why()
		_ = standalone.refuse(f.status, f.response(nil)) // the client may have disconnected
		return
	}
	defer s.detach(standalone)
	if err := standalone.open(); err != nil {
		return
	}
	// Messages parked in the meantime.
	s.flush(standalone)
	standalone.wait(r.Context(), s.bridge.opts.KeepAlive)
}
