package telemetry

import (
	"io"
	"mime"
	"net/http"
	"sync/atomic"

	"github.com/fixpoint-dev/fixpoint/internal/callrecord"
	"github.com/fixpoint-dev/fixpoint/internal/telemetry/answer"
)

// observed is the writer of a response, of which it keeps the outcome.
type observed struct {
	http.ResponseWriter
	request *http.Request
	status  int
	bytes   atomic.Int64
	answer  answer.Answer
	events  *answer.Events
	// reads is true for responses that may have the outcome.
	reads bool
}

// Unwrap is for [http.ResponseController].
func (w *observed) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// SetRefusal implements [callrecord.Refuser].
func (w *observed) SetRefusal(reason string) { callrecord.SetRefusal(w.request.Context(), reason) }

// WriteHeader implements http.ResponseWriter.
func (w *observed) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.begin(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *observed) begin(status int) {
	w.status = status
	if status == http.StatusRequestEntityTooLarge {
		// As net/http does for its own writer, so that it does not read the rest of the body.
		w.Header().Set("Connection", "close")
	}
	if encoding := w.Header().Get("Content-Encoding"); !isPost(w.request) || encoding != "" && encoding != "identity" {
		return
	}
	switch media, _, _ := mime.ParseMediaType(w.Header().Get("Content-Type")); media { // What is no type has no outcome.
	case "application/json":
		w.reads = true
	case "text/event-stream":
		w.reads, w.events = true, &answer.Events{To: &w.answer}
	}
}

func (w *observed) Write(data []byte) (int, error) {
	if w.status == 0 {
		w.begin(http.StatusOK)
	}
	n, err := w.ResponseWriter.Write(data)
	w.bytes.Add(int64(n))
	switch {
	case !w.reads:
	case w.events != nil:
		w.events.Feed(data[:n])
	default:
		w.answer.Feed(data[:n])
	}
	return n, err
}

// counted is the body of a request, whose bytes are counted.
type counted struct {
	io.ReadCloser
	bytes atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}
