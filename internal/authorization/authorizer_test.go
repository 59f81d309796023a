package authorization

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/internal/requestbody"
)

func TestRequestsWithoutATokenAreChallenged(t *testing.T) {
	const remedy = "requires an access token"
	for name, header := range map[string][]string{
		"no header":        nil,
		"another scheme":   {"Authorization", "Basic YTpi"},
		"only the scheme":  {"Authorization", "Bearer"},
		"an empty token":   {"Authorization", "Bearer   "},
		"an empty header":  {"Authorization", ""},
		"a longer scheme":  {"Authorization", "Bearers x"},
		"a token in a tab": {"Authorization", "Bearer\tx"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEndpoint(t)

			response := e.do(http.MethodPost, external, "{}", header...)

			e.Expect(response.StatusCode).To(Equal(http.StatusUnauthorized))
			e.Expect(response.Header.Get("WWW-Authenticate")).To(Equal(
				`Bearer resource_metadata="https://tools.example.com/.well-known/oauth-protected-resource/mcp", scope="mcp"`))
			code, description := e.failure(response)
			e.Expect(code).To(Equal("unauthorized"))
			e.Expect(description).To(ContainSubstring(remedy))
			e.Expect(e.received).To(BeEmpty())
		})
	}
}

func TestSchemeIsNotCaseSensitive(t *testing.T) {
	e := newEndpoint(t)
	e.Expect(e.do(http.MethodGet, external, "", "Authorization", "bEARER "+e.token(nil)).StatusCode).To(Equal(http.StatusOK))
}

func TestMalformedAuthorizationIsRefused(t *testing.T) {
	e := newEndpoint(t)
	token := e.token(nil)
	for name, send := range map[string]func() *http.Response{
		"two headers": func() *http.Response {
			return e.do(http.MethodGet, external, "", "Authorization", "Bearer "+token, "authorization", "Bearer "+token)
		},
		"a token in the query": func() *http.Response { return e.do(http.MethodGet, external+"?access_token="+token, "") },
		"a token in both": func() *http.Response {
			return e.do(http.MethodGet, external+"?a=b&access_token="+token, "", "Authorization", "Bearer "+token)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			response := send()
			g.Expect(response.StatusCode).To(Equal(http.StatusBadRequest))
			code, _ := e.failure(response)
			g.Expect(code).To(Equal("invalid_request"))
			g.Expect(e.received).To(BeEmpty())
		})
	}
}

func TestServerGetsTheIdentityAndNotTheToken(t *testing.T) {
	e := newEndpoint(t)
	token := e.token(map[string]any{"sub": "auth0|änn 100%", "scope": "write mcp"})

	response := e.do(http.MethodPost, external+"?a=b", `{"x":1}`, "Authorization", "Bearer "+token, "Mcp-Session-Id", "s")

	e.Expect(response.StatusCode).To(Equal(http.StatusOK))
	e.Expect(e.received).To(HaveLen(1))
	got := e.received[0]
	e.Expect(got.Header).NotTo(HaveKey("Authorization"))
	e.Expect(got.Header.Get("Fixpoint-User-Subject")).To(Equal("auth0|%C3%A4nn%20100%25"))
	e.Expect(got.Header.Get("Fixpoint-User-Issuer")).To(Equal(e.issuer.URL))
	e.Expect(got.Header.Get("Fixpoint-User-Scopes")).To(Equal("mcp write"))
	e.Expect(got.Header.Get("Mcp-Session-Id")).To(Equal("s"))
	e.Expect(got.URL.RawQuery).To(Equal("a=b"))
	e.Expect(e.body).To(Equal(`{"x":1}`))
	e.Expect(fmt.Sprint(got.Header)).NotTo(ContainSubstring(token))
}

func TestHeadersWithTheIdentityCannotBeForged(t *testing.T) {
	for _, name := range []string{
		"Fixpoint-User-Subject", "fixpoint-user-subject", "FIXPOINT-USER-ISSUER", "Fixpoint_User_Subject", "fixpoint_user-scopes", "FIXPOINT_USER_ISSUER",
		"Fixpoint.User.Subject", "Fixpoint-User-Groups", "Fixpoint-User-", "fixpoint_user_", "Fixpoint~User|Subject", "Fixpoint-User_Subject",
	} {
		t.Run(name, func(t *testing.T) {
			e := newEndpoint(t)
			response := e.do(http.MethodGet, external, "", "Authorization", "Bearer "+e.token(map[string]any{"sub": nil}), name, "admin", name, "root")
			e.Expect(response.StatusCode).To(Equal(http.StatusOK))
			for sent, values := range e.received[0].Header {
				e.Expect(values).NotTo(ContainElement(Or(Equal("admin"), Equal("root"))), sent)
			}
			e.Expect(e.received[0].Header.Get(HeaderScopes)).To(Equal("mcp"))
		})
	}
}

