package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
)

func TestMirrorsMessage(t *testing.T) {
	for name, c := range map[string]struct {
		header http.Header
		want   bool
	}{
		"no headers":                     {http.Header{"Accept": {"*/*"}}, false},
		"a version with sessions":        {http.Header{headerVersion: {"2025-11-25"}}, false},
		"the first without sessions":     {http.Header{headerVersion: {"2026-07-28"}}, true},
		"a later one":                    {http.Header{headerVersion: {"2027-01-15"}}, true},
		"a version without, among two":   {http.Header{headerVersion: {"2025-11-25", "2026-07-28"}}, true},
		"a method":                       {http.Header{headerMethod: {"ping"}}, true},
		"a name":                         {http.Header{headerName: {"get"}}, true},
		"a parameter":                    {http.Header{"Mcp-Param-Region": {"us"}}, true},
		"a session":                      {http.Header{headerSession: {"x"}}, false},
		"a name that contains parameter": {http.Header{"X-Mcp-Param-Region": {"us"}}, false},
	} {
		NewWithT(t).Expect(MirrorsMessage(c.header)).To(Equal(c.want), name)
	}
}

// listsMarked is a server that marks the parameter region of the tool query.
func listsMarked(context.Context, string, []byte) (int, []byte, error) {
	return http.StatusOK, []byte(`{"jsonrpc":"2.0","id":"fixpoint-tools","result":{"tools":[{"name":"query","inputSchema":` + markedSchema + `}]}}`), nil
}

func TestParamCheckerRefusesHeadersThatDifferFromTheMessage(t *testing.T) {
	const call = `{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"query","arguments":{"region":"us"}}}`
	const region = "Mcp-Param-Region"
	for name, c := range map[string]struct {
		message string
		header  http.Header
		code    int // 0 if the request is relayed
		problem string
	}{
		"equal":                          {call, http.Header{headerMethod: {"tools/call"}, headerName: {"query"}, region: {"us"}}, 0, ""},
		"a notification":                 {`{"method":"notifications/x"}`, http.Header{headerMethod: {"notifications/x"}}, 0, ""},
		"not JSON":                       {`{"id"`, nil, codeParse, "the body is not JSON"},
		"a batch":                        {`[` + call + `]`, nil, codeInvalidRequest, "batches are not supported"},
		"two names":                      {strings.Replace(call, `"name":"query"`, `"name":"delete","name":"query"`, 1), http.Header{region: {"us"}}, codeInvalidRequest, `"name" twice`},
		"another parameter":              {call, http.Header{region: {"eu"}}, codeHeaderMismatch, "differs from the message"},
		"no parameter":                   {call, nil, codeHeaderMismatch, "is missing"},
		"another method":                 {call, http.Header{headerMethod: {"tools/list"}, region: {"us"}}, codeHeaderMismatch, "Mcp-Method"},
		"another name":                   {call, http.Header{headerName: {"other"}, region: {"us"}}, codeHeaderMismatch, "Mcp-Name"},
		"a method that is sent twice":    {call, http.Header{headerMethod: {"tools/call", "tools/call"}, region: {"us"}}, codeHeaderMismatch, "Mcp-Method is repeated"},
		"a name that is sent twice":      {call, http.Header{headerName: {"query", "query"}, region: {"us"}}, codeHeaderMismatch, "Mcp-Name is repeated"},
		"a version that is sent twice":   {call, http.Header{headerVersion: {"2026-07-28", "2026-07-28"}, region: {"us"}}, codeHeaderMismatch, "Mcp-Protocol-Version is repeated"},
		"a parameter that is sent twice": {call, http.Header{region: {"us", "us"}}, codeHeaderMismatch, "Region is repeated"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			checker := NewParamChecker(testTimeout, logr.Discard())
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", http.NoBody)
			r.Header = c.header

			refusal := checker.Check(r, []byte(c.message), listsMarked)

			if c.code == 0 {
				g.Expect(refusal).To(BeNil())
				return
			}
			g.Expect(refusal).To(MatchError(ContainSubstring(c.problem)))
			w := httptest.NewRecorder()
			refusal.Write(w)
			g.Expect(w.Code).To(Equal(http.StatusBadRequest))
			var said struct {
				ID    *string
				Error struct{ Code int }
			}
			g.Expect(json.Unmarshal(w.Body.Bytes(), &said)).To(Succeed())
			g.Expect(said.Error.Code).To(Equal(c.code))
			if c.code == codeHeaderMismatch {
				g.Expect(said.ID).To(HaveValue(Equal("x")), "the client finds its request by the id")
			}
		})
	}
}

