package telemetry

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fixpoint-dev/fixpoint/internal/authorization"
	"github.com/fixpoint-dev/fixpoint/internal/callpolicy"
	"github.com/fixpoint-dev/fixpoint/internal/requestbody"
)

type none struct{}

// sdkServer is an unmodified server of the SDK.
func sdkServer(stateless bool) http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "tools", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "get"}, func(context.Context, *mcp.CallToolRequest, map[string]any) (*mcp.CallToolResult, none, error) {
		return &mcp.CallToolResult{}, none{}, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "fail"}, func(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, none, error) {
		return nil, none{}, errors.New("it failed")
	})
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: stateless})
}

// Some servers do not distinguish the letter case of methods.
func TestOutcomesInAllFormsOfTheMethod(t *testing.T) {
	for _, method := range []string{http.MethodPost, "post", "Post"} {
		t.Run(method, func(t *testing.T) {
			g := NewWithT(t)
			recorder, url, lines := recorded(t, Options{}, nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if r.Header.Get("Accept-Encoding") != "" {
					w.Header().Set("Content-Encoding", "gzip")
				}
				_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"isError":true}}`)
			}))
			request, err := http.NewRequest(method, url, strings.NewReader(toolCall("get", "{}")))
			g.Expect(err).NotTo(HaveOccurred())
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("Accept-Encoding", "gzip")
			response, err := http.DefaultTransport.RoundTrip(request)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(response.Body.Close()).To(Succeed())
			g.Expect(recorder.end(t.Context())).To(Succeed())
			g.Expect(lines.requests(g)).To(ConsistOf(And(HaveField("Tool", "get"), HaveField("Outcome", outcomeToolError))))
		})
	}
}

// Unmodified clients and servers of the SDK, of both generations of the protocol.
func TestRecordsOfClientsOfTheSDK(t *testing.T) {
	for version, stateless := range map[string]bool{"2025-06-18": false, "2025-11-25": false, "2026-07-28": true} {
		t.Run(version, func(t *testing.T) {
			g := NewWithT(t)
			recorder, url, lines := recorded(t, Options{}, nil, sdkServer(stateless))
			session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
				&mcp.StreamableClientTransport{Endpoint: url + "/mcp", MaxRetries: -1}, &mcp.ClientSessionOptions{ProtocolVersion: version})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(session.InitializeResult().ProtocolVersion).To(Equal(version))
			_, err = session.ListTools(t.Context(), nil)
			g.Expect(err).NotTo(HaveOccurred())
			_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "get", Arguments: map[string]any{"a": "secret"}})
			g.Expect(err).NotTo(HaveOccurred())
			failed, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "fail"})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(failed.IsError).To(BeTrue())
			_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "missing"})
			g.Expect(err).To(HaveOccurred())
			g.Expect(session.Close()).To(Succeed())
			g.Expect(recorder.end(t.Context())).To(Succeed())

			byTool := map[string]entry{}
			sequences := map[uint64]bool{}
			sum := sha256.Sum256([]byte(`{"a":"secret"}`))
			for _, e := range lines.requests(g) {
				g.Expect(sequences).NotTo(HaveKey(e.Sequence))
				sequences[e.Sequence] = true
				g.Expect(e.Namespace + "/" + e.Server + "/" + e.Pod).To(Equal("acme/tools/tools-1"))
				g.Expect(e.DurationMs).NotTo(BeNil())
				g.Expect(e.Address).To(Equal("127.0.0.1"))
				if e.Method == methodCall {
					byTool[e.Tool] = e
					g.Expect(e.ProtocolVersion).To(Equal(version))
					g.Expect(e.Session == "").To(Equal(stateless))
					g.Expect(e.BytesIn).To(BeNumerically(">", 50))
					g.Expect(e.BytesOut).To(BeNumerically(">", 20))
				}
			}
			g.Expect(byTool).To(HaveLen(3))
			g.Expect(byTool["get"].Outcome).To(Equal(outcomeOK))
			g.Expect(byTool["get"].ArgumentsSHA256).To(Equal(hex.EncodeToString(sum[:])))
			g.Expect(byTool["fail"].Outcome).To(Equal(outcomeToolError))
			g.Expect(byTool["missing"].Outcome).To(Equal(outcomeRPCError))
			g.Expect(byTool["missing"].Code).To(HaveValue(Equal(-32602)))

			all := lines.all(g)
			g.Expect(all[0].Audit).To(Equal(lineStart))
			last := all[len(all)-1]
			g.Expect(last.Audit).To(Equal(lineEnd))
			g.Expect(last.Sequence).To(BeEquivalentTo(len(sequences)), "each number has a line")
			g.Expect(lines.text.String()).NotTo(ContainSubstring("secret"))
		})
	}
}

// newTokens returns a layer that checks tokens, and a function that returns tokens.
func newTokens(t *testing.T) (layer func(http.Handler) http.Handler, token func(scope string) string) {
	t.Helper()
	g := NewWithT(t)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: private.Public(), KeyID: "one"}}})
	g.Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(t.TempDir(), "jwks.json")
	g.Expect(os.WriteFile(file, keys, 0o600)).To(Succeed())
	const issuer, resource = "https://id.example.com", "https://tools.example.com/mcp"
	authorizer, err := authorization.New(authorization.Options{
		Issuers: []authorization.Issuer{{URL: issuer, Keys: file}}, Resources: []string{resource}, Scopes: []string{"mcp"},
		Tools: []authorization.ToolScopes{{Pattern: "delete_*", Scopes: []string{"admin"}}},
	})
	g.Expect(err).NotTo(HaveOccurred())
	return authorizer.Protect, func(scope string) string {
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: private, KeyID: "one"}}, nil)
		g.Expect(err).NotTo(HaveOccurred())
		signed, err := jwt.Signed(signer).Claims(jwt.Claims{
			Issuer: issuer, Subject: "ann", Audience: jwt.Audience{resource}, Expiry: jwt.NewNumericDate(time.Now().Add(time.Hour)),
		}).Claims(map[string]any{"scope": scope}).Serialize()
		g.Expect(err).NotTo(HaveOccurred())
		return signed
	}
}

func TestRefusedRequestsAreRecorded(t *testing.T) {
	g := NewWithT(t)
	tokens, token := newTokens(t)
	limits, err := callpolicy.New(callpolicy.Options{
		Deny: []string{"hidden"}, Tools: []callpolicy.ToolLimit{{Pattern: "rare", CallsPerMinute: 1}}, Caller: authorization.Caller,
	})
	g.Expect(err).NotTo(HaveOccurred())
	_, url, lines := recorded(t, Options{}, func(next http.Handler) http.Handler { return tokens(limits.Protect(next)) }, answering(okBody))
	bearer := "Bearer " + token("mcp")

	post(g, url, toolCall("get", "{}"))
	post(g, url, toolCall("get", "{}"), "Authorization", "Bearer abc.def.ghi")
	post(g, url, toolCall("delete_all", "{}"), "Authorization", bearer)
	post(g, url, toolCall("hidden", "{}"), "Authorization", bearer)
	post(g, url, toolCall("rare", "{}"), "Authorization", bearer)
	post(g, url, toolCall("rare", "{}"), "Authorization", bearer)
	post(g, url, "[]", "Authorization", bearer)

	type summary struct {
		status                         int
		subject, tool, outcome, reason string
	}
	var got []summary
	g.Eventually(func(g Gomega) { g.Expect(lines.requests(g)).To(HaveLen(7)) }, testTimeout).Should(Succeed())
	for _, e := range lines.requests(g) {
		got = append(got, summary{e.Status, e.Subject, e.Tool, e.Outcome, e.Reason})
		g.Expect(e.Issuer != "").To(Equal(e.Subject != ""))
	}
	g.Expect(got).To(Equal([]summary{
		{401, "", "", outcomeRefused, "unauthorized"},
		{401, "", "", outcomeRefused, "invalid_token"},
		{403, "ann", "delete_all", outcomeRefused, "insufficient_scope"},
		{200, "ann", "hidden", outcomeRefused, "ToolNotSelected"},
		{200, "ann", "rare", outcomeOK, ""},
		{429, "ann", "rare", outcomeRefused, "TooManyRequests"},
		{400, "ann", "", outcomeRefused, "invalid_request"},
	}))
	g.Expect(lines.text.String()).NotTo(Or(ContainSubstring(token("mcp")[:30]), ContainSubstring("abc.def")))
}

// What clients choose cannot end a line, or begin another member.
func TestLinesOfOddMessages(t *testing.T) {
	for name, c := range map[string]struct {
		message string
		check   func(g Gomega, e entry)
	}{
		"line ends in a name": {toolCall("a\n{\"audit\":\"request\"}\r\n", "{}"), func(g Gomega, e entry) {
			g.Expect(e.Tool).To(Equal("a\n{\"audit\":\"request\"}\r\n"))
		}},
		"members in a name":  {toolCall(`a","outcome":"refused`, "{}"), func(g Gomega, e entry) { g.Expect(e.Outcome).To(Equal(outcomeOK)) }},
		"separators":         {toolCall("a\u2028b\u0085\x00\x1b[31m", "{}"), func(g Gomega, e entry) { g.Expect(e.Tool).To(HavePrefix("a\u2028b")) }},
		"a long name":        {toolCall(strings.Repeat("é", 5000), "{}"), func(g Gomega, e entry) { g.Expect(len(e.Tool)).To(BeNumerically("<", 300)) }},
		"no Unicode":         {"{\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"a\xff\xfe\"}}", func(g Gomega, e entry) { g.Expect(e.Tool).To(HavePrefix("a")) }},
		"a name that is odd": {`{"id":1,"method":"tools/call","params":{"name":{"a":1},"arguments":[1]}}`, func(g Gomega, e entry) { g.Expect(e.Tool).To(BeEmpty()) }},
		"two names": {`{"id":1,"method":"tools/call","params":{"name":"a","Name":"b"}}`, func(g Gomega, e entry) {
			g.Expect(e.Ambiguous).To(BeTrue())
		}},
		"line ends in arguments": {toolCall("get", "{\"a\":\n\n \"b\\n\"}"), func(g Gomega, e entry) { g.Expect(string(e.Arguments)).To(Equal(`{"a":"b\n"}`)) }},
		"large arguments": {toolCall("get", `"`+strings.Repeat("x", 20<<10)+`"`), func(g Gomega, e entry) {
			g.Expect(e.Arguments).To(BeEmpty())
			g.Expect(e.ArgumentsSHA256).To(HaveLen(64))
		}},
		"arguments that are no Unicode": {toolCall("get", "{\"a\":\"b\xff\"}"), func(g Gomega, e entry) { g.Expect(string(e.Arguments)).To(Equal("{\"a\":\"b\ufffd\"}")) }},
		"separators in arguments":       {toolCall("get", "\"a\u2028\u2029\""), func(g Gomega, e entry) { g.Expect(string(e.Arguments)).To(Equal(`"a\u2028\u2029"`)) }},
		"arguments in HTML": {toolCall("get", `"`+strings.Repeat("<&>", 4<<10-10)+`"`), func(g Gomega, e entry) {
			g.Expect(string(e.Arguments)).To(Equal(`"` + strings.Repeat("<&>", 4<<10-10) + `"`))
		}},
		"a prompt":   {`{"id":1,"method":"prompts/get","params":{"name":"p","arguments":{}}}`, func(g Gomega, e entry) { g.Expect(e.Prompt).To(Equal("p")) }},
		"a resource": {`{"id":1,"method":"resources/read","params":{"uri":"file:///a"}}`, func(g Gomega, e entry) { g.Expect(e.Resource).To(Equal("file:///a")) }},
		"a batch of long names": {"[" + strings.Repeat(toolCall(strings.Repeat("\x01", 300), `"`+strings.Repeat("x", 500)+`"`)+",", maxBatch) + toolCall("b", "{}") + "]", func(g Gomega, e entry) {
			g.Expect(e.BatchSize).To(Equal(maxBatch + 1))
			g.Expect(e.Batch).To(HaveLen(3))
		}},
		"a batch": {`[` + toolCall("a", "{}") + `,` + toolCall("b", "{}") + `]`, func(g Gomega, e entry) {
			g.Expect(e.BatchSize).To(Equal(2))
			g.Expect([]string{e.Batch[0].Tool, e.Batch[1].Tool, e.Tool}).To(Equal([]string{"a", "b", ""}))
		}},
		"a batch with large arguments": {`[` + toolCall("a", `"`+strings.Repeat("x", 9<<10)+`"`) + `,` + toolCall("b", `"`+strings.Repeat("y", 9<<10)+`"`) + `]`, func(g Gomega, e entry) {
			g.Expect(e.Batch).To(HaveExactElements(HaveField("ArgumentsSHA256", BeEmpty()), HaveField("Arguments", BeEmpty())))
		}},
		"an empty batch": {`[]`, func(g Gomega, e entry) { g.Expect(e.BatchSize).To(BeZero()) }},
		"no JSON":        {`{"id":`, func(g Gomega, e entry) { g.Expect(e.Unread).To(BeTrue()) }},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, url, lines := recorded(t, Options{Arguments: Full}, nil, answering(okBody))
			code, body := post(g, url, c.message)
			g.Expect(code).To(Equal(http.StatusOK))
			g.Expect(body).To(Equal(okBody))
			g.Eventually(func(g Gomega) { g.Expect(lines.requests(g)).To(HaveLen(1)) }, testTimeout).Should(Succeed())
			c.check(g, lines.requests(g)[0])
		})
	}
}

func TestArgumentsInLines(t *testing.T) {
	for arguments, want := range map[Arguments]string{Digest: "digest", Full: "full", None: "none", "": "digest"} {
		t.Run(string(arguments), func(t *testing.T) {
			g := NewWithT(t)
			_, url, lines := recorded(t, Options{Arguments: arguments}, nil, answering(okBody))
			post(g, url, toolCall("get", `{ "a" : 1 }`))
			g.Eventually(func(g Gomega) { g.Expect(lines.requests(g)).To(HaveLen(1)) }, testTimeout).Should(Succeed())
			e := lines.requests(g)[0]
			got := "none"
			if len(e.Arguments) > 0 {
				got = "full"
			} else if e.ArgumentsSHA256 != "" {
				got = "digest"
			}
			g.Expect(got).To(Equal(want))
		})
	}
}

// A message that is not read for the record reaches the server unchanged, and the line says so.
func TestUnreadMessagesAreForwarded(t *testing.T) {
	large := toolCall("get", `"`+strings.Repeat("x", 100<<10)+`"`)
	for name, c := range map[string]struct {
		message string
		headers []string
		unread  bool
	}{
		"small":            {toolCall("get", "{}"), nil, false},
		"larger":           {large[:60<<10] + `"}}`, nil, false},
		"above the limit":  {large, nil, true},
		"compressed":       {"\x1f\x8b", []string{"Content-Encoding", "gzip"}, true},
		"of another type":  {"a=b", []string{"Content-Type", "text/plain"}, true},
		"of unknown bytes": {"\x00\xff", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var got string
			_, url, lines := recorded(t, Options{MaxMessageBytes: 64 << 10}, nil, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				got = string(body)
			}))
			code, _ := post(g, url, c.message, c.headers...)
			g.Expect(code).To(Equal(http.StatusOK))
			g.Expect(got == c.message).To(BeTrue())
			g.Eventually(func(g Gomega) { g.Expect(lines.requests(g)).To(HaveLen(1)) }, testTimeout).Should(Succeed())
			e := lines.requests(g)[0]
			g.Expect(e.Unread).To(Equal(c.unread))
			g.Expect(e.BytesIn).To(BeEquivalentTo(len(c.message)))
		})
	}
}

