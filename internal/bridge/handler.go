package bridge

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"

	"github.com/fixpoint-dev/fixpoint/internal/callrecord"
	"github.com/fixpoint-dev/fixpoint/internal/peers"
	"github.com/fixpoint-dev/fixpoint/internal/requestbody"
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
	// methodCancelled cancels a request of its sender.
	methodCancelled = "notifications/cancelled"
)

// serveMCP serves the MCP endpoint.
func (b *Bridge) serveMCP(w http.ResponseWriter, r *http.Request) {
	hasBody := requestbody.Has(r)
	if hasBody {
		b.limitBody(w)
	}
	if f := b.guard(r); f != nil {
		b.refuse(w, nil, f)
		return
	}
	if hasBody && (r.Method == http.MethodGet || r.Method == http.MethodDelete) {
		f := badRequest(codeInvalidRequest, "only POST has a body: send none")
		f.Closes = true
		b.refuse(w, nil, f)
		return
	}
	switch {
	case r.Method == http.MethodPost:
		b.post(w, r)
	case b.hasNoSessions():
		w.Header().Set("Allow", "POST")
		b.refuse(w, nil, methodNotAllowed("this server has no sessions: use POST"))
	case r.Method == http.MethodGet:
		b.get(w, r)
	case r.Method == http.MethodDelete:
		b.delete(w, r)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		b.refuse(w, nil, methodNotAllowed("use GET, POST or DELETE"))
	}
}

func (b *Bridge) refuse(w http.ResponseWriter, id json.RawMessage, f *failure) {
	if f.Reason != "" {
		b.metrics.refused.WithLabelValues(f.Reason).Inc()
	}
	callrecord.RefuseBy(w, cmp.Or(f.Reason, reasonInvalid))
	b.setSendDeadline(w)
	f.Write(w, id)
}

// post handles a message of a client.
func (b *Bridge) post(w http.ResponseWriter, r *http.Request) {
	if f := acceptable(r); f != nil {
		b.refuse(w, nil, f)
		return
	}
	id := r.Header.Get(headerSession)
	if id == "" || b.hasNoSessions() { // without sessions, the header is to be ignored
		b.postSessionless(w, r)
		return
	}
	b.serveSession(w, r, id, func(s *session) { s.post(w, r) })
}

// serveSession serves a request of a session, or has the replica that has the session serve it.
func (b *Bridge) serveSession(w http.ResponseWriter, r *http.Request, id string, local func(*session)) {
	if f := legacyVersion(r); f != nil {
		b.refuse(w, nil, f)
		return
	}
	if b.peers != nil && b.isDraining() {
		// The next request can go to another replica.
		w.Header().Set("Connection", "close")
	}
	if s := b.lookup(id); s != nil {
		// Whoever learns the ID of a session of another caller must not use it.
		if !b.serves(s, r) {
			b.refuse(w, nil, noSession())
			return
		}
		local(s)
		return
	}
	if to, ok := b.peers.Owner(id); ok {
		b.forward(w, r, to)
		return
	}
	b.refuse(w, nil, noSession())
}

func noSession() *failure { return peers.NoSession() }

// caller is whose share of sessions, requests and places for large messages a request takes.
func (b *Bridge) caller(r *http.Request) string { return requestbody.Caller(r, b.opts.Caller) }

// placeFor waits for a place of the caller of a request that belongs to no session here.
func (b *Bridge) placeFor(r *http.Request) takePlace {
	return func(ctx context.Context) (func(), bool) { return b.places.Take(ctx, b.caller(r)) }
}

// serves reports whether the caller of a request may use the session.
func (b *Bridge) serves(s *session, r *http.Request) bool {
	return b.opts.Caller == nil || s.caller == b.caller(r)
}

// postSessionless handles a message without a session ID: initialize, or a
// message of the stateless spec version.
func (b *Bridge) postSessionless(w http.ResponseWriter, r *http.Request) {
	in, f := b.receive(w, r, b.placeFor(r))
	if f != nil {
		b.refuse(w, nil, f)
		return
	}
	defer in.release()
	if f := b.checkGeneration(r, in); f != nil {
		b.refuse(w, in.ID, f)
		return
	}
	switch {
	case in.Method == methodInit && in.kind() == request:
		if f := checkHeaders(r, &in.envelope, false); f != nil {
			b.refuse(w, in.ID, f)
			return
		}
		b.initialize(w, r, in)
	case stateless(r, &in.envelope), b.hasNoSessions():
		b.postStateless(w, r, in)
	default:
		b.refuse(w, in.ID, badRequest(codeInvalidRequest, "the header Mcp-Session-Id is missing: initialize first"))
	}
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
	b.serveSession(w, r, id, func(s *session) { s.listen(w, r) })
}

// delete ends a session at the request of its client.
func (b *Bridge) delete(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get(headerSession)
	if id == "" {
		b.refuse(w, nil, badRequest(codeInvalidRequest, "the header Mcp-Session-Id is missing"))
		return
	}
	b.serveSession(w, r, id, func(s *session) { s.delete(w) })
}
