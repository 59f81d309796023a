package streams

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/fixpoint-dev/fixpoint/internal/requestbody"
)

// Source is where the events of a stream come from.
type Source interface {
	// Relay writes to the writer that was passed to [Detach] until the source ends. Each write is sent at once. An error,
	// or a panic with [http.ErrAbortHandler], breaks the response off, so that the client does not take it for complete.
	Relay(w http.ResponseWriter) error
	// Stop makes Relay return. It is called once: when the client has left, or after Relay has returned.
	Stop()
}

// Group is the streams of a server. [http.Server] does not know them, because their connections are hijacked.
type Group struct {
	log logr.Logger

	mu     sync.Mutex
	open   map[*writer]struct{}
	closed bool
	// idle is closed when the last stream ends; nil if nothing waits for that.
	idle chan struct{}
}

// NewGroup returns a group without streams.
func NewGroup(log logr.Logger) *Group { return &Group{log: log, open: map[*writer]struct{}{}} }

// Handler lets next detach its responses. It must be the outermost handler that writes to the response.
func (g *Group) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := w.(http.Hijacker); !ok || r.Method != http.MethodGet || !r.ProtoAtLeast(1, 1) || requestbody.Has(r) {
			next.ServeHTTP(w, r)
			return
		}
		out := &writer{ResponseWriter: w, group: g}
		defer out.release()
		next.ServeHTTP(out, r)
		out.start()
	})
}

// Shutdown waits until all streams have ended. It returns the error of ctx if that is done before. Handlers must not detach
// responses any more.
func (g *Group) Shutdown(ctx context.Context) error {
	g.mu.Lock()
	if len(g.open) == 0 {
		g.mu.Unlock()
		return nil
	}
	idle := make(chan struct{})
	g.idle = idle
	g.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close cuts all streams, also those that begin later.
func (g *Group) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for w := range g.open {
		w.abort()
	}
	return nil
}

// add counts a stream.
func (g *Group) add(w *writer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open[w] = struct{}{}
}

// connect gives a stream its connection.
func (g *Group) connect(w *writer, conn net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w.conn = conn
	if g.closed {
		w.abort()
	}
}

func (g *Group) remove(w *writer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.open, w)
	if len(g.open) == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// writer is the outermost writer of a response, which stays when net/http has given the connection up.
type writer struct {
	http.ResponseWriter
	group *Group

	// top is the writer of the innermost handler; nil before the response is detached.
	top    http.ResponseWriter
	source Source
	conn   net.Conn
	ended  []func(aborted bool)
	// cut decides why the stream ends: aborted is set by whoever is the first.
	cut     sync.Once
	aborted bool
	stop    sync.Once
	status  int
	started bool
}

// of finds the writer behind those of other layers; nil if the response cannot be detached.
func of(w http.ResponseWriter) *writer {
	for {
		if found, ok := w.(*writer); ok {
			return found
		}
		outer, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return nil
		}
		w = outer.Unwrap()
	}
}

// IsEvents reports whether a response is a stream of events, which may be open for hours.
func IsEvents(r *http.Response) bool {
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // What is no type is no stream.
	return r.StatusCode == http.StatusOK && media == "text/event-stream" && r.ContentLength < 0
}

// CanDetach reports whether [Detach] is possible: for GET in HTTP/1.1, below [Group.Handler].
func CanDetach(w http.ResponseWriter) bool { return of(w) != nil }

// Prepare sets the headers of a response that will be detached.
func Prepare(header http.Header) {
	// What the client sends after its request is not read, so the connection cannot serve another one.
	header.Set("Connection", "close")
}

// Detach takes the response, whose header is written, from its handlers, which must return. After that, source writes to w.
// An error means that there is no stream, and the handler must abort.
func Detach(w http.ResponseWriter, source Source) error {
	out := of(w)
	if out == nil || out.status != http.StatusOK { // A layer has responded with an error.
		return errors.ErrUnsupported
	}
	out.group.add(out) // Before net/http gives the connection up, so that one of the two always waits for it.
	conn, err := out.hijack(w)
	if err != nil {
		out.group.remove(out)
		return err
	}
	out.top, out.source = w, source
	out.ResponseWriter = detached{out.Header()}
	out.group.connect(out, conn)
	return nil
}

func (w *writer) hijack(top http.ResponseWriter) (net.Conn, error) {
	if err := http.NewResponseController(top).Flush(); err != nil {
		return nil, err
	}
	conn, _, err := http.NewResponseController(w.ResponseWriter).Hijack()
	return conn, err
}