// A message has a place until it was sent, and not until the end of its response.
func TestLargeMessagesOfLongCallsAreRecorded(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	to, err := url.Parse(server.URL)
	g.Expect(err).NotTo(HaveOccurred())
	recorder, front, lines := recorded(t, Options{}, nil, httputil.NewSingleHostReverseProxy(to))
	message := toolCall("slow", `"`+strings.Repeat("x", requestbody.SmallMessage)+`"`)
	for range requestbody.MaxLargeMessages + 1 {
		// Of unknown length: then the server sees the end of the message only after the proxy does.
		response, err := http.Post(front, "application/json", io.MultiReader(strings.NewReader(message)))
		g.Expect(err).NotTo(HaveOccurred())
		defer response.Body.Close()
	}

	g.Expect(recorder.Close(t.Context())).To(Succeed())

	g.Expect(lines.requests(g)).To(And(HaveLen(requestbody.MaxLargeMessages+1), HaveEach(And(HaveField("Tool", "slow"), HaveField("Unread", false)))))
}

// One line for each call, under load.
func TestLinesEqualCallsUnderLoad(t *testing.T) {
	g := NewWithT(t)
	const clients, calls = 16, 100
	recorder, url, lines := recorded(t, Options{}, nil, answering(okBody))
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for i := range calls {
				post(g, url, toolCall(fmt.Sprintf("t-%d-%d", client, i), "{}"))
			}
		})
	}
	all.Wait()
	g.Expect(recorder.end(t.Context())).To(Succeed())

	tools, sequences := map[string]bool{}, map[uint64]bool{}
	for _, e := range lines.requests(g) {
		tools[e.Tool], sequences[e.Sequence] = true, true
	}
	g.Expect(tools).To(HaveLen(clients * calls))
	g.Expect(sequences).To(HaveLen(clients * calls))
	entries := lines.all(g)
	g.Expect(entries[len(entries)-1].Sequence).To(BeEquivalentTo(clients * calls))
	g.Expect(entries[len(entries)-1].Dropped).To(BeZero())
}

