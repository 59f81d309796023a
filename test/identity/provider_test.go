package identity

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

const (
	clientID    = "mcp-client"
	redirectURL = "http://localhost/callback"
)

// provider is the storage of the identity provider: its example, with access tokens that are JWTs for the resource that
// the client names, and with all scopes allowed.
type provider struct {
	*storage.Storage
	// resources are those of authorization requests, by ID.
	resources sync.Map
}

// resourceKey is the key of the resource in the context of a request.
type resourceKey struct{}

// newProvider starts an identity provider, and returns its issuer.
func newProvider(t *testing.T) string {
	t.Helper()
	var handler http.Handler
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The library does not read the parameter resource (RFC 8707).
		handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), resourceKey{}, r.URL.Query().Get("resource"))))
	}))
	t.Cleanup(server.Close)
	issuer := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	clients := map[string]*storage.Client{clientID: storage.NativeClient(clientID, redirectURL)}
	all := &provider{Storage: storage.NewStorageWithClients(storage.NewUserStore(issuer), clients)}
	handler = exampleop.SetupServer(issuer, all, slog.New(slog.NewTextHandler(io.Discard, nil)), false)
	return issuer
}

// request is an authorization request for a resource.
type request struct {
	*storage.AuthRequest
	resource string
}

func (r *request) GetAudience() []string { return []string{r.resource} }

func (p *provider) CreateAuthRequest(ctx context.Context, in *oidc.AuthRequest, user string) (op.AuthRequest, error) {
	made, err := p.Storage.CreateAuthRequest(ctx, in, user)
	if err == nil {
		resource, _ := ctx.Value(resourceKey{}).(string)
		p.resources.Store(made.GetID(), resource)
	}
	return made, err
}

func (p *provider) AuthRequestByCode(ctx context.Context, code string) (op.AuthRequest, error) {
	made, err := p.Storage.AuthRequestByCode(ctx, code)
	if err != nil {
		return nil, err
	}
	inner, _ := made.(*storage.AuthRequest)
	named, _ := p.resources.Load(made.GetID())
	resource, _ := named.(string)
	return &request{inner, resource}, nil
}

// client gets JWTs, with any scope.
type client struct{ op.Client }

func (client) AccessTokenType() op.AccessTokenType { return op.AccessTokenTypeJWT }
func (client) IsScopeAllowed(string) bool          { return true }

func (p *provider) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	known, err := p.Storage.GetClientByClientID(ctx, id)
	if err != nil {
		return nil, err
	}
	return client{known}, nil
}

func (p *provider) GetPrivateClaimsFromScopes(_ context.Context, _, _ string, scopes []string) (map[string]any, error) {
	return map[string]any{"scope": strings.Join(scopes, " ")}, nil
}

// logIn does what a user does in a browser at an authorization URL, and returns where the provider redirects to.
func logIn(g *WithT, url string) *http.Response {
	browser := &http.Client{CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), redirectURL) {
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
		"username": {"test-user@localhost"}, "password": {"verysecure"}, "id": {id},
	})
	g.Expect(err).NotTo(HaveOccurred())
	defer done.Body.Close()
	g.Expect(done.StatusCode).To(Equal(http.StatusFound))
	return done
}
