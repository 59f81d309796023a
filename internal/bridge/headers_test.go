package bridge

import (
	"net/http"
	"net/http/httptest"
	"testing"

	. "github.com/onsi/gomega"
)

// requestWith is a request of a client with these headers.
func requestWith(t *testing.T, header http.Header) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp", http.NoBody)
	if header != nil {
		r.Header = header
	}
	return r
}

// Readers differ in which of several values they take.
func TestHeadersThatAreRepeatedAreRefused(t *testing.T) {
	g := NewWithT(t)
	b := &Bridge{allowed: allowList{origins: []string{Any}}}
	for _, name := range []string{"Origin", headerSession, headerVersion, headerMethod, headerName} {
		g.Expect(b.guard(requestWith(t, http.Header{name: {"x"}}))).To(BeNil(), name)
		f := b.guard(requestWith(t, http.Header{name: {"x", "x"}}))
		g.Expect(f).To(MatchError(ContainSubstring("the header "+name+" is repeated")), name)
		g.Expect([]int{f.Status, f.Code}).To(Equal([]int{http.StatusBadRequest, codeInvalidRequest}), name)
	}
	g.Expect(b.guard(requestWith(t, http.Header{"Accept": {"a", "b"}}))).To(BeNil(), "a header that is not of MCP")
}

func TestVersionOfARequestInASession(t *testing.T) {
	g := NewWithT(t)
	for _, version := range append([]string{""}, sessionVersions...) {
		g.Expect(legacyVersion(requestWith(t, http.Header{headerVersion: {version}}))).To(BeNil(), version)
	}
	for _, version := range []string{"2026-07-28", "2025-11-26", "x"} {
		f := legacyVersion(requestWith(t, http.Header{headerVersion: {version}}))
		g.Expect(f).To(MatchError(And(ContainSubstring("%q is not a supported version", version), ContainSubstring("(2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05)"))))
		g.Expect([]int{f.Status, f.Code}).To(Equal([]int{http.StatusBadRequest, codeInvalidRequest}))
	}
}

