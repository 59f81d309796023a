package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/gomega"
)

// callWith calls a tool without a session.
func (w *testBridge) callWith(tool, arguments string, headers ...string) httpReply {
	w.t.Helper()
	body := strings.NewReplacer(`"name":"echo"`, fmt.Sprintf(`"name":%q`, tool), `{"text":"hi"}`, arguments).Replace(statelessCall)
	return w.post(body, append([]string{headerVersion, "2026-07-28", headerMethod, "tools/call", headerName, tool}, headers...)...)
}

func TestParamHeadersAreCheckedBeforeTheServer(t *testing.T) {
	w := newTestBridge(t, server("marked"))
	const us, header = `{"region":"us"}`, "Mcp-Param-Region"
	for name, c := range map[string]struct {
		reply  httpReply
		status int
	}{
		"equal":                     {w.callWith("query", us, header, "us"), 200},
		"equal, header in any case": {w.callWith("query", us, "mCP-pARAM-rEGION", "us"), 200},
		"encoded":                   {w.callWith("query", us, header, "=?base64?dXM=?="), 200},
		"not given":                 {w.callWith("query", `{}`), 200},
		"other tool":                {w.callWith("plain", us, header, "eu"), 200},
		"unknown tool":              {w.callWith("unknown", us, header, "eu"), 200},
		"invalid definition":        {w.callWith("broken", `{"a":1}`, "Mcp-Param-A", "2"), 200},
		"different":                 {w.callWith("query", us, header, "eu"), 400},
		"missing":                   {w.callWith("query", us), 400},
		"too much":                  {w.callWith("query", `{}`, header, "us"), 400},
		"not ASCII":                 {w.callWith("query", us, header, "ü"), 400},
		"arguments twice":           {w.callWith("query", `{"region":"eu"},"arguments":{"region":"us"}`, header, "us"), 400},
	} {
		w.Expect(c.reply.Status).To(Equal(c.status), "%s: %s", name, c.reply.Body)
		if c.status != 200 && name != "arguments twice" {
			w.Expect(c.reply.Body).To(ContainSubstring(`"id":"x","error":{"code":-32020,`), name)
		}
	}
	w.Expect(w.logs.String()).To(ContainSubstring(`"tools"="broken: x-mcp-header is at \"a\"`))
	w.Expect(strings.Count(w.logs.String(), "invalid definitions")).To(Equal(1))
}

// Otherwise the bridge would refuse a client that knows the tools better.
func TestToolsThatChangeAreListedAgain(t *testing.T) {
	w := newTestBridge(t, server("marked"))
	const us = `{"region":"us"}`
	w.Expect(w.callWith("query", us, "Mcp-Param-Region", "us").Status).To(Equal(200))
	w.Expect(w.callWith("rename", `{}`).Status).To(Equal(200))
	w.Eventually(func() int { return w.callWith("query", us, "Mcp-Param-Zone", "us").Status }).Should(Equal(200))
	w.Expect(w.callWith("query", us, "Mcp-Param-Region", "us").Status).To(Equal(400))

	lists := func() (count int) {
		reply := w.callWith("lists", `{}`)
		_, said, _ := strings.Cut(reply.Body, `"text":"`)
		_, err := fmt.Sscanf(said, "%d lists", &count)
		w.Expect(err).NotTo(HaveOccurred(), reply.Body)
		return count
	}
	before := lists()
	began := time.Now()
	for range 50 {
		w.callWith("query", us, "Mcp-Param-Region", "us")
	}
	listed := lists() - before
	allowed := 2 + int(time.Since(began)/time.Second)
	w.Expect(listed).To(BeNumerically("<=", allowed), "wrong headers do not cause a list each")
}

func TestToolsOfServersThatDoNotListThemAreCallable(t *testing.T) {
	t.Parallel()
	for behaviour, logged := range map[string]string{"lists-nothing": "did not list its tools in time", "stateless-only": ""} {
		t.Run(behaviour, func(t *testing.T) {
			w := newTestBridge(t, server(behaviour))
			w.Expect(w.bridge.Check(t.Context())).To(Succeed())
			w.bridge.opts.StartTimeout = 50 * time.Millisecond
			for range 3 {
				w.Expect(w.callWith("any", `{}`, "Mcp-Param-X", "1").Status).To(Equal(200))
			}
			w.Expect(w.logs.String()).To(ContainSubstring(logged))
		})
	}
}

