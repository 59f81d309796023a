package prober

import (
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// closeTimeout is the time to close the session after the timeout of the probe.
	closeTimeout = time.Second
	// overhead counts against the byte limit for each response and each message of a stream, besides its
	// length, because the SDK allocates about as much to decode it. So endless pagination ends, too.
	overhead = 16 << 10

	// headerBytes limits the headers of a response.
	headerBytes = 16 << 10
	// maxSessions limits the sessions that a probe closes. Honest servers create at most one for each
	// attempt of the handshake.
	maxSessions = 4

	sessionHeader = "Mcp-Session-Id"
)

var (
	errOtherHost   = errors.New("another host")
	errEnded       = errors.New("the probe has ended")
	errLongHeaders = &Error{Kind: TooLarge, Detail: "its headers are longer than 16 KiB"}
)

// probeTransport is the http.RoundTripper of one probe. It dials the probed replica, adds the credentials,
// rejects other hosts, limits responses, and records what the errors of the SDK do not contain.
//
// Each probe opens new connections, because a probe stands for a new client: a kept connection would hide
// that the server accepts no new ones.
type probeTransport struct {
	job    job
	base   *http.Transport
	ctx    context.Context
	cancel context.CancelFunc
	stop   func() bool

	mu       sync.Mutex
	conns    []net.Conn
	sessions map[string]bool
	budget   int64
	kept     kept
	contract *contractReader // nil if no contract is derived
	over     bool
	observed observation
}

// observation is what a probeTransport has recorded.
type observation struct {
	posts     int
	status    int
	err       error
	otherHost bool
	// rejected is why the prober stopped reading a response.
	rejected *Error
	// broken is true if reading a response body failed.
	broken bool
}

func newProbeTransport(ctx context.Context, j job, dial func(context.Context, string, string) (net.Conn, error)) *probeTransport {
	w := &probeTransport{job: j, budget: handshakeBytes, kept: kept{maxBytes: handshakeKept, maxValues: handshakeValues}}
	if j.contract {
		w.contract = newContractReader()
	}
	w.ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	w.stop = context.AfterFunc(ctx, func() { time.AfterFunc(closeTimeout, w.closeAll) })
	w.base = &http.Transport{
		// The context of the request would cancel dialling too early or too late.
		DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
			if j.address != "" {
				address = j.address
			}
			conn, err := dial(w.ctx, network, address)
			if err != nil {
				return nil, err
			}
			return w.trackConn(conn)
		},
		TLSClientConfig:        j.tls,
		DisableCompression:     true,
		MaxResponseHeaderBytes: headerBytes,
	}
	return w
}

func (w *probeTransport) transport() mcp.Transport {
	client := &http.Client{Transport: w}
	if w.job.transport == SSE {
		return &mcp.SSEClientTransport{Endpoint: w.job.url.String(), HTTPClient: client, MaxEventSize: handshakeKept + listKept}
	}
	return &mcp.StreamableClientTransport{
		Endpoint:             w.job.url.String(),
		HTTPClient:           client,
		DisableStandaloneSSE: true,
		MaxRetries:           -1,
		MaxEventSize:         handshakeKept + listKept,
	}
}

// RoundTrip implements http.RoundTripper.
func (w *probeTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := w.checkRequest(request); err != nil {
		return nil, err
	}
	own := *request
	own.Header = request.Header.Clone()
	own.Host = w.job.host
	for name, values := range w.job.header {
		own.Header[name] = values
	}
	response, err := w.base.RoundTrip(&own)
	w.note(request, response, err)
	if err != nil {
		return nil, err
	}
	response.Body = w.limit(request, response)
	return response, nil
}

// checkRequest returns an error if the request must not be sent.
func (w *probeTransport) checkRequest(request *http.Request) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if request.URL.Host != w.job.url.Host || request.URL.Scheme != w.job.url.Scheme {
		w.observed.otherHost = true
		return errOtherHost
	}
	if request.Method == http.MethodDelete {
		delete(w.sessions, request.Header.Get(sessionHeader))
	} else if w.observed.err != nil {
		// The SDK would try initialize although server/discover failed with a network error.
		return errEnded
	}
	if w.over {
		return errEnded
	}
	if request.Method == http.MethodPost {
		w.observed.posts++
	}
	return nil
}

// note records the outcome of a request. Deleting a session is not part of the handshake.
func (w *probeTransport) note(request *http.Request, response *http.Response, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if request.Method == http.MethodDelete {
		return
	}
	if err != nil {
		w.observed.err = err
		return
	}
	w.observed.status = response.StatusCode
	if id := response.Header.Get(sessionHeader); id != "" && len(w.sessions) < maxSessions {
		if w.sessions == nil {
			w.sessions = map[string]bool{}
		}
		w.sessions[id] = true
	}
}

// extendLimit raises the limits for the lists.
func (w *probeTransport) extendLimit() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.budget += listBytes
	w.kept.extend()
}

// items is the number of items read so far of a list.
func (w *probeTransport) items(list int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.kept.items[list]
}

