package bridge

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
)

// FuzzMessage checks that an accepted message is understood by a server as by the bridge, also by one that
// reads JSON with encoding/json, which matches names case-insensitively.
func FuzzMessage(f *testing.F) {
	for _, seed := range []string{
		initMessage, statelessCall, `[` + initMessage + `]`, `{"jsonrpc":"2.0"}`, "{\"id\":1,\r\n\"method\":\"x\"}",
		`{"id":1.0e1,"method":"a","params":{"name":"a","Name":"b"}}`, `{"id":"\u00e9","result":{}}`, `{"error":{"code":1}}`,
		`{"id":null,"method":"notifications/progress","params":{"progressToken":1,"_meta":{"progressToken":"t"}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		in := &incoming{}
		if in.parse(body) != nil {
			return
		}
		if bytes.ContainsAny(in.message, "\r\n") || !json.Valid(in.message) {
			t.Fatalf("the message is not one line of JSON: %q", in.message)
		}
		understoodAlike(t, in)
		idKey(in.ID)
		idKey(in.Params.Meta.ProgressToken)
		again, err := renumbered(&in.envelope, "7")
		if err != nil {
			t.Fatalf("renumbering %q: %v", in.message, err)
		}
		e, err := parse(again)
		if err != nil || e.ambiguous != nil || e.Method != in.Method || string(e.ID) != "7" || text(e.Params.Name) != text(in.Params.Name) {
			t.Fatalf("%q is renumbered to %q: %v", in.message, again, err)
		}
	})
}

// understoodAlike compares the envelope with what encoding/json reads.
func understoodAlike(t *testing.T, in *incoming) {
	t.Helper()
	var other struct {
		ID     json.RawMessage `json:"id"`
		Method json.RawMessage `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	if err := json.Unmarshal(in.message, &other); err != nil {
		t.Fatalf("reading %q: %v", in.message, err)
	}
	if !bytes.Equal(other.ID, in.ID) || text(other.Method) != in.Method {
		t.Fatalf("%q is read as id %s and method %s", in.message, other.ID, other.Method)
	}
	var params struct {
		Name      json.RawMessage `json:"name"`
		URI       json.RawMessage `json:"uri"`
		Meta      json.RawMessage `json:"_meta"`
		Arguments json.RawMessage `json:"arguments"`
	}
	_ = json.Unmarshal(other.Params, &params) // params may be of another type
	var meta struct {
		Version json.RawMessage `json:"io.modelcontextprotocol/protocolVersion"`
	}
	_ = json.Unmarshal(params.Meta, &meta)
	p := in.Params
	if !bytes.Equal(params.Arguments, p.Arguments) || !bytes.Equal(params.Name, p.Name) || !bytes.Equal(params.URI, p.URI) || !bytes.Equal(meta.Version, p.Meta.ProtocolVersion) {
		t.Fatalf("%q is read with name %s, uri %s and version %s", in.message, params.Name, params.URI, meta.Version)
	}
}

// FuzzRequest serves requests with any headers and body. The command cannot be started, so that each is refused.
func FuzzRequest(f *testing.F) {
	opts := DefaultOptions()
	opts.Command = []string{"/no/such/server"}
	opts.AllowedHosts, opts.AllowedOrigins = []string{"tools.acme.svc"}, []string{"https://app.example.com"}
	b, err := New(opts)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(b.Close)
	b.speaks.Store(&generations{sessions: true})
	handler := b.Handler()
	f.Add("POST", "tools.acme.svc:8080", "", "2026-07-28", "tools/call", "echo", "", "", statelessCall)
	f.Add("POST", "localhost", "https://app.example.com", "", "", "", "", "", initMessage)
	f.Add("POST", "[::1]:80", "null", "2025-11-25", "ping", "", "session", "17", `{"id":1,"method":"ping"}`)
	f.Add("GET", "tools.acme.svc.", "http://tools.acme.svc", "2026-07-28", "", "=?base64?ZWNobw==?=", "x", "%00", "")
	f.Add("DELETE", "evil.example", "https://evil.example:443", "\xff", "", "=?base64?", "", "", "x")
	f.Fuzz(func(t *testing.T, method, host, origin, version, rpcMethod, name, session, lastEvent, body string) {
		r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(body))
		r.Method, r.Host = method, host
		r.Header.Set("Content-Type", jsonType)
		r.Header.Set("Accept", "*/*")
		for key, value := range map[string]string{
			"Origin": origin, headerVersion: version, headerMethod: rpcMethod, headerName: name,
			headerSession: session, "Last-Event-Id": lastEvent,
		} {
			if value != "" {
				r.Header.Set(key, value)
			}
		}
		w := httptest.NewRecorder()

		handler.ServeHTTP(w, r)

		if w.Code < 400 || w.Code == http.StatusInternalServerError || !json.Valid(w.Body.Bytes()) {
			t.Fatalf("status %d: %q", w.Code, w.Body)
		}
		if w.Code != http.StatusForbidden {
			mayBeAllowed(t, host, origin)
		}
	})
}

