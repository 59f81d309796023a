package peers

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fixpoint-dev/fixpoint/internal/callrecord"
	"github.com/fixpoint-dev/fixpoint/internal/requestbody"
	"github.com/fixpoint-dev/fixpoint/internal/streams"
)

const (
	headerSession = "Mcp-Session-Id"
	// HeaderClient has the address of the client. Only the peer listener reads it.
	HeaderClient = "Fixpoint-Client-Address"
)

// hopByHop are the headers that concern a single connection.
var hopByHop = []string{"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// endToEnd returns the headers that are forwarded.
func endToEnd(h http.Header) http.Header {
	kept := h.Clone()
	for _, value := range h.Values("Connection") {
		for name := range strings.SplitSeq(value, ",") {
			kept.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hopByHop {
		kept.Del(name)
	}
	return kept
}

// Request returns the request to another replica that a request of a client becomes. It has no body.
func (p *Peers) Request(r *http.Request, to netip.AddrPort) *http.Request {
	header := endToEnd(r.Header)
	header.Del("Expect") // the program reads the body
	header.Set(HeaderClient, callrecord.ClientAddress(r))
	// The session may be among the headers that the client names in Connection.
	header.Set(headerSession, r.Header.Get(headerSession))
	if _, ok := header["User-Agent"]; !ok {
		header.Set("User-Agent", "") // otherwise one is added
	}
	preventReplay(header)
	return (&http.Request{
		Method: r.Method, Host: to.String(), Header: header,
		URL: &url.URL{Scheme: "https", Host: to.String(), Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery},
	}).WithContext(r.Context())
}

// preventReplay hides headers from the transport for which it sends a request again that another replica may have executed.
// It finds only canonical names; the other replica reads them in any letter case.
func preventReplay(header http.Header) {
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, ok := header[name]; ok {
			delete(header, name)
			header[strings.ToLower(name)] = values
		}
	}
}

// RoundTrip sends a request to another replica, and returns its response.
func (p *Peers) RoundTrip(r *http.Request) (*http.Response, error) { return p.transport.RoundTrip(r) }

// Forward has another replica serve a request of a client: out is what [Peers.Request] has returned for it, with the body.
// The id, for errors, is that of the JSON-RPC message.
func (p *Peers) Forward(w http.ResponseWriter, r, out *http.Request, to netip.AddrPort, id func() json.RawMessage) {
	if r.Method == http.MethodGet && p.streams.Err() != nil {
		p.refuse(w, r, id, p.streams.Err())
		return
	}
	// The context of r ends when its handler returns, which may be before the end of a stream.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	f := &forwarded{peers: p, cancel: cancel, unlink: context.AfterFunc(r.Context(), cancel), leave: p.enter(r.WithContext(ctx), to, cancel)}
	detached := false
	defer func() {
		if !detached {
			f.end()
		}
	}()
	resp, err := p.transport.RoundTrip(out.WithContext(ctx)) //nolint:bodyclose // f closes it
	if err != nil {
		p.refuse(w, r, id, err)
		return
	}
	f.resp = resp
	if r.Method == http.MethodGet && streams.IsEvents(resp) && streams.CanDetach(w) {
		detached = f.detach(w, r)
		return
	}
	p.relay(w, r, resp)
}

// forwarded is a request that another replica serves.
type forwarded struct {
	peers *Peers
	resp  *http.Response
	// cancel ends the request; until unlink, the end of the request of the client does so, too. leave is that of enter.
	cancel context.CancelFunc
	unlink func() bool
	leave  func()
	// left is true after the client of a detached stream has left.
	left atomic.Bool
}

// end releases what the request has.
func (f *forwarded) end() {
	f.unlink()
	f.leave()
	f.cancel()
	if f.resp != nil {
		_ = f.resp.Body.Close()
	}
}

// detach lets the response go on without its handler. It returns false if that failed: the client has left, or a layer has
// responded itself.
func (f *forwarded) detach(w http.ResponseWriter, r *http.Request) bool {
	copyHeader(w, f.resp)
	streams.Prepare(w.Header())
	w.WriteHeader(f.resp.StatusCode)
	f.unlink()
	err := streams.Detach(w, f)
	if err != nil {
		f.peers.ended(err, true, r.Context().Err() != nil)
	}
	return err == nil
}

// Relay implements [streams.Source].
func (f *forwarded) Relay(w http.ResponseWriter) error {
	err := f.peers.copy(w, f.resp, streamBuffer)
	if f.peers.ended(err, true, f.left.Load()) {
		return err
	}
	return nil
}

// Stop implements [streams.Source].
func (f *forwarded) Stop() {
	f.left.Store(true)
	f.end()
}

// enter counts a request, and cancels it when the program closes; a stream ends before. The returned function ends both.
func (p *Peers) enter(r *http.Request, to netip.AddrPort, cancel context.CancelFunc) (leave func()) {
	if r.Method == http.MethodGet {
		stop := context.AfterFunc(p.streams, func() {
			// The other replica may get the request for the stream after the one to end it.
			time.AfterFunc(streamGrace, cancel)
			if p.program.EndStream(r, to) != nil {
				cancel()
			}
		})
		return func() { stop() }
	}
	stop := context.AfterFunc(p.closing, cancel)
	p.mu.Lock()
	p.calls++
	p.mu.Unlock()
	return func() {
		stop()
		p.mu.Lock()
		p.calls--
		p.used = time.Now()
		p.mu.Unlock()
		p.program.Changed()
	}
}

// isRefusal reports whether the other end is known not to accept the certificate. In TLS 1.3 it says so after this end has
// verified that it is a replica, so the session may exist. It also closes the connection then: if a write fails before
// that is read, the refusal is not known.
func isRefusal(err error) bool {
	var alert *net.OpError
	return errors.As(err, &alert) && alert.Op == "remote error" // as crypto/tls names an alert of the other end
}

// refuse responds to a request that has no response of the other replica.
func (p *Peers) refuse(w http.ResponseWriter, r *http.Request, id func() json.RawMessage, err error) {
	var gone *unreachable
	var large *http.MaxBytesError
	var unread *requestbody.ReadError
	outcome := Failed
	switch {
	case r.Context().Err() != nil:
		outcome = ClientLeft
	case p.closing.Err() != nil, r.Method == http.MethodGet && p.streams.Err() != nil:
		outcome = ReplicaDrained
		p.program.Refuse(w, id(), Draining())
	case errors.As(err, &gone):
		outcome = ReplicaGone
		p.program.Log.V(1).Info("The replica of a session is gone", "cause", err.Error())
		p.program.Refuse(w, id(), Gone())
	case errors.As(err, &large):
		p.program.Refuse(w, id(), tooLarge(large.Limit))
	case errors.As(err, &unread):
		outcome = ClientLeft
		p.program.Refuse(w, id(), notRead())
	case isRefusal(err):
		p.program.Log.Info("The replica of a session refused the connection", "cause", err.Error())
		p.program.Refuse(w, id(), refusedConnection())
	default:
		p.program.Log.Info("The replica of a session did not respond", "cause", err.Error())
		p.program.Refuse(w, id(), didNotRespond())
	}
	p.program.Count(outcome)
}

// relay writes the response of the other replica as it arrives.
func (p *Peers) relay(w http.ResponseWriter, r *http.Request, resp *http.Response) {
	copyHeader(w, resp)
	w.WriteHeader(resp.StatusCode)
	if p.ended(p.copy(w, resp, copyBuffer), r.Method == http.MethodGet, r.Context().Err() != nil) {
		// The client must not take what it has received for the whole response.
		panic(http.ErrAbortHandler)
	}
}

func copyHeader(w http.ResponseWriter, resp *http.Response) {
	header := w.Header()
	for name, values := range endToEnd(resp.Header) {
		header[name] = slices.Clone(values)
	}
}

// ended counts a response after it was copied, and reports whether it has broken off. left is true if the client has left.
func (p *Peers) ended(err error, isStream, left bool) (failed bool) {
	switch {
	case err == nil, isStream && p.streams.Err() != nil && !left:
		p.program.Count(Relayed)
	case left:
		p.program.Count(ClientLeft)
	default:
		p.program.Count(Failed)
		return true
	}
	return false
}

const (
	// copyBuffer is the size of the buffer of a response.
	copyBuffer = 32 << 10
	// streamBuffer is that of a stream, which has it until its end.
	streamBuffer = 2 << 10
)

// copy flushes each part, unless the response has a known length. A client that does not read has WriteTimeout, as if it
// was connected to the other replica.
func (p *Peers) copy(w http.ResponseWriter, resp *http.Response, bufferBytes int) error {
	conn := http.NewResponseController(w)
	setDeadline := func() {
		if p.program.WriteTimeout > 0 {
			_ = conn.SetWriteDeadline(time.Now().Add(p.program.WriteTimeout))
		}
	}
	setDeadline()
	defer setDeadline() // for what the server still has of the response
	if resp.ContentLength < 0 {
		_ = conn.Flush() // a client waits for the headers of a stream
	}
	buffer := make([]byte, bufferBytes)
	for {
		n, err := resp.Body.Read(buffer)
		if n > 0 {
			setDeadline()
			if _, err := w.Write(buffer[:n]); err != nil {
				return err
			}
			if resp.ContentLength < 0 {
				if err := conn.Flush(); err != nil {
					return err
				}
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}
