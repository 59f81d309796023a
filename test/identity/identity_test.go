package identity

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/internal/authorization"
	"github.com/fixpoint-dev/fixpoint/internal/authproxy"
	"github.com/fixpoint-dev/fixpoint/test/identity/provider"
)

type none struct{}

// protect puts a proxy in front of a server of the SDK, and returns the URL of the endpoint.
func protect(t *testing.T, g *WithT, issuer string, exchange *authorization.Exchange) string {
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

	clients, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	admin, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	endpoint := "http://" + clients.Addr().String() + "/mcp"
	authorizer, err := authorization.New(authorization.Options{
		Issuers: []authorization.Issuer{{URL: issuer}}, Resources: []string{endpoint}, Scopes: []string{"openid"},
		Tools: []authorization.ToolScopes{{Pattern: "delete_*", Scopes: []string{"admin"}}}, Exchange: exchange,
	})
	g.Expect(err).NotTo(HaveOccurred())
	proxy, err := authproxy.New(authproxy.Options{Port: port, Protect: authorizer.Protect, DrainTimeout: time.Second})
	g.Expect(err).NotTo(HaveOccurred())
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- proxy.Serve(ctx, ctx, clients, admin) }()
	t.Cleanup(func() {
		stop()
		g.Expect(<-served).To(Succeed())
	})
	return endpoint
}

// newProvider starts an identity provider.
func newProvider(t *testing.T) (issuer string, p *provider.Provider) {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	issuer = "http://" + strings.Replace(server.Listener.Addr().String(), "127.0.0.1", "localhost", 1)
	p = provider.New(issuer, "secret")
	server.Config.Handler = p
	server.Start()
	t.Cleanup(server.Close)
	return issuer, p
}

// logIn does what a user does in a browser at an authorization URL, and returns where the provider redirects to.
func logIn(g *WithT, url string) *http.Response {
	browser := &http.Client{CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), provider.RedirectURL) {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	page, err := browser.Get(url)
	g.Expect(err).NotTo(HaveOccurred())
	defer page.Body.Close()
	g.Expect(page.StatusCode).To(Equal(http.StatusOK))
	form := page.Request.URL
	id := form.Query().Get("authRequestID")
	g.Expect(id).NotTo(BeEmpty(), form.String())
	done, err := browser.PostForm(form.Scheme+"://"+form.Host+form.Path, map[string][]string{
		"username": {provider.User}, "password": {provider.Password}, "id": {id},
	})
	g.Expect(err).NotTo(HaveOccurred())
	defer done.Body.Close()
	g.Expect(done.StatusCode).To(Equal(http.StatusFound))
	return done
}

// connect opens a session of the official client, which gets its tokens from the provider.
func connect(t *testing.T, g *WithT, endpoint string) (*mcp.ClientSession, *[]url.Values, error) {
	t.Helper()
	authorizations := &[]url.Values{}
	handler, err := auth.NewAuthorizationCodeHandler(&auth.AuthorizationCodeHandlerConfig{
		PreregisteredClient: &oauthex.ClientCredentials{ClientID: provider.ClientID},
		RedirectURL:         provider.RedirectURL,
		AuthorizationCodeFetcher: func(_ context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
			asked, err := url.Parse(args.URL)
			g.Expect(err).NotTo(HaveOccurred())
			*authorizations = append(*authorizations, asked.Query())
			done, err := logIn(g, args.URL).Location()
			g.Expect(err).NotTo(HaveOccurred())
			return &auth.AuthorizationResult{Code: done.Query().Get("code"), State: done.Query().Get("state"), Iss: done.Query().Get("iss")}, nil
		},
		AcceptUnadvertisedIss: true,
	})
	g.Expect(err).NotTo(HaveOccurred())
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
		&mcp.StreamableClientTransport{Endpoint: endpoint, OAuthHandler: handler, MaxRetries: -1}, nil)
	if err == nil {
		t.Cleanup(func() { _ = session.Close() })
	}
	return session, authorizations, err
}