// The response must not grow with the message.
func TestLongIDsAreNotRepeated(t *testing.T) {
	g := NewWithT(t)
	idOf := func(length int) string {
		message := `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", length-len(`""`)) + `","method":"ping"}`
		r := requestWith(t, http.Header{headerMethod: {"tools/list"}})
		return string(NewParamChecker(testTimeout, logr.Discard()).Check(r, []byte(message), listsMarked).id)
	}
	g.Expect(idOf(MaxID)).To(HaveLen(MaxID))
	g.Expect(idOf(MaxID + 1)).To(BeEmpty())
}

// exchanges records the requests of the checker, and answers each with the next response.
type exchanges struct {
	sent      []string
	responses []exchanged
}

type exchanged struct {
	status int
	answer string
	err    error
}

func (x *exchanges) exchange(_ context.Context, method string, message []byte) (int, []byte, error) {
	x.sent = append(x.sent, method+" "+string(message))
	next := x.responses[0]
	if len(x.responses) > 1 {
		x.responses = x.responses[1:]
	}
	return next.status, []byte(next.answer), next.err
}

func TestExchangeListsAllPages(t *testing.T) {
	g := NewWithT(t)
	x := &exchanges{responses: []exchanged{
		{http.StatusOK, `{"id":"fixpoint-tools","result":{"tools":[],"nextCursor":"\"2\""}}`, nil},
		{http.StatusOK, `{"id":"fixpoint-tools","result":{"tools":[{"name":"query","inputSchema":` + markedSchema + `}]}}`, nil},
	}}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", http.NoBody)
	message := []byte(`{"id":1,"method":"tools/call","params":{"name":"query","arguments":{"region":"us"}}}`)

	refusal := NewParamChecker(testTimeout, logr.Discard()).Check(r, message, x.exchange)

	g.Expect(refusal).To(MatchError(ContainSubstring("Mcp-Param-Region is missing")), "a tool of the second page is checked")
	g.Expect(x.sent).To(HaveLen(2))
	for i, cursor := range []string{"", `"cursor":"\"2\"",`} {
		g.Expect(x.sent[i]).To(Equal(`tools/list {"jsonrpc":"2.0","id":"fixpoint-tools","method":"tools/list","params":{` + cursor + `"_meta":{` + statelessMeta + `}}}`))
	}
}

// Otherwise a server that never responds would block the calls of all clients.
func TestExchangeEndsAfterTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, begun := NewWithT(t), time.Now()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", http.NoBody)
		message := []byte(`{"id":1,"method":"tools/call","params":{"name":"query"}}`)

		refusal := NewParamChecker(time.Minute, logr.Discard()).Check(r, message, func(ctx context.Context, _ string, _ []byte) (int, []byte, error) {
			<-ctx.Done()
			return 0, nil, ctx.Err()
		})

		g.Expect(refusal).To(BeNil())
		g.Expect(time.Since(begun)).To(Equal(time.Minute))
	})
}

