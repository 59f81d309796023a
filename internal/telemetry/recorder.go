package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/fixpoint-dev/fixpoint/internal/callrecord"
	"github.com/fixpoint-dev/fixpoint/internal/requestbody"
	"github.com/fixpoint-dev/fixpoint/internal/streams"
)

const (
	methodCall   = "tools/call"
	methodPrompt = "prompts/get"
)

// Recorder records requests. Create it with [New], and close it at the end of the process.
type Recorder struct {
	opts   Options
	bodies *requestbody.Reader
	// lines is nil without an audit, otlp without a collector.
	lines *lines
	otlp  *otlp

	mu sync.Mutex
	// active are the requests in progress.
	active map[*call]struct{}
	// idle is closed when the last of them ends after the recorder was closed.
	idle   chan struct{}
	closed bool
}

// New returns a recorder, which does not connect to the collector before the first export.
func New(opts Options) (*Recorder, error) {
	if err := opts.complete(); err != nil {
		return nil, fmt.Errorf("configuring telemetry: %w", err)
	}
	t := &Recorder{opts: opts, bodies: requestbody.NewReader(opts.MaxMessageBytes), active: map[*call]struct{}{}, idle: make(chan struct{})}
	if opts.OTLP != nil {
		var err error
		if t.otlp, err = newOTLP(&opts); err != nil {
			return nil, fmt.Errorf("configuring telemetry: %w", err)
		}
	}
	if opts.Lines != nil {
		t.lines = newLines(&opts)
	}
	return t, nil
}

// Protect returns a handler that records the requests to next. It must be the outermost one.
func (t *Recorder) Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := t.begin(w, r)
		aborted := true
		defer func() {
			if aborted || !streams.OnEnd(w, func(aborted bool) { t.finish(c, aborted) }) {
				t.finish(c, aborted)
			}
		}()
		next.ServeHTTP(c.response, c.request)
		aborted = false
	})
}

// isPost reports whether a request has a message. Some servers do not distinguish the letter case of methods.
func isPost(r *http.Request) bool { return strings.EqualFold(r.Method, http.MethodPost) }

func (t *Recorder) begin(w http.ResponseWriter, r *http.Request) *call {
	c := &call{recorder: t, begun: time.Now()}
	c.record = callrecord.New(c.describe)
	if t.otlp != nil {
		c.record.SetTrace(c.trace)
	}
	c.request = r.WithContext(callrecord.With(context.WithValue(r.Context(), callKey{}, c), c.record))
	if requestbody.Has(r) {
		c.body = &counted{ReadCloser: r.Body}
		c.request.Body = c.body
	}
	c.response = &observed{ResponseWriter: w, request: c.request}
	var in *batch
	if t.lines != nil {
		c.sequence, in = t.lines.take() // before the call is active, because Close writes the records of active calls
	}
	t.mu.Lock()
	t.active[c] = struct{}{}
	t.mu.Unlock()
	if t.lines != nil {
		t.lines.tell(in)
	}
	return c
}

// Forward returns a handler for requests that are not refused. It reads their messages, unless another layer has, and
// passes the trace on to an HTTP server. The bridge reads messages itself.
func (t *Recorder) Forward(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := callOf(r.Context())
		if c == nil {
			next.ServeHTTP(w, r)
			return
		}
		out := *r
		out.Header = r.Header.Clone()
		if requestbody.Has(r) && !callrecord.HasMessage(r.Context()) {
			defer t.bodies.Peek(&out)()
		}
		if isPost(r) {
			out.Header.Del("Accept-Encoding") // The outcome is in the response.
		}
		if t.otlp != nil {
			ctx := trace.ContextWithSpan(context.Background(), t.span(c))
			(propagation.TraceContext{}).Inject(ctx, propagation.HeaderCarrier(out.Header))
		}
		next.ServeHTTP(w, &out)
	})
}

// span is the span of a call, which begins with the call.
func (t *Recorder) span(c *call) trace.Span {
	c.mu.Lock()
	span := c.span
	c.mu.Unlock()
	if span == nil {
		span = t.otlp.begin(c)
		c.mu.Lock()
		c.span = span
		c.mu.Unlock()
	}
	return span
}

// finish records a call whose handler has returned.
func (t *Recorder) finish(c *call, aborted bool) {
	w := c.response
	e := ending{
		refusal: c.record.Facts().Refusal, aborted: aborted, left: c.request.Context().Err() != nil,
		isPost: isPost(c.request), isRequest: c.main().id != "", reads: w.reads, status: w.status, answer: w.answer,
	}
	if e.status == 0 && !aborted {
		e.status = http.StatusOK // as net/http sends it
	}
	t.complete(c, e.result())
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.active, c) // after the record, because Close waits only for active calls
	if t.closed && len(t.active) == 0 {
		t.closeIdle()
	}
}