// blocked is an output that nobody reads until it is opened.
type blocked struct {
	output
	open chan struct{}
}

func (b *blocked) Write(p []byte) (int, error) {
	<-b.open
	return b.output.Write(p)
}

// Requests do not wait for whoever reads the lines. What is lost is told.
func TestLinesThatNobodyReads(t *testing.T) {
	g := NewWithT(t)
	out := &blocked{open: make(chan struct{})}
	recorder, err := New(Options{Server: "tools", Lines: out, maxQueued: 2000, maxWait: time.Millisecond})
	g.Expect(err).NotTo(HaveOccurred())
	const calls = 50
	for range calls {
		sequence, in := recorder.lines.take()
		recorder.lines.tell(in)
		recorder.lines.add(fmt.Appendf(nil, `{"audit":"request","sequence":%d,"subject":%q}`, sequence, strings.Repeat("x", 100)))
	}
	close(out.open)
	g.Expect(recorder.Close(t.Context())).To(Succeed())

	written := len(out.requests(g))
	g.Expect(written).To(And(BeNumerically(">", 5), BeNumerically("<", 20)), "what the queue holds")
	entries := out.all(g)
	last := entries[len(entries)-1]
	g.Expect(last.Audit).To(Equal(lineEnd))
	g.Expect(last.Sequence).To(BeEquivalentTo(calls))
	g.Expect(last.Dropped).To(BeEquivalentTo(calls-written), "lines and told gap equal calls")
	g.Expect(entries).To(ContainElement(HaveField("Audit", lineDropped)))
}