func call(t *testing.T, session *mcp.ClientSession, tool string) (string, error) {
	t.Helper()
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool})
	if err != nil {
		return "", err
	}
	text, ok := result.Content[0].(*mcp.TextContent)
	NewWithT(t).Expect(ok && !result.IsError).To(BeTrue())
	return text.Text, nil
}

// A client that knows only the URL of the endpoint, and its ID at the provider, discovers everything else: from the
// challenge the metadata of the resource, from that the issuer, and the scopes of a tool when it calls it.
func TestClientDiscoversTheProvider(t *testing.T) {
	g := NewWithT(t)
	issuer, _ := newProvider(t)
	endpoint := protect(t, g, issuer, nil)

	session, authorizations, err := connect(t, g, endpoint)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(call(t, session, "whoami")).To(Equal("id1 has openid"))
	g.Expect(*authorizations).To(HaveLen(1))
	g.Expect((*authorizations)[0].Get("resource")).To(Equal(endpoint))
	g.Expect((*authorizations)[0].Get("scope")).To(Equal("openid"))

	t.Log("the scopes of a tool are requested when it is called")
	for range 2 {
		g.Expect(call(t, session, "delete_all")).To(Equal("id1 has admin openid"))
		g.Expect(*authorizations).To(HaveLen(2))
	}
}

// exchanging configures the client of the MCP server at the provider.
func exchanging(t *testing.T, g *WithT, issuer, audience string) *authorization.Exchange {
	t.Helper()
	at := t.TempDir()
	g.Expect(os.WriteFile(filepath.Join(at, "client-id"), []byte(provider.ServerID), 0o600)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(at, "client-secret"), []byte("secret"), 0o600)).To(Succeed())
	return &authorization.Exchange{TokenURL: issuer + "/oauth/token", Credentials: at, Audience: audience, Scopes: []string{"read"}}
}

func TestServerGetsATokenOfItsOwn(t *testing.T) {
	g := NewWithT(t)
	issuer, p := newProvider(t)
	exchange := exchanging(t, g, issuer, provider.ServerAudience)
	endpoint := protect(t, g, issuer, exchange)
	session, _, err := connect(t, g, endpoint)
	g.Expect(err).NotTo(HaveOccurred())

	text, err := call(t, session, "whoami")

	g.Expect(err).NotTo(HaveOccurred())
	token, ok := strings.CutPrefix(text, "Bearer ")
	g.Expect(ok).To(BeTrue(), text)
	token, who, _ := strings.Cut(token, "id1")
	g.Expect(who).To(Equal(" has openid"), "the identity is that of the caller")
	g.Expect(claims(g, token)).To(And(
		HaveKeyWithValue("iss", issuer), HaveKeyWithValue("sub", "id1"), HaveKeyWithValue("aud", ConsistOf("orders")), HaveKeyWithValue("scope", "read"),
		HaveKeyWithValue("act", HaveKeyWithValue("sub", "tools")),
	))
	g.Expect(call(t, session, "whoami")).To(Equal(text), "the token is kept")
	g.Expect(p.Exchanges()).To(Equal(1))

	t.Log("a rotated secret")
	p.RotateSecret("rotated")
	_, _, err = connect(t, g, endpoint)
	g.Expect(err).To(MatchError(ContainSubstring("Service Unavailable")))
	g.Expect(os.WriteFile(filepath.Join(exchange.Credentials, "client-secret"), []byte("rotated\n"), 0o600)).To(Succeed())
	_, _, err = connect(t, g, endpoint)
	g.Expect(err).NotTo(HaveOccurred())
}

// claims are those of a token.
func claims(g *WithT, token string) (found map[string]any) {
	parts := strings.Split(token, ".")
	g.Expect(parts).To(HaveLen(3))
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(json.Unmarshal(raw, &found)).To(Succeed())
	return found
}

func TestProviderThatRefusesTheExchange(t *testing.T) {
	g := NewWithT(t)
	issuer, p := newProvider(t)
	_, _, err := connect(t, g, protect(t, g, issuer, exchanging(t, g, issuer, "payments")))
	g.Expect(err).To(MatchError(ContainSubstring("Forbidden")))
	g.Expect(p.Exchanges()).To(BeZero())
}
