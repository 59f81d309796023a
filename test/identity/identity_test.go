package identity

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/internal/authorization"
	"github.com/fixpoint-dev/fixpoint/internal/authproxy"
)

type none struct{}

// protect puts a proxy in front of a server of the SDK, and returns the URL of the endpoint.
func protect(t *testing.T, g *WithT, issuer string) string {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "tools", Version: "1"}, nil)
	for _, name := range []string{"whoami", "delete_all"} {
		mcp.AddTool(server, &mcp.Tool{Name: name}, func(_ context.Context, r *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, none, error) {
			header := r.Extra.Header
			text := header.Get("Authorization") + header.Get(authorization.HeaderSubject) + " has " + header.Get(authorization.HeaderScopes)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, none{}, nil
		})
	}
	behind := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(behind.Close)
	at, err := url.Parse(behind.URL)
	g.Expect(err).NotTo(HaveOccurred())
	port, err := strconv.Atoi(at.Port())
	g.Expect(err).NotTo(HaveOccurred())

	front := httptest.NewUnstartedServer(nil)
	endpoint := "http://" + front.Listener.Addr().String() + "/mcp"
	authorizer, err := authorization.New(authorization.Options{
		Issuers: []authorization.Issuer{{URL: issuer}}, Resources: []string{endpoint}, Scopes: []string{"openid"},
		Tools: []authorization.ToolScopes{{Pattern: "delete_*", Scopes: []string{"admin"}}},
	})
	g.Expect(err).NotTo(HaveOccurred())
	proxy, err := authproxy.New(authproxy.Options{Port: port, Protect: authorizer.Protect, DrainTimeout: time.Second})
	g.Expect(err).NotTo(HaveOccurred())
	front.Config.Handler = proxy.Handler()
	front.Start()
	t.Cleanup(front.Close)
	return endpoint
}

// A client that knows only the URL of the endpoint, and its ID at the provider, discovers everything else: from the
// challenge the metadata of the resource, from that the issuer, and the scopes of a tool when it calls it.
func TestClientDiscoversTheProvider(t *testing.T) {
	g := NewWithT(t)
	issuer := newProvider(t)
	endpoint := protect(t, g, issuer)
	var authorizations []url.Values
	handler, err := auth.NewAuthorizationCodeHandler(&auth.AuthorizationCodeHandlerConfig{
		PreregisteredClient: &oauthex.ClientCredentials{ClientID: clientID},
		RedirectURL:         redirectURL,
		AuthorizationCodeFetcher: func(_ context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
			asked, err := url.Parse(args.URL)
			g.Expect(err).NotTo(HaveOccurred())
			authorizations = append(authorizations, asked.Query())
			done, err := logIn(g, args.URL).Location()
			g.Expect(err).NotTo(HaveOccurred())
			return &auth.AuthorizationResult{Code: done.Query().Get("code"), State: done.Query().Get("state"), Iss: done.Query().Get("iss")}, nil
		},
		AcceptUnadvertisedIss: true,
	})
	g.Expect(err).NotTo(HaveOccurred())

	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
		&mcp.StreamableClientTransport{Endpoint: endpoint, OAuthHandler: handler, MaxRetries: -1}, nil)
	g.Expect(err).NotTo(HaveOccurred())
	defer session.Close()
	call := func(tool string) string {
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(result.IsError).To(BeFalse())
		text, ok := result.Content[0].(*mcp.TextContent)
		g.Expect(ok).To(BeTrue())
		return text.Text
	}
	g.Expect(call("whoami")).To(Equal("id1 has openid"))
	g.Expect(authorizations).To(HaveLen(1))
	g.Expect(authorizations[0].Get("resource")).To(Equal(endpoint))
	g.Expect(authorizations[0].Get("scope")).To(Equal("openid"))

	t.Log("the scopes of a tool are requested when it is called")
	g.Expect(call("delete_all")).To(Equal("id1 has admin openid"))
	g.Expect(authorizations).To(HaveLen(2))
	g.Expect(call("delete_all")).To(Equal("id1 has admin openid"))
	g.Expect(authorizations).To(HaveLen(2))
}