// full is a disk without space.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// What could not be written counts as untold, and the next write tells it.
func TestNumbersThatCouldNotBeWritten(t *testing.T) {
	g, out, metrics := NewWithT(t), &output{}, NewMetrics()
	l := &lines{out: full{}, maxWait: testTimeout, metrics: metrics, next: newBatch(), wake: make(chan struct{}, 1)}
	l.add([]byte("too long for the queue"))
	_, in := l.take()
	l.writeBatch()
	l.tell(in)
	g.Expect(testutil.ToFloat64(metrics.lines.WithLabelValues(resultUntold))).To(Equal(1.0))

	l.out = out
	l.writeBatch()

	g.Expect(out.all(g)).To(HaveExactElements(
		And(HaveField("Audit", lineDropped), HaveField("Dropped", BeEquivalentTo(1))),
		And(HaveField("Audit", lineArrival), HaveField("Sequence", BeEquivalentTo(1)))))
}

// nearlyFull is a disk with space for a part of a line.
type nearlyFull struct{ io.Writer }

func (f nearlyFull) Write(p []byte) (int, error) {
	n, err := f.Writer.Write(p[:len(`{"audit"`)])
	return n, errors.Join(err, syscall.ENOSPC)
}

func TestALineThatWasWrittenInPartDoesNotSpoilTheNext(t *testing.T) {
	g, out := NewWithT(t), &output{}
	l := &lines{out: nearlyFull{out}, maxWait: testTimeout, max: 100, metrics: NewMetrics(), next: newBatch(), wake: make(chan struct{}, 1)}
	l.add([]byte(`{"audit":"request","sequence":1}`))
	l.writeBatch()
	l.out = out
	l.add([]byte(`{"audit":"request","sequence":2}`))
	l.writeBatch()
	g.Expect(strings.Split(out.text.String(), "\n")).To(HaveExactElements(
		`{"audit"`, `{"audit":"request","sequence":2}`, HavePrefix(`{"audit":"dropped"`), ""))
}