func TestHeadersOfTheConnectionCannotRemoveTheIdentity(t *testing.T) {
	e := newEndpoint(t)
	response := e.do(http.MethodGet, external, "", "Authorization", "Bearer "+e.token(nil),
		"Connection", "Fixpoint-User-Subject", "Upgrade", "websocket", "Te", "trailers", "Trailer", "Fixpoint-User-Subject")
	e.Expect(response.StatusCode).To(Equal(http.StatusOK))
	header := e.received[0].Header
	for _, name := range []string{"Connection", "Upgrade", "Te", "Trailer"} {
		e.Expect(header).NotTo(HaveKey(name))
	}
	e.Expect(header.Get(HeaderSubject)).To(Equal("ann"))
}

func TestIsIdentityHeader(t *testing.T) {
	g := NewWithT(t)
	for _, other := range []string{"", "Fixpoint", "Fixpoint-User", "Fixpoint-Users-X", "X-Fixpoint-User-Subject", "Fixpoint-Use-", "fixpoint0user0x"} {
		g.Expect(isIdentityHeader(other)).To(BeFalse(), other)
	}
}

// destructive are the options in tests of the scopes of tools.
func destructive(o *Options) {
	o.Tools = []ToolScopes{{"delete_*", []string{"delete"}}, {"delete_all", []string{"admin", "mcp"}}, {"echo", []string{"talk"}}, {"*_secret*", []string{"secrets"}}}
	o.MaxMessageBytes = 64 << 10
}

func call(tool string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":{}}}`
}

func TestScopes(t *testing.T) {
	cases := map[string]struct {
		scope, body string
		// needed are the scopes in the response; empty if it is allowed.
		needed string
	}{
		"the scopes of every request":         {"", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "mcp"},
		"a scope that begins like another":    {"mcp2 mc", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "mcp"},
		"another method":                      {"mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, ""},
		"a notification":                      {"mcp", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, ""},
		"a response":                          {"mcp", `{"jsonrpc":"2.0","id":1,"result":{}}`, ""},
		"a tool without scopes":               {"mcp", call("list"), ""},
		"a tool with the scope":               {"mcp talk", call("echo"), ""},
		"a tool without the scope":            {"mcp", call("echo"), "mcp talk"},
		"a name with the exact tool before":   {"mcp", call("echo2"), ""},
		"a tool of a pattern":                 {"mcp", call("delete_one"), "mcp delete"},
		"a tool of a pattern, with the scope": {"mcp delete", call("delete_one"), ""},
		"the beginning alone":                 {"mcp", call("delete_"), "mcp delete"},
		"several entries":                     {"mcp delete", call("delete_all"), "mcp delete admin"},
		"several entries, with all scopes":    {"mcp delete admin", call("delete_all"), ""},
		"a name that is escaped":              {"mcp", call(`d\u0065lete_one`), "mcp delete"},
		"a method that is escaped":            {"mcp", `{"jsonrpc":"2.0","id":1,"method":"tools\/c\u0061ll","params":{"name":"echo"}}`, "mcp talk"},
		"a call as a notification":            {"mcp", `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"echo"}}`, "mcp talk"},
		"letter case differs":                 {"mcp", call("Echo"), ""},
		"a pattern with two wildcards":        {"mcp", call("get_secret_of"), "mcp secrets"},
		"two wildcards, with the scope":       {"mcp secrets", call("get_secret"), ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			e := newEndpoint(t, destructive)

			response := e.do(http.MethodPost, external, c.body, "Authorization", "Bearer "+e.token(map[string]any{"scope": c.scope}))

			if c.needed == "" {
				e.Expect(response.StatusCode).To(Equal(http.StatusOK))
				e.Expect(e.body).To(Equal(c.body))
				e.Expect(e.received[0].ContentLength).To(BeEquivalentTo(len(c.body)))
				return
			}
			e.Expect(response.StatusCode).To(Equal(http.StatusForbidden))
			e.Expect(response.Header.Get("WWW-Authenticate")).To(HavePrefix(
				`Bearer resource_metadata="https://tools.example.com/.well-known/oauth-protected-resource/mcp", scope="` + c.needed + `", error="insufficient_scope", error_description="`))
			code, description := e.failure(response)
			e.Expect(code).To(Equal("insufficient_scope"))
			e.Expect(description).To(HaveSuffix("request a token with the scopes " + c.needed))
			e.Expect(e.received).To(BeEmpty())
		})
	}
}

