package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/fixpoint-dev/fixpoint/internal/callrecord"
)

const (
	// smallMessage is the size up to which a message is read without a place, so that clients that send
	// slowly do not delay others.
	smallMessage = 16 << 10
	// A body must arrive within bodyGrace plus the time that minBodyRate (bytes per second) gives it.
	bodyGrace   = 5 * time.Second
	minBodyRate = 16 << 10
)

// incoming is a message of a client.
type incoming struct {
	envelope
	message []byte
	// release returns the place of the message, after it was sent to the server. It may be called again.
	release func()
}

// takePlace waits for the place of a large message. It returns false if ctx is done before.
type takePlace func(ctx context.Context) (release func(), ok bool)

// receive reads and checks one message. It takes a place only for a large message, and only after the first
// part of it has arrived.
func (b *Bridge) receive(w http.ResponseWriter, r *http.Request, take takePlace) (*incoming, *failure) {
	in := &incoming{release: func() {}}
	body := &timedBody{
		from: http.MaxBytesReader(w, r.Body, int64(b.opts.MaxMessageBytes)), conn: http.NewResponseController(w),
		begun: time.Now(), grace: b.times.bodyGrace, timeout: b.opts.IOTimeout,
	}
	var read bytes.Buffer
	_, err := io.CopyN(&read, body, smallMessage)
	if err == nil {
		release, ok := b.waitForPlace(r.Context(), body, take)
		if !ok {
			return nil, tooManyRequests()
		}
		in.release = sync.OnceFunc(release)
		if r.ContentLength > 0 {
			read.Grow(int(min(r.ContentLength, int64(b.opts.MaxMessageBytes))) - smallMessage + bytes.MinRead)
		}
		_, err = read.ReadFrom(body)
	}
	if err == nil || errors.Is(err, io.EOF) {
		body.done()
		err = nil
	}
	f := b.unreadable(err)
	if f == nil {
		callrecord.SetMessage(r.Context(), read.Bytes())
		f = in.parse(read.Bytes())
	}
	if f == nil {
		parent, state := callrecord.Trace(r.Context())
		f = in.continueTrace(parent, state, b.opts.MaxMessageBytes)
	}
	if f != nil {
		in.release()
		return nil, f
	}
	return in, nil
}

func (b *Bridge) waitForPlace(ctx context.Context, body *timedBody, take takePlace) (func(), bool) {
	ctx, cancel := context.WithTimeout(ctx, b.times.place)
	defer cancel()
	waiting := time.Now()
	release, ok := take(ctx)
	// The client cannot send while the bridge does not read.
	body.begun = body.begun.Add(time.Since(waiting))
	return release, ok
}

// unreadable is the response to a body that could not be read.
func (b *Bridge) unreadable(err error) *failure {
	var large *http.MaxBytesError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &large):
		return &failure{
			Status: http.StatusRequestEntityTooLarge, Code: codeInvalidRequest, Reason: reasonTooLarge,
			Message: fmt.Sprintf("the message is larger than the limit of %d bytes", large.Limit),
		}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &failure{
			Status: http.StatusRequestTimeout, Code: codeInvalidRequest, Reason: reasonSlowClient, Closes: true,
			Message: fmt.Sprintf("the message arrived too slowly: send it within %s, and large ones with at least %d bytes per second and within %s",
				b.times.bodyGrace, minBodyRate, b.opts.IOTimeout),
		}
	default:
		return badRequest(codeParse, "the message could not be read")
	}
}

func (in *incoming) parse(body []byte) *failure {
	var err error
	if !utf8.Valid(body) {
		// Some servers end when they read it, and with them the requests of all clients that share the process.
		return badRequest(codeParse, "the body is not valid UTF-8: encode it as UTF-8")
	}
	if in.message, err = oneLine(body); err != nil {
		return badRequest(codeParse, "the body is not one JSON-RPC message")
	}
	if in.envelope, err = parse(in.message); err != nil {
		return badRequest(codeParse, "the body is not one JSON-RPC message (batches are not supported)")
	}
	switch {
	case in.ambiguous != nil:
		return badRequest(codeInvalidRequest, in.ambiguous.Error())
	case len(in.ID) > MaxID || len(in.Params.Meta.ProgressToken) > MaxID:
		// They are kept until the response, beside the limit of large messages.
		return badRequest(codeInvalidRequest, fmt.Sprintf("id and progressToken must not be longer than %d bytes: use shorter ones", MaxID))
	}
	return nil
}

// continueTrace makes the spans of the server children of the span of the request, which is empty if there is none. Messages
// without params have no place for it. One that would exceed the limit stays as it is: the replica that has its session
// would refuse it.
func (in *incoming) continueTrace(parent, state string, limit int) *failure {
	if parent == "" || in.Method == "" {
		return nil
	}
	message := traced(in.message, parent, state)
	if len(message) > limit {
		return nil
	}
	return in.parse(message)
}

// MaxID is the maximum length of an id or a progress token.
const MaxID = 1 << 10

// limitBody makes a request fail whose body is never read, for example because it is refused: net/http reads
// the rest of a body before the response.
func (b *Bridge) limitBody(w http.ResponseWriter) {
	// Only writers in tests have no deadlines.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(timeFor(0, b.times.bodyGrace, b.opts.IOTimeout)))
}

// timedBody is a body with a minimum rate.
type timedBody struct {
	from     io.Reader
	conn     *http.ResponseController
	begun    time.Time
	grace    time.Duration
	timeout  time.Duration
	received int64
}

func (t *timedBody) Read(p []byte) (int, error) {
	_ = t.conn.SetReadDeadline(t.begun.Add(timeFor(t.received, t.grace, t.timeout)))
	n, err := t.from.Read(p)
	t.received += int64(n)
	return n, err
}

// timeFor is the time from the beginning of a body within which more than the received bytes must arrive.
func timeFor(received int64, grace, timeout time.Duration) time.Duration {
	return min(grace+time.Duration(received)*time.Second/minBodyRate, timeout)
}

// done removes the deadline after the whole body has been read.
func (t *timedBody) done() { _ = t.conn.SetReadDeadline(time.Time{}) }

func acquire(ctx context.Context, semaphore chan struct{}) bool {
	select {
	case semaphore <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}
