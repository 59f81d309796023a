package answer

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

func TestOutcomeOfAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		body      string
		found     bool
		failed    bool
		code      int
		toolError bool
	}{
		"result":                      {`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`, true, false, 0, false},
		"tool error":                  {`{"id":1,"result":{"content":[{"a":"x"}],"isError": true }}`, true, false, 0, true},
		"no tool error":               {`{"id":1,"result":{"isError":false}}`, true, false, 0, false},
		"isError further below":       {`{"id":1,"result":{"content":[{"isError":true}],"structuredContent":{"isError":true}}}`, true, false, 0, false},
		"isError in a string":         {`{"id":1,"result":{"text":"\",\"isError\":true,\""}}`, true, false, 0, false},
		"error":                       {`{"id":1,"error":{"code":-32602,"message":"no"}}`, true, true, -32602, false},
		"error with data":             {`{"id":1,"error":{"data":{"code":1},"message":"code\":2","code" : -1 }}`, true, true, -1, false},
		"null error":                  {`{"id":1,"error":null,"result":1}`, true, false, 0, false},
		"string as result":            {`{"id":1,"result":"isError"}`, true, false, 0, false},
		"request of the server":       {`{"id":1,"method":"ping","params":{"result":{},"isError":true}}`, false, false, 0, false},
		"batch":                       {`[{"id":1,"result":{"isError":true}},{"id":2,"error":{"code":-32601}}]`, true, true, -32601, true},
		"nothing":                     {``, false, false, 0, false},
		"no JSON":                     {`</html>}}}]],:"`, false, false, 0, false},
		"deep":                        {`{"result":` + strings.Repeat(`{"a":[`, 100) + strings.Repeat(`]}`, 100) + `,"x":1}`, true, false, 0, false},
		"a long name before the code": {`{"error":{"` + strings.Repeat("code", 20) + `":1,"code":2}}`, true, true, 2, false},
		"an escaped quote":            {`{"a\"result":1,"b":"\\","error":{"code":3}}`, true, true, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			for size := 1; size <= len(c.body)+1; size++ {
				a := Answer{}
				for rest := c.body; rest != ""; {
					n := min(size, len(rest))
					a.Feed([]byte(rest[:n]))
					rest = rest[n:]
				}
				g.Expect([]any{a.Found, a.Failed, a.Code, a.ToolError}).To(Equal([]any{c.found, c.failed, c.code, c.toolError}), "in parts of %d", size)
			}
		})
	}
}

func TestOutcomeOfEvents(t *testing.T) {
	const toolError = `{"id":1,"result":{"isError":true}}`
	for name, c := range map[string]struct {
		body             string
		found, toolError bool
	}{
		"one event":                 {"event: message\ndata: " + toolError + "\n\n", true, true},
		"a byte order mark":         {"\ufeffdata: " + toolError + "\n\n", true, true},
		"CRLF":                      {"id: 7\r\ndata:" + toolError + "\r\n\r\n", true, true},
		"after other events":        {": open\nretry: 1000\n\ndata: {\"method\":\"a\",\"params\":{\n\ndata: " + toolError + "\n\n", true, true},
		"in several lines":          {"data: {\"id\":1,\ndata: \"result\":\ndata: {\"isError\":true}}\n\n", true, true},
		"in several lines, CRLF":    {"data: {\"id\":1,\r\ndata: \"result\":\r\ndata: {\"isError\":true}}\r\n\r\n", true, true},
		"a new event, CRLF":         {"data: {\"id\":1,\r\n\r\ndata: \"result\":1}\r\n\r\n", false, false},
		"a new event, CR":           {"data: {\"id\":1,\r\rdata: \"result\":1}\r\r", false, false},
		"a comment is no data":      {":data: " + toolError + "\n\n", false, false},
		"a name that begins so":     {"data2: " + toolError + "\n\n", false, false},
		"notifications only":        {"data: {\"method\":\"notifications/progress\"}\n\n", false, false},
		"without the last line end": {"data: " + toolError, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			for size := 1; size <= len(c.body); size++ {
				a := Answer{}
				e := Events{To: &a}
				for rest := c.body; rest != ""; {
					n := min(size, len(rest))
					e.Feed([]byte(rest[:n]))
					rest = rest[n:]
				}
				g.Expect([]bool{a.Found, a.ToolError}).To(Equal([]bool{c.found, c.toolError}), "in parts of %d", size)
			}
		})
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"id":1,"result":{"isError":true}}`))
	f.Add([]byte(`[{"error":{"code":-1}}]]]]}}}}`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		a := Answer{}
		(&Events{To: &a}).Feed(data)
		a.reset()
		a.Feed(data)
	})
}