// A refusal is not bounded by the limit of large messages that are held at once.
func TestRefusalsDoNotGrowWithTheMessage(t *testing.T) {
	long := strings.Repeat("<", 32<<10)
	for name, c := range map[string]struct {
		body   string
		header []string
	}{
		"a tool without the scope":    {call("delete_" + long), nil},
		"a header with another tool":  {call("get_" + long), []string{"Mcp-Name", "list"}},
		"a header and another method": {`{"id":1,"method":"` + long + `"}`, []string{"Mcp-Method", "ping"}},
		"a header and a long id":      {`{"id":"` + long + `","method":"tools/list"}`, []string{"Mcp-Method", "ping"}},
		"a tool with a header":        {`{"id":"` + long + `","method":"tools/call","params":{"name":"get"}}`, []string{"Mcp-Name", "list"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEndpoint(t, destructive)
			response := e.do(http.MethodPost, external, c.body, append(c.header, "Authorization", "Bearer "+e.token(map[string]any{"scope": "mcp"}))...)
			e.Expect(response.StatusCode).To(BeElementOf(http.StatusForbidden, http.StatusBadRequest))
			e.Expect(len(response.Header.Get("WWW-Authenticate"))).To(BeNumerically("<", 2<<10))
			body, err := io.ReadAll(response.Body)
			e.Expect(err).NotTo(HaveOccurred())
			e.Expect(len(body)).To(BeNumerically("<", 2<<10))
		})
	}
}