// A request whose number is not written yet has it in its record, because Close may come in between.
func TestInterruptedRecordsHaveTheirNumber(t *testing.T) {
	g := NewWithT(t)
	// given a request that waits until its number is written, and nobody reads the lines
	out := &blocked{open: make(chan struct{})}
	recorder, err := New(Options{Server: "tools", Lines: out, maxWait: testTimeout})
	g.Expect(err).NotTo(HaveOccurred())
	handler := recorder.Protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	var client sync.WaitGroup
	client.Go(func() {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/mcp", nil))
	})
	isActive := func() int {
		recorder.mu.Lock()
		defer recorder.mu.Unlock()
		return len(recorder.active)
	}
	g.Eventually(isActive, testTimeout).Should(Equal(1))

	// when the recorder is closed, and then the lines are read
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	g.Expect(recorder.Close(ended)).To(MatchError(context.Canceled))
	close(out.open)
	client.Wait()
	g.Expect(recorder.Close(t.Context())).To(Succeed())

	// then
	g.Expect(out.requests(g)).To(HaveExactElements(And(HaveField("Outcome", outcomeInterrupted), HaveField("Sequence", BeEquivalentTo(1)))))
}

// A number is written before its request reaches the server.
func TestNumbersAreToldBeforeRequestsAreServed(t *testing.T) {
	g := NewWithT(t)
	var lines *output
	var told uint64
	_, url, lines := recorded(t, Options{}, nil, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		for _, e := range lines.all(g) {
			told = max(told, e.Sequence)
		}
	}))
	for i := range 5 {
		post(g, url, toolCall("get", "{}"))
		g.Expect(told).To(BeEquivalentTo(i + 1))
	}
}

