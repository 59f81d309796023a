package bridge

import (
	"bytes"
	"context"
	"net/http"
	"time"
)

// initialize starts a session.
func (b *Bridge) initialize(w http.ResponseWriter, r *http.Request, in *incoming) {
	s, f := b.begin(r.Context(), b.caller(r))
	if f != nil {
		b.refuse(w, in.ID, f)
		return
	}
	s.inFlight.Add(1)
	defer s.inFlight.Add(-1)
	s.request(w, r, in)
}

// post handles a message of the session.
func (s *session) post(w http.ResponseWriter, r *http.Request) {
	b := s.bridge
	in, f := b.receive(w, r, s.takePlace)
	if f != nil {
		b.refuse(w, nil, f)
		return
	}
	defer in.release()
	if f := checkHeaders(r, &in.envelope, false); f != nil {
		b.refuse(w, in.ID, f)
		return
	}
	if int(s.inFlight.Add(1)) > b.opts.MaxRequests {
		s.inFlight.Add(-1)
		b.refuse(w, in.ID, tooManyRequests())
		return
	}
	defer s.inFlight.Add(-1)
	s.used.Store(true)
	s.touch()
	if in.kind() == request {
		s.request(w, r, in)
		return
	}
	var cancelled *call
	if in.Method == methodCancelled {
		// Before the server knows of it, and may respond: then the id may be that of another call.
		cancelled = s.cancellable(idKey(in.Params.RequestID))
	}
	if err := s.forward(in); err != nil {
		b.refuse(w, nil, s.why())
		return
	}
	if cancelled != nil {
		s.cancel(cancelled)
	}
	w.WriteHeader(http.StatusAccepted)
}

// takePlace waits for the place of a large message. A session has one, so that a server that does not read
// blocks only its own session.
func (s *session) takePlace(ctx context.Context) (func(), bool) {
	if !acquire(ctx, s.large) {
		return nil, false
	}
	release, ok := s.bridge.places.Take(ctx, s.caller)
	if !ok {
		<-s.large
		return nil, false
	}
	return func() {
		release()
		<-s.large
	}, true
}

func (s *session) forward(in *incoming) error {
	defer in.release()
	s.bridge.metrics.relayed(toServer, len(in.message))
	return s.child.send(in.message)
}

// request sends a request to the child and serves its response.
func (s *session) request(w http.ResponseWriter, r *http.Request, in *incoming) {
	c := &call{
		id: bytes.Clone(in.ID), key: idKey(in.ID), token: idKey(in.Params.Meta.ProgressToken),
		initialize: in.Method == methodInit && !s.isInitialized(), begun: time.Now(),
		stream: newStream(w, s.bridge.opts.IOTimeout),
	}
	if c.initialize {
		c.stream.sessionID = s.id
	}
	if f := s.add(c); f != nil {
		s.bridge.refuse(w, in.ID, f)
		return
	}
	s.flush(c.stream)
	// While the child does not read, a call whose client has left must not keep the session.
	stop := context.AfterFunc(r.Context(), func() { s.leave(c) })
	err := s.forward(in)
	stop()
	if err != nil {
		// The child is being stopped; the end of the session fails the call.
		s.log.V(1).Info("Failed to send a message to the server", "error", err.Error())
	}
	complete := c.stream.wait(r.Context(), s.bridge.opts.KeepAlive)
	s.leave(c) // also if a message before the response could not be sent
	if c.initialize && !complete {
		// The client did not receive the session id.
		s.end(ended(reasonClientLeft, "the client disconnected while the session started"))
	}
}

// why is the error of a message that could not be sent to the child.
func (s *session) why() *failure {
	f := &failure{
		Status: http.StatusNotFound, Code: codeSessionNotFound, Reason: reasonNoSession,
		Message: "the session has ended; initialize again",
	}
	if over := s.ended(); over != nil {
		f.Message = over.Message
	}
	return f
}

// delete ends the session at the request of its client.
func (s *session) delete(w http.ResponseWriter) {
	s.end(ended(reasonDeleted, "the client ended the session"))
	w.WriteHeader(http.StatusNoContent)
}

// endStream completes the open stream. Messages that follow wait for the next one.
func (s *session) endStream() {
	s.mu.Lock()
	standalone := s.standalone
	s.standalone = nil
	s.mu.Unlock()
	if standalone != nil {
		standalone.close()
	}
}

func (s *session) listen(w http.ResponseWriter, r *http.Request) {
	standalone := newStream(w, s.bridge.opts.IOTimeout)
	defer standalone.detach()
	s.used.Store(true)
	s.flush(standalone)
	// Before the response headers are sent, so that a stream opened later by the client is the newer one.
	if !s.attach(standalone) {
		f := s.why()
		_ = standalone.refuse(f.Status, f.Body(nil)) // the client may have disconnected
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
