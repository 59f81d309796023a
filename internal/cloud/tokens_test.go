package cloud

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	. "github.com/onsi/gomega"
)

// directory is a Microsoft Entra ID that issues the same token to all, or refuses all.
type directory struct {
	refuses bool
	// asserted is the assertion that it got.
	asserted string
}

// Do implements the SDK's transport.
func (d *directory) Do(request *http.Request) (*http.Response, error) {
	const authority = "https://login.microsoftonline.com/tenant/"
	switch path := request.URL.Path; {
	case strings.Contains(path, "/discovery/"):
		return (&canned{http.StatusOK, nil, []byte(`{"tenant_discovery_endpoint": "` + authority + `v2.0/.well-known/openid-configuration", "metadata": []}`)}).Do(request)
	case strings.Contains(path, "/.well-known/"):
		return (&canned{http.StatusOK, nil, []byte(`{"issuer": "` + authority + `v2.0", "token_endpoint": "` + authority + `oauth2/v2.0/token", "authorization_endpoint": "` + authority + `oauth2/v2.0/authorize"}`)}).Do(request)
	case d.refuses:
		return (&canned{http.StatusUnauthorized, nil, []byte(`{"error": "invalid_client", "error_description": "AADSTS7000215"}`)}).Do(request)
	default:
		_ = request.ParseForm()
		d.asserted = request.PostForm.Get("client_assertion") + request.PostForm.Get("client_secret")
		return (&canned{http.StatusOK, nil, []byte(`{"token_type": "Bearer", "expires_in": 3600, "access_token": "issued"}`)}).Do(request)
	}
}

const tokenTenant, tokenClient = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"

func credentialsAt(d *directory) AzureCredentials {
	return AzureCredentials{azcore.ClientOptions{Transport: d, Retry: policy.RetryOptions{MaxRetries: -1}}}
}

var anyScope = policy.TokenRequestOptions{Scopes: []string{"https://management.azure.com/.default"}}

func TestTokensOfMicrosoftEntraID(t *testing.T) {
	for name, create := range map[string]func(c AzureCredentials) (azcore.TokenCredential, error){
		"client secret": func(c AzureCredentials) (azcore.TokenCredential, error) {
			return c.Secret(tokenTenant, tokenClient, "proof")
		},
		"assertion": func(c AzureCredentials) (azcore.TokenCredential, error) {
			return c.Assertion(tokenTenant, tokenClient, func(context.Context) (string, error) { return "proof", nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			d := &directory{}
			credential, err := create(credentialsAt(d))
			g.Expect(err).NotTo(HaveOccurred())
			token, err := credential.GetToken(t.Context(), anyScope)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(token.Token).To(Equal("issued"))
			g.Expect(token.ExpiresOn).To(BeTemporally("~", time.Now().Add(time.Hour), time.Minute))
			g.Expect(d.asserted).To(Equal("proof"))
			// and a refusal is one of the directory
			refused, err := create(credentialsAt(&directory{refuses: true}))
			g.Expect(err).NotTo(HaveOccurred())
			_, err = refused.GetToken(t.Context(), anyScope)
			g.Expect(err).To(BeAssignableToTypeOf(&azidentity.AuthenticationFailedError{}))
		})
	}
}

func TestManagerUsesTheIdentityOfItsEnvironment(t *testing.T) {
	g := NewWithT(t)
	for name, value := range map[string]string{"AZURE_TENANT_ID": tokenTenant, "AZURE_CLIENT_ID": tokenClient, "AZURE_CLIENT_SECRET": "proof"} {
		t.Setenv(name, value)
	}
	d := &directory{}
	credential, err := credentialsAt(d).Own()
	g.Expect(err).NotTo(HaveOccurred())
	token, err := credential.GetToken(t.Context(), anyScope)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(token.Token).To(Equal("issued"))
	g.Expect(d.asserted).To(Equal("proof"))
}

func TestOtherIDsThanUUIDsAreRefused(t *testing.T) {
	g := NewWithT(t)
	credential, err := AzureCredentials{}.Assertion("no tenant", tokenClient, nil)
	g.Expect(err).To(HaveOccurred())
	g.Expect(credential).To(BeNil())
	_, err = AzureCredentials{}.Secret("no tenant", tokenClient, "proof")
	g.Expect(err).To(HaveOccurred())
}

// The error says what to do, and the SDK would turn it into text.
func TestErrorOfAssertionIsReturned(t *testing.T) {
	g := NewWithT(t)
	missing := &AssertionError{Message: "ServiceAccount a does not exist"}
	credential, err := credentialsAt(&directory{}).Assertion(tokenTenant, tokenClient, func(context.Context) (string, error) { return "", missing })
	g.Expect(err).NotTo(HaveOccurred())
	_, err = credential.GetToken(t.Context(), anyScope)
	g.Expect(err).To(BeIdenticalTo(missing))
	// and one that does not ask for the error gets that of the SDK
	_, err = credential.(asserted).directory.GetToken(t.Context(), anyScope) //nolint:errcheck // it is one
	g.Expect(err).To(MatchError(ContainSubstring(missing.Message)))
}

func TestFixedTokens(t *testing.T) {
	credentials := TokenCredentials{Token: "own"}
	assertion := func(token string, err error) func() (azcore.TokenCredential, error) {
		return func() (azcore.TokenCredential, error) {
			return credentials.Assertion("", "", func(context.Context) (string, error) { return token, err })
		}
	}
	for name, c := range map[string]struct {
		create  func() (azcore.TokenCredential, error)
		want    string
		expires time.Duration
		err     string
	}{
		"of the manager":    {create: credentials.Own, want: "own", expires: time.Hour},
		"of a secret":       {create: func() (azcore.TokenCredential, error) { return credentials.Secret("", "", "secret") }, want: "secret", expires: time.Hour},
		"of no secret":      {create: func() (azcore.TokenCredential, error) { return credentials.Secret("", "", "") }, err: "the bearer token is empty"},
		"of an assertion":   {create: assertion("asserted", nil), want: "asserted", expires: 10 * time.Minute},
		"without assertion": {create: assertion("", errors.New("no ServiceAccount")), err: "no ServiceAccount"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			credential, err := c.create()
			g.Expect(err).NotTo(HaveOccurred())
			token, err := credential.GetToken(t.Context(), anyScope)
			if c.err != "" {
				g.Expect(err).To(MatchError(c.err))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(token.Token).To(Equal(c.want))
			g.Expect(token.ExpiresOn).To(BeTemporally("~", time.Now().Add(c.expires), time.Minute))
		})
	}
}
