package callpolicy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/fixpoint-dev/fixpoint/internal/peers"
	"github.com/fixpoint-dev/fixpoint/internal/telemetry/answer"
)

// errCallTimeout is the cause of the end of a call that takes too long.
var errCallTimeout = errors.New("the call takes too long")

// cancelTimeout is how long the server may take to accept that a call is cancelled.
const cancelTimeout = 2 * time.Second

// serveInTime serves the call with the id. After the timeout, the client gets an error, and the server is told not to
// continue.
func (p *Policy) serveInTime(w http.ResponseWriter, r *http.Request, next http.Handler, id json.RawMessage) {
	ctx, cancel := context.WithTimeoutCause(r.Context(), p.opts.CallTimeout, errCallTimeout)
	defer cancel()
	out := &timedWriter{ResponseWriter: w, ctx: ctx, header: w.Header().Clone()}
	aborted := serve(next, out, r.WithContext(ctx))
	switch timedOut := errors.Is(context.Cause(ctx), errCallTimeout); {
	case timedOut && out.responded:
		aborted = false // The call has ended. Servers should end the stream, too, but need not.
	case timedOut && (aborted || !out.begun || out.events != nil):
		p.opts.Log.V(1).Info("Ended a call", "reason", reasonCallTimeout)
		late := &peers.Refusal{Status: http.StatusOK, Code: codeRefused, Reason: reasonCallTimeout,
			Message: fmt.Sprintf("the call took longer than the limit of %s of this MCP server", p.opts.CallTimeout)}
		p.count(r, late)
		aborted = !out.fail(id, late)
		cancelCall(next, r, id)
	}
	if aborted {
		panic(http.ErrAbortHandler)
	}
}

// serve calls a handler, and reports whether it aborted the response.
func serve(next http.Handler, w http.ResponseWriter, r *http.Request) (aborted bool) {
	defer func() {
		switch failure := recover(); failure {
		case nil:
		case http.ErrAbortHandler:
			aborted = true
		default:
			panic(failure)
		}
	}()
	next.ServeHTTP(w, r)
	return false
}

// cancelCall notifies the server of a session that a call is cancelled, because in sessions the end of a connection does
// not tell it: "Disconnection SHOULD NOT be interpreted as the client cancelling its request" (specification 2025-11-25,
// Transports).
func cancelCall(next http.Handler, r *http.Request, id json.RawMessage) {
	if len(id) == 0 || r.Header.Get("Mcp-Session-Id") == "" {
		return
	}
	const method = "notifications/cancelled"
	body := fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%q,"params":{"requestId":%s,"reason":"the call took too long"}}`, method, id)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), cancelTimeout)
	defer cancel()
	notice := r.Clone(ctx)
	notice.Body, notice.ContentLength, notice.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	for name := range notice.Header {
		if name == "Mcp-Name" || name == "Content-Length" || strings.HasPrefix(name, "Mcp-Param-") {
			notice.Header.Del(name)
		}
	}
	if notice.Header.Get("Mcp-Method") != "" {
		notice.Header.Set("Mcp-Method", method)
	}
	serve(next, &discarded{header: http.Header{}}, notice)
}

// discarded is a response that nobody reads.
type discarded struct{ header http.Header }

// Header implements http.ResponseWriter.
func (d *discarded) Header() http.Header { return d.header }

func (d *discarded) Write(data []byte) (int, error) { return len(data), nil }

// WriteHeader implements http.ResponseWriter.
func (d *discarded) WriteHeader(int) {}

// timedWriter does not begin a response after the timeout, and knows what it has sent.
type timedWriter struct {
	http.ResponseWriter
	ctx context.Context
	// header are the headers before the server responds.
	header http.Header
	// begun is true after the headers are sent.
	begun bool
	// events is nil unless the response is a stream of events; answer is what they have of the JSON-RPC response.
	events *answer.Events
	answer answer.Answer
	// between is the state of the events that are sent.
	between eventScanner
	// responded is true after an event with the JSON-RPC response.
	responded bool
	// late is true if the response did not begin in time.
	late bool
}

// fail responds with an error, unless a part of a message has been sent.
func (w *timedWriter) fail(id json.RawMessage, f *peers.Refusal) bool {
	switch {
	case !w.begun:
		header := w.Header()
		clear(header)
		maps.Copy(header, w.header)
		f.Write(w.ResponseWriter, id)
	case w.events != nil && !w.between.within:
		_, _ = w.ResponseWriter.Write(event(f.Body(id))) // The client may be gone.
	default:
		return false
	}
	_ = http.NewResponseController(w.ResponseWriter).Flush() // Only writers in tests cannot flush.
	return true
}

// Unwrap is for [http.ResponseController].
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *timedWriter) WriteHeader(status int) {
	switch {
	case w.begun || w.late:
	case errors.Is(context.Cause(w.ctx), errCallTimeout):
		w.late = true
	case status < http.StatusOK:
		w.ResponseWriter.WriteHeader(status)
	default:
		media, _, _ := mime.ParseMediaType(w.Header().Get("Content-Type")) // What is no type is no stream of events.
		w.begun = true
		if media == eventType {
			w.events = &answer.Events{To: &w.answer}
		}
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *timedWriter) Write(data []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.late {
		return len(data), nil
	}
	n, err := w.ResponseWriter.Write(data)
	if w.events != nil {
		w.observe(data[:n])
	}
	return n, err
}

// observe follows the events that are sent.
func (w *timedWriter) observe(data []byte) {
	for len(data) > 0 {
		end := w.between.end(data)
		if end < 0 {
			w.events.Feed(data)
			return
		}
		w.events.Feed(data[:end])
		w.responded = w.responded || w.answer.Found
		data = data[end:]
	}
}

// FlushError is for [http.ResponseController].
func (w *timedWriter) FlushError() error {
	w.WriteHeader(http.StatusOK)
	if w.late {
		return nil
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}
