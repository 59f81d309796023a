package bridge

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	stdlog "log" //nolint:depguard // net/http logs failed handshakes through it; see peerLog
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// PeerOptions make every replica of a server accept the requests of all sessions: an id says, encrypted, which replica
// has the session, and other replicas forward its requests there.
type PeerOptions struct {
	// KeyDirectory has the keys that the replicas share: files of SessionKeyBytes random bytes, named by the time of
	// their creation (SessionKeyName). The newest key that is older than SessionKeyActivation seals ids, or else the
	// oldest; all keys open ids. The directory may change at any time.
	KeyDirectory string
	// Server distinguishes servers, such as the UID of an object. Ids of other servers are not accepted.
	Server string
	// Address is where other replicas reach the peer listener of this one.
	Address netip.AddrPort
	// ConnectTimeout is the time to connect to another replica, after which it counts as gone.
	ConnectTimeout time.Duration
}

func (o *PeerOptions) complete() error {
	var errs []error
	if o.KeyDirectory == "" {
		errs = append(errs, errors.New("the directory of session keys is missing: set -session-keys"))
	}
	if o.Server == "" {
		errs = append(errs, errors.New("the id of the server is missing: set -server-id"))
	}
	if !o.Address.IsValid() || o.Address.Addr().IsUnspecified() || o.Address.Port() == 0 {
		errs = append(errs, errors.New("the address of the peer listener for other replicas is missing: set -peer-ip"))
	}
	return errors.Join(append(errs, limit("ConnectTimeout", &o.ConnectTimeout, defaultConnectTimeout))...)
}

const (
	defaultConnectTimeout = 3 * time.Second
	// peerUserTimeout is the time without acknowledgement after which another replica is gone.
	peerUserTimeout = 20 * time.Second
	// peerIdleTimeout is how long this replica keeps idle connections: shorter than the other end, which would
	// otherwise close one at the moment of a request.
	peerIdleTimeout = keepAlive / 4
	// peerIdleConnections is the maximum number of idle connections to one replica.
	peerIdleConnections = 64
)

// Paths of the peer listener.
const (
	peerSessionPath = "/session"
	peerStreamPath  = "/stream"
)

// headerClient has the address of the client. Only the peer listener reads it.
const headerClient = "Fixpoint-Client-Address"

// Outcomes of forwarded requests.
const (
	forwardRelayed    = "relayed"
	forwardGone       = "replica_gone"
	forwardFailed     = "failed"
	forwardClientLeft = "client_left"
	forwardDraining   = "draining"
)

// peers forwards requests of sessions to the replicas that have them, and serves those that other replicas forward.
// Those are never forwarded again. A nil peers is that of a bridge without other replicas.
type peers struct {
	bridge    *Bridge
	keys      *keyring
	self      netip.AddrPort
	transport *http.Transport

	// closing is done when the bridge closes, streams when it is about to: streams never end by themselves.
	closing, streams       context.Context
	endClosing, endStreams context.CancelFunc

	mu sync.Mutex
	// calls are the forwarded requests in flight, without streams.
	calls int
	// used is when the last of them ended.
	used time.Time
}

// newPeers returns nil without options.
func newPeers(b *Bridge, o *PeerOptions) (*peers, error) {
	if o == nil {
		return nil, nil
	}
	keys, err := newKeyring(o.KeyDirectory, o.Server, b.opts.Log)
	if err != nil {
		return nil, err
	}
	p := &peers{bridge: b, keys: keys, self: o.Address}
	p.closing, p.endClosing = context.WithCancel(context.Background())
	p.streams, p.endStreams = context.WithCancel(p.closing)
	dialer := &tls.Dialer{Config: keys.tlsConfig(), NetDialer: &net.Dialer{
		Control:         failAfter(peerUserTimeout),
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: peerUserTimeout / 2, Interval: peerUserTimeout / 4, Count: 2},
	}}
	p.transport = &http.Transport{
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, o.ConnectTimeout)
			defer cancel()
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, &unreachable{err}
			}
			return conn, nil
		},
		DisableCompression:  true,
		IdleConnTimeout:     peerIdleTimeout,
		MaxIdleConnsPerHost: peerIdleConnections,
	}
	return p, nil
}

// unreachable is the error of a replica to which no connection could be opened, so it has received no request.
type unreachable struct{ err error }

func (u *unreachable) Error() string { return "connecting to the replica: " + u.err.Error() }

func (u *unreachable) Unwrap() error { return u.err }

// sealID returns the id of a new session of this replica, which clients see.
func (p *peers) sealID(local string) (string, error) {
	if p == nil {
		return local, nil
	}
	return p.keys.sealID(p.self, local)
}

