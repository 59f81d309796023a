package prober

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/gomega"
)

func TestDescribe(t *testing.T) {
	for name, c := range map[string]struct {
		found *mcp.InitializeResult
		then  Server
	}{
		"no description":  {&mcp.InitializeResult{ProtocolVersion: "1"}, Server{ProtocolVersion: "1"}},
		"no capabilities": {&mcp.InitializeResult{ServerInfo: &mcp.Implementation{Name: "a", Version: "2"}}, Server{Name: "a", Version: "2"}},
		"all capabilities": {&mcp.InitializeResult{Capabilities: &mcp.ServerCapabilities{
			Completions: &mcp.CompletionCapabilities{}, Experimental: map[string]any{"x": 1}, Extensions: map[string]any{"y": 1}, Logging: &mcp.LoggingCapabilities{}, //nolint:staticcheck // older servers declare it
			Prompts: &mcp.PromptCapabilities{}, Resources: &mcp.ResourceCapabilities{}, Tools: &mcp.ToolCapabilities{},
		}}, Server{Capabilities: []string{"completions", "experimental", "extensions", "logging", "prompts", "resources", "tools"}}},
		"empty extensions":  {&mcp.InitializeResult{Capabilities: &mcp.ServerCapabilities{Experimental: map[string]any{}, Extensions: map[string]any{}}}, Server{}},
		"control sequences": {&mcp.InitializeResult{ServerInfo: &mcp.Implementation{Name: "a\x1b[31m\nb", Version: "1\u202e"}}, Server{Name: "a[31mb", Version: "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(describe(c.found)).To(Equal(c.then))
		})
	}
}

// The SDK would read a list that is neither counted nor in the contract.
func TestItemThatTheTransportDoesNotDropIsAnError(t *testing.T) {
	broken := errors.New("x")
	for name, c := range map[string]struct {
		items map[int]error
		then  error
	}{
		"no item":  {nil, nil},
		"an error": {map[int]error{0: broken}, broken},
		"an item":  {map[int]error{1: nil}, errNotDropped},
	} {
		t.Run(name, func(t *testing.T) {
			err := firstError(maps.All(c.items))
			if c.then == nil {
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
				return
			}
			NewWithT(t).Expect(err).To(MatchError(c.then))
		})
	}
}

// Texts of a server are stored in objects.
func TestTextsAreCutBetweenCharacters(t *testing.T) {
	for name, c := range map[string]struct{ text, then string }{
		"as long as possible":     {strings.Repeat("x", maxName), strings.Repeat("x", maxName)},
		"one byte too long":       {strings.Repeat("x", maxName+1), strings.Repeat("x", maxName)},
		"characters of two bytes": {strings.Repeat("é", maxName), strings.Repeat("é", maxName/2)},
		"an odd number":           {"x" + strings.Repeat("é", maxName), "x" + strings.Repeat("é", maxName/2-1)},
		"not UTF-8, which grows":  {strings.Repeat("\xff", maxName), strings.Repeat("\ufffd", maxName/3)},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(printable(c.text)).To(Equal(c.then))
		})
	}
}

func TestCountsOfDeclaredCapabilities(t *testing.T) {
	g := NewWithT(t)
	all := Server{Capabilities: []string{"prompts", "resources", "tools"}, Tools: 1, Prompts: 2, Resources: 3}
	s := all
	s.resetCounts()
	g.Expect([]int{s.Tools, s.Prompts, s.Resources}).To(Equal([]int{NotCounted, NotCounted, NotCounted}))
	s.keepCounts(all)
	g.Expect(s).To(Equal(all))
	s.keepCounts(Server{Tools: 7, Prompts: 8, Resources: 9})
	g.Expect(s).To(Equal(all), "those that were counted")
	s = Server{Capabilities: []string{"logging"}}
	s.resetCounts()
	g.Expect(s).To(Equal(Server{Capabilities: []string{"logging"}}))
}

func TestServersNeedNotServeResourceTemplates(t *testing.T) {
	other := errors.New("x")
	for name, c := range map[string]struct {
		err       error
		failure   Error
		inSession bool
		then      bool
	}{
		"method not found": {fmt.Errorf("x: %w", &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound}), Error{Kind: Protocol, Code: jsonrpc.CodeMethodNotFound}, true, true},
		"another error":    {&jsonrpc.Error{Code: jsonrpc.CodeInternalError}, Error{Kind: Protocol}, false, false},
		"404":              {other, Error{Kind: HTTPStatus, Status: http.StatusNotFound}, false, true},
		"no such session":  {other, Error{Kind: HTTPStatus, Status: http.StatusNotFound}, true, false},
		"501":              {other, Error{Kind: HTTPStatus, Status: http.StatusNotImplemented}, true, true},
		"500":              {other, Error{Kind: HTTPStatus, Status: http.StatusInternalServerError}, false, false},
		"not a status":     {other, Error{Kind: Timeout, Status: http.StatusNotFound}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(isNotServed(c.err, &c.failure, c.inSession)).To(Equal(c.then))
		})
	}
}

