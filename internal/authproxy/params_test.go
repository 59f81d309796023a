package authproxy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/internal/authorization"
	"github.com/fixpoint-dev/fixpoint/internal/requestbody"
)

// markedServer serves 2026-07-28, and does not check headers. Only ann gets the tool query.
type markedServer struct {
	events bool
	// begin precedes the events.
	begin string
	// methods count the requests.
	lists, calls atomic.Int32
}

// otherEvents precede a response.
const otherEvents = "retry: 1500\n\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n"

const markedTool = `{"name":"query","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}`

func (s *markedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var message struct {
		ID     json.RawMessage
		Method string
	}
	raw, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(raw, &message)
	result := `{"content":[]}`
	switch message.Method {
	case "initialize":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no initialize","data":{"supported":["2026-07-28"]}}}`, message.ID)
		return
	case "tools/list":
		s.lists.Add(1)
		if r.Header.Get("Mcp-Method") != "tools/list" || r.Header.Get("Mcp-Name") != "" || r.Header.Get("Mcp-Param-Region") != "" {
			result = `{"tools":[]}`
			break
		}
		tools := `{"name":"plain"}`
		if r.Header.Get(authorization.HeaderSubject) != "bob" {
			tools = markedTool + "," + tools
		}
		result = `{"tools":[` + tools + `]}`
	case "tools/call":
		s.calls.Add(1)
	}
	response := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, message.ID, result)
	if !s.events {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, response)
		return
	}
	w.Header().Set("Content-Type", eventType)
	_, _ = io.WriteString(w, s.begin+"data: "+response+"\n\n")
}

