package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"

	"github.com/fixpoint-dev/fixpoint/internal/peers"
	"github.com/fixpoint-dev/fixpoint/internal/requestbody"
)

// Paths of the peer listener.
const (
	peerSessionPath = "/session"
	peerStreamPath  = "/stream"
)

// newPeers returns nil without options.
func newPeers(b *Bridge, o *peers.Options) (*peers.Peers, error) {
	return peers.New(o, peers.Program{
		Log: b.opts.Log, WriteTimeout: b.opts.IOTimeout, EndStream: b.endPeerStream, Changed: b.signalChange,
		Refuse: b.refuse,
		Count:  func(outcome string) { b.metrics.forwarded.WithLabelValues(outcome).Inc() },
	})
}

// forward has another replica serve a request.
func (b *Bridge) forward(w http.ResponseWriter, r *http.Request, to netip.AddrPort) {
	in := &incoming{release: func() {}}
	if r.Method == http.MethodPost {
		var f *failure
		in, f = b.receive(w, r, b.placeFor(r))
		if f != nil {
			b.refuse(w, nil, f)
			return
		}
	}
	defer in.release()
	id := json.RawMessage(bytes.Clone(in.ID)) // not a part of the message, which is dropped before the response
	b.peers.Forward(w, r, b.forwarded(r, in, to), to, func() json.RawMessage { return id })
}

// forwarded is the request to the other replica.
func (b *Bridge) forwarded(r *http.Request, in *incoming, to netip.AddrPort) *http.Request {
	out := b.peers.Request(r, to)
	out.URL = &url.URL{Scheme: "https", Host: to.String(), Path: peerSessionPath}
	if r.Method == http.MethodPost {
		message, release := in.message, in.release
		sent := func() {
			if len(message) > smallMessage {
				message = nil
			}
		}
		body := func() io.ReadCloser { return &sentOnce{bytes.NewReader(message), sent, release} }
		out.ContentLength = int64(len(message))
		out.Body = body()
		// The transport sends a request again only if the connection was closed before any of it was sent. It may have read
		// all of a small message before, into its buffer, but not all of a large one.
		out.GetBody = func() (io.ReadCloser, error) { return body(), nil }
	}
	return out
}

// sentOnce is a message that the transport sends. The request has it until its response ends, but nothing of a large
// message after it was sent.
type sentOnce struct {
	io.Reader
	sent, release func()
}

// Read implements io.Reader. At the end, what was read before was sent, but for what fits into a buffer.
func (s *sentOnce) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		s.Reader = http.NoBody
		s.sent()
	}
	return n, err
}

// Close is called by the transport when it has sent the message. It returns its place.
func (s *sentOnce) Close() error {
	s.release()
	return nil
}

// endPeerStream has the other replica complete the stream of a session, so that the client receives all messages that were
// sent on it. Those that follow wait for its next stream.
func (b *Bridge) endPeerStream(r *http.Request, to netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(r.Context(), b.times.shutdown/2)
	defer cancel()
	out := b.peers.Request(r, to) // with the caller
	out.Method = http.MethodDelete
	out.URL = &url.URL{Scheme: "https", Host: to.String(), Path: peerStreamPath}
	resp, err := b.peers.RoundTrip(out.WithContext(ctx))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

// peerHandler serves the requests that other replicas forward.
func (b *Bridge) peerHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(peerSessionPath, b.peers.FromClients(http.HandlerFunc(b.servePeer)))
	mux.HandleFunc("DELETE "+peerStreamPath, b.servePeerEndStream)
	return b.limitSending(mux)
}

// servePeer serves a forwarded request. The other replica has checked its host, origin and version.
func (b *Bridge) servePeer(w http.ResponseWriter, r *http.Request) {
	if requestbody.Has(r) {
		b.limitBody(w)
	}
	s := b.lookup(r.Header.Get(headerSession))
	// The other replica has checked the access token, and forwards who the caller is.
	if s == nil || !b.serves(s, r) {
		b.refuse(w, nil, noSession())
		return
	}
	switch r.Method {
	case http.MethodPost:
		s.post(w, r)
	case http.MethodGet:
		s.listen(w, r)
	case http.MethodDelete:
		s.delete(w)
	default:
		b.refuse(w, nil, methodNotAllowed("use GET, POST or DELETE"))
	}
}

// servePeerEndStream completes the stream of a session, for a replica that is about to end.
func (b *Bridge) servePeerEndStream(w http.ResponseWriter, r *http.Request) {
	s := b.lookup(r.Header.Get(headerSession))
	if s == nil || !b.serves(s, r) {
		b.refuse(w, nil, noSession())
		return
	}
	s.endStream()
	w.WriteHeader(http.StatusNoContent)
}
