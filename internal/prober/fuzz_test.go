package prober

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

// fuzzSeeds are bodies of honest and of hostile servers.
var fuzzSeeds = []string{
	``, `{`, `[]`, `{"jsonrpc":"2.0","id":1,"result":` + withTools + `}`,
	`{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a","inputSchema":{"type":"object"}},{}],"nextCursor":"2"}}`,
	`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"no","data":[{},{}]}}`,
	`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":{"a":[1]}}}`,
	`{"jsonrpc":"2.0","id":"x","method":"sampling/createMessage","params":{}}`,
	`{"result":{"tools":[[],"\"]",{"a":"\u20ac€"}],"prompts":[1],"resources":[]}}`,
	`{"result":{"t\u006fols":[{}],"Tools":[{"a":1,"a":2}]},"Result":{"tools":[1]}}`, "event: ping\ndata: [\n\r\r\ndata: {\"result\":{\"tools\":[{}]}}\n\n",
	"event: message\nid: 1\nretry: 10\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"tools\":[{}]}}\n\n",
	"event: endpoint\ndata: /message?session=1\n\n", "data: {\"a\":\ndata: \"b\"}\n\n: comment\n\n", "data\n\n", "id: 1\r\n\r\n",
}

// FuzzReducer checks that what is kept of a body does not depend on how it arrives, stays within the limits,
// and is the same JSON without the items of the lists.
func FuzzReducer(f *testing.F) {
	for _, body := range fuzzSeeds {
		f.Add([]byte(body), false, 3)
		f.Add([]byte(body), true, 1)
	}
	f.Fuzz(func(t *testing.T, body []byte, events bool, split int) {
		k := kept{maxBytes: 1 << 10, maxValues: 64}
		whole := reducer{kept: &k, events: events}
		failure := whole.write(body)
		if len(whole.out) > k.maxBytes || k.values > k.maxValues+1 {
			t.Fatalf("kept %d bytes and %d values", len(whole.out), k.values)
		}
		parted := kept{maxBytes: 1 << 10, maxValues: 64}
		parts := reducer{kept: &parted, events: events}
		at := 0
		if len(body) > 0 {
			at = max(0, split) % len(body)
		}
		again := parts.write(body[:at])
		if again == nil {
			again = parts.write(body[at:])
		}
		if failure != again || !bytes.Equal(whole.out, parts.out) || k != parted {
			t.Fatalf("in one part: %q, %v; in two: %q, %v", whole.out, failure, parts.out, again)
		}
		if failure == nil && !events && json.Valid(body) {
			compareJSON(t, body, whole.out, k)
		}
	})
}

// compareJSON compares a valid body with what is kept of it.
func compareJSON(t *testing.T, body, out []byte, k kept) {
	t.Helper()
	if !json.Valid(out) {
		t.Fatalf("%q became %q, which is not JSON", body, out)
	}
	if were, are := itemsIn(body), itemsIn(out); were != k.items || are != [4]int{} {
		t.Fatalf("%q has %d items, %q has %d, and %d were counted", body, were, out, are, k.items)
	}
}

// itemsIn counts the items of the lists in all results, in any spelling of their keys.
func itemsIn(body []byte) (items [4]int) {
	eachMember(body, func(key string, result json.RawMessage) {
		if !strings.EqualFold(key, "result") {
			return
		}
		eachMember(result, func(key string, value json.RawMessage) {
			var list []json.RawMessage
			at := slices.IndexFunc(listNames, func(name string) bool { return strings.EqualFold(key, name) })
			if at >= 0 && json.Unmarshal(value, &list) == nil {
				items[at] += len(list)
			}
		})
	})
	return items
}

// eachMember reads the members of an object, also those with equal keys.
func eachMember(body []byte, visit func(key string, value json.RawMessage)) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	if token, _ := decoder.Token(); token != json.Delim('{') {
		return
	}
	for decoder.More() {
		var value json.RawMessage
		token, _ := decoder.Token()
		key, _ := token.(string)
		if decoder.Decode(&value) != nil {
			return
		}
		visit(key, value)
	}
}

// rawServer responds with the bytes of a function to each request, and closes the connection.
func rawServer(respond func(*http.Request, []byte) string) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer func() { _ = server.Close() }()
			request, err := http.ReadRequest(bufio.NewReader(server))
			if err != nil {
				return
			}
			body, _ := io.ReadAll(request.Body)
			_, _ = io.WriteString(server, respond(request, body))
		}()
		return client, nil
	}
}

// fuzzProbe runs a full probe, and checks what holds for any server.
func fuzzProbe(t *testing.T, target Target, respond func(*http.Request, []byte) string) {
	t.Helper()
	p, err := New(Options{Dial: rawServer(respond)})
	if err != nil {
		t.Fatal(err)
	}
	target.URL, target.Interval = "http://web.default.svc/mcp", 100*time.Millisecond
	e := &entry{target: target.complete(), namespace: p.joinNamespace("default")}
	e.prepare(nil)
	p.updateMembers(e)
	var found answer
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		found = p.handshake(t.Context(), p.job(e.members[0], time.Now()))
	}()
	select {
	case <-ended:
	case <-time.After(testTimeout):
		t.Fatal("the probe does not end")
	}
	for _, failure := range []*Error{found.err, found.listErr} {
		if failure != nil && (messages[failure.Kind] == "" && failure.Status == 0 || strings.Contains(failure.Error(), "CANARY")) {
			t.Fatalf("unexpected error %q", failure)
		}
	}
	s := found.server
	for _, text := range append([]string{s.Name, s.Version}, s.Capabilities...) {
		if len(text) > maxName || strings.IndexFunc(text, isNotPrinted) >= 0 {
			t.Fatalf("unexpected text %q", text)
		}
	}
	if s.Tools < NotCounted || s.Prompts < NotCounted || s.Resources < NotCounted || s.Tools > maxItems {
		t.Fatalf("unexpected numbers in %+v", s)
	}
	if found.err != nil && (found.listed || s.Name != "") {
		t.Fatalf("a failed probe has a result: %+v", found)
	}
}

