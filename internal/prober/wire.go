package prober

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// closing is how long a probe that has run out of time may still take to close its session.
	closing = time.Second
	// overhead is what each answer costs of the bytes to read, besides its length, so that a list
	// whose pages never end comes to an end.
	overhead = 4 << 10

	sessionHeader = "Mcp-Session-Id"
)

var (
	errForeign = errors.New("another host")
	errLarge   = errors.New("too much to read")
	errOver    = errors.New("the probe is over")
)

// wire is the HTTP of one probe. It dials the one replica that is probed, adds the credentials,
// goes to no other host, reads no more than it may, and sees what the SDK's errors do not tell.
//
// Each probe has connections of its own: a new client is what a probe stands for, and one that
// keeps its connection would not notice that no other is accepted. So none is open between probes.
type wire struct {
	job    job
	base   *http.Transport
	ctx    context.Context
	cancel context.CancelFunc
	stop   func() bool

	mu       sync.Mutex
	conns    []net.Conn
	sessions map[string]bool
	budget   int64
	over     bool
	seen     sight
}

// sight is what a wire has seen.
type sight struct {
	posts   int
	status  int
	err     error
	foreign bool
	large   bool
	// broken is an answer whose body ended in an error.
	broken bool
}

func newWire(ctx context.Context, j job, dial func(context.Context, string, string) (net.Conn, error)) *wire {
	w := &wire{job: j, budget: handshakeBytes}
	w.ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	w.stop = context.AfterFunc(ctx, func() { time.AfterFunc(closing, w.cut) })
	w.base = &http.Transport{
		// The request's context would end the dialling too early or too late; the wire's does not.
		DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
			if j.address != "" {
				address = j.address
			}
			conn, err := dial(w.ctx, network, address)
			if err != nil {
				return nil, err
			}
			return w.keep(conn)
		},
		TLSClientConfig:        j.tls,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
	}
	return w
}

func (w *wire) transport() mcp.Transport {
	client := &http.Client{Transport: w}
	if w.job.transport == SSE {
		return &mcp.SSEClientTransport{Endpoint: w.job.url.String(), HTTPClient: client, MaxEventSize: listBytes}
	}
	return &mcp.StreamableClientTransport{
		Endpoint:             w.job.url.String(),
		HTTPClient:           client,
		DisableStandaloneSSE: true,
		MaxRetries:           -1,
		MaxEventSize:         listBytes,
	}
}

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := w.admit(request); err != nil {
		return nil, err
	}
	own := *request
	own.Header = request.Header.Clone()
	for name, values := range w.job.header {
		own.Header[name] = values
	}
	response, err := w.base.RoundTrip(&own)
	w.note(request, response, err)
	if err != nil {
		return nil, err
	}
	response.Body = &limited{body: response.Body, wire: w}
	return response, nil
}

// admit says whether a request may be sent.
func (w *wire) admit(request *http.Request) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if request.URL.Host != w.job.url.Host || request.URL.Scheme != w.job.url.Scheme {
		w.seen.foreign = true
		return errForeign
	}
	if request.Method == http.MethodDelete {
		delete(w.sessions, request.Header.Get(sessionHeader))
	} else if w.seen.err != nil {
		// The SDK would try initialize on a server that could not be asked for server/discover.
		return errOver
	}
	if w.over {
		return errOver
	}
	if request.Method == http.MethodPost {
		w.seen.posts++
	}
	return nil
}

// note remembers how a request ended. The end of a session says nothing about the handshake.
func (w *wire) note(request *http.Request, response *http.Response, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if request.Method == http.MethodDelete {
		return
	}
	if err != nil {
		w.seen.err = err
		return
	}
	w.seen.status = response.StatusCode
	if id := response.Header.Get(sessionHeader); id != "" {
		if w.sessions == nil {
			w.sessions = map[string]bool{}
		}
		w.sessions[id] = true
	}
}

// allow raises the number of bytes that may be read.
func (w *wire) allow(more int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.budget += more
}

func (w *wire) spend(n int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.budget -= n
	if w.budget < 0 {
		w.seen.large = true
		return errLarge
	}
	return nil
}

func (w *wire) breaks() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen.broken = true
}

// keep remembers a connection, so that it ends with the wire.
func (w *wire) keep(conn net.Conn) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		_ = conn.Close()
		return nil, errOver
	}
	w.conns = append(w.conns, conn)
	return conn, nil
}

// onlyDiscovered reports whether the server was asked nothing but server/discover, and gave an
// answer that is no answer.
func (w *wire) onlyDiscovered() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen.posts == 1 && w.seen.err == nil && !w.seen.foreign && !w.seen.large
}

// reset forgets what was seen, for another handshake.
func (w *wire) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = sight{}
}

// close ends the sessions that the server opened and the SDK has not closed, and then everything.
func (w *wire) close() {
	for _, id := range w.orphans() {
		w.delete(id)
	}
	w.stop()
	w.cut()
}

// closeSession lets the SDK close its session, with an end to its patience.
func (w *wire) closeSession(session *mcp.ClientSession) {
	timer := time.AfterFunc(closing, w.cut)
	defer timer.Stop()
	_ = session.Close()
}

// orphans are sessions that a server opens on a request that it then rejects.
func (w *wire) orphans() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := make([]string, 0, len(w.sessions))
	for id := range w.sessions {
		ids = append(ids, id)
	}
	return ids
}

func (w *wire) delete(id string) {
	ctx, cancel := context.WithTimeout(w.ctx, closing)
	defer cancel()
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

// cut ends everything that still runs.
func (w *wire) cut() {
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

// limited is the body of an answer, as far as it may be read.
type limited struct {
	body  io.ReadCloser
	wire  *wire
	begun bool
}

// Read implements io.Reader.
func (l *limited) Read(buffer []byte) (int, error) {
	if !l.begun {
		l.begun = true
		if err := l.wire.spend(overhead); err != nil {
			return 0, err
		}
	}
	n, err := l.body.Read(buffer)
	if over := l.wire.spend(int64(n)); over != nil {
		return 0, over
	}
	if err != nil && !errors.Is(err, io.EOF) {
		l.wire.breaks()
	}
	return n, err
}

// Close implements io.Closer.
func (l *limited) Close() error { return l.body.Close() }
