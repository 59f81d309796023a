package telemetry

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/fixpoint-dev/fixpoint/internal/bridge"
	"github.com/fixpoint-dev/fixpoint/internal/callrecord"
)

const (
	// maxText is the maximum length of texts that clients choose, in bytes.
	maxText = 256
	// maxArguments is the maximum size of all arguments in a line, so that container runtimes do not split it. It is less
	// in a batch whose names are longer than fewNamesBytes. Those of maxNamesBytes are recorded, beside arguments.
	maxArguments  = 12 << 10
	fewNamesBytes = 1 << 10
	maxNamesBytes = 6 << 10
	// maxBatch is how many messages of a batch are recorded.
	maxBatch = 32
)

const headerSession = "Mcp-Session-Id"

// call is one request.
type call struct {
	recorder *Recorder
	record   *callrecord.Record
	sequence uint64
	begun    time.Time
	request  *http.Request
	response *observed
	body     *counted

	mu       sync.Mutex
	messages []message
	// inBatch is the number of messages of a batch.
	inBatch int
	// span is nil before the request is forwarded by the proxy.
	span trace.Span

	completed sync.Once
}

// message is what a record has of a message.
type message struct {
	Method    string          `json:"method,omitempty"`
	Tool      string          `json:"tool,omitempty"`
	Prompt    string          `json:"prompt,omitempty"`
	Resource  string          `json:"resource,omitempty"`
	Digest    string          `json:"argumentsSha256,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	// Ambiguous is true if the server may understand the message differently.
	Ambiguous bool `json:"ambiguous,omitempty"`

	id, version   string
	parent, state string
}

// size is the maximum size of the message in a line, without arguments.
func (m *message) size() int {
	const escaped = len(`\u0001`)
	size := len(`{"method":"","tool":"","argumentsSha256":"","ambiguous":true},`) + hex.EncodedLen(sha256.Size)
	for _, text := range []string{m.Method, m.Tool, m.Prompt, m.Resource} {
		for _, c := range []byte(text) {
			switch {
			case c < ' ' || c == '"' || c == '\\':
				size += escaped
			case c >= utf8.RuneSelf:
				size += 2 // Separators of lines become longer.
			default:
				size++
			}
		}
	}
	return size
}

// callKey is the key of the call in the context of a request.
type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// describe is called with the message in the body.
func (c *call) describe(body []byte) {
	descriptions, all, err := bridge.Describe(body, maxBatch)
	if err != nil {
		return // The server gets what is no JSON, and refuses it.
	}
	found := make([]message, 0, len(descriptions))
	names, limit := 0, maxNamesBytes
	if c.recorder.opts.Arguments != Full {
		limit = maxArguments
	}
	for i := range descriptions {
		m := c.recorder.message(&descriptions[i])
		if names += m.size(); names > limit {
			break // Those of one message are not as long.
		}
		found = append(found, m)
	}
	room := maxArguments - max(0, min(names, maxNamesBytes)-fewNamesBytes)
	for i := range found {
		c.recorder.addArguments(&found[i], descriptions[i].Arguments, room)
		room -= len(found[i].Arguments)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.messages = found
	if bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("[")) {
		c.inBatch = all
	}
}

// message describes a message, without its arguments.
func (t *Recorder) message(d *bridge.Description) message {
	m := message{
		Method: bounded(d.Method), Ambiguous: d.Ambiguous,
		id: bounded(strings.Trim(string(d.ID), `"`)), version: bounded(d.ProtocolVersion), parent: bounded(d.TraceParent), state: bounded(d.TraceState),
	}
	switch d.Method {
	case methodCall:
		m.Tool = bounded(d.Target)
	case methodPrompt:
		m.Prompt = bounded(d.Target)
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		m.Resource = bounded(d.Target)
	}
	return m
}

// addArguments records the arguments of a call in the form that is configured, those in full of at most room bytes.
func (t *Recorder) addArguments(m *message, arguments json.RawMessage, room int) {
	if t.lines == nil || t.opts.Arguments == None || len(arguments) == 0 || m.Tool == "" && m.Prompt == "" {
		return
	}
	var compact bytes.Buffer
	compact.Grow(len(arguments))
	if json.Compact(&compact, arguments) != nil {
		return // It is a part of valid JSON.
	}
	if t.opts.Arguments == Full && compact.Len() <= room {
		// A copy, because the buffer has room for all spaces, and a record is kept until the response.
		if line := readable(compact.Bytes()); len(line) <= room {
			m.Arguments = line
			return
		}
	}
	sum := sha256.Sum256(compact.Bytes())
	m.Digest = hex.EncodeToString(sum[:])
}

// readable returns a copy of JSON that all readers of lines take for a part of one line of JSON: in UTF-8, and without
// separators of lines.
func readable(compact []byte) []byte {
	line := bytes.ToValidUTF8(compact, []byte("\ufffd"))
	line = bytes.ReplaceAll(line, []byte("\u2028"), []byte(`\u2028`))
	return bytes.ReplaceAll(line, []byte("\u2029"), []byte(`\u2029`))
}

// main is the message of a request; of a batch, it is empty.
func (c *call) main() message {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inBatch > 0 || len(c.messages) == 0 {
		return message{}
	}
	return c.messages[0]
}

// parent is the context with the trace of the client: that of the message, or else that of the HTTP headers.
func (c *call) parent() context.Context {
	ctx := context.Background()
	if m := c.main(); m.parent != "" {
		carrier := propagation.MapCarrier{"traceparent": m.parent, "tracestate": m.state}
		if found := (propagation.TraceContext{}).Extract(ctx, carrier); trace.SpanContextFromContext(found).IsValid() {
			return found
		}
	}
	return (propagation.TraceContext{}).Extract(ctx, propagation.HeaderCarrier(c.request.Header))
}

// trace is the context of the span of the call.
func (c *call) trace() (parent, state string) {
	carrier := propagation.MapCarrier{}
	(propagation.TraceContext{}).Inject(trace.ContextWithSpan(context.Background(), c.recorder.span(c)), carrier)
	return carrier["traceparent"], carrier["tracestate"]
}

// session is a digest of the session id, which must not be in logs: who knows the id can use the session.
func (c *call) session(interrupted bool) string {
	id := c.request.Header.Get(headerSession)
	if id == "" && !interrupted {
		id = c.response.Header().Get(headerSession)
	}
	if id == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:8])
}

func (c *call) version() string {
	if header := c.request.Header.Get("Mcp-Protocol-Version"); header != "" {
		return bounded(header)
	}
	return c.main().version
}

// bounded is the beginning of a text that a client has chosen.
func bounded(text string) string {
	if len(text) <= maxText {
		return strings.ToValidUTF8(text, "\ufffd")
	}
	end := maxText
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.ToValidUTF8(text[:end], "\ufffd") + "…"
}