// The reason of a list that fails decides whether calls are checked by it: what depends on the caller must not end the
// check for others.
func TestExchangeThatFailsToListTools(t *testing.T) {
	broken := errors.New("connection reset")
	for name, c := range map[string]struct {
		exchanged
		problem string // empty if the server has no tools
		refused bool
	}{
		"the connection fails":          {exchanged{0, "", broken}, "connection reset", false},
		"a server without tools":        {exchanged{http.StatusOK, `{"id":1,"error":{"code":-32601}}`, nil}, "", false},
		"one that says 404, too":        {exchanged{http.StatusNotFound, `{"id":1,"error":{"code":-32601}}`, nil}, "", false},
		"a caller that may not list":    {exchanged{http.StatusForbidden, ``, nil}, "the server refused the list with status 403", true},
		"a caller without a token":      {exchanged{http.StatusUnauthorized, `{"id":1,"error":{"code":-32000}}`, nil}, "with status 401", true},
		"the message is refused":        {exchanged{http.StatusBadRequest, `{"id":1,"error":{"code":-32022}}`, nil}, "the server responded with error -32022", false},
		"an error":                      {exchanged{http.StatusOK, `{"id":1,"error":{"code":-32603}}`, nil}, "the server responded with error -32603", false},
		"an error without a code":       {exchanged{http.StatusOK, `{"id":1,"error":"no"}`, nil}, "the server responded with error 0", false},
		"a response that is no message": {exchanged{http.StatusOK, `<html>`, nil}, "with status 200 is no JSON-RPC message", false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			x := &exchanges{responses: []exchanged{c.exchanged}}
			result, err := Exchange(x.exchange).listTools(t.Context(), "")
			g.Expect(result).To(BeEmpty())
			if c.problem == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(c.problem)))
			g.Expect(errors.Is(err, errListRefused)).To(Equal(c.refused))
			if c.err != nil {
				g.Expect(err).To(MatchError(broken))
			}
		})
	}
}

// checkAt checks a call as if the list of tools had this age.
func checkAt(s *schemas, r *http.Request, message []byte, age time.Duration, list listPage) *failure {
	s.tools.listed = time.Now().Add(-age)
	e, err := parse(message)
	if err != nil {
		panic(err)
	}
	return s.check(r, &e, list)
}

// A list is read again when it is old, or when a call does not match it and it is not new.
func TestAgeOfTheListOfTools(t *testing.T) {
	call := func(arguments string) []byte {
		return []byte(`{"id":1,"method":"tools/call","params":{"name":"query","arguments":` + arguments + `}}`)
	}
	marked, err := markedParams(json.RawMessage(markedSchema))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for name, c := range map[string]struct {
		message string
		header  http.Header
		age     time.Duration
		lists   int
	}{
		"a call that matches a list that is not old": {string(call(`{"region":"us"}`)), http.Header{"Mcp-Param-Region": {"us"}}, 50 * time.Second, 0},
		"a call that matches an old one":             {string(call(`{"region":"us"}`)), http.Header{"Mcp-Param-Region": {"us"}}, time.Minute + time.Second, 1},
		"a call that does not match":                 {string(call(`{"region":"us"}`)), nil, toolsMinAge + time.Second, 1},
		"a header that no parameter has":             {string(call(`{}`)), http.Header{"Mcp-Param-Zone": {"us"}}, toolsMinAge + time.Second, 1},
		"another header":                             {string(call(`{}`)), http.Header{"X-Zone": {"us"}}, toolsMinAge + time.Second, 0},
		"a call that does not match a new list":      {string(call(`{"region":"us"}`)), nil, -time.Hour, 0},
		"another method":                             {`{"id":1,"method":"prompts/get","params":{"name":"query"}}`, nil, 2 * toolsMaxAge, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSchemas(testTimeout, logr.Discard())
			s.tools = &tools{params: map[string][]param{"query": marked}}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", http.NoBody)
			r.Header = c.header
			lists := 0

			_ = checkAt(s, r, []byte(c.message), c.age, func(context.Context, string) (json.RawMessage, error) {
				lists++
				return json.RawMessage(`{"tools":[]}`), nil
			})

			NewWithT(t).Expect(lists).To(Equal(c.lists))
		})
	}
}

