package authorization

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

	"github.com/fixpoint-dev/fixpoint/internal/bridge"
)

const (
	// smallMessage is the size up to which a message is read without a place.
	smallMessage = 16 << 10
	// maxLargeMessages is how many larger messages are held at once. With the default limit of a message they take at
	// most a quarter of the memory of the proxy.
	maxLargeMessages = 8
	// messageTimeout is the time in which a message must arrive.
	messageTimeout = 30 * time.Second
)

func hasBody(r *http.Request) bool {
	return r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0
}

// checkMessage reads the message of a request, checks the scopes of the tool that it calls, and replaces the body. The
// returned function releases what the message holds.
func (a *Authorizer) checkMessage(w http.ResponseWriter, r *http.Request, who *identity) (release func(), refused *refusal) {
	if refused := checkEncoding(r); refused != nil {
		return nil, refused
	}
	message, release, refused := a.read(w, r)
	if refused != nil {
		return nil, refused
	}
	call, err := bridge.ReadCall(message)
	if err != nil {
		refused = badRequest(err.Error())
	} else if call.Tool != "" {
		refused = a.checkScopes(who, a.scopesOf(call.Tool), call.Tool)
	}
	if refused != nil {
		release()
		return nil, refused
	}
	r.Body = &heldBody{Reader: bytes.NewReader(message), release: release}
	r.ContentLength = int64(len(message))
	r.TransferEncoding = nil
	r.Header.Del("Transfer-Encoding")
	return release, nil
}

// checkEncoding refuses bodies that a server may decode to something else than what is checked: some servers decompress
// them, and decode them with any charset that the client names.
func checkEncoding(r *http.Request) *refusal {
	const remedy = "send the message as application/json in UTF-8, without Content-Encoding"
	types := r.Header.Values("Content-Type")
	media, parameters, err := mime.ParseMediaType(strings.Join(types, ","))
	charset, named := parameters["charset"]
	if len(types) != 1 || err != nil || media != "application/json" || named && !strings.EqualFold(charset, "utf-8") || len(r.Header.Values("Content-Encoding")) > 0 {
		return &refusal{status: http.StatusUnsupportedMediaType, code: codeInvalidRequest, description: "some tools need further scopes, so messages are checked: " + remedy, closes: true}
	}
	return nil
}

// read reads a bounded body. Large ones need a place, after their first part has arrived.
func (a *Authorizer) read(w http.ResponseWriter, r *http.Request) (message []byte, release func(), refused *refusal) {
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(messageTimeout)) // Only writers in tests have no deadlines.
	body := http.MaxBytesReader(w, r.Body, int64(a.opts.MaxMessageBytes))
	release = func() {}
	var read bytes.Buffer
	_, err := io.CopyN(&read, body, smallMessage)
	if err == nil {
		var ok bool
		if release, ok = a.place(r.Context()); !ok {
			return nil, nil, &refusal{
				status: http.StatusServiceUnavailable, code: codeUnavailable, closes: true,
				description: "too many large messages are in flight: retry later",
			}
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

func unreadable(err error) *refusal {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return &refusal{status: http.StatusRequestEntityTooLarge, code: codeInvalidRequest, closes: true,
			description: fmt.Sprintf("the message is larger than the limit of %d bytes: send a smaller one", large.Limit)}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &refusal{status: http.StatusRequestTimeout, code: codeInvalidRequest, closes: true,
			description: fmt.Sprintf("the message did not arrive within %s: send it faster", messageTimeout)}
	default:
		f := badRequest("the message could not be read: send it again")
		f.closes = true
		return f
	}
}

// place waits for the place of a large message.
func (a *Authorizer) place(ctx context.Context) (release func(), ok bool) {
	ctx, cancel := context.WithTimeout(ctx, messageTimeout)
	defer cancel()
	select {
	case a.places <- struct{}{}:
		return sync.OnceFunc(func() { <-a.places }), true
	case <-ctx.Done():
		return nil, false
	}
}

// heldBody is a message that has been read. Closing it releases what it holds, also while its response goes on.
type heldBody struct {
	*bytes.Reader
	release func()
}

// Close implements io.Closer.
func (b *heldBody) Close() error {
	b.release()
	return nil
}
