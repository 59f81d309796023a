// Package provider is the identity provider of the tests: the OpenID Provider of github.com/zitadel/oidc, with its example
// as storage. Access tokens are JWTs for the resource that the client names, with all scopes that it asks for.
package provider

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

const (
	// ClientID is the client of users, which has no secret.
	ClientID = "mcp-client"
	// RedirectURL is where it is redirected to.
	RedirectURL = "http://localhost/callback"
	// ServerID is the client of the MCP server.
	ServerID = "tools"
	// ServerAudience is what it may exchange tokens for.
	ServerAudience = "orders"
	// User is a user.
	User = "test-user@localhost"
	// Password is that of User.
	Password = "verysecure"
)

// Provider is an identity provider.
type Provider struct {
	http.Handler
	storage *provider
}

// New returns an identity provider at an issuer, which must have the host localhost.
func New(issuer, serverSecret string) *Provider {
	clients := map[string]*storage.Client{
		ClientID: storage.NativeClient(ClientID, RedirectURL),
		ServerID: storage.WebClient(ServerID, serverSecret),
	}
	all := &provider{Storage: storage.NewStorageWithClients(storage.NewUserStore(issuer), clients), secret: serverSecret}
	served := exampleop.SetupServer(issuer, all, slog.New(slog.NewTextHandler(io.Discard, nil)), false)
	return &Provider{storage: all, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The library does not read the parameter resource (RFC 8707).
		served.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), resourceKey{}, r.URL.Query().Get("resource"))))
	})}
}

// RotateSecret replaces the secret of the client of the MCP server.
func (p *Provider) RotateSecret(secret string) {
	p.storage.mu.Lock()
	defer p.storage.mu.Unlock()
	p.storage.secret = secret
}

// Exchanges is how many tokens were exchanged.
func (p *Provider) Exchanges() int {
	p.storage.mu.Lock()
	defer p.storage.mu.Unlock()
	return p.storage.exchanges
}

// provider is the storage.
type provider struct {
	*storage.Storage
	// resources are those of authorization requests, by ID.
	resources sync.Map

	mu        sync.Mutex
	secret    string
	exchanges int
}

// resourceKey is the key of the resource in the context of a request.
type resourceKey struct{}

// request is an authorization request for a resource.
type request struct {
	*storage.AuthRequest
	resource string
}

// GetAudience implements op.AuthRequest.
func (r *request) GetAudience() []string { return []string{r.resource} }

// CreateAuthRequest implements op.Storage.
func (p *provider) CreateAuthRequest(ctx context.Context, in *oidc.AuthRequest, user string) (op.AuthRequest, error) {
	made, err := p.Storage.CreateAuthRequest(ctx, in, user)
	if err == nil {
		resource, _ := ctx.Value(resourceKey{}).(string)
		p.resources.Store(made.GetID(), resource)
	}
	return made, err
}

// AuthRequestByCode implements op.Storage.
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

// AccessTokenType implements op.Client.
func (client) AccessTokenType() op.AccessTokenType { return op.AccessTokenTypeJWT }

// IsScopeAllowed implements op.Client.
func (client) IsScopeAllowed(string) bool { return true }

// GetClientByClientID implements op.Storage.
func (p *provider) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	known, err := p.Storage.GetClientByClientID(ctx, id)
	if err != nil {
		return nil, err
	}
	return client{known}, nil
}

// GetPrivateClaimsFromScopes implements op.Storage.
func (p *provider) GetPrivateClaimsFromScopes(_ context.Context, _, _ string, scopes []string) (map[string]any, error) {
	return map[string]any{"scope": strings.Join(scopes, " ")}, nil
}

// AuthorizeClientIDSecret checks the secret of the client of the MCP server, which may have been rotated.
func (p *provider) AuthorizeClientIDSecret(ctx context.Context, id, secret string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if id == ServerID && secret != p.secret {
		return oidc.ErrInvalidClient()
	}
	if id == ServerID {
		return nil
	}
	return p.Storage.AuthorizeClientIDSecret(ctx, id, secret)
}

// ValidateTokenExchangeRequest permits the client of the MCP server tokens for its audience.
func (p *provider) ValidateTokenExchangeRequest(_ context.Context, r op.TokenExchangeRequest) error {
	if r.GetClientID() != ServerID {
		return oidc.ErrUnauthorizedClient()
	}
	if !slices.Equal(r.GetAudience(), []string{ServerAudience}) {
		return oidc.ErrInvalidTarget().WithDescription("the client may not call it")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.exchanges++
	return nil
}

// GetPrivateClaimsFromTokenExchangeRequest implements op.TokenExchangeStorage.
func (p *provider) GetPrivateClaimsFromTokenExchangeRequest(_ context.Context, r op.TokenExchangeRequest) (map[string]any, error) {
	return map[string]any{"scope": strings.Join(r.GetScopes(), " "), "act": map[string]any{"sub": r.GetClientID()}}, nil
}