func TestRequestsWithoutASession(t *testing.T) {
	for name, c := range map[string]struct {
		version, message string
		want             bool
	}{
		"no version":                          {"", ping, false},
		"a header with sessions":              {"2025-11-25", ping, false},
		"the first header without":            {"2026-07-28", ping, true},
		"a later header":                      {"2027-01-15", ping, true},
		"the first version in the message":    {"", statelessCall, true},
		"a version with sessions in it":       {"", `{"id":1,"method":"ping","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-27"}}}`, false},
		"server/discover, without a version":  {"", `{"id":1,"method":"server/discover"}`, true},
		"server/discover, with an older one":  {"2025-11-25", `{"id":1,"method":"server/discover"}`, true},
		"a tool of that name is no discovery": {"", `{"id":1,"method":"tools/call","params":{"name":"server/discover"}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e, err := parse([]byte(c.message))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(stateless(requestWith(t, http.Header{headerVersion: {c.version}}), &e)).To(Equal(c.want))
		})
	}
}

// meta2026 is the _meta of a request of the version 2026-07-28.
const meta2026 = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`

// Proxies route by the headers of a request without a session, so it must have them, and they must match its message.
func TestHeadersOfRequestsWithoutASession(t *testing.T) {
	of := func(method, name string) http.Header {
		return http.Header{headerVersion: {"2026-07-28"}, headerMethod: {method}, headerName: {name}}
	}
	for name, c := range map[string]struct {
		message string
		header  http.Header
		code    int // 0 if the request is relayed
		problem string
	}{
		"a call":                           {`{"id":1,"method":"tools/call","params":{"name":"get",` + meta2026 + `}}`, of("tools/call", "get"), 0, ""},
		"a call of another tool":           {`{"id":1,"method":"tools/call","params":{"name":"get",` + meta2026 + `}}`, of("tools/call", "set"), codeHeaderMismatch, `Mcp-Name is "set", but the name in the message is "get"`},
		"a call without a tool":            {`{"id":1,"method":"tools/call","params":{` + meta2026 + `}}`, of("tools/call", ""), codeHeaderMismatch, "Mcp-Name"},
		"a call without the header":        {`{"id":1,"method":"tools/call","params":{"name":"get",` + meta2026 + `}}`, http.Header{headerVersion: {"2026-07-28"}, headerMethod: {"tools/call"}}, codeHeaderMismatch, "Mcp-Name"},
		"a name that is encoded badly":     {`{"id":1,"method":"tools/call","params":{"name":"get",` + meta2026 + `}}`, of("tools/call", "=?base64?!?="), codeHeaderMismatch, "header Mcp-Name is not encoded correctly"},
		"a prompt":                         {`{"id":1,"method":"prompts/get","params":{"name":"p",` + meta2026 + `}}`, of("prompts/get", "p"), 0, ""},
		"another prompt":                   {`{"id":1,"method":"prompts/get","params":{"name":"p",` + meta2026 + `}}`, of("prompts/get", "q"), codeHeaderMismatch, "Mcp-Name"},
		"a resource":                       {`{"id":1,"method":"resources/read","params":{"uri":"file:///a",` + meta2026 + `}}`, of("resources/read", "file:///a"), 0, ""},
		"the name of a resource":           {`{"id":1,"method":"resources/read","params":{"uri":"file:///a","name":"b",` + meta2026 + `}}`, of("resources/read", "b"), codeHeaderMismatch, "Mcp-Name"},
		"a method that has no name":        {`{"id":1,"method":"tools/list","params":{` + meta2026 + `}}`, of("tools/list", "any"), 0, ""},
		"another method":                   {`{"id":1,"method":"tools/list","params":{` + meta2026 + `}}`, of("ping", ""), codeHeaderMismatch, `Mcp-Method is "ping", but the method of the message is "tools/list"`},
		"no method":                        {`{"id":1,"method":"tools/list","params":{` + meta2026 + `}}`, http.Header{headerVersion: {"2026-07-28"}}, codeHeaderMismatch, "Mcp-Method"},
		"no version":                       {`{"id":1,"method":"tools/list","params":{` + meta2026 + `}}`, http.Header{headerMethod: {"tools/list"}}, codeHeaderMismatch, "Mcp-Protocol-Version is missing"},
		"no version in the message":        {`{"id":1,"method":"tools/list"}`, of("tools/list", ""), codeInvalidParams, "_meta has no"},
		"another version in the message":   {`{"id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2027-01-15"}}}`, of("tools/list", ""), codeHeaderMismatch, `"2026-07-28", but the version in the message is "2027-01-15"`},
		"a notification needs no version":  {`{"method":"notifications/x"}`, of("notifications/x", ""), 0, ""},
		"a notification of another method": {`{"method":"notifications/x"}`, of("notifications/y", ""), codeHeaderMismatch, "Mcp-Method"},
		"a response":                       {`{"id":1,"result":{}}`, of("", ""), codeInvalidRequest, "responses require a session"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e, err := parse([]byte(c.message))
			g.Expect(err).NotTo(HaveOccurred())
			expectRefusal(g, checkStateless(requestWith(t, c.header), &e), c.code, c.problem)
		})
	}
}

// In a session the headers need not exist.
func TestHeadersOfRequestsInASession(t *testing.T) {
	const call = `{"id":1,"method":"tools/call","params":{"name":"get"}}`
	for name, c := range map[string]struct {
		header http.Header
		code   int
	}{
		"none":                   {nil, 0},
		"equal":                  {http.Header{headerMethod: {"tools/call"}, headerName: {"get"}}, 0},
		"the method alone":       {http.Header{headerMethod: {"tools/call"}}, 0},
		"another method":         {http.Header{headerMethod: {"tools/list"}}, codeHeaderMismatch},
		"another name":           {http.Header{headerName: {"set"}}, codeHeaderMismatch},
		"another name, encoded":  {http.Header{headerName: {"=?base64?c2V0?="}}, codeHeaderMismatch},
		"the same name, encoded": {http.Header{headerName: {"=?base64?Z2V0?="}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e, err := parse([]byte(call))
			g.Expect(err).NotTo(HaveOccurred())
			expectRefusal(g, checkHeaders(requestWith(t, c.header), &e, false), c.code, "Mcp-")
		})
	}
}

// expectRefusal expects a response with status 400 and this error code; none if the code is 0.
func expectRefusal(g Gomega, f *failure, code int, problem string) {
	if code == 0 {
		g.Expect(f).To(BeNil())
		return
	}
	g.Expect(f).To(MatchError(ContainSubstring(problem)))
	g.Expect([]int{f.Status, f.Code}).To(Equal([]int{http.StatusBadRequest, code}))
}