// mayBeAllowed fails if an origin or host that is not listed was allowed.
func mayBeAllowed(t *testing.T, host, origin string) {
	t.Helper()
	name := strings.ToLower(strings.TrimSuffix((&url.URL{Host: host}).Hostname(), "."))
	_, err := netip.ParseAddr(name)
	if err != nil && name != "localhost" && name != "tools.acme.svc" && strings.Count(host, ":") <= 1 {
		t.Fatalf("host %q was allowed", host)
	}
	if origin == "" {
		return
	}
	u, err := url.Parse(origin)
	if err != nil || u.Path != "" || u.User != nil || !strings.EqualFold(u.Hostname(), "app.example.com") && !strings.EqualFold(strings.TrimSuffix(u.Hostname(), "."), "tools.acme.svc") {
		t.Fatalf("origin %q was allowed", origin)
	}
}

// FuzzServerOutput relays any output of a server, in a session and without one.
func FuzzServerOutput(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}}`,
		`{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"x"}}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`,
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}`,
		`{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage","params":{}}`,
		"Welcome!", "{\"id\":1,\r\"result\":{}}\r", `{"id":1,"ID":2,"result":` + strings.Repeat(" ", 300) + `{}}`, "\n\n[]\n{", `{"id":1e0}`,
	} {
		f.Add([]byte(seed + "\n"))
	}
	opts := DefaultOptions()
	opts.Command, opts.MaxMessageBytes, opts.Log = []string{"x"}, 256, logr.Discard()
	b, err := New(opts)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(b.Close)
	stdin, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = stdin.Close() })
	exited := make(chan struct{})
	close(exited)
	f.Fuzz(func(t *testing.T, output []byte) {
		var lines [][]byte
		reader := newLineReader(bytes.NewReader(output), opts.MaxMessageBytes)
		for {
			line, over, err := reader.next()
			if err != nil {
				break
			}
			if len(line) > opts.MaxMessageBytes || bytes.ContainsRune(line, '\n') || over != nil && over.bytes <= opts.MaxMessageBytes {
				t.Fatalf("line of %d bytes, oversize %+v", len(line), over)
			}
			lines = append(lines, bytes.Clone(line))
		}
		// It counts as exited, because responses to its requests may be written after the test has closed its input.
		c := &child{stdin: stdin, started: time.Now(), stderr: newStderrLog(logr.Discard(), 1), grace: time.Hour, exited: exited}
		relayInSession(t, b, c, lines)
		relayWithoutSession(t, b, c, lines)
	})
}

func relayInSession(t *testing.T, b *Bridge, c *child, lines [][]byte) {
	t.Helper()
	s, err := newSession(b, "192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	s.child, s.startTimer, s.idleTimer = c, time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	var recorders []*httptest.ResponseRecorder
	for _, id := range []string{"1", `"s"`} {
		w := httptest.NewRecorder()
		recorders = append(recorders, w)
		if f := s.add(&call{id: json.RawMessage(id), key: idKey([]byte(id)), token: idKey([]byte(id)), begun: time.Now(), stream: newStream(w, time.Second)}); f != nil {
			t.Fatal(f)
		}
	}
	for _, line := range lines {
		s.fromServer(line)
	}
	for _, w := range recorders {
		for event := range strings.SplitSeq(strings.TrimSuffix(w.Body.String(), eventEnd), eventEnd) {
			message, ok := strings.CutPrefix(event, eventStart)
			if event != "" && (!ok || !json.Valid([]byte(message)) || strings.ContainsAny(message, "\r\n")) {
				t.Fatalf("event %q", event)
			}
		}
	}
}

func relayWithoutSession(t *testing.T, b *Bridge, c *child, lines [][]byte) {
	t.Helper()
	w := newWorker(b.shared, c, logr.Discard())
	defer w.idle.Stop()
	calls := map[string]*sharedCall{}
	for _, id := range []string{`"first"`, `"second"`} {
		call := newSharedCall(&envelope{ID: json.RawMessage(id), Params: params{Meta: meta{LogLevel: json.RawMessage(`"info"`)}}})
		calls[id] = call
		if _, f := w.add(call); f != nil {
			t.Fatal(f)
		}
	}
	for _, line := range lines {
		w.fromServer(line)
	}
	for id, call := range calls {
		for m, ok, _ := call.take(); ok; m, ok, _ = call.take() {
			e, err := parse(m.message)
			if m.last && (err != nil || string(e.ID) != id) || bytes.ContainsAny(m.message, "\r\n") {
				t.Fatalf("request %s gets %q", id, m.message)
			}
		}
	}
}