// startList lets the contract read the items of a list, and returns the number of those before.
func (w *probeTransport) startList(list int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.contract != nil {
		w.contract.list = list
	}
	return w.kept.items[list]
}

// readContract is the contract after all lists have been read.
func (w *probeTransport) readContract() (*Contract, *Error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.contract.values.err; err != nil {
		return nil, err
	}
	contract := w.contract.contract()
	contract.reader = w.contract
	return contract, nil
}

// read accounts for a part of a body, and returns what the SDK gets of it.
func (w *probeTransport) read(r *reducer, length int64, part []byte) ([]byte, *Error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.out, r.messages = r.out[:0], 0
	rejected := r.write(part)
	w.budget -= length + int64(r.messages)*overhead
	if rejected == nil && w.budget < 0 {
		rejected = errTooLarge
	}
	if rejected != nil {
		return nil, rejected
	}
	return r.out, nil
}

// noteBody records why a body could not be read: because it was rejected, or else because it broke off.
func (w *probeTransport) noteBody(rejected *Error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if rejected != nil {
		w.observed.rejected = rejected
		return
	}
	w.observed.broken = true
}

// trackConn records a connection, so that it is closed with the transport.
func (w *probeTransport) trackConn(conn net.Conn) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		_ = conn.Close()
		return nil, errEnded
	}
	w.conns = append(w.conns, conn)
	return conn, nil
}

// onlyDiscovered reports whether server/discover was the only request and its response was not usable.
func (w *probeTransport) onlyDiscovered() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.observed.posts == 1 && w.observed.err == nil && !w.observed.otherHost && w.observed.rejected == nil
}

// reset clears the observation for another handshake.
func (w *probeTransport) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.observed = observation{}
}

// close deletes sessions that the SDK has not closed, and then closes all connections.
func (w *probeTransport) close() {
	ctx, cancel := context.WithTimeout(w.ctx, closeTimeout)
	defer cancel()
	for _, id := range w.openSessions() {
		w.delete(ctx, id)
	}
	w.stop()
	w.closeAll()
}

// closeSession lets the SDK close its session within closeTimeout.
func (w *probeTransport) closeSession(session *mcp.ClientSession) {
	timer := time.AfterFunc(closeTimeout, w.closeAll)
	defer timer.Stop()
	_ = session.Close()
}

// openSessions are sessions of requests that the server then rejected.
func (w *probeTransport) openSessions() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := make([]string, 0, len(w.sessions))
	for id := range w.sessions {
		ids = append(ids, id)
	}
	return ids
}

func (w *probeTransport) delete(ctx context.Context, id string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodDelete, w.job.url.String(), nil)
	if err != nil {
		return
	}
	request.Header.Set(sessionHeader, id)
	response, err := w.RoundTrip(request)
	if err == nil {
		_ = response.Body.Close()
	}
}

// closeAll ends all requests and connections.
func (w *probeTransport) closeAll() {
	w.mu.Lock()
	w.over = true
	conns := w.conns
	w.conns = nil
	w.mu.Unlock()
	w.cancel()
	w.base.CloseIdleConnections()
	for _, conn := range conns {
		_ = conn.Close()
	}
}

// limitedBody is a response body within the limits of the probe.
type limitedBody struct {
	body           io.ReadCloser
	probeTransport *probeTransport
	reducer        reducer
	begun          bool
	// isError is true for the body of a response with an error, which may be anything. The probe does not depend on it.
	isError bool
	// raw is the buffer for reading, pending what the SDK has not read yet, and err the error after it.
	raw     [4 << 10]byte
	pending []byte
	err     error
}

// limit limits the body of a response. The SDK reads every stream of the SSE transport as events.
func (w *probeTransport) limit(request *http.Request, response *http.Response) *limitedBody {
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	events := media == "text/event-stream" || w.job.transport == SSE && request.Method == http.MethodGet
	l := &limitedBody{body: response.Body, probeTransport: w, reducer: reducer{kept: &w.kept, contract: w.contract, events: events}}
	if response.StatusCode >= http.StatusBadRequest {
		l.isError, l.reducer = true, reducer{kept: &kept{maxBytes: handshakeKept, maxValues: handshakeValues}}
	}
	return l
}

func (l *limitedBody) Read(buffer []byte) (int, error) {
	for len(l.pending) == 0 {
		if l.err != nil {
			return 0, l.err
		}
		l.fill()
	}
	n := copy(buffer, l.pending)
	l.pending = l.pending[n:]
	return n, nil
}

// fill reads the next part of the body.
func (l *limitedBody) fill() {
	n, err := l.body.Read(l.raw[:])
	length := int64(n)
	if !l.begun {
		l.begun = true
		length += overhead
	}
	pending, rejected := l.probeTransport.read(&l.reducer, length, l.raw[:n])
	l.pending, l.err = pending, err
	switch {
	case rejected == nil && (err == nil || errors.Is(err, io.EOF)):
	case l.isError:
		l.err = io.EOF
	default:
		if rejected != nil {
			l.err = rejected
		}
		l.probeTransport.noteBody(rejected)
	}
}

// Close implements io.Closer.
func (l *limitedBody) Close() error { return l.body.Close() }