// Messages that a server may understand differently from the check.
func TestMessagesThatAreNotClearAreRefused(t *testing.T) {
	const mcpJSON = "application/json"
	cases := map[string]struct {
		body   string
		header []string
		status int
	}{
		"a batch":                  {"[" + call("echo") + "]", nil, 400},
		"two names":                {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list","name":"echo"}}`, nil, 400},
		"two methods":              {`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"echo"}}`, nil, 400},
		"two params":               {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list"},"params":{"name":"echo"}}`, nil, 400},
		"another letter case":      {`{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call","params":{"name":"echo"}}`, nil, 400},
		"a name that is a list":    {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":["echo"]}}`, nil, 400},
		"no name":                  {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`, nil, 400},
		"a lone surrogate":         {call(`echo\ud800`), nil, 400},
		"a lone surrogate, method": {`{"jsonrpc":"2.0","id":1,"method":"tools/call\ud800","params":{"name":"echo"}}`, nil, 400},
		"not JSON":                 {`{'method':'tools/call'}`, nil, 400},
		"two messages":             {call("list") + call("echo"), nil, 400},
		"a byte order mark":        {"\ufeff" + call("echo"), nil, 400},
		"too large":                {call(strings.Repeat("x", 64<<10)), nil, 413},
		"compressed":               {call("list"), []string{"Content-Encoding", "gzip"}, 415},
		"another charset":          {call("list"), []string{"Content-Type", mcpJSON + "; charset=utf-7"}, 415},
		"another type":             {call("list"), []string{"Content-Type", "text/plain"}, 415},
		"two types":                {call("list"), []string{"Content-Type", mcpJSON, "content-type", mcpJSON}, 415},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			e := newEndpoint(t, destructive)
			response := e.do(http.MethodPost, external, c.body, append([]string{"Authorization", "Bearer " + e.token(nil)}, c.header...)...)
			e.Expect(response.StatusCode).To(Equal(c.status))
			code, description := e.failure(response)
			e.Expect(code).To(Equal("invalid_request"))
			e.Expect(description).NotTo(BeEmpty())
			e.Expect(e.received).To(BeEmpty())
		})
	}
	t.Run("utf-8 is the only charset", func(t *testing.T) {
		e := newEndpoint(t, destructive)
		response := e.do(http.MethodPost, external, call("list"), "Authorization", "Bearer "+e.token(nil), "Content-Type", "application/json; charset=UTF-8")
		e.Expect(response.StatusCode).To(Equal(http.StatusOK))
	})
	t.Run("also of other methods", func(t *testing.T) {
		e := newEndpoint(t, destructive)
		response := e.do(http.MethodDelete, external, call("echo"), "Authorization", "Bearer "+e.token(nil))
		e.Expect(response.StatusCode).To(Equal(http.StatusForbidden))
	})
}

// The message decides, whatever the headers say, and headers that say otherwise are refused.
func TestHeadersDoNotDecideWhatIsCalled(t *testing.T) {
	cases := map[string]struct {
		body   string
		header []string
		status int
	}{
		"as the message":             {call("list"), []string{"Mcp-Method", "tools/call", "Mcp-Name", "list"}, 200},
		"as the message, encoded":    {call("list"), []string{"Mcp-Method", "tools/call", "Mcp-Name", "=?base64?bGlzdA==?="}, 200},
		"none":                       {call("list"), nil, 200},
		"another method":             {`{"jsonrpc":"2.0","id":1,"method":"ping"}`, []string{"Mcp-Method", "ping"}, 200},
		"a harmless name":            {call("echo"), []string{"Mcp-Method", "tools/call", "Mcp-Name", "list"}, 403},
		"a harmless method":          {call("echo"), []string{"Mcp-Method", "ping"}, 403},
		"a name that needs scopes":   {call("list"), []string{"Mcp-Method", "tools/call", "Mcp-Name", "echo"}, 400},
		"a method that needs scopes": {`{"jsonrpc":"2.0","id":1,"method":"ping"}`, []string{"Mcp-Method", "tools/call", "Mcp-Name", "echo"}, 400},
		"a name in letter case":      {call("list"), []string{"Mcp-Name", "List"}, 400},
		"a name twice":               {call("list"), []string{"Mcp-Name", "list", "mcp-name", "echo"}, 400},
		"a method twice":             {call("list"), []string{"Mcp-Method", "tools/call", "mcp-method", "ping"}, 400},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			e := newEndpoint(t, destructive)
			response := e.do(http.MethodPost, external, c.body, append([]string{"Authorization", "Bearer " + e.token(nil)}, c.header...)...)
			e.Expect(response.StatusCode).To(Equal(c.status))
			if c.status == http.StatusOK {
				e.Expect(e.received).To(HaveLen(1))
				return
			}
			e.Expect(e.received).To(BeEmpty())
			if c.status != http.StatusBadRequest {
				return
			}
			var body struct {
				ID    int
				Error struct {
					Code    int
					Message string
				}
			}
			e.Expect(json.NewDecoder(response.Body).Decode(&body)).To(Succeed())
			e.Expect(body.ID).To(Equal(1))
			e.Expect(body.Error.Code).To(Equal(-32020))
			e.Expect(body.Error.Message).To(Or(ContainSubstring("in the message"), ContainSubstring("of the message")))
			e.Expect(response.Header).NotTo(HaveKey("Www-Authenticate"), "the token is good")
		})
	}
}

func TestLargeMessagesReleaseTheirPlaces(t *testing.T) {
	e := newEndpoint(t, destructive)
	body := `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"` + strings.Repeat("x", 2*requestbody.SmallMessage) + `"}}`
	for range 2 * requestbody.MaxLargeMessages {
		e.Expect(e.do(http.MethodPost, external, body, "Authorization", "Bearer "+e.token(nil)).StatusCode).To(Equal(http.StatusOK))
	}
}

func TestWithoutScopesOfToolsBodiesAreNotRead(t *testing.T) {
	e := newEndpoint(t)
	body := strings.Repeat("x", 8<<20)
	e.Expect(e.do(http.MethodPost, external, body, "Authorization", "Bearer "+e.token(nil)).StatusCode).To(Equal(http.StatusOK))
	e.Expect(e.body).To(HaveLen(len(body)))
}

func TestMetadata(t *testing.T) {
	const wellKnown = "/.well-known/oauth-protected-resource"
	for target, resource := range map[string]string{
		"https://tools.example.com" + wellKnown + "/mcp":     external,
		"https://tools.example.com:443" + wellKnown + "/mcp": external,
		"https://tools.example.com" + wellKnown:              external,
		"https://tools.example.com" + wellKnown + "/mcp/":    external,
		"http://tools.acme.svc:8080" + wellKnown + "/mcp":    internal,
		"http://tools.acme.svc:8080" + wellKnown:             internal,
		"http://10.0.0.7:8080" + wellKnown + "/mcp":          external,
	} {
		t.Run(target, func(t *testing.T) {
			e := newEndpoint(t, destructive)

			response := e.do(http.MethodGet, target, "")

			e.Expect(response.StatusCode).To(Equal(http.StatusOK))
			e.Expect(response.Header.Get("Content-Type")).To(Equal("application/json"))
			e.Expect(response.Header.Get("Access-Control-Allow-Origin")).To(Equal("*"))
			var got map[string]any
			e.Expect(json.NewDecoder(response.Body).Decode(&got)).To(Succeed())
			e.Expect(got).To(Equal(map[string]any{
				"resource":                 resource,
				"authorization_servers":    []any{e.issuer.URL},
				"scopes_supported":         []any{"admin", "delete", "mcp", "secrets", "talk"},
				"bearer_methods_supported": []any{"header"},
			}))
			e.Expect(e.received).To(BeEmpty())
		})
	}
}

func TestMetadataOfOtherPathsAndMethods(t *testing.T) {
	e := newEndpoint(t)
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{http.MethodOptions, "/.well-known/oauth-protected-resource/mcp", 204},
		{http.MethodHead, "/.well-known/oauth-protected-resource/mcp", 200},
		{http.MethodPost, "/.well-known/oauth-protected-resource/mcp", 405},
		{http.MethodGet, "/.well-known/oauth-protected-resource/other", 404},
		{http.MethodGet, "/.well-known/oauth-protected-resource/../../mcp", 404},
		{http.MethodGet, "/.well-known/oauth-protected-resources", 401},
		{http.MethodGet, "/x/.well-known/oauth-protected-resource", 401},
		{http.MethodOptions, "/mcp", 401},
	} {
		response := e.do(c.method, "https://tools.example.com"+c.path, "")
		e.Expect(response.StatusCode).To(Equal(c.status), c.method+c.path)
		e.Expect(e.received).To(BeEmpty())
	}
}

// Anybody may request the metadata, so a body that does not arrive must not hold the connection.
func TestMetadataWaitsForNoBody(t *testing.T) {
	e := newEndpoint(t)
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodOptions} {
		response := e.do(method, "https://tools.example.com/.well-known/oauth-protected-resource", strings.Repeat("x", requestbody.SmallMessage+1))
		e.Expect(response.Header.Get("Connection")).To(Equal("close"), method)
	}
}

func TestChallengeNamesTheMetadataOfTheHostThatTheClientUses(t *testing.T) {
	e := newEndpoint(t)
	for target, metadata := range map[string]string{
		internal:                            "http://tools.acme.svc:8080/.well-known/oauth-protected-resource/mcp",
		external:                            "https://tools.example.com/.well-known/oauth-protected-resource/mcp",
		"http://TOOLS.example.com:443/mcp":  "https://tools.example.com/.well-known/oauth-protected-resource/mcp",
		"http://evil.example.com:8080/mcp":  "https://tools.example.com/.well-known/oauth-protected-resource/mcp",
		"http://tools.acme.svc/mcp":         "https://tools.example.com/.well-known/oauth-protected-resource/mcp",
		"http://tools.acme.svc:8080/other/": "http://tools.acme.svc:8080/.well-known/oauth-protected-resource/mcp",
	} {
		response := e.do(http.MethodGet, target, "")
		e.Expect(response.Header.Get("WWW-Authenticate")).To(ContainSubstring(`resource_metadata="`+metadata+`"`), target)
	}
}

func TestCachedTokensExpire(t *testing.T) {
	e := newEndpoint(t)
	token := e.token(map[string]any{"exp": e.clock.in(40 * time.Second)})
	e.Expect(e.with(token).StatusCode).To(Equal(http.StatusOK))
	e.clock.pass(40*time.Second + leeway - time.Second)
	e.Expect(e.with(token).StatusCode).To(Equal(http.StatusOK))
	e.clock.pass(time.Second)
	e.Expect(e.with(token).StatusCode).To(Equal(http.StatusUnauthorized))
}

func TestCacheIsBounded(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	c := newCache[string](3)
	has := func(token string, now time.Time) bool {
		value, ok := c.get(digestOf(token), now)
		g.Expect(value).To(Equal(map[bool]string{true: "of " + token}[ok]))
		return ok
	}
	for _, token := range []string{"a", "b", "c", "a"} {
		c.add(digestOf(token), "of "+token, now.Add(maxAge))
	}
	g.Expect(has("b", now)).To(BeTrue())
	c.add(digestOf("d"), "of d", now.Add(maxAge))
	g.Expect(has("c", now)).To(BeFalse(), "it was not used for longest")
	for _, token := range []string{"a", "b", "d"} {
		g.Expect(has(token, now)).To(BeTrue(), token)
		g.Expect(has(token, now.Add(maxAge))).To(BeFalse(), token)
	}
	g.Expect(c.entries).To(BeEmpty())
	g.Expect(c.order.Len()).To(BeZero())
}

func TestInvalidOptions(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options)
		says   string
	}{
		"no issuer":                 {func(o *Options) { o.Issuers = nil }, "no issuer"},
		"no resource":               {func(o *Options) { o.Resources = nil }, "no resource"},
		"an issuer over plain HTTP": {func(o *Options) { o.Issuers[0] = Issuer{URL: "http://id.example.com"} }, "must use https"},
		"keys over plain HTTP":      {func(o *Options) { o.Issuers[0].Keys = "http://id.example.com/keys" }, "must use https"},
		"keys at no URL":            {func(o *Options) { o.Issuers[0].Keys = "keys.json" }, "not a URL"},
		"an empty issuer":           {func(o *Options) { o.Issuers[0].URL = "" }, "an issuer is empty"},
		"an issuer twice":           {func(o *Options) { o.Issuers = append(o.Issuers, o.Issuers[0]) }, "is repeated"},
		"a resource without a host": {func(o *Options) { o.Resources[0] = "/mcp" }, "not the URL of an endpoint"},
		"a resource with a query":   {func(o *Options) { o.Resources[0] += "?a=b" }, "not the URL of an endpoint"},
		"a scope with a space":      {func(o *Options) { o.Scopes = []string{"a b"} }, `scope "a b"`},
		"a scope with a quote":      {func(o *Options) { o.Scopes = []string{`a"`} }, "scope"},
		"an empty scope of a tool":  {func(o *Options) { o.Tools = []ToolScopes{{"x", []string{""}}} }, "scope"},
		"a tool without scopes":     {func(o *Options) { o.Tools = []ToolScopes{{"x", nil}} }, `tool "x"`},
		"a tool without a name":     {func(o *Options) { o.Tools = []ToolScopes{{"", []string{"a"}}} }, `tool ""`},
	} {
		t.Run(name, func(t *testing.T) {
			opts := Options{Issuers: []Issuer{{URL: "https://id.example.com"}}, Resources: []string{external}}
			c.change(&opts)
			_, err := New(opts)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(c.says)))
		})
	}
	_, err := New(Options{Issuers: []Issuer{{URL: "http://id.example.com"}}, Resources: []string{external}, AllowHTTP: true})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
}

