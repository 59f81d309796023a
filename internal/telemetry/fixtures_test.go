package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	. "github.com/onsi/gomega"
)

// testTimeout is for a busy machine and the race detector.
const testTimeout = time.Minute

// output collects lines.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// entry is a line as a reader gets it.
type entry struct {
	Audit, Server, Namespace, Pod, Instance    string
	Address, Issuer, Subject, HTTPMethod, Path string
	Sequence, Dropped                          uint64
	ProtocolVersion, Session                   string
	Status                                     int
	Outcome, Reason                            string
	Code                                       *int
	DurationMs                                 *float64
	BytesIn, BytesOut                          int64
	TraceID                                    string
	Method, Tool, Prompt, Resource             string
	ArgumentsSHA256                            string `json:"argumentsSha256"`
	Arguments                                  json.RawMessage
	Ambiguous, Unread                          bool
	Batch                                      []entry
	BatchSize                                  int
}

// all are the lines so far. Each must be one JSON object, which container runtimes do not split.
func (o *output) all(g Gomega) []entry {
	o.mu.Lock()
	defer o.mu.Unlock()
	var found []entry
	for text := range strings.Lines(o.text.String()) {
		var e entry
		g.Expect(json.Unmarshal([]byte(text), &e)).To(Succeed(), text)
		g.Expect(utf8.ValidString(text)).To(BeTrue(), text)
		g.Expect(len(text)).To(BeNumerically("<", 16<<10), text)
		found = append(found, e)
	}
	return found
}

func (o *output) requests(g Gomega) []entry {
	var found []entry
	for _, e := range o.all(g) {
		if e.Audit == lineRequest {
			found = append(found, e)
		}
	}
	return found
}

// recording is a recorder with its server.
type recording struct {
	*Recorder
	front *httptest.Server
}

// end closes both, the server first: a client can have a response whose record is not complete.
func (r recording) end(ctx context.Context) error {
	r.front.Close()
	return r.Close(ctx)
}

// recorded serves a handler behind a recorder, and returns its URL and its lines.
func recorded(t *testing.T, opts Options, layers func(http.Handler) http.Handler, server http.Handler) (r recording, url string, lines *output) {
	t.Helper()
	lines = &output{}
	if opts.Lines == nil && opts.OTLP == nil {
		opts.Lines = lines
	}
	opts.Server, opts.Namespace, opts.Pod = "tools", "acme", "tools-1"
	opts.maxWait = testTimeout // so that a busy machine changes nothing
	recorder, err := New(opts)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	inner := recorder.Forward(server)
	if layers != nil {
		inner = layers(inner)
	}
	r = recording{recorder, httptest.NewServer(recorder.Protect(inner))}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		_ = r.end(ctx)
	})
	return r, r.front.URL, lines
}

// post sends a message, and returns the status and the body of the response.
func post(g Gomega, url, message string, headers ...string) (int, string) {
	request, err := http.NewRequest(http.MethodPost, url, strings.NewReader(message))
	g.Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, string(body)
}

// answering responds to each message.
func answering(body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	})
}

const okBody = `{"jsonrpc":"2.0","id":1,"result":{}}`

// toolCall is a message that calls a tool.
func toolCall(tool, arguments string) string {
	name, err := json.Marshal(tool)
	if err != nil {
		panic(err)
	}
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":` + string(name) + `,"arguments":` + arguments + `}}`
}
