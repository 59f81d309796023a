package callpolicy

import (
	"bytes"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fixpoint-dev/fixpoint/internal/bridge"

	"github.com/fixpoint-dev/fixpoint/internal/peers"
)

const (
	// maxListBytes is the maximum size of a response, or of an event, that is held to be filtered.
	maxListBytes = 8 << 20
	// maxHeldBytes is the maximum size of all of them together.
	maxHeldBytes = 64 << 20
	// sendTimeout is the time for a client to receive one.
	sendTimeout = 30 * time.Second
)

const eventType = "text/event-stream"

// errNotFiltered is the error of a response that cannot be filtered.
var errNotFiltered = errors.New("the list of tools cannot be filtered")

// form is how a response is filtered.
type form int

const (
	undecided form = iota
	// asIs is not filtered, because it is no list.
	asIs
	// asMessage is one message, which is sent when it is complete.
	asMessage
	// asEvents are events of a known length, which are sent when they are complete.
	asEvents
	// asStream are events, each of which is sent when it is complete.
	asStream
	// failed is not sent.
	failed
)

// filteredWriter removes tools from the results of tools/list in a response.
type filteredWriter struct {
	http.ResponseWriter
	policy *Policy
	// lists is true for the response to tools/list, whose id is id. Otherwise only events are filtered.
	lists bool
	id    json.RawMessage

	form   form
	status int
	// held is what is not sent yet.
	held   bytes.Buffer
	events eventScanner
}

// Unwrap is for [http.ResponseController].
func (w *filteredWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *filteredWriter) WriteHeader(status int) {
	if w.form != undecided {
		return
	}
	if status < http.StatusOK {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	w.status, w.form = status, w.formOf(status)
	switch w.form {
	case asIs:
		w.ResponseWriter.WriteHeader(status)
	case asStream:
		w.dropLength()
		w.ResponseWriter.WriteHeader(status)
	case failed:
		w.fail("the response of the MCP server is compressed: configure the server to follow Accept-Encoding")
	}
}

func (w *filteredWriter) formOf(status int) form {
	header := w.Header()
	media, _, _ := mime.ParseMediaType(header.Get("Content-Type")) // What is no type is no stream of events.
	encoding := strings.ToLower(header.Get("Content-Encoding"))
	switch {
	case status >= http.StatusMultipleChoices, status == http.StatusAccepted, status == http.StatusNoContent, !w.lists && media != eventType:
		return asIs
	case encoding != "" && encoding != "identity":
		return failed
	case media != eventType:
		return asMessage
	case header.Get("Content-Length") != "":
		return asEvents
	default:
		return asStream
	}
}

// dropLength removes the headers that describe the bytes of the response of the server.
func (w *filteredWriter) dropLength() {
	for _, name := range []string{"Content-Length", "Etag", "Digest", "Content-Digest", "Repr-Digest", "Content-Md5"} {
		w.Header().Del(name)
	}
}

func (w *filteredWriter) Write(data []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	switch w.form {
	case asIs:
		return w.ResponseWriter.Write(data)
	case asMessage, asEvents:
		if !w.hold(data) {
			return 0, errNotFiltered
		}
		return len(data), nil
	case asStream:
		return w.writeEvents(data)
	default:
		return 0, errNotFiltered
	}
}

// FlushError is for [http.ResponseController].
func (w *filteredWriter) FlushError() error {
	w.WriteHeader(http.StatusOK)
	if w.form == asMessage || w.form == asEvents || w.form == failed {
		return nil
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// hold keeps a part of a response.
func (w *filteredWriter) hold(data []byte) bool {
	if w.held.Len()+len(data) > maxListBytes {
		w.fail("the response of the MCP server is larger than " + strconv.Itoa(maxListBytes) + " bytes: list the tools in pages")
		return false
	}
	if w.policy.held.Add(int64(len(data))) > maxHeldBytes {
		w.policy.held.Add(-int64(len(data)))
		w.fail("too many large responses are in flight: try again later")
		return false
	}
	_, _ = w.held.Write(data) // does not fail
	return true
}

// letGo forgets what is held.
func (w *filteredWriter) letGo() {
	w.policy.held.Add(-int64(w.held.Len()))
	w.held = bytes.Buffer{} // A stream may wait for its next event for hours.
}

// fail responds with an error instead of the response of the server. On a stream for all messages, no one waits for it.
func (w *filteredWriter) fail(message string) {
	streaming := w.form == asStream
	w.letGo()
	w.form = failed
	w.policy.opts.Log.Info("Failed to filter the tools in a response", "error", message)
	f := &peers.Refusal{Status: http.StatusBadGateway, Code: codeInternal, Message: message, Reason: reasonListUnreadable}
	switch {
	case !streaming:
		w.Header().Del("Content-Encoding")
		w.dropLength()
		f.Write(w.ResponseWriter, w.id)
	case w.lists:
		_, _ = w.ResponseWriter.Write(event(f.Body(w.id))) // The client may be gone.
	}
	_ = http.NewResponseController(w.ResponseWriter).Flush() // Before the handler aborts the response of the server.
}

// writeEvents sends the events that are complete.
func (w *filteredWriter) writeEvents(data []byte) (int, error) {
	for rest := data; len(rest) > 0; {
		end := w.events.end(rest)
		part := rest
		if end >= 0 {
			part = rest[:end]
		}
		if !w.hold(part) {
			return 0, errNotFiltered
		}
		rest = rest[len(part):]
		if end >= 0 {
			if err := w.sendEvent(); err != nil {
				return 0, err
			}
		}
	}
	return len(data), nil
}

// sendEvent filters and sends the event that is held.
func (w *filteredWriter) sendEvent() error {
	filtered, err := filterEvent(w.held.Bytes(), w.policy.tools.has)
	if err != nil {
		w.fail("an event of the MCP server is not JSON")
		return errNotFiltered
	}
	err = w.send(filtered)
	w.letGo()
	return err
}

// end is the end of a stream that goes on after its handlers.
func (w *filteredWriter) end(aborted bool) {
	if !aborted {
		w.finish()
	}
	w.letGo()
}

// finish sends what is left, after the server has responded.
func (w *filteredWriter) finish() {
	switch w.form {
	case asStream:
		if w.held.Len() > 0 {
			_ = w.sendEvent() // The client may be gone.
		}
	case asMessage:
		if w.held.Len() == 0 {
			w.ResponseWriter.WriteHeader(w.status)
			return
		}
		filtered, err := bridge.FilterTools(w.held.Bytes(), w.policy.tools.has)
		w.sendAll(filtered, err)
	case asEvents:
		filtered, err := filterEvents(w.held.Bytes(), w.policy.tools.has)
		w.sendAll(filtered, err)
	}
}

func (w *filteredWriter) sendAll(filtered []byte, err error) {
	if err != nil {
		w.fail("the response of the MCP server is not JSON")
		return
	}
	w.dropLength()
	w.Header().Set("Content-Length", strconv.Itoa(len(filtered)))
	w.ResponseWriter.WriteHeader(w.status)
	_ = w.send(filtered) // The client may be gone.
	w.letGo()
}

// send sends what was held. A client that does not read must not keep it held.
func (w *filteredWriter) send(filtered []byte) error {
	conn := http.NewResponseController(w.ResponseWriter)
	_ = conn.SetWriteDeadline(time.Now().Add(sendTimeout)) // Only writers in tests have no deadlines.
	_, err := w.ResponseWriter.Write(filtered)
	_ = conn.SetWriteDeadline(time.Time{}) // A stream may stay open.
	return err
}
