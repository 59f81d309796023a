package callpolicy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/internal/bridge"
	"github.com/fixpoint-dev/fixpoint/internal/callrecord"
	"github.com/fixpoint-dev/fixpoint/internal/peers"
	"github.com/fixpoint-dev/fixpoint/internal/requestbody"
)

// testTimeout is for a busy machine and the race detector.
const testTimeout = time.Minute

// fixture is a server behind a policy.
type fixture struct {
	*WithT
	url string
	// client sends the requests.
	client http.RoundTripper
	// requests are those that the server got.
	requests atomic.Int32
}

func newFixture(t *testing.T, opts Options, server http.HandlerFunc) *fixture {
	t.Helper()
	f := &fixture{WithT: NewWithT(t), client: http.DefaultTransport}
	front := httptest.NewServer(f.protected(opts, server))
	t.Cleanup(front.Close)
	f.url = front.URL
	return f
}

// protected is the server behind the policy.
func (f *fixture) protected(opts Options, server http.HandlerFunc) http.Handler {
	policy, err := New(opts)
	f.Expect(err).NotTo(HaveOccurred())
	return policy.Protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.requests.Add(1)
		server(w, r)
	}))
}

// echo responds with the body of the request.
func echo(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }

func (f *fixture) post(body string, header ...string) *http.Response {
	request, err := http.NewRequest(http.MethodPost, f.url, strings.NewReader(body))
	f.Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := f.client.RoundTrip(request)
	f.Expect(err).NotTo(HaveOccurred())
	return response
}

func (f *fixture) text(response *http.Response) string {
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	f.Expect(err).NotTo(HaveOccurred())
	return string(body)
}

func call(tool string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":%q}}`, tool)
}

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

// clock returns an option for a time that does not pass.
func clock() func() time.Time { return func() time.Time { return start } }

func TestTooManyRequests(t *testing.T) {
	f := newFixture(t, Options{RequestsPerMinute: 2, now: clock()}, echo)
	for range 2 {
		f.Expect(f.text(f.post(ping))).To(Equal(ping))
	}
	response := f.post(ping)
	f.Expect(response.StatusCode).To(Equal(http.StatusTooManyRequests))
	f.Expect(response.Header.Get("Retry-After")).To(Equal("30"))
	f.Expect(f.text(response)).To(MatchJSON(`{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"the limit of 2 requests per minute is reached: send fewer, or try again later","data":{"reason":"TooManyRequests"}}}`))
	f.Expect(f.requests.Load()).To(BeEquivalentTo(2))
}

func TestCallersHaveTheirOwnLimits(t *testing.T) {
	f := newFixture(t, Options{RequestsPerMinute: 1, Caller: func(r *http.Request) string { return r.Header.Get("User") }, now: clock()}, echo)
	for _, user := range []string{"ann", "bob"} {
		f.Expect(f.text(f.post(ping, "User", user))).To(Equal(ping))
		response := f.post(ping, "User", user)
		f.Expect(f.text(response)).NotTo(BeEmpty())
		f.Expect(response.StatusCode).To(Equal(http.StatusTooManyRequests))
	}
}

func TestTooManyCallsOfATool(t *testing.T) {
	f := newFixture(t, Options{Tools: []ToolLimit{{"delete_*", 1}}, now: clock()}, echo)
	f.Expect(f.text(f.post(call("delete_a")))).To(Equal(call("delete_a")))
	response := f.post(call("delete_b"))
	f.Expect(response.StatusCode).To(Equal(http.StatusTooManyRequests))
	f.Expect(response.Header.Get("Retry-After")).To(Equal("60"))
	f.Expect(f.text(response)).To(And(ContainSubstring(`"id":7`), ContainSubstring("TooManyRequests")))
	f.Expect(f.text(f.post(call("get")))).To(Equal(call("get")))
	f.Expect(f.text(f.post(ping))).To(Equal(ping))
}