// callOf posts a call of a tool.
func callOf(g *WithT, front, tool, arguments string, headers ...string) (int, string) {
	return post(g, front, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"`+tool+`","arguments":`+arguments+`,`+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`,
		append([]string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", tool}, headers...)...)
}

func post(g *WithT, front, message string, headers ...string) (int, string) {
	request, err := http.NewRequest(http.MethodPost, front+"/mcp", strings.NewReader(message))
	g.Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
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

// Some servers do not distinguish the letter case of methods.
func TestHeadersAreCheckedInAllFormsOfTheMethod(t *testing.T) {
	server := &markedServer{}
	_, front, _ := newProxy(t, server, open)
	for _, method := range []string{http.MethodPost, "post", "Post"} {
		g := NewWithT(t)
		request, err := http.NewRequest(method, front+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"query"}}`))
		g.Expect(err).NotTo(HaveOccurred())
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Mcp-Name", "plain")
		response, err := http.DefaultTransport.RoundTrip(request)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(response.Body.Close()).To(Succeed())
		g.Expect(response.StatusCode).To(Equal(http.StatusBadRequest), method)
	}
	NewWithT(t).Expect(server.calls.Load()).To(BeZero())
}

// The message keeps its place among the large ones until the client has read the refusal.
func TestRefusalsDoNotGrowWithTheMessage(t *testing.T) {
	server := &markedServer{}
	_, front, _ := newProxy(t, server, open)
	long := strings.Repeat("<", 32<<10)
	for name, c := range map[string]struct{ message, header, value string }{
		"a name":      {`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"` + long + `"}}`, "Mcp-Name", "plain"},
		"a method":    {`{"jsonrpc":"2.0","id":7,"method":"` + long + `"}`, "Mcp-Method", "ping"},
		"an id":       {`{"jsonrpc":"2.0","id":"` + long + `","method":"tools/list"}`, "Mcp-Method", "ping"},
		"a parameter": {`{"jsonrpc":"2.0","id":"` + long + `","method":"tools/call","params":{"name":"query","arguments":{"region":"` + long + `"}}}`, "Mcp-Param-Region", "north"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			status, body := post(g, front, c.message, "Content-Type", "application/json", c.header, c.value)
			g.Expect(status).To(Equal(http.StatusBadRequest))
			g.Expect(body).To(ContainSubstring(`"error":`))
			g.Expect(len(body)).To(BeNumerically("<", 2<<10))
		})
	}
	NewWithT(t).Expect(server.calls.Load()).To(BeZero())
}

func TestParamHeadersAreCheckedBeforeTheServer(t *testing.T) {
	for name, c := range map[string]struct {
		events bool
		begin  string
	}{
		"JSON":                          {},
		"events":                        {true, otherEvents},
		"events with a byte order mark": {true, "\ufeff"},
	} {
		t.Run(name, func(t *testing.T) {
			const us, header = `{"region":"us"}`, "Mcp-Param-Region"
			server := &markedServer{events: c.events, begin: c.begin}
			_, front, _ := newProxy(t, server, open)
			began := time.Now()
			for name, c := range map[string]struct {
				tool, arguments string
				headers         []string
				status          int
			}{
				"equal":           {"query", us, []string{header, "us"}, 200},
				"encoded":         {"query", us, []string{header, "=?base64?dXM=?="}, 200},
				"not given":       {"query", `{}`, nil, 200},
				"other tool":      {"plain", us, []string{header, "eu"}, 200},
				"unknown tool":    {"unknown", us, []string{header, "eu"}, 200},
				"different":       {"query", us, []string{header, "eu"}, 400},
				"missing":         {"query", us, nil, 400},
				"too much":        {"query", `{}`, []string{header, "us"}, 400},
				"not ASCII":       {"query", us, []string{header, "ü"}, 400},
				"no base64":       {"query", us, []string{header, "=?base64?ü?="}, 400},
				"another name":    {"query", us, []string{header, "us", "Mcp-Name", "plain"}, 400},
				"another method":  {"query", us, []string{header, "us", "Mcp-Method", "tools/list"}, 400},
				"without version": {"query", us, []string{header, "eu", "Mcp-Protocol-Version", ""}, 400},
			} {
				g := NewWithT(t)
				before := server.calls.Load()
				status, body := callOf(g, front, c.tool, c.arguments, c.headers...)
				g.Expect(status).To(Equal(c.status), "%s: %s", name, body)
				if c.status != http.StatusOK {
					g.Expect(body).To(ContainSubstring(`"id":7,"error":{"code":-32020,`), name)
					g.Expect(server.calls.Load()).To(Equal(before), name)
				}
			}
			allowed := 10 + int(time.Since(began)/time.Second) // a list is at least that old when there is another one
			NewWithT(t).Expect(server.lists.Load()).To(BeNumerically("<", allowed), "not with each call")
		})
	}
}

// A list that another caller gets must not end the checks.
func TestParamHeadersAreCheckedForEachCaller(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	server := &markedServer{}
	_, front, _ := newProxy(t, server, open)
	status, _ := callOf(g, front, "query", `{"region":"us"}`, "Mcp-Param-Region", "eu", authorization.HeaderSubject, "ann")
	g.Expect(status).To(Equal(http.StatusBadRequest))
	g.Eventually(func() int32 {
		callOf(g, front, "plain", `{}`, "Mcp-Param-Zone", "a", authorization.HeaderSubject, "bob")
		return server.lists.Load()
	}, testTimeout).Should(BeNumerically(">=", 3), "listed for bob")
	status, _ = callOf(g, front, "query", `{"region":"us"}`, "Mcp-Param-Region", "eu", authorization.HeaderSubject, "ann")
	g.Expect(status).To(Equal(http.StatusBadRequest))
}

// Behind an Ingress, all have one address.
func TestCallersOfOneAddressShareNoPlacesOfLargeMessages(t *testing.T) {
	g := NewWithT(t)
	// Given a proxy that holds two large messages, of which one is that of ann
	p, err := New(Options{
		Port: 1, Protect: open, DrainTimeout: testTimeout, MaxMessageBytes: 32 << 20,
		Caller: func(r *http.Request) string { return r.Header.Get(authorization.HeaderSubject) },
	})
	g.Expect(err).NotTo(HaveOccurred())
	read := func(ctx context.Context, caller string, next http.HandlerFunc) int {
		message := `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"text":"` + strings.Repeat("x", 2*requestbody.SmallMessage) + `"}}`
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/mcp", strings.NewReader(message))
		r.Header = http.Header{
			"Content-Type": {"application/json"}, "Mcp-Protocol-Version": {"2025-11-25"}, "Mcp-Method": {"ping"},
			authorization.HeaderSubject: {caller},
		}
		response := httptest.NewRecorder()
		p.mirrored(next).ServeHTTP(response, r)
		return response.Code
	}
	served := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	ended, end := context.WithCancel(t.Context())
	end()
	var ann, bob int
	g.Expect(read(t.Context(), "ann", func(http.ResponseWriter, *http.Request) {
		// When she and bob send another one
		ann, bob = read(ended, "ann", served), read(t.Context(), "bob", served)
	})).To(Equal(http.StatusOK))

	// Then only hers has to wait
	g.Expect([]int{ann, bob}).To(Equal([]int{http.StatusServiceUnavailable, http.StatusOK}))
}

// The server refuses the first list to a caller with an Origin. Others must not get past the check by that.
func TestRefusedListsDoNotEndTheCheck(t *testing.T) {
	for name, contentType := range map[string]string{"text": "text/plain", "JSON": "application/json"} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := &markedServer{}
			_, front, _ := newProxy(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Origin") == "" {
					server.ServeHTTP(w, r)
					return
				}
				w.Header().Set("Content-Type", contentType)
				w.WriteHeader(http.StatusForbidden)
				_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"invalid origin"}}`)
			}), open)
			status, _ := callOf(g, front, "plain", `{}`, "Origin", "https://example.com")
			g.Expect(status).To(Equal(http.StatusForbidden))

			status, body := callOf(g, front, "query", `{"region":"us"}`, "Mcp-Param-Region", "eu")

			g.Expect(status).To(Equal(http.StatusBadRequest), body)
			g.Expect(server.calls.Load()).To(BeZero())
		})
	}
}