// A client must not get its call, or those of others, past the check by leaving while the tools are listed.
func TestCallsOfClientsThatLeftAreNotExecuted(t *testing.T) {
	message, err := parse([]byte(statelessCall))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for name, waits := range map[string]bool{"while another call lists": true, "while it lists": false} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			ctx, leave := context.WithCancel(t.Context())
			s := newSchemas(time.Hour, logr.Discard())
			if waits {
				s.listing <- struct{}{}
				leave()
			}
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/mcp", http.NoBody)
			r.Header.Set("Mcp-Param-Region", "eu")

			failed := s.check(r, &message, func(ctx context.Context, _ string) (json.RawMessage, error) {
				leave()
				return nil, ctx.Err()
			})

			g.Expect(failed).To(HaveField("Reason", reasonClientLeft))
			if waits {
				<-s.listing
			}
			failed = s.check(requestWith(t, http.Header{"Mcp-Param-Region": {"eu"}}), &message, func(context.Context, string) (json.RawMessage, error) {
				return json.RawMessage(`{"tools":[{"name":"echo","inputSchema":{"properties":{"text":{"type":"string","x-mcp-header":"Region"}}}}]}`), nil
			})
			g.Expect(failed).To(HaveField("Code", codeHeaderMismatch), "the tools are listed for the next client")
		})
	}
}

func TestClientsOfTheSDKMirrorParameters(t *testing.T) {
	w := newTestBridge(t, server("sdk"))
	s := w.connect(client{version: "2026-07-28"})
	_, err := s.ListTools(t.Context(), nil)
	w.Expect(err).NotTo(HaveOccurred())
	arguments := map[string]any{"region": "Zürich ", "limits": map[string]any{"rows": 1000000}, "dry": true}
	result, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "marked", Arguments: arguments})
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(result.Content).To(HaveExactElements(HaveField("Text", ContainSubstring("Zürich "))))

	w.Expect(w.callWith("marked", `{"region":"Bern"}`, "Mcp-Param-Region", "Basel").Status).To(Equal(400), "the server on stdio cannot check it")
}

func TestListsOfToolsAreBounded(t *testing.T) {
	g := NewWithT(t)
	long := strings.Repeat("x", 10<<10)
	page := func(tool string) json.RawMessage {
		return json.RawMessage(`{"tools":[` + strings.Repeat(tool+",", 99) + tool + `]}`)
	}
	marked := &tools{params: map[string][]param{}}
	_, err := marked.add(page(`{"name":"a","inputSchema":{"properties":{"` + long + `":{"type":"string","x-mcp-header":"A"}}}}`))
	g.Expect(err).To(MatchError(ContainSubstring("take more than 262144 bytes")))

	broken := &tools{params: map[string][]param{}}
	_, err = broken.add(page(`{"name":"` + long + `","inputSchema":{"x-mcp-header":"A"}}`))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(broken.invalid).To(HaveLen(toolsMaxReported))
	g.Expect(broken.invalid).To(HaveEach(HaveLen(toolsMaxReport)))

	short := &tools{params: map[string][]param{}}
	for i := range 300 {
		_, err = short.add(fmt.Appendf(nil, `{"tools":[{"name":"%d","inputSchema":{"properties":{"%d":{"type":"string","x-mcp-header":"A"}}}}]}`, i, i))
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(short.bytes).To(BeNumerically(">", 300*200), "each tool and each parameter counts, however short its name is")

	next, err := broken.add(nil)
	g.Expect(err).NotTo(HaveOccurred(), "a server that has no such method has no tools")
	g.Expect(next).To(BeEmpty())

	_, err = broken.add(json.RawMessage(`{"tools":1}`))
	g.Expect(err).To(MatchError(ContainSubstring("reading a list of tools")))
}
