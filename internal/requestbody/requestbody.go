// Package requestbody reads the JSON-RPC message in the body of a request, before the request is forwarded. What it reads
// is bounded: in size, in time, and in how many large messages are held at once.
package requestbody

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/fixpoint-dev/fixpoint/internal/callrecord"
)

const (
	// SmallMessage is the size up to which a message is read without a place, in bytes.
	SmallMessage = 16 << 10
	// MaxLargeMessages is how many larger messages are held at once, unless they could take more than maxHeldBytes.
	MaxLargeMessages = 8
	maxHeldBytes     = 64 << 20
	// messageTimeout is the time in which a message must arrive; the rest of a large one, after it has got a place.
	messageTimeout = 30 * time.Second
	// refusedBodyTimeout is the time in which the body of a refused request must arrive.
	refusedBodyTimeout = 5 * time.Second
)

// Error is why a message is not read. The client should close the connection.
type Error struct {
	// Status is the HTTP status of the response.
	Status int
	// Message says what is wrong and what to do.
	Message string
}

func (e *Error) Error() string { return e.Message }

// Reader reads messages. Create it with [NewReader].
type Reader struct {
	maxBytes int
	places   *Places
}

// NewReader returns a reader of messages of at most maxBytes.
func NewReader(maxBytes int) *Reader {
	return &Reader{maxBytes: maxBytes, places: NewPlaces(min(MaxLargeMessages, max(1, maxHeldBytes/maxBytes)))}
}

// Has reports whether a request has a body.
func Has(r *http.Request) bool {
	return r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0
}

// EndAtLength makes the body of a request that is forwarded end with its length. Otherwise [http.Transport] reads once more
// to find the end, which fails if net/http has closed the body because the response has begun, and breaks that response off.
func EndAtLength(r *http.Request) {
	if _, ok := r.Body.(*held); !ok && r.ContentLength > 0 {
		r.Body = &rejoined{Reader: io.LimitReader(r.Body, r.ContentLength), Closer: r.Body}
	}
}

// ReadError is the error of reading the body of a request: that of its client, and not of whom the body is sent to.
type ReadError struct{ error }

// Unwrap returns the cause.
func (e *ReadError) Unwrap() error { return e.error }

// MarkErrors makes the errors of the body of a request that is forwarded [ReadError]s.
func MarkErrors(r *http.Request) {
	if _, ok := r.Body.(*held); !ok && Has(r) {
		r.Body = marked{r.Body}
	}
}

type marked struct{ io.ReadCloser }

func (m marked) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &ReadError{err}
	}
	return n, err
}

// Read reads the message of a request, and replaces the body of the request by it. The returned function releases what
// the message holds, and may be called again; so does the end of that body, when the message has been sent. Who
// keeps a part of the message until the response must copy it. A body that a Reader has read before is not copied. One
// caller gets half of the places of large messages: caller is an identity, or a [Caller].
func (m *Reader) Read(w http.ResponseWriter, r *http.Request, caller string) (message []byte, release func(), failed *Error) {
	if read, ok := r.Body.(*held); ok {
		if len(read.message) > m.maxBytes {
			return nil, nil, tooLarge(int64(m.maxBytes))
		}
		return read.message, func() {}, nil
	}
	if !isPlainJSON(r) {
		return nil, nil, &Error{http.StatusUnsupportedMediaType, "messages to this MCP server are checked: send the message as application/json in UTF-8, without Content-Encoding"}
	}
	if r.ContentLength > int64(m.maxBytes) {
		return nil, nil, tooLarge(int64(m.maxBytes))
	}
	message, release, failed = m.read(w, r, caller)
	if failed != nil {
		return nil, nil, failed
	}
	r.Body = &held{message: message, release: release}
	r.ContentLength = int64(len(message))
	r.TransferEncoding = nil
	r.Header.Del("Transfer-Encoding")
	callrecord.SetMessage(r.Context(), message)
	return message, release, nil
}