func TestFirstListThatFailsIsReported(t *testing.T) {
	const all = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{},"resources":{}},"serverInfo":{"name":"x","version":"1"}}`
	notFound := &Error{Kind: Protocol, Code: jsonrpc.CodeMethodNotFound}
	for name, c := range map[string]struct {
		without map[string]func() string
		then    []int
		err     *Error
	}{
		"none":              {nil, []int{1, 2, 3}, nil},
		"prompts":           {map[string]func() string{"prompts/list": nil}, []int{1, NotCounted, 3}, notFound},
		"resources":         {map[string]func() string{"resources/list": nil}, []int{1, 2, NotCounted}, notFound},
		"both differently":  {map[string]func() string{"tools/list": nil, "prompts/list": constant(`5`)}, []int{NotCounted, NotCounted, 3}, notFound},
		"tools and prompts": {map[string]func() string{"tools/list": emptyTools, "prompts/list": nil}, []int{NotCounted, NotCounted, NotCounted}, errTooManyItems},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			results := map[string]func() string{
				"initialize": constant(all), "tools/list": constant(`{"tools":[{}]}`),
				"prompts/list": constant(`{"prompts":[{},{}]}`), "resources/list": constant(`{"resources":[{},{},{}]}`),
			}
			maps.Copy(results, c.without)
			found := probeOnce(t, Target{URL: serve(t, answers(false, results)).URL})
			g.Expect(found.err).To(BeNil())
			g.Expect([]int{found.server.Tools, found.server.Prompts, found.server.Resources}).To(Equal(c.then))
			g.Expect(found.listErr).To(Equal(c.err))
		})
	}
}

func TestServersAreNotAskedForWhatTheyDoNotDeclare(t *testing.T) {
	for name, initialized := range map[string]string{
		"tools":      withTools,
		"nothing":    `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}`,
		"not a word": `{"protocolVersion":"2025-11-25","serverInfo":{"name":"x","version":"1"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			asked := func(list string) func() string {
				return func() string {
					t.Errorf("asked for %s", list)
					return `{}`
				}
			}
			found := probeOnce(t, withContract(Target{URL: serve(t, answers(false, map[string]func() string{
				"initialize": constant(initialized), "tools/list": constant(`{"tools":[]}`),
				"prompts/list": asked("prompts"), "resources/list": asked("resources"), "resources/templates/list": asked("resource templates"),
			})).URL}))
			g.Expect(found.err).To(BeNil())
			g.Expect(found.counted()).To(BeTrue())
			g.Expect(found.contract.Items).To(BeEmpty())
		})
	}
}

// The SDK takes a page that it has read from a cache, as long as the server has allowed: it would read such a list forever,
// without a request.
func TestPagesThatRepeatEnd(t *testing.T) {
	const cached = `"resultType":"complete","ttlMs":3600000,"cacheScope":"private"`
	for list, key := range map[string]string{"tools": "tools", "prompts": "prompts", "resources": "resources", "resources/templates": "resourceTemplates"} {
		t.Run(list, func(t *testing.T) {
			g := NewWithT(t)
			results := map[string]func() string{
				"server/discover": constant(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"prompts":{},"resources":{}},` + cached + `}`),
			}
			for _, other := range []string{"tools", "prompts", "resources"} {
				results[other+"/list"] = constant(`{"` + other + `":[],` + cached + `}`)
			}
			results[list+"/list"] = constant(`{"` + key + `":[],"nextCursor":"again",` + cached + `}`)

			found := probeOnce(t, withContract(Target{URL: serve(t, answers(false, results)).URL}))

			g.Expect(found.err).To(BeNil())
			g.Expect(found.server.ProtocolVersion).To(Equal(statelessVersion))
			g.Expect(firstOf(found.listErr, found.contractErr)).To(Equal(errTooLarge))
			g.Expect(found.contract).To(BeNil())
		})
	}
}

// The limit of the handshake does not hold for lists.
func TestLongListsAreCounted(t *testing.T) {
	g := NewWithT(t)
	const size = 2 * handshakeBytes
	tool := `{"name":"` + strings.Repeat("x", 1000) + `"}`
	found := probeOnce(t, Target{URL: serve(t, answers(false, map[string]func() string{
		"initialize": constant(withTools), "tools/list": constant(`{"tools":[` + repeated(tool, size) + `]}`),
	})).URL})
	g.Expect(found.listErr).To(BeNil())
	g.Expect(found.server.Tools).To(Equal(size / (len(tool) + 1)))
}