func TestMessagesThatCannotBeCheckedAreRefused(t *testing.T) {
	server := &markedServer{}
	_, front, _ := newProxy(t, server, open)
	for name, c := range map[string]struct {
		message string
		headers []string
		status  int
	}{
		"no JSON":            {`{`, nil, 400},
		"a batch":            {`[]`, nil, 400},
		"a member twice":     {`{"jsonrpc":"2.0","id":7,"method":"tools/call","method":"ping"}`, nil, 400},
		"another charset":    {`{}`, []string{"Content-Type", "application/json; charset=utf-16"}, 415},
		"compressed":         {`{}`, []string{"Content-Encoding", "gzip"}, 415},
		"with a session":     {`[]`, []string{"Mcp-Protocol-Version", "2025-11-25"}, 200},
		"of another version": {`[]`, []string{"Mcp-Protocol-Version", ""}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			status, body := post(g, front, c.message, append([]string{"Mcp-Protocol-Version", "2026-07-28"}, c.headers...)...)
			g.Expect(status).To(Equal(c.status), body)
		})
	}
}

// The server knows the versions that it speaks: the proxy passes on how it responds to initialize, and the time after
// which a stream is opened again.
func TestGenerationsAndStreamsAreThoseOfTheServer(t *testing.T) {
	g := NewWithT(t)
	_, front, _ := newProxy(t, &markedServer{events: true, begin: otherEvents}, open)
	status, body := post(g, front, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`)
	g.Expect(status).To(Equal(http.StatusNotFound))
	g.Expect(body).To(MatchJSON(`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no initialize","data":{"supported":["2026-07-28"]}}}`))

	_, body = callOf(g, front, "plain", `{}`)
	g.Expect(body).To(HavePrefix("retry: 1500\n\n"))
}

// The official SDK, unmodified, on both sides: the client mirrors what the schema of the server marks.
func TestClientsOfTheSDKMirrorParameters(t *testing.T) {
	g := NewWithT(t)
	server := mcp.NewServer(&mcp.Implementation{Name: "tools", Version: "1"}, nil)
	schema := json.RawMessage(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`)
	server.AddTool(&mcp.Tool{Name: "query", InputSchema: schema}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: r.Extra.Header.Get("Mcp-Param-Region")}}}, nil
	})
	_, front, _ := newProxy(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true}), open)
	session := connect(t, g, front, "2026-07-28", http.DefaultClient)
	_, err := session.ListTools(t.Context(), nil)
	g.Expect(err).NotTo(HaveOccurred())

	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "query", Arguments: map[string]any{"region": "Zürich "}})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.Content).To(HaveExactElements(HaveField("Text", "=?base64?WsO8cmljaCA=?=")))
}