// Peek reads the message of a request for a record of it, and leaves the body as it was. It does not read, or not
// completely, a body that is no plain JSON, too large, or that would need a place while none is free. The returned function
// releases what the message holds; so does its end in the body, when it has been sent.
func (m *Reader) Peek(r *http.Request) (release func()) {
	release = func() {}
	if !isPlainJSON(r) || r.ContentLength > int64(m.maxBytes) {
		return release
	}
	body := r.Body
	var read bytes.Buffer
	if known := min(r.ContentLength, SmallMessage); known > 0 {
		read.Grow(int(known) + bytes.MinRead)
	}
	_, err := io.CopyN(&read, body, SmallMessage)
	if err == nil {
		select {
		case m.places.all <- struct{}{}: // also beyond the share of the client: the record should have the message
			release = sync.OnceFunc(func() { <-m.places.all })
			_, err = io.CopyN(&read, body, int64(m.maxBytes)+1-SmallMessage)
		default: // The rest is not read.
		}
	}
	begin := &held{message: read.Bytes(), release: release}
	if errors.Is(err, io.EOF) {
		callrecord.SetMessage(r.Context(), begin.message)
		r.Body = begin
		return release
	}
	rest := io.Reader(body)
	if err != nil { // The server gets the error, or else the rest of the body.
		rest = failing{err}
	}
	r.Body = &rejoined{Reader: io.MultiReader(begin, rest), Closer: body}
	return release
}

// rejoined is a body of which a part has been read.
type rejoined struct {
	io.Reader
	io.Closer
}

// failing is the end of a body that cannot be read.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// isPlainJSON reports whether all servers decode the body to the same message: some decompress it, and decode it with any
// charset that the client names.
func isPlainJSON(r *http.Request) bool {
	types := r.Header.Values("Content-Type")
	media, parameters, err := mime.ParseMediaType(strings.Join(types, ","))
	charset, named := parameters["charset"]
	return len(types) == 1 && err == nil && media == "application/json" && (!named || strings.EqualFold(charset, "utf-8")) && len(r.Header.Values("Content-Encoding")) == 0
}

// read reads a bounded body. Large ones need a place, after their first part has arrived.
func (m *Reader) read(w http.ResponseWriter, r *http.Request, caller string) (message []byte, release func(), failed *Error) {
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(messageTimeout)) // Only writers in tests have no deadlines.
	body := http.MaxBytesReader(w, r.Body, int64(m.maxBytes))
	release = func() {}
	var read bytes.Buffer
	if known := min(r.ContentLength, SmallMessage); known > 0 {
		read.Grow(int(known) + bytes.MinRead)
	}
	_, err := io.CopyN(&read, body, SmallMessage)
	if err == nil {
		var ok bool
		if release, ok = m.place(r.Context(), caller); !ok {
			return nil, nil, &Error{http.StatusServiceUnavailable, "too many large messages are in flight: retry later"}
		}
		_ = conn.SetReadDeadline(time.Now().Add(messageTimeout)) // The wait is not the time of the client.
		if r.ContentLength > SmallMessage {
			read.Grow(int(r.ContentLength) - SmallMessage + bytes.MinRead)
		}
		_, err = read.ReadFrom(body)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		release()
		return nil, nil, unreadable(err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	return read.Bytes(), release, nil
}

func unreadable(err error) *Error {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return tooLarge(large.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &Error{http.StatusRequestTimeout, fmt.Sprintf("the message did not arrive within %s: send it faster", messageTimeout)}
	default:
		return &Error{http.StatusBadRequest, "the message could not be read: send it again"}
	}
}

func tooLarge(limit int64) *Error {
	return &Error{http.StatusRequestEntityTooLarge, fmt.Sprintf("the message is larger than the limit of %d bytes: send a smaller one", limit)}
}

// place waits for the place of a large message.
func (m *Reader) place(ctx context.Context, caller string) (release func(), ok bool) {
	ctx, cancel := context.WithTimeout(ctx, messageTimeout)
	defer cancel()
	if release, ok = m.places.Take(ctx, caller); !ok {
		return nil, false
	}
	return sync.OnceFunc(release), true
}

// held is a message that has been read, as a body. It is held until net/http reads its end, after it has sent the message:
// the response may take hours.
type held struct {
	// message is the part that has not been sent.
	message []byte
	release func()
}

func (b *held) Read(p []byte) (int, error) {
	if len(b.message) == 0 {
		b.message = nil // The request has its body until the response ends.
		b.release()
		return 0, io.EOF
	}
	n := copy(p, b.message)
	b.message = b.message[n:]
	return n, nil
}

// Close implements io.Closer. It releases nothing: net/http may call it while it reads, and a reverse proxy does not pass it
// on. What has not been sent is held until the handler returns.
func (b *held) Close() error { return nil }

// Refuse prepares the response to a request whose body is not read: net/http reads the rest of a body before the response,
// which could take long.
func Refuse(w http.ResponseWriter, r *http.Request) {
	if !Has(r) {
		return
	}
	if _, ok := r.Body.(*held); ok {
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(refusedBodyTimeout)) // Only writers in tests have no deadlines.
	if r.ContentLength < 0 || r.ContentLength > SmallMessage {
		w.Header().Set("Connection", "close")
	}
}