func TestTooManyConcurrentCalls(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	f := newFixture(t, Options{MaxConcurrentCalls: 1, Tools: []ToolLimit{{"*", 2}}, now: clock()}, func(_ http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), "slow") {
			close(begun)
			<-end
		}
	})
	slow := make(chan string, 1)
	go func() { slow <- f.text(f.post(call("slow"))) }()
	f.Eventually(begun, testTimeout).Should(BeClosed())

	response := f.post(call("get"))

	f.Expect(response.StatusCode).To(Equal(http.StatusTooManyRequests))
	f.Expect(response.Header.Get("Retry-After")).To(Equal("1"))
	f.Expect(f.text(response)).To(ContainSubstring("TooManyConcurrentCalls"))
	f.Expect(f.text(f.post(ping))).To(BeEmpty(), "it is no call")
	close(end)
	f.Eventually(slow, testTimeout).Should(Receive())
	// The place of a call is free a moment after its response, and the refused call was not counted.
	f.Eventually(func() int {
		response := f.post(call("get"))
		_ = f.text(response)
		return response.StatusCode
	}, testTimeout).Should(Equal(http.StatusOK))
}

func TestBodiesAreLimited(t *testing.T) {
	for name, opts := range map[string]Options{
		"bodies that are read":     {MaxBodyBytes: 100, Deny: []string{"x"}},
		"bodies that are not read": {MaxBodyBytes: 100},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, opts, func(w http.ResponseWriter, r *http.Request) {
				if _, err := io.Copy(w, r.Body); err != nil {
					panic(http.ErrAbortHandler)
				}
			})
			fits := `{"method":"m","params":"` + strings.Repeat("x", 74) + `"}`
			f.Expect(fits).To(HaveLen(100))
			f.Expect(f.text(f.post(fits))).To(Equal(fits))
			before := f.requests.Load()
			response := f.post(fits + " ")
			f.Expect(response.StatusCode).To(Equal(http.StatusRequestEntityTooLarge))
			f.Expect(f.text(response)).To(And(ContainSubstring("limit of 100 bytes"), ContainSubstring("MessageTooLarge")))
			f.Expect(f.requests.Load()).To(Equal(before))
		})
	}
}

func TestBodiesOfUnknownLengthAreLimited(t *testing.T) {
	chunked := func(f *fixture) *http.Request {
		request, err := http.NewRequest(http.MethodPost, f.url, io.MultiReader(strings.NewReader(strings.Repeat(" ", 200))))
		f.Expect(err).NotTo(HaveOccurred())
		request.Header.Set("Content-Type", "application/json")
		return request
	}
	t.Run("read", func(t *testing.T) {
		f := newFixture(t, Options{MaxBodyBytes: 100, Deny: []string{"x"}}, echo)
		response, err := http.DefaultClient.Do(chunked(f))
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(f.text(response)).To(ContainSubstring("limit of 100 bytes"))
		f.Expect(response.StatusCode).To(Equal(http.StatusRequestEntityTooLarge))
		f.Expect(f.requests.Load()).To(BeZero())
	})
	t.Run("not read", func(t *testing.T) {
		f := newFixture(t, Options{MaxBodyBytes: 100}, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			_, _ = fmt.Fprintf(w, "%d %v", len(body), err)
		})
		response, err := http.DefaultClient.Do(chunked(f))
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(f.text(response)).To(Equal("100 http: request body too large"))
	})
}

// A message has a place until it was sent, and not until the end of its response.
func TestLongCallsHoldNoPlaces(t *testing.T) {
	large := func(tool string) string {
		return strings.Replace(call(tool), `{"name"`, `{"arguments":"`+strings.Repeat("x", requestbody.SmallMessage)+`","name"`, 1)
	}
	behindReverseProxy(t, Options{Deny: []string{"hidden"}}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_ = http.NewResponseController(w).Flush()
		if strings.Contains(string(body), "slow") {
			<-r.Context().Done()
		}
	}, func(f *fixture) {
		for range requestbody.MaxLargeMessages {
			response := f.post(large("slow"))
			defer response.Body.Close()
			f.Expect(response.StatusCode).To(Equal(http.StatusOK))
		}
		response := f.post(large("fast"))
		f.Expect(f.text(response)).To(BeEmpty())
		f.Expect(response.StatusCode).To(Equal(http.StatusOK))
	})
}