func TestLoadRoots(t *testing.T) {
	g := NewWithT(t)
	for _, path := range []string{"", t.TempDir() + "/missing"} {
		_, err := LoadRoots(path)
		g.Expect(err).NotTo(HaveOccurred())
	}
	_, err := LoadRoots("authorizer_test.go")
	g.Expect(err).To(MatchError(ContainSubstring("no CA certificates")))
}

// BenchmarkWarmToken is a request with a token that has been verified before.
func BenchmarkWarmToken(b *testing.B) { benchmark(b, signing(), func(*Authorizer) {}) }

// BenchmarkWarmKey verifies the token of each request, with a key that is known.
func BenchmarkWarmKey(b *testing.B) {
	for _, with := range []key{signing(), rsaKey("two", jose.RS256), edKey("three")} {
		b.Run(string(with.algorithm), func(b *testing.B) {
			benchmark(b, with, func(a *Authorizer) { a.cache = newCache[*identity](maxCached) })
		})
	}
}

func benchmark(b *testing.B, with key, before func(*Authorizer)) {
	e := newEndpoint(b)
	e.issuer.publish(with)
	handler := e.auth.Protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r := httptest.NewRequest(http.MethodGet, external, http.NoBody)
	r.Header.Set("Authorization", "Bearer "+sign(b, with, e.claims(nil), map[string]any{"typ": "at+jwt"}))
	handler.ServeHTTP(httptest.NewRecorder(), r) // loads the key
	fastest := time.Hour
	for b.Loop() {
		before(e.auth)
		w := httptest.NewRecorder()
		begun := time.Now()
		handler.ServeHTTP(w, r)
		fastest = min(fastest, time.Since(begun))
		if w.Code != http.StatusOK {
			b.Fatal(w.Code, w.Body)
		}
	}
	b.ReportMetric(float64(fastest.Nanoseconds()), "fastest-ns")
	// The fastest one, because others may have waited for a processor.
	if limit := 100 * time.Microsecond; fastest > limit {
		b.Errorf("a request takes at least %s; the limit is %s", fastest, limit)
	}
}