// abort ends the stream. If net/http still has the connection, [Group.connect] does it.
func (w *writer) abort() {
	if w.conn == nil {
		return
	}
	w.cut.Do(func() { w.aborted = true })
	_ = w.conn.Close()
}

// OnEnd calls end when a detached response has ended, before its last byte is sent: end may write to w if the response
// was not aborted. Layers call it in the order in which their handlers return. It returns false if w is not detached.
func OnEnd(w http.ResponseWriter, end func(aborted bool)) bool {
	out := of(w)
	if out == nil || out.conn == nil {
		return false
	}
	out.ended = append(out.ended, end)
	return true
}

// detached is what is left of the writer of net/http.
type detached struct{ header http.Header }

// Header implements http.ResponseWriter.
func (d detached) Header() http.Header { return d.header }

func (d detached) Write([]byte) (int, error) { return 0, http.ErrHijacked }

// WriteHeader implements http.ResponseWriter.
func (d detached) WriteHeader(int) {}

// WriteHeader implements http.ResponseWriter.
func (w *writer) WriteHeader(status int) {
	if w.status < http.StatusOK { // Informational responses come before.
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for [http.ResponseController].
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *writer) Write(data []byte) (int, error) {
	switch {
	case w.conn == nil:
		return w.ResponseWriter.Write(data)
	case len(data) == 0:
		return 0, nil // an empty chunk is the end
	}
	buffer := buffers.Get().(*bufio.Writer) //nolint:errcheck // the pool has no others
	defer buffers.Put(buffer)
	buffer.Reset(w.conn)
	defer buffer.Reset(nil)
	// bufio.Writer keeps the first error.
	_, _ = buffer.WriteString(strconv.FormatInt(int64(len(data)), 16))
	_, _ = buffer.WriteString("\r\n")
	_, _ = buffer.Write(data)
	_, _ = buffer.WriteString("\r\n")
	if err := buffer.Flush(); err != nil {
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			w.cut.Do(func() {}) // The client has left.
		}
		return 0, err
	}
	return len(data), nil
}

// FlushError is for [http.ResponseController].
func (w *writer) FlushError() error {
	if w.conn != nil {
		return nil // Nothing is kept.
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// SetWriteDeadline is for [http.ResponseController].
func (w *writer) SetWriteDeadline(deadline time.Time) error {
	if w.conn != nil {
		return w.conn.SetWriteDeadline(deadline)
	}
	return http.NewResponseController(w.ResponseWriter).SetWriteDeadline(deadline)
}

const bufferBytes = 4 << 10

// buffers frame what is written.
var buffers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, bufferBytes) }}

// start begins to relay after all handlers have returned.
func (w *writer) start() {
	if w.conn == nil {
		return
	}
	w.started = true
	go w.watch()
	go w.run()
}

// release closes the connection if a handler has panicked after the response was detached.
func (w *writer) release() {
	if w.conn != nil && !w.started {
		w.source.Stop()
		_ = w.conn.Close()
		w.group.remove(w)
	}
}

// watch waits until the client leaves, or the connection is closed here.
func (w *writer) watch() {
	var ignored [64]byte
	for {
		if _, err := w.conn.Read(ignored[:]); err != nil {
			break
		}
	}
	w.cut.Do(func() {})
	w.stop.Do(w.source.Stop)
	_ = w.conn.Close() // Relay may wait until the client reads.
}

// run relays, and completes the response.
func (w *writer) run() {
	failed := w.try(func() error { return w.source.Relay(w.top) })
	w.cut.Do(func() { w.aborted = failed })
	w.stop.Do(w.source.Stop)
	for _, end := range w.ended {
		failed = w.try(func() error {
			end(w.aborted)
			return nil
		}) || failed
	}
	if !failed {
		_, _ = w.conn.Write([]byte("0\r\n\r\n")) // The client may be gone.
	}
	_ = w.conn.Close()
	w.group.remove(w)
}

// try calls a function, and reports whether it has failed. A panic must not end the process, as in handlers.
func (w *writer) try(f func() error) (failed bool) {
	defer func() {
		switch cause := recover(); cause {
		case nil:
		case http.ErrAbortHandler:
			failed = true
		default:
			failed = true
			w.group.log.Error(fmt.Errorf("panic: %v", cause), "Failed to relay a stream", "stack", string(debug.Stack()))
		}
	}()
	return f() != nil
}