// The memory of messages is bounded by places, so nothing may keep a message longer.
func TestMessagesAreNotKeptUntilTheResponse(t *testing.T) {
	for name, c := range map[string]struct {
		opts Options
		body string
	}{
		"a call with a timeout":   {Options{CallTimeout: time.Hour}, call("get")},
		"a list that is filtered": {Options{Deny: []string{"hidden"}}, listRequest},
		"another message":         {Options{Deny: []string{"hidden"}}, ping},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			policy, err := New(c.opts)
			g.Expect(err).NotTo(HaveOccurred())
			var read weak.Pointer[byte]
			record := callrecord.New(func(message []byte) { read = weak.Make(&message[0]) })
			served := false
			policy.Protect(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				sent, err := io.ReadAll(r.Body)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(string(sent)).To(Equal(c.body))
				runtime.GC()
				g.Expect(read.Value()).To(BeNil())
				runtime.KeepAlive(r)
				served = true
			})).ServeHTTP(recorder(), message(c.body).WithContext(callrecord.With(t.Context(), record)))
			g.Expect(served).To(BeTrue())
		})
	}
}

func TestHiddenToolsAreUnknown(t *testing.T) {
	f := newFixture(t, Options{Deny: []string{"delete_*"}}, echo)
	for version, status := range map[string]int{"": 200, "2025-06-18": 200, "2025-11-25": 200, "2026-07-28": 400} {
		response := f.post(call("delete_all"), "Mcp-Protocol-Version", version, "Mcp-Name", "delete_all", "Mcp-Method", "tools/call")
		f.Expect(f.text(response)).To(MatchJSON(`{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"Unknown tool: delete_all"}}`))
		f.Expect(response.StatusCode).To(Equal(status), version)
	}
	// A call without an id is a notification, which some servers execute.
	response := f.post(`{"method":"tools/call","params":{"name":"delete_all"}}`)
	f.Expect(f.text(response)).To(ContainSubstring(`"id":null`))
	f.Expect(f.requests.Load()).To(BeZero())
	f.Expect(f.text(f.post(call("get")))).To(Equal(call("get")))
}

func TestRefusalsDoNotGrowWithTheMessage(t *testing.T) {
	long := strings.Repeat("<", 32<<10)
	for name, c := range map[string]struct {
		opts   Options
		body   string
		header []string
	}{
		"a hidden tool":              {Options{Deny: []string{"delete*"}}, call("delete" + long), nil},
		"too many calls":             {Options{Tools: []ToolLimit{{"get*", 1}}}, call("get" + long), nil},
		"a header with another tool": {Options{Deny: []string{"delete*"}}, call("get" + long), []string{"Mcp-Name", "list"}},
		"a header, another method":   {Options{Deny: []string{"delete*"}}, `{"id":1,"method":"` + long + `"}`, []string{"Mcp-Method", "ping"}},
		"a header and a long id":     {Options{Deny: []string{"delete*"}}, `{"id":"` + long + `","method":"tools/list"}`, []string{"Mcp-Method", "ping"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.opts.now = clock()
			f := newFixture(t, c.opts, func(http.ResponseWriter, *http.Request) {})
			for range 2 {
				f.Expect(len(f.text(f.post(c.body, c.header...)))).To(BeNumerically("<", 2<<10))
			}
		})
	}
}

// A message that a server may read as the call of a hidden tool must not reach it.
func TestMessagesThatAreNotClearAreRefused(t *testing.T) {
	f := newFixture(t, Options{Allow: []string{"get"}}, echo)
	for name, c := range map[string]struct {
		body   string
		header []string
		status int
		want   string
	}{
		"a batch":          {"[" + call("delete") + "]", nil, 400, "batches are not supported"},
		"two names":        {`{"id":1,"method":"tools/call","params":{"name":"get","name":"delete"}}`, nil, 400, "twice"},
		"another case":     {`{"id":1,"method":"tools/call","params":{"name":"get","Name":"delete"}}`, nil, 400, "which some servers take for"},
		"two methods":      {`{"id":1,"method":"ping","method":"tools/call","params":{"name":"delete"}}`, nil, 400, "twice"},
		"another charset":  {call("delete"), []string{"Content-Type", "application/json; charset=utf-7"}, 415, "UTF-8"},
		"compression":      {call("delete"), []string{"Content-Encoding", "gzip"}, 415, "without Content-Encoding"},
		"another type":     {call("delete"), []string{"Content-Type", "text/plain"}, 415, "application/json"},
		"another method":   {ping, []string{"Mcp-Method", "tools/call"}, 400, "-32020"},
		"another tool":     {call("get"), []string{"Mcp-Name", "delete"}, 400, "-32020"},
		"an encoded tool":  {call("get"), []string{"Mcp-Name", "=?base64?ZGVsZXRl?="}, 400, "-32020"},
		"no JSON":          {"{", nil, 400, "not one JSON-RPC message"},
		"a name of bytes":  {"{\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"get\xff\"}}", nil, 400, "valid Unicode"},
		"no name":          {`{"id":1,"method":"tools/call","params":{}}`, nil, 400, "name of a tool"},
		"a long id":        {strings.Replace(call("get"), "7", strings.Repeat("7", bridge.MaxID+1), 1), nil, 400, "longer than 1024 bytes"},
		"a name by escape": {`{"id":1,"method":"tools\/call","params":{"name":"d\u0065lete"}}`, nil, 200, "Unknown tool: delete"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			response := f.post(c.body, c.header...)
			g.Expect(f.text(response)).To(ContainSubstring(c.want))
			g.Expect(response.StatusCode).To(Equal(c.status))
		})
	}
	f.Expect(f.requests.Load()).To(BeZero())
}

