package authproxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"

	"github.com/fixpoint-dev/fixpoint/internal/streams"
)

const (
	// maxHeaderBytes is the maximum size of the header of a response, as in [http.Transport].
	maxHeaderBytes = 10 << 20
	// streamBufferBytes is the size of the buffers of streams, which have one only while bytes arrive.
	streamBufferBytes = 16 << 10
)

// requestedStream is what a request for an event stream has.
type requestedStream struct {
	// source is nil until the server has responded with a stream.
	source *eventSource
}

// streamKey is the key of the requested stream in the context of a request.
type streamKey struct{}

func streamOf(ctx context.Context) *requestedStream {
	s, _ := ctx.Value(streamKey{}).(*requestedStream)
	return s
}

// streamed detaches the event streams that clients request with GET from their handlers.
func (p *Proxy) streamed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(strings.Join(r.Header.Values("Accept"), ","), eventType) || !streams.CanDetach(w) {
			next.ServeHTTP(w, r)
			return
		}
		requested := &requestedStream{}
		defer func() {
			if requested.source != nil {
				requested.source.Stop() // A layer has panicked.
			}
		}()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), streamKey{}, requested)))
		if requested.source == nil {
			return
		}
		if streams.Detach(w, requested.source) != nil {
			panic(http.ErrAbortHandler) // The client has left.
		}
		requested.source = nil
	})
}

// modify is called with each response of the server.
func (p *Proxy) modify(response *http.Response) error {
	if p.peers != nil {
		if err := p.sealed(response); err != nil {
			return err
		}
	}
	requested := streamOf(response.Request.Context())
	body, ok := response.Body.(*streamBody)
	if requested == nil || !ok || !isEventStream(response) {
		return nil
	}
	requested.source = body.detach()
	response.Body = http.NoBody // The header is sent now, and the events after the handlers have returned.
	streams.Prepare(response.Header)
	return nil
}

// isEventStream reports whether a response is a stream whose end is marked.
func isEventStream(response *http.Response) bool {
	return streams.IsEvents(response) && len(response.TransferEncoding) == 1 && len(response.Trailer) == 0
}

// streamTransport sends requests for event streams over connections of their own, and others over the transport.
// [http.Transport] has two goroutines and two buffers for each connection.
type streamTransport struct {
	http.RoundTripper
	dialer net.Dialer
}

// RoundTrip implements http.RoundTripper.
func (t *streamTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if streamOf(r.Context()) == nil {
		return t.RoundTripper.RoundTrip(r)
	}
	conn, err := t.dialer.DialContext(r.Context(), "tcp", r.URL.Host)
	if err != nil {
		return nil, err
	}
	response, err := exchangeHeaders(r, conn)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return response, nil
}

// exchangeHeaders sends a request, and reads the header of the response. The end of the request closes the connection.
func exchangeHeaders(r *http.Request, conn net.Conn) (*http.Response, error) {
	release := context.AfterFunc(r.Context(), func() { _ = conn.Close() })
	if err := r.Write(conn); err != nil {
		release()
		return nil, fmt.Errorf("sending the request: %w", err)
	}
	limited := &io.LimitedReader{R: conn, N: maxHeaderBytes}
	reader := bufio.NewReader(limited)
	for {
		response, err := http.ReadResponse(reader, r)
		if err != nil {
			release()
			return nil, fmt.Errorf("reading the response: %w", err)
		}
		if response.StatusCode >= http.StatusOK || response.StatusCode == http.StatusSwitchingProtocols {
			limited.N = 1<<63 - 1
			response.Body = &streamBody{ReadCloser: response.Body, conn: conn, reader: reader, release: release}
			return response, nil
		}
	}
}

// streamBody is the body of a response that may become a stream.
type streamBody struct {
	io.ReadCloser
	conn    net.Conn
	reader  *bufio.Reader
	release func() bool
}

// Close implements io.Closer.
func (b *streamBody) Close() error {
	b.release()
	return b.conn.Close()
}

// detach returns the rest of the response, of which nothing has been read, without the buffers of the header.
func (b *streamBody) detach() *eventSource {
	b.release()
	begin := make([]byte, b.reader.Buffered())
	_, _ = io.ReadFull(b.reader, begin) // It is in the buffer.
	return &eventSource{conn: b.conn, begin: begin}
}

// eventSource relays the events of a connection to the server.
type eventSource struct {
	conn net.Conn
	// begin is what arrived with the header.
	begin  []byte
	chunks chunks
}

// streamBuffers are shared by the streams.
var streamBuffers = sync.Pool{New: func() any { return new([streamBufferBytes]byte) }}

// Stop implements [streams.Source].
func (s *eventSource) Stop() { _ = s.conn.Close() }

// Relay implements [streams.Source].
func (s *eventSource) Relay(w http.ResponseWriter) error {
	begin := s.begin
	s.begin = nil
	if err := s.send(w, begin); err != nil {
		return err
	}
	raw, err := s.conn.(syscall.Conn).SyscallConn() //nolint:errcheck // it is a TCP connection
	if err != nil {
		return fmt.Errorf("reading the stream: %w", err)
	}
	for s.chunks.state != chunksEnd {
		if err := s.relayNext(w, raw); err != nil {
			return err
		}
	}
	return nil
}

// relayNext waits for bytes, and sends them.
func (s *eventSource) relayNext(w http.ResponseWriter, raw syscall.RawConn) error {
	buffer, n, err := readReady(raw)
	if buffer != nil {
		defer streamBuffers.Put(buffer)
	}
	switch {
	case err != nil:
		return err
	case n == 0:
		return io.ErrUnexpectedEOF // before the last chunk
	}
	return s.send(w, buffer[:n])
}

// readReady waits for bytes, and then reads into a shared buffer, which the caller returns.
func readReady(raw syscall.RawConn) (buffer *[streamBufferBytes]byte, n int, err error) {
	var failed error
	err = raw.Read(func(fd uintptr) (done bool) {
		buffer = streamBuffers.Get().(*[streamBufferBytes]byte) //nolint:errcheck // the pool has no others
		for {
			n, failed = syscall.Read(int(fd), buffer[:]) //nolint:gosec // it is a descriptor
			if !errors.Is(failed, syscall.EINTR) {
				break
			}
		}
		if errors.Is(failed, syscall.EAGAIN) {
			streamBuffers.Put(buffer)
			buffer = nil
			return false
		}
		return true
	})
	return buffer, n, errors.Join(err, failed)
}

// send sends the content of a part of the response.
func (s *eventSource) send(w http.ResponseWriter, data []byte) error {
	content, err := s.chunks.decode(data)
	if len(content) > 0 {
		if _, err := w.Write(content); err != nil {
			return err
		}
	}
	return err
}
