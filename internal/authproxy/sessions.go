package authproxy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/fixpoint-dev/fixpoint/internal/bridge"
	"github.com/fixpoint-dev/fixpoint/internal/peers"
	"github.com/fixpoint-dev/fixpoint/internal/requestbody"
)

// SessionOptions make every replica of a server accept the requests of all sessions: clients get the id of the server's
// session sealed with the address of its replica and the caller, and other replicas forward its requests there.
type SessionOptions struct {
	peers.Options
	// Listener serves the requests that other replicas forward.
	Listener net.Listener
}

const (
	headerSession = "Mcp-Session-Id"
	headerVersion = "Mcp-Protocol-Version"
	// sessionlessVersion is the first version of the specification without sessions.
	sessionlessVersion = "2026-07-28"
	// maxServerID is the maximum length of a session id of the server, in characters.
	maxServerID = 1 << 10
	// maxSmallBody is the size up to which the body of a forwarded request is read before, so that it can be sent again on
	// another connection.
	maxSmallBody = requestbody.SmallMessage
)

// callerDigest is the part of a sealed id that identifies the caller.
type callerDigest [16]byte

// session is that of a request.
type session struct {
	caller callerDigest
	// sealed is the id that the client has sent, and own the id that the server gave; empty without a session.
	sealed, own string
}

// sessionKey is the key of the session in the context of a request.
type sessionKey struct{}

func withSession(r *http.Request, s session) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), sessionKey{}, s))
}

func sessionOf(r *http.Request) session {
	s, _ := r.Context().Value(sessionKey{}).(session)
	return s
}

func (p *Proxy) callerOf(r *http.Request) callerDigest {
	if p.opts.Caller == nil {
		return callerDigest{}
	}
	sum := sha256.Sum256([]byte(p.opts.Caller(r)))
	return callerDigest(sum[:len(callerDigest{})])
}

// routed passes requests to the server of this replica, unless another replica has their session.
func (p *Proxy) routed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := session{caller: p.callerOf(r), sealed: r.Header.Get(headerSession)}
		switch {
		case r.Header.Get(headerVersion) >= sessionlessVersion:
			s.sealed = "" // It has no meaning there.
		case s.sealed != "":
			replica, own, ok := p.open(s)
			if !ok {
				peers.NoSession().Write(w, nil)
				return
			}
			if replica != p.peers.Self() {
				p.forward(w, r, replica)
				return
			}
			s.own = own
		}
		next.ServeHTTP(w, withSession(r, s))
	})
}

// servePeer serves a request that another replica has forwarded. That one has checked the request, and identifies the
// caller. It is not forwarded again.
func (p *Proxy) servePeer(next http.Handler) http.Handler {
	return p.peers.FromClients(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := session{caller: p.callerOf(r), sealed: r.Header.Get(headerSession)}
		replica, own, ok := p.open(s)
		if !ok || replica != p.peers.Self() {
			peers.NoSession().Write(w, nil)
			return
		}
		s.own = own
		next.ServeHTTP(w, withSession(r, s))
	}))
}

// forward has another replica serve a request. Its body passes through, unless it is small.
func (p *Proxy) forward(w http.ResponseWriter, r *http.Request, to netip.AddrPort) {
	out := p.peers.Request(r, to)
	out.Host = r.Host // the server there gets it
	var message []byte
	if requestbody.Has(r) {
		requestbody.MarkErrors(r)
		var err error
		if message, err = withBody(out, r); err != nil {
			p.failed(w, r, err)
			return
		}
	}
	p.peers.Forward(w, r, out, to, func() json.RawMessage {
		call, _ := bridge.ReadCall(message) // Without an id, the error has none.
		return call.ID
	})
}

// withBody gives a forwarded request the body of the request of a client. It returns the message if it is small.
func withBody(out, r *http.Request) (message []byte, err error) {
	requestbody.EndAtLength(r) // before it is wrapped: what a layer has read is released at its own end, not at its length
	var begin bytes.Buffer
	_, err = io.CopyN(&begin, r.Body, maxSmallBody+1)
	switch {
	case err == nil:
		out.ContentLength = r.ContentLength
		out.Body = readCloser{io.MultiReader(&begin, r.Body), r.Body}
		return nil, nil
	case !errors.Is(err, io.EOF):
		return nil, err
	}
	message = begin.Bytes()
	out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(message)), nil }
	out.ContentLength = int64(len(message))
	out.Body, err = out.GetBody()
	return message, err
}

type readCloser struct {
	io.Reader
	io.Closer
}

// setSession gives the server its own id of the session. What no replica has sealed does not reach it.
func setSession(header http.Header, own string) {
	header.Del(headerSession)
	if own != "" {
		header.Set(headerSession, own)
	}
}

// open returns the replica that has the session, and the id that the server there gave it. It is not ok if no replica of
// this server has sealed the id, or for another caller.
func (p *Proxy) open(s session) (replica netip.AddrPort, own string, ok bool) {
	replica, local, err := p.peers.Open(s.sealed)
	if err != nil || !strings.HasPrefix(local, string(s.caller[:])) {
		return netip.AddrPort{}, "", false
	}
	return replica, local[len(s.caller):], true
}

// sealed replaces the session id in a response of the server. A server may repeat the id in later responses.
func (p *Proxy) sealed(response *http.Response) error {
	own := response.Header.Get(headerSession)
	s := sessionOf(response.Request)
	switch own {
	case "":
		response.Header.Del(headerSession)
		return nil
	case s.own:
		response.Header.Set(headerSession, s.sealed)
		return nil
	}
	if err := validServerID(own); err != nil {
		return err
	}
	id, err := p.peers.Seal(string(s.caller[:]) + own)
	if err != nil {
		return fmt.Errorf("sealing a session id: %w", err)
	}
	response.Header.Set(headerSession, id)
	return nil
}

// invalidServerID is the error of a session id of the server that cannot be sealed.
type invalidServerID struct{ cause string }

func (i *invalidServerID) Error() string {
	return "the server began a session with an invalid id: " + i.cause
}

func validServerID(id string) error {
	if len(id) > maxServerID {
		return &invalidServerID{fmt.Sprintf("it has %d characters, and the limit is %d", len(id), maxServerID)}
	}
	if strings.ContainsFunc(id, func(c rune) bool { return c < '!' || c > '~' }) {
		return &invalidServerID{"it has characters other than visible ASCII, which the specification of MCP requires"}
	}
	return nil
}

// isGone reports whether a request of a session could not be sent, because the server does not listen.
func isGone(err error) bool {
	var failed *net.OpError
	return errors.As(err, &failed) && failed.Op == "dial"
}