// owner returns the other replica that has a session.
func (p *peers) owner(id string) (netip.AddrPort, bool) {
	if p == nil {
		return netip.AddrPort{}, false
	}
	replica, err := p.keys.openID(id)
	return replica, err == nil && replica != p.self
}

// forward has another replica serve a request.
func (p *peers) forward(w http.ResponseWriter, r *http.Request, to netip.AddrPort) {
	in := &incoming{release: func() {}}
	if r.Method == http.MethodPost {
		var f *failure
		in, f = p.bridge.receive(w, r, func(ctx context.Context) (func(), bool) {
			return p.bridge.places.take(ctx, clientAddress(r))
		})
		if f != nil {
			p.bridge.refuse(w, nil, f)
			return
		}
	}
	defer in.release()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer p.enter(r, to, cancel)()
	resp, err := p.transport.RoundTrip(forwarded(ctx, r, in, to))
	if err != nil {
		p.refuse(w, r, in.ID, err)
		return
	}
	defer resp.Body.Close()
	p.relay(w, r, resp)
}

// enter counts a request, and cancels it when the bridge closes. The returned function ends both.
func (p *peers) enter(r *http.Request, to netip.AddrPort, cancel context.CancelFunc) (leave func()) {
	if r.Method == http.MethodGet {
		stop := context.AfterFunc(p.streams, func() {
			if p.endStream(r, to) != nil {
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
		p.bridge.signalChange()
	}
}

// endStream has the other replica complete the stream of a session, so that the client receives all messages that were
// sent on it. Those that follow wait for its next stream.
func (p *peers) endStream(r *http.Request, to netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(r.Context(), shutdownGrace/2)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, "https://"+to.String()+peerStreamPath, nil)
	if err != nil {
		return err
	}
	req.Header = endToEnd(r.Header) // with the caller
	req.Header.Set(headerSession, r.Header.Get(headerSession))
	resp, err := p.transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

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

// forwarded is the request to the other replica.
func forwarded(ctx context.Context, r *http.Request, in *incoming, to netip.AddrPort) *http.Request {
	header := endToEnd(r.Header)
	header.Del("Expect") // the body has been received
	header.Set(headerClient, clientAddress(r))
	// The session and the version may be among the headers that the client names in Connection.
	header.Set(headerSession, r.Header.Get(headerSession))
	if _, ok := header["User-Agent"]; !ok {
		header.Set("User-Agent", "") // otherwise one is added
	}
	req := (&http.Request{
		Method: r.Method, Host: to.String(), Header: header,
		URL: &url.URL{Scheme: "https", Host: to.String(), Path: peerSessionPath},
	}).WithContext(ctx)
	if r.Method == http.MethodPost {
		req.ContentLength = int64(len(in.message))
		req.Body = &sentOnce{Reader: bytes.NewReader(in.message), sent: in.release}
		// The transport sends a request again only if the connection was closed before any of it was sent.
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(in.message)), nil }
	}
	return req
}

// sentOnce returns the place of a message after it was sent.
type sentOnce struct {
	io.Reader
	sent func()
}

// Close is called by the transport when it has sent the message.
func (s *sentOnce) Close() error {
	s.sent()
	return nil
}

// isRefusal reports whether the other end is known not to accept the certificate. In TLS 1.3 it says so after this end has
// verified that it is a replica, so the session may exist. It also closes the connection then: if a write fails before
// that is read, the refusal is not known.
func isRefusal(err error) bool {
	var alert *net.OpError
	return errors.As(err, &alert) && alert.Op == "remote error" // as crypto/tls names an alert of the other end
}

// refuse responds to a request that has no response of the other replica.
func (p *peers) refuse(w http.ResponseWriter, r *http.Request, id []byte, err error) {
	var gone *unreachable
	outcome := forwardFailed
	switch {
	case r.Context().Err() != nil:
		outcome = forwardClientLeft
	case p.closing.Err() != nil, r.Method == http.MethodGet && p.streams.Err() != nil:
		outcome = forwardDraining
		p.bridge.refuse(w, id, drainFailure())
	case errors.As(err, &gone):
		outcome = forwardGone
		p.bridge.opts.Log.V(1).Info("The replica of a session is gone", "cause", err.Error())
		p.bridge.refuse(w, id, sessionNotFound("session not found: the replica that had it is gone; initialize again"))
	case isRefusal(err):
		p.bridge.opts.Log.Info("The replica of a session refused the connection", "cause", err.Error())
		p.bridge.refuse(w, id, &failure{
			status: http.StatusBadGateway, code: codeInternal, reason: reasonReplicaFailed,
			message: "the replica that has the session refused the connection, and has not received the request: its session keys are older than those of this replica; retry later",
		})
	default:
		p.bridge.opts.Log.Info("The replica of a session did not respond", "cause", err.Error())
		p.bridge.refuse(w, id, &failure{
			status: http.StatusBadGateway, code: codeInternal, reason: reasonReplicaFailed,
			message: "the replica that has the session did not respond, and may have received the request: retry it only if it may run twice",
		})
	}
	p.count(outcome)
}

func (p *peers) count(outcome string) { p.bridge.metrics.forwarded.WithLabelValues(outcome).Inc() }

// relay writes the response of the other replica as it arrives.
func (p *peers) relay(w http.ResponseWriter, r *http.Request, resp *http.Response) {
	header := w.Header()
	for name, values := range endToEnd(resp.Header) {
		header[name] = slices.Clone(values)
	}
	w.WriteHeader(resp.StatusCode)
	switch err := p.copy(w, resp); {
	case err == nil, r.Method == http.MethodGet && p.streams.Err() != nil && r.Context().Err() == nil:
		p.count(forwardRelayed)
	case r.Context().Err() != nil:
		p.count(forwardClientLeft)
	default:
		p.count(forwardFailed)
		// The client must not take what it has received for the whole response.
		panic(http.ErrAbortHandler)
	}
}

// copy flushes each part, unless the response has a known length. A client that does not read has IOTimeout, as if it
// was connected to the other replica.
func (p *peers) copy(w http.ResponseWriter, resp *http.Response) error {
	conn := http.NewResponseController(w)
	defer func() { _ = conn.SetWriteDeadline(time.Time{}) }() // the connection may serve further requests
	if resp.ContentLength < 0 {
		_ = conn.Flush() // a client waits for the headers of a stream
	}
	buffer := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buffer)
		if n > 0 {
			_ = conn.SetWriteDeadline(time.Now().Add(p.bridge.opts.IOTimeout))
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

// usedWithin reports whether a forwarded request is pending or ended less than d ago.
func (p *peers) usedWithin(d time.Duration) bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls > 0 || !p.used.IsZero() && time.Since(p.used) < d
}

// quiet reports whether no forwarded request is pending, beside streams.
func (p *peers) quiet() bool {
	if p == nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls == 0
}

// finishStreams ends the forwarded streams. Clients open them again, on another replica.
func (p *peers) finishStreams() {
	if p != nil {
		p.endStreams()
	}
}

// close ends all forwarded requests.
func (p *peers) close() {
	if p != nil {
		p.endClosing()
		p.transport.CloseIdleConnections()
	}
}

// server serves the requests that other replicas forward.
func (p *peers) server() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc(peerSessionPath, p.serve)
	mux.HandleFunc("DELETE "+peerStreamPath, p.serveEndStream)
	s := newServer(mux)
	s.ErrorLog = stdlog.New(peerLog{p.bridge}, "", 0)
	return s
}