func TestInterruptedCallsHaveLines(t *testing.T) {
	g := NewWithT(t)
	begun, end := make(chan struct{}), make(chan struct{})
	recorder, url, lines := recorded(t, Options{}, nil, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(begun)
		<-end
	}))
	var client sync.WaitGroup
	client.Go(func() { post(g, url, toolCall("slow", "{}")) })
	g.Eventually(begun, testTimeout).Should(BeClosed())

	g.Expect(recorder.Close(t.Context())).To(Succeed())

	g.Expect(lines.requests(g)).To(HaveExactElements(And(HaveField("Outcome", outcomeInterrupted), HaveField("Tool", "slow"))))
	close(end)
	client.Wait()
	g.Expect(lines.requests(g)).To(HaveLen(1), "it is recorded once")
}

// hooked is a writer whose hook is called when its header is read.
type hooked struct {
	http.ResponseWriter
	hook func()
}

func (h hooked) Header() http.Header {
	h.hook()
	return h.ResponseWriter.Header()
}

func TestCloseWaitsForRecordsThatAreBeingWritten(t *testing.T) {
	g := NewWithT(t)
	lines := &output{}
	recorder, err := New(Options{Lines: lines, Server: "tools", maxWait: testTimeout})
	g.Expect(err).NotTo(HaveOccurred())
	closed := make(chan struct{})
	writer := hooked{httptest.NewRecorder(), sync.OnceFunc(func() { // The record has the session in the header of the response.
		go func() {
			defer close(closed)
			_ = recorder.Close(context.Background())
		}()
		g.Consistently(closed, 3*settleTime).ShouldNot(BeClosed())
	})}
	handler := recorder.Protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))

	handler.ServeHTTP(writer, httptest.NewRequest(http.MethodPost, "/mcp", nil))

	g.Eventually(closed, testTimeout).Should(BeClosed())
	g.Expect(lines.requests(g)).To(HaveExactElements(HaveField("Outcome", outcomeOK)))
}

func TestStreamsCountUntilTheirEnd(t *testing.T) {
	g := NewWithT(t)
	next := make(chan struct{})
	_, url, lines := recorded(t, Options{}, nil, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, ": open\n\n")
		_ = http.NewResponseController(w).Flush()
		<-next
		_, _ = io.WriteString(w, "data: {\"id\":1,\"result\":{\"isError\":true}}\n\n")
	}))
	response, err := http.Post(url, "application/json", strings.NewReader(toolCall("get", "{}")))
	g.Expect(err).NotTo(HaveOccurred(), "the headers arrive before the end")
	defer response.Body.Close()
	g.Expect(lines.requests(g)).To(BeEmpty())
	close(next)
	body, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func(g Gomega) { g.Expect(lines.requests(g)).To(HaveLen(1)) }, testTimeout).Should(Succeed())
	g.Expect(lines.requests(g)[0].Outcome).To(Equal(outcomeToolError))
	g.Expect(lines.requests(g)[0].BytesOut).To(BeEquivalentTo(len(body)))
}

func TestInvalidOptions(t *testing.T) {
	for name, opts := range map[string]Options{
		"nothing to do":        {},
		"unknown arguments":    {Lines: io.Discard, Arguments: "Some"},
		"collector of gRPC":    {OTLP: &OTLP{Endpoint: "grpc://a:4317"}},
		"collector with query": {OTLP: &OTLP{Endpoint: "http://a/?b=c"}},
		"share above all":      {OTLP: &OTLP{Endpoint: "http://a", SamplePercent: 101}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(opts)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring("configuring telemetry")))
		})
	}
}