func rawResponse(status int, headers, body string) string {
	return fmt.Sprintf("HTTP/1.1 %03d CANARY\r\nConnection: close\r\n%s\r\n\r\n%s", status, headers, body)
}

// FuzzResponse answers all requests of a probe with the same response. It covers the body of the
// handshake, the status and all headers, such as the session, the media type and redirects.
func FuzzResponse(f *testing.F) {
	headers := []string{
		"Content-Type: application/json", "Content-Type: text/event-stream\r\nMcp-Session-Id: CANARY", "Content-Type: text/html",
		"Location: http://elsewhere.example/CANARY", "Location: /other\r\nContent-Length: -1", "WWW-Authenticate: Bearer realm=\"CANARY\"\r\nRetry-After: 99999999999",
		"Content-Type: application/json; charset=\"", "Content-Encoding: gzip\r\nTransfer-Encoding: chunked", "Mcp-Session-Id: \x01",
	}
	for i, body := range fuzzSeeds {
		for j, status := range []int{200, 202, 307, 401, 404, 503} {
			f.Add(status, headers[(i+j)%len(headers)], body, i%2 == 0)
		}
	}
	f.Fuzz(func(t *testing.T, status int, headers, body string, sse bool) {
		target := Target{}
		if sse {
			target.Transport = SSE
		}
		fuzzProbe(t, target, func(*http.Request, []byte) string { return rawResponse(status, headers, body) })
	})
}

// FuzzList makes an honest handshake, and answers the lists with any result and headers.
func FuzzList(f *testing.F) {
	for i, result := range []string{
		`{"tools":[{},{}]}`, `{"tools":[],"nextCursor":"CANARY"}`, `{"tools":{},"prompts":1}`, `null`, `[]`, `{"resources":[{"uri":"CANARY"}]}`,
		`{"tools":[` + strings.Repeat("[", 70), `{"prompts":[{"name":"a"}],"ttlMs":-1,"cacheScope":"CANARY"}`,
	} {
		f.Add(result, "", i%2 == 0)
		f.Add(result, "Mcp-Session-Id: other", i%2 == 1)
	}
	f.Fuzz(func(t *testing.T, result, headers string, events bool) {
		fuzzProbe(t, Target{}, func(r *http.Request, body []byte) string {
			var call struct {
				ID     json.RawMessage
				Method string
			}
			_ = json.Unmarshal(body, &call)
			if call.Method == "initialize" {
				capabilities := strings.Replace(withTools, `"tools":{}`, `"tools":{},"prompts":{},"resources":{}`, 1)
				return rawResponse(200, "Content-Type: application/json", fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, call.ID, capabilities))
			}
			if r.Method == http.MethodDelete || !strings.HasSuffix(call.Method, "/list") {
				return rawResponse(202, "Content-Length: 0", "")
			}
			text := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, call.ID, result)
			if events {
				return rawResponse(200, "Content-Type: text/event-stream\r\n"+headers, "data: "+text+"\n\n")
			}
			return rawResponse(200, "Content-Type: application/json\r\n"+headers, text)
		})
	})
}

// FuzzStream sends any stream to the transport SSE, after its endpoint.
func FuzzStream(f *testing.F) {
	for i, body := range fuzzSeeds {
		f.Add("/message?session=CANARY", body)
		f.Add([]string{"http://elsewhere.example/", "//a", "%", "", ":", "/%00"}[i%6], "data: "+body+"\n\n")
	}
	f.Fuzz(func(t *testing.T, endpoint, stream string) {
		fuzzProbe(t, Target{Transport: SSE}, func(r *http.Request, _ []byte) string {
			if r.Method == http.MethodPost {
				return rawResponse(202, "Content-Length: 0", "")
			}
			return rawResponse(200, "Content-Type: text/event-stream", "event: endpoint\ndata: "+endpoint+"\n\n"+stream)
		})
	})
}

func isNotPrinted(r rune) bool { return !unicode.IsPrint(r) }

// FuzzTruncate checks that names from servers are cut at characters, and that what is kept of them can be printed.
func FuzzTruncate(f *testing.F) {
	for _, text := range []string{"", "a", "a\nb\x1b[2J\u202e\u00a0", strings.Repeat("\xff", maxName), strings.Repeat("€", 100), strings.Repeat("x", maxName-1) + "€", strings.Repeat("\xff", 300)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		short := truncate(text)
		if len(short) > maxName || !strings.HasPrefix(text, short) || utf8.ValidString(text) && !utf8.ValidString(short) {
			t.Fatalf("%q became %q", text, short)
		}
		if len(text) > maxName && len(short) < maxName-utf8.UTFMax {
			t.Fatalf("%d bytes of %d are left", len(short), len(text))
		}
		if shown := printable(text); len(shown) > maxName || strings.IndexFunc(shown, isNotPrinted) >= 0 {
			t.Fatalf("%q became %q", text, shown)
		}
	})
}