// A list that cannot be read leaves the check as it is, and is not read again for each call.
func TestToolsStayIfTheyCannotBeListed(t *testing.T) {
	marked, err := markedParams(json.RawMessage(markedSchema))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	earlier := &tools{params: map[string][]param{"query": marked}, bytes: 7, invalid: []string{"broken"}}
	for name, c := range map[string]struct {
		before *tools
		err    error
		// again is true if the next call lists the tools once more, as its caller may be allowed to.
		again  bool
		logged bool
	}{
		"after a list, an error":         {earlier, errors.New("no"), false, true},
		"after a list, refused":          {earlier, errListRefused, false, true},
		"before a list, an error":        {&tools{}, errors.New("no"), false, true},
		"before a list, refused":         {&tools{}, errListRefused, true, false},
		"after a list, one without end":  {earlier, nil, false, true},
		"before a list, one without end": {&tools{}, nil, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			collected := &logs{}
			s := newSchemas(testTimeout, funcr.New(collected.add, funcr.Options{}))
			s.tools = c.before
			lists := 0
			list := func(context.Context, string) (json.RawMessage, error) {
				lists++
				return json.RawMessage(`{"tools":[{"name":"query"}],"nextCursor":"more"}`), c.err
			}

			got := s.within(t.Context(), toolsMinAge, list)

			g.Expect(got.params).To(Equal(c.before.params))
			g.Expect(got.bytes).To(Equal(c.before.bytes))
			g.Expect(got.invalid).To(Equal(c.before.invalid))
			first := lists
			s.within(t.Context(), time.Hour, list)
			g.Expect(lists > first).To(Equal(c.again))
			if c.err == nil {
				g.Expect(first).To(Equal(toolsMaxPages))
				g.Expect(collected.String()).To(ContainSubstring("more than 64 pages"))
			}
			g.Expect(strings.Contains(collected.String(), "Failed to list the tools")).To(Equal(c.logged))
		})
	}
}

// A server may list other tools to each caller. Those of earlier lists stay, as long as they take little memory.
func TestToolsOfEarlierListsStay(t *testing.T) {
	g := NewWithT(t)
	s := newSchemas(testTimeout, logr.Discard())
	lists := func(names ...string) listPage {
		var all []string
		for _, name := range names {
			all = append(all, `{"name":"`+name+`","inputSchema":`+markedSchema+`}`)
		}
		return func(context.Context, string) (json.RawMessage, error) {
			return json.RawMessage(`{"tools":[` + strings.Join(all, ",") + `]}`), nil
		}
	}
	s.within(t.Context(), 0, lists("of one"))
	one := s.tools.bytes
	g.Expect(one).To(BeNumerically(">", len("of one")+len("Mcp-Param-Region")+len("limits.rows")))
	g.Expect(s.within(t.Context(), 0, lists("of all", "of two")).params).To(And(HaveLen(3), HaveKey("of one"), HaveKey("of two")))
	g.Expect(s.tools.bytes).To(Equal(3*one), "all that is kept counts")
	g.Expect(s.within(t.Context(), 0, lists("of one")).params).To(HaveLen(3))
	g.Expect(s.tools.bytes).To(Equal(3*one), "each counts once")

	s.tools.bytes = toolsMaxBytes + 1
	g.Expect(s.within(t.Context(), 0, lists("of one")).params).To(HaveLen(1))
	g.Expect(s.tools.bytes).To(Equal(one))

	unmarked := func(context.Context, string) (json.RawMessage, error) {
		return json.RawMessage(`{"tools":[{"name":"of one"}]}`), nil
	}
	g.Expect(s.within(t.Context(), 0, unmarked).params).To(BeEmpty(), "a tool that is listed without marks has none")
}