// complete writes the record of a call once. It returns when that is done, whoever writes it.
func (t *Recorder) complete(c *call, r result) {
	c.completed.Do(func() { t.write(c, r) })
}

func (t *Recorder) write(c *call, r result) {
	end := time.Now()
	traceID := ""
	if t.otlp != nil {
		span := t.span(c)
		traceID = span.SpanContext().TraceID().String()
		t.otlp.end(c, span, r, end)
	} else if parent := trace.SpanContextFromContext(c.parent()); parent.IsValid() {
		traceID = parent.TraceID().String()
	}
	if t.lines != nil {
		t.lines.add(t.line(c, r, end, traceID))
	}
}

// line is the line of a call.
type line struct {
	Kind     string    `json:"audit"`
	Time     time.Time `json:"time"`
	Sequence uint64    `json:"sequence"`
	origin
	Address         string  `json:"address"`
	Issuer          string  `json:"issuer,omitempty"`
	Subject         string  `json:"subject,omitempty"`
	HTTPMethod      string  `json:"httpMethod"`
	Path            string  `json:"path"`
	ProtocolVersion string  `json:"protocolVersion,omitempty"`
	Session         string  `json:"session,omitempty"`
	Status          int     `json:"status,omitempty"`
	Outcome         string  `json:"outcome"`
	Reason          string  `json:"reason,omitempty"`
	Code            *int    `json:"code,omitempty"`
	DurationMs      float64 `json:"durationMs"`
	BytesIn         int64   `json:"bytesIn"`
	BytesOut        int64   `json:"bytesOut"`
	TraceID         string  `json:"traceId,omitempty"`
	message
	// Unread is true if the message was not read for the record, but may have reached the server.
	Unread bool `json:"unread,omitempty"`
	// Batch are the first messages of a batch of BatchSize messages.
	Batch     []message `json:"batch,omitempty"`
	BatchSize int       `json:"batchSize,omitempty"`
}

func (t *Recorder) line(c *call, r result, end time.Time, traceID string) []byte {
	facts := c.record.Facts()
	l := line{
		Kind: lineRequest, Time: c.begun.UTC(), Sequence: c.sequence, origin: t.lines.origin,
		Address: callrecord.ClientAddress(c.request), Issuer: bounded(facts.Issuer), Subject: bounded(facts.Subject),
		HTTPMethod: bounded(c.request.Method), Path: bounded(c.request.URL.Path), ProtocolVersion: c.version(),
		Session: c.session(r.outcome == outcomeInterrupted), Status: r.status, Outcome: r.outcome, Reason: r.reason, Code: r.code,
		DurationMs: float64(end.Sub(c.begun).Microseconds()) / 1000, BytesOut: c.response.bytes.Load(), TraceID: traceID, message: c.main(),
	}
	if c.body != nil {
		l.BytesIn = c.body.bytes.Load()
	}
	c.mu.Lock()
	l.Unread = c.body != nil && len(c.messages) == 0
	if c.inBatch > 0 {
		l.Batch, l.BatchSize = c.messages, c.inBatch
	}
	c.mu.Unlock()
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // It would lengthen arguments sixfold.
	if err := encoder.Encode(l); err != nil {
		t.opts.Log.Error(err, "Failed to write the record of a request", "sequence", c.sequence)
		return nil
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n"))
}

// settleTime is how long requests may take to end after their connections are closed.
const settleTime = 200 * time.Millisecond

// Close writes the records of the requests that have not ended, and exports what is queued, until ctx is done. Requests
// must not begin any more.
func (t *Recorder) Close(ctx context.Context) error {
	t.mu.Lock()
	t.closed = true
	if len(t.active) == 0 {
		t.closeIdle()
	}
	t.mu.Unlock()
	select {
	case <-t.idle:
	case <-time.After(settleTime):
	case <-ctx.Done():
	}
	t.mu.Lock()
	rest := make([]*call, 0, len(t.active))
	for c := range t.active {
		rest = append(rest, c)
	}
	t.mu.Unlock()
	for _, c := range rest {
		t.complete(c, result{outcome: outcomeInterrupted})
	}
	var errs []error
	if t.lines != nil {
		errs = append(errs, t.lines.close(ctx))
	}
	if t.otlp != nil {
		errs = append(errs, t.otlp.close(ctx))
	}
	return errors.Join(errs...)
}

// closeIdle is called with the lock held.
func (t *Recorder) closeIdle() {
	select {
	case <-t.idle:
	default:
		close(t.idle)
	}
}
