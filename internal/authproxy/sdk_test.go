package authproxy

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/internal/authorization"
)

const (
	sdkResource = "https://tools.example.com/mcp"
	sdkIssuer   = "https://id.example.com"
)

type none struct{}

// newSDKServer is an unmodified server of the SDK, with its default protection of servers on localhost. Only one without
// sessions serves 2026-07-28.
func newSDKServer(stateless bool) http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "tools", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "whoami"}, func(_ context.Context, r *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, none, error) {
		header := r.Extra.Header
		if header.Get("Authorization") != "" {
			return nil, none{}, errors.New("the server got the token")
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: header.Get(authorization.HeaderSubject)}}}, none{}, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "count"}, func(ctx context.Context, r *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, none, error) {
		for i := range 3 {
			if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i + 1)}); err != nil {
				return nil, none{}, err
			}
		}
		return &mcp.CallToolResult{}, none{}, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "delete_all"}, func(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, none, error) {
		return &mcp.CallToolResult{}, none{}, nil
	})
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: stateless})
}

// bearing adds a token to each request.
type bearing string

func (b bearing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	r.Header.Set("Fixpoint_User_Subject", "root")
	return http.DefaultTransport.RoundTrip(r)
}

// newProtected returns the middleware and a function that returns tokens.
func newProtected(t *testing.T) (*authorization.Authorizer, func(scope string) string) {
	t.Helper()
	g := NewWithT(t)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: private.Public(), KeyID: "one"}}})
	g.Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(t.TempDir(), "jwks.json")
	g.Expect(os.WriteFile(file, keys, 0o600)).To(Succeed())
	authorizer, err := authorization.New(authorization.Options{
		Issuers: []authorization.Issuer{{URL: sdkIssuer, Keys: file}}, Resources: []string{sdkResource}, Scopes: []string{"mcp"},
		Tools: []authorization.ToolScopes{{Pattern: "delete_*", Scopes: []string{"admin"}}},
	})
	g.Expect(err).NotTo(HaveOccurred())
	return authorizer, func(scope string) string {
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: private, KeyID: "one"}}, nil)
		g.Expect(err).NotTo(HaveOccurred())
		token, err := jwt.Signed(signer).Claims(jwt.Claims{
			Issuer: sdkIssuer, Subject: "ann", Audience: jwt.Audience{sdkResource}, Expiry: jwt.NewNumericDate(time.Now().Add(time.Hour)),
		}).Claims(map[string]any{"scope": scope}).Serialize()
		g.Expect(err).NotTo(HaveOccurred())
		return token
	}
}

// The official SDK, unmodified, on both sides of the proxy.
func TestClientsOfTheSDK(t *testing.T) {
	authorizer, token := newProtected(t)
	_, front, _ := newProxy(t, newSDKServer(false), authorizer.Protect)
	_, stateless, _ := newProxy(t, newSDKServer(true), authorizer.Protect)
	for version, front := range map[string]string{"2025-11-25": front, "2026-07-28": stateless} {
		t.Run(version, func(t *testing.T) {
			g := NewWithT(t)
			progress := make(chan float64, 3)
			client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
				ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progress <- r.Params.Progress },
			})
			session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
				Endpoint: front + "/mcp", MaxRetries: -1, HTTPClient: &http.Client{Transport: bearing(token("mcp"))},
			}, &mcp.ClientSessionOptions{ProtocolVersion: version})
			g.Expect(err).NotTo(HaveOccurred())
			defer session.Close()
			g.Expect(session.InitializeResult().ProtocolVersion).To(Equal(version))

			tools, err := session.ListTools(t.Context(), nil)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(tools.Tools).To(HaveLen(3))

			said, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "whoami"})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(said.IsError).To(BeFalse())
			g.Expect(said.Content[0]).To(Equal(&mcp.TextContent{Text: "ann"}))

			counted := &mcp.CallToolParams{Name: "count"}
			counted.SetProgressToken("p")
			_, err = session.CallTool(t.Context(), counted)
			g.Expect(err).NotTo(HaveOccurred())
			for i := range 3 {
				g.Eventually(progress, testTimeout).Should(Receive(BeNumerically("==", i+1)))
			}

			_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "delete_all"})
			g.Expect(err).To(MatchError(ContainSubstring("Forbidden")))
		})
	}
	t.Run("with the scope of the tool", func(t *testing.T) {
		g := NewWithT(t)
		session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{
			Endpoint: front + "/mcp", MaxRetries: -1, HTTPClient: &http.Client{Transport: bearing(token("mcp admin"))},
		}, nil)
		g.Expect(err).NotTo(HaveOccurred())
		defer session.Close()
		_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "delete_all"})
		g.Expect(err).NotTo(HaveOccurred())
	})
	t.Run("without a token", func(t *testing.T) {
		_, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{
			Endpoint: front + "/mcp", MaxRetries: -1,
		}, nil)
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring("Unauthorized")))
	})
}