// peerLog logs failed handshakes, which anybody can cause, as debug messages.
type peerLog struct{ bridge *Bridge }

func (l peerLog) Write(line []byte) (int, error) {
	l.bridge.opts.Log.V(1).Info("Peer listener", "message", strings.TrimSpace(string(line)))
	return len(line), nil
}

// listen wraps a listener in TLS.
func (p *peers) listen(l net.Listener) net.Listener { return tls.NewListener(l, p.keys.tlsConfig()) }

// serve serves a forwarded request. The other replica has checked its host, origin and version.
func (p *peers) serve(w http.ResponseWriter, r *http.Request) {
	b := p.bridge
	if r.Body != nil && r.Body != http.NoBody {
		b.limitBody(w)
	}
	client, err := netip.ParseAddr(r.Header.Get(headerClient))
	if err != nil {
		b.refuse(w, nil, badRequest(codeInvalidRequest, "the header "+headerClient+" is not an IP address"))
		return
	}
	// From here on the client is at the other end of the connection.
	r.RemoteAddr = netip.AddrPortFrom(client, 0).String()
	s := b.lookup(r.Header.Get(headerSession))
	// The other replica has checked the access token, and forwards who the caller is.
	if s == nil || s.caller != b.caller(r) {
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

// serveEndStream completes the stream of a session, for a replica that is about to end.
func (p *peers) serveEndStream(w http.ResponseWriter, r *http.Request) {
	s := p.bridge.lookup(r.Header.Get(headerSession))
	if s == nil || s.caller != p.bridge.caller(r) {
		p.bridge.refuse(w, nil, noSession())
		return
	}
	s.endStream()
	w.WriteHeader(http.StatusNoContent)
}
