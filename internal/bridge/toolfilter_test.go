package bridge

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

func TestFilterTools(t *testing.T) {
	keep := func(tool string) bool { return !strings.HasPrefix(tool, "delete") }
	for name, c := range map[string]struct{ message, want string }{
		"a list": {`{"jsonrpc":"2.0","id":1,"result":{"ttlMs":5,"tools":[{"name":"get"},{"name":"delete"},{"x":[{"name":"delete"}],"name":"set"}],"nextCursor":"c","cacheScope":"public"}}`,
			`{"jsonrpc":"2.0","id":1,"result":{"ttlMs":5,"tools":[{"name":"get"},{"x":[{"name":"delete"}],"name":"set"}],"nextCursor":"c","cacheScope":"public"}}`},
		"white space":            {" { \"result\" : { \"tools\" : [ { \"name\" : \"delete\" } , { \"name\" : \"get\" } ] , \"a\" : 1.0 } } ", ` { "result" : { "tools" : [{ "name" : "get" }] , "a" : 1.0 } } `},
		"all":                    {`{"result":{"tools":[{"name":"delete"},{"name":"delete_all"}]}}`, `{"result":{"tools":[]}}`},
		"none":                   {`{"result":{"tools":[{"name":"get"}]}}`, ""},
		"a title like a name":    {`{"result":{"tools":[{"name":"get","title":"delete"}]}}`, ""},
		"an escaped name":        {`{"result":{"tools":[{"name":"\u0064elete"}]}}`, `{"result":{"tools":[]}}`},
		"escaped members":        {`{"\u0072esult":{"\u0074ools":[{"n\u0061me":"delete"}]}}`, `{"\u0072esult":{"\u0074ools":[]}}`},
		"two names":              {`{"result":{"tools":[{"name":"get","name":"delete"},{"name":"delete","name":"get"}]}}`, `{"result":{"tools":[]}}`},
		"two lists":              {`{"result":{"tools":[{"name":"delete"}],"tools":[{"name":"get"},{"name":"delete"}]}}`, `{"result":{"tools":[],"tools":[{"name":"get"}]}}`},
		"a batch":                {`[{"id":1,"result":{}},{"id":2,"result":{"tools":[{"name":"delete"}]}},{"id":3,"result":{"tools":[{"name":"delete"}]}}]`, `[{"id":1,"result":{}},{"id":2,"result":{"tools":[]}},{"id":3,"result":{"tools":[]}}]`},
		"a tool that is no tool": {`{"result":{"tools":[1,null,"delete",[],{}]}}`, ""},
		"tools that are no list": {`{"result":{"tools":{"name":"delete"}}}`, ""},
		"tools of a request":     {`{"method":"sampling/createMessage","params":{"tools":[{"name":"delete"}]}}`, ""},
		"an error":               {`{"id":1,"error":{"code":1}}`, ""},
		"an empty list":          {`{"result":{"tools":[ ]}}`, ""},
		"another type":           {`1`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			filtered, err := FilterTools([]byte(c.message), keep)
			g.Expect(err).NotTo(HaveOccurred())
			want := c.want
			if want == "" {
				want = c.message
			}
			g.Expect(string(filtered)).To(Equal(want))
		})
	}
	for _, invalid := range []string{"", "{", `{"result":{"tools":[{"name":"delete"}]}`, `{"result":NaN}`} {
		_, err := FilterTools([]byte(invalid), keep)
		NewWithT(t).Expect(err).To(HaveOccurred(), invalid)
	}
}

func BenchmarkFilterTools(b *testing.B) {
	var tools []string
	for i := range 100 {
		tools = append(tools, fmt.Sprintf(`{"name":"tool_%d","description":%q,"inputSchema":{"type":"object","properties":{"a":{"type":"string"}}}}`, i, strings.Repeat("text ", 60)))
	}
	message := []byte(`{"jsonrpc":"2.0","id":1,"result":{"tools":[` + strings.Join(tools, ",") + `]}}`)
	b.SetBytes(int64(len(message)))
	for b.Loop() {
		if _, err := FilterTools(message, func(tool string) bool { return tool != "tool_50" }); err != nil {
			b.Fatal(err)
		}
	}
}

func TestHeadersOfACall(t *testing.T) {
	for name, c := range map[string]struct {
		call   Call
		header http.Header
		want   string
	}{
		"none":              {Call{Method: "tools/call", Tool: "get"}, http.Header{}, ""},
		"equal":             {Call{Method: "tools/call", Tool: "get"}, http.Header{"Mcp-Method": {"tools/call"}, "Mcp-Name": {"get"}}, ""},
		"encoded":           {Call{Method: "tools/call", Tool: "gét"}, http.Header{"Mcp-Name": {"=?base64?Z8OpdA==?="}}, ""},
		"a name of another": {Call{Method: "resources/read"}, http.Header{"Mcp-Method": {"resources/read"}, "Mcp-Name": {"a:b"}}, ""},
		"another method":    {Call{Method: "ping"}, http.Header{"Mcp-Method": {"tools/call"}}, `the header Mcp-Method must be once "ping"`},
		"two methods":       {Call{Method: "ping"}, http.Header{"Mcp-Method": {"ping", "ping"}}, "must be once"},
		"an empty method":   {Call{Method: "ping"}, http.Header{"Mcp-Method": {""}}, "must be once"},
		"another tool":      {Call{Method: "tools/call", Tool: "get"}, http.Header{"Mcp-Name": {"delete"}}, `the header Mcp-Name must be once "get"`},
		"two tools":         {Call{Method: "tools/call", Tool: "get"}, http.Header{"Mcp-Name": {"get", "delete"}}, "must be once"},
		"a bad encoding":    {Call{Method: "tools/call", Tool: "get"}, http.Header{"Mcp-Name": {"=?base64?!?="}}, "must be once"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			if err := c.call.CheckHeaders(c.header); c.want == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(c.want)))
			}
		})
	}
}
