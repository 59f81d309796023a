package bridge

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	headerSession  = "Mcp-Session-Id"
	headerVersion  = "Mcp-Protocol-Version"
	headerMethod   = "Mcp-Method"
	headerName     = "Mcp-Name"
	jsonType       = "application/json"
	eventType      = "text/event-stream"
	methodInit     = "initialize"
	methodDiscover = "server/discover"
)

// serveMCP serves the MCP endpoint.
func (b *Bridge) serveMCP(w http.ResponseWriter, r *http.Request) {
	if f := b.guard(r); f != nil {
		b.refuse(w, nil, f)
		return
	}
	switch r.Method {
	case http.MethodPost:
		b.post(w, r)
	case http.MethodGet:
		b.get(w, r)
	case http.MethodDelete:
		b.delete(w, r)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		b.refuse(w, nil, methodNotAllowed("use GET, POST or DELETE"))
	}
}

func (b *Bridge) refuse(w http.ResponseWriter, id []byte, f *failure) {
	if f.reason != "" {
		b.metrics.refused.WithLabelValues(f.reason).Inc()
	}
	f.write(w, id)
}

// post handles a message of a client.
func (b *Bridge) post(w http.ResponseWriter, r *http.Request) {
	if f := acceptable(r); f != nil {
		b.refuse(w, nil, f)
		return
	}
	id := r.Header.Get(headerSession)
	if id == "" {
		b.postSessionless(w, r)
		return
	}
	s, f := b.session(r, id)
	if f != nil {
		b.refuse(w, nil, f)
		return
	}
	s.post(w, r)
}

// session returns the session of a request.
func (b *Bridge) session(r *http.Request, id string) (*session, *failure) {
	if f := legacyVersion(r); f != nil {
		return nil, f
	}
	if s := b.lookup(id); s != nil {
		return s, nil
	}
	return nil, &failure{
		status: http.StatusNotFound, code: codeSessionNotFound, reason: reasonNoSession,
		message: "session not found: it has ended, or belongs to another replica; initialize again",
	}
}

// postSessionless handles a message without a session ID: initialize, or a
// message of the stateless spec version.
func (b *Bridge) postSessionless(w http.ResponseWriter, r *http.Request) {
	// Bodies are read before the limits of sessions and requests apply.
	select {
	case b.readers <- struct{}{}:
		defer func() { <-b.readers }()
	case <-r.Context().Done():
		return
	}
	message, e, f := b.read(w, r)
	if f != nil {
		b.refuse(w, nil, f)
		return
	}
	b.dispatch(w, r, message, e)
}

func (b *Bridge) dispatch(w http.ResponseWriter, r *http.Request, message []byte, e *envelope) {
	switch {
	case e.Method == methodInit && e.kind() == request:
		b.initialize(w, r, message, e)
	case stateless(r, e):
		b.postStateless(w, r, message, e)
	default:
		b.refuse(w, e.ID, badRequest(codeInvalidRequest, "the header Mcp-Session-Id is missing: initialize first"))
	}
}

// read reads and checks one message.
func (b *Bridge) read(w http.ResponseWriter, r *http.Request) ([]byte, *envelope, *failure) {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(b.opts.IOTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(b.opts.MaxMessageBytes)))
	_ = rc.SetReadDeadline(time.Time{})
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, nil, &failure{
			status: http.StatusRequestEntityTooLarge, code: codeInvalidRequest, reason: reasonTooLarge,
			message: fmt.Sprintf("the message is larger than the limit of %d bytes", large.Limit),
		}
	case err != nil:
		return nil, nil, badRequest(codeParse, "the message could not be read")
	}
	e, err := parse(body)
	if err != nil {
		return nil, nil, badRequest(codeParse, "the body is not one JSON-RPC message (batches are not supported)")
	}
	message, err := oneLine(body)
	if err != nil {
		return nil, nil, badRequest(codeParse, "the body is not one JSON-RPC message")
	}
	return message, &e, nil
}

// get opens the stream for messages that belong to no request.
func (b *Bridge) get(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get(headerSession)
	switch _, events := accepts(r); {
	case !events:
		b.refuse(w, nil, notAcceptable("Accept must contain "+eventType))
		return
	case id == "" && r.Header.Get(headerVersion) >= statelessVersion:
		w.Header().Set("Allow", "POST")
		b.refuse(w, nil, methodNotAllowed("GET requires a session; without a session use subscriptions/listen"))
		return
	case id == "":
		b.refuse(w, nil, badRequest(codeInvalidRequest, "the header Mcp-Session-Id is missing"))
		return
	}
	s, f := b.session(r, id)
	if f != nil {
		b.refuse(w, nil, f)
		return
	}
	s.listen(w, r)
}

// delete ends a session at the request of its client.
func (b *Bridge) delete(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get(headerSession)
	if id == "" {
		b.refuse(w, nil, badRequest(codeInvalidRequest, "the header Mcp-Session-Id is missing"))
		return
	}
	s, f := b.session(r, id)
	if f != nil {
		b.refuse(w, nil, f)
		return
	}
	s.end(ended(reasonDeleted, "the client ended the session"))
	w.WriteHeader(http.StatusNoContent)
}