func TestOtherMessagesPass(t *testing.T) {
	f := newFixture(t, Options{Allow: []string{"get"}, MaxConcurrentCalls: 1, CallTimeout: time.Minute}, echo)
	for _, body := range []string{
		ping, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"x"}]}}`,
		`{"jsonrpc":"2.0","id":1,"method":"acme/unknown","params":{"name":"delete"}}`, call("get"),
	} {
		f.Expect(f.text(f.post(body))).To(Equal(body))
	}
}

func TestOptionsAreValidated(t *testing.T) {
	for name, opts := range map[string]Options{
		"negative rate":    {RequestsPerMinute: -1},
		"negative timeout": {CallTimeout: -1},
		"tool without a name": {
			Tools: []ToolLimit{{"", 1}}},
		"tool without calls": {Tools: []ToolLimit{{"a", 0}}},
		"empty name":         {Deny: []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(opts)
			NewWithT(t).Expect(err).To(HaveOccurred())
		})
	}
	g := NewWithT(t)
	g.Expect((&Options{MaxMessageBytes: 1}).IsZero()).To(BeTrue())
	for _, opts := range []Options{
		{RequestsPerMinute: 1}, {Tools: []ToolLimit{{"a", 1}}}, {MaxConcurrentCalls: 1}, {MaxBodyBytes: 1}, {CallTimeout: 1}, {Allow: []string{"a"}}, {Deny: []string{"a"}},
	} {
		g.Expect(opts.IsZero()).To(BeFalse())
	}
}

func TestErrorsHaveAnInvalidIDAsNull(t *testing.T) {
	f := &peers.Refusal{Code: 1, Message: "m"}
	NewWithT(t).Expect(f.Body(json.RawMessage("x"))).To(MatchJSON(`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}`))
}

func BenchmarkProtect(b *testing.B) {
	reply := []byte(`{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"ok"}]}}`)
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(reply)
	})
	for _, c := range []struct {
		name string
		opts Options
		body string
	}{
		{"none", Options{}, call("get")},
		{"rate", Options{RequestsPerMinute: 1_000_000_000}, call("get")},
		{"filter", Options{Deny: []string{"delete_*"}}, call("get")},
		{"all", Options{
			RequestsPerMinute: 1_000_000_000, Tools: []ToolLimit{{"*", 1_000_000_000}}, MaxConcurrentCalls: 1000, MaxBodyBytes: 1 << 20, CallTimeout: time.Minute,
			Allow: []string{"get*"}, Deny: []string{"delete_*"},
		}, call("get")},
		{"all, 64 KiB", Options{
			RequestsPerMinute: 1_000_000_000, Tools: []ToolLimit{{"*", 1_000_000_000}}, MaxConcurrentCalls: 1000, MaxBodyBytes: 1 << 20, CallTimeout: time.Minute,
			Allow: []string{"get*"}, Deny: []string{"delete_*"},
		}, strings.Replace(call("get"), "{\"name\"", "{\"arguments\":{\"text\":\""+strings.Repeat("x", 64<<10)+"\"},\"name\"", 1)},
	} {
		b.Run(c.name, func(b *testing.B) {
			policy, err := New(c.opts)
			if err != nil {
				b.Fatal(err)
			}
			handler := policy.Protect(next)
			b.SetBytes(int64(len(c.body)))
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(c.body))
					r.Header.Set("Content-Type", "application/json")
					w := httptest.NewRecorder()
					handler.ServeHTTP(w, r)
					if w.Code != http.StatusOK {
						b.Fatal(w.Code, w.Body.String())
					}
				}
			})
		})
	}
}
