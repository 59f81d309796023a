package cloud

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	azcloud "github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
)

// Credentials creates tokens for the identities that a cloud supports.
type Credentials interface {
	// Own is the identity of the manager.
	Own() (azcore.TokenCredential, error)
	// Secret is an application with a client secret.
	Secret(tenantID, clientID, secret string) (azcore.TokenCredential, error)
	// Assertion is an application with a federated credential.
	Assertion(tenantID, clientID string, assert func(context.Context) (string, error)) (azcore.TokenCredential, error)
}

// AzureCredentials are the credentials of Microsoft Entra ID.
type AzureCredentials struct{ options azcore.ClientOptions }

// Own implements [Credentials] with environment variables, a workload identity or a managed identity.
func (c AzureCredentials) Own() (azcore.TokenCredential, error) {
	return azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{ClientOptions: c.options})
}

// Secret implements [Credentials].
func (c AzureCredentials) Secret(tenantID, clientID, secret string) (azcore.TokenCredential, error) {
	return azidentity.NewClientSecretCredential(tenantID, clientID, secret, &azidentity.ClientSecretCredentialOptions{ClientOptions: c.options})
}

// Assertion implements [Credentials].
func (c AzureCredentials) Assertion(tenantID, clientID string, assert func(context.Context) (string, error)) (azcore.TokenCredential, error) {
	directory, err := azidentity.NewClientAssertionCredential(tenantID, clientID, func(ctx context.Context) (string, error) {
		token, err := assert(ctx)
		if failure, ok := ctx.Value(failureKey{}).(*error); ok {
			*failure = err
		}
		return token, err
	}, &azidentity.ClientAssertionCredentialOptions{ClientOptions: c.options})
	if err != nil {
		return nil, err
	}
	return asserted{directory}, nil
}

// AssertionError says why no assertion could be created. Its message must contain nothing secret, and must not change
// between retries.
type AssertionError struct {
	Message string
	// Temporary is true if a retry can help.
	Temporary bool
}

func (e *AssertionError) Error() string { return e.Message }

func (e *AssertionError) kind() Kind {
	if e.Temporary {
		return Unreachable
	}
	return NoAssertion
}

// asserted returns the error of the assertion unchanged; the SDK would turn it into text.
type asserted struct{ directory azcore.TokenCredential }

type failureKey struct{}

// GetToken implements the SDK's interface.
func (a asserted) GetToken(ctx context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	var failure error
	token, err := a.directory.GetToken(context.WithValue(ctx, failureKey{}, &failure), options)
	if failure != nil {
		return azcore.AccessToken{}, failure
	}
	return token, err
}

// FileCredentials are [TokenCredentials] with the manager's token in a file, which is read again for each
// request, so that a renewed token takes effect at once.
type FileCredentials struct {
	TokenCredentials
	Path string
}

// Own implements [Credentials].
func (c FileCredentials) Own() (azcore.TokenCredential, error) { return tokenFile(c.Path), nil }

type tokenFile string

// GetToken implements the SDK's interface. The token has no time at which it expires, so that the SDK does not cache it.
func (f tokenFile) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := ReadToken(string(f))
	if err != nil {
		return azcore.AccessToken{}, &AssertionError{Message: "the credential of the manager is unavailable: " + err.Error() + "; correct the file of --cloud-token-file"}
	}
	return azcore.AccessToken{Token: token}, nil
}

// ReadToken reads a bearer token from a file. Space around the token is ignored.
func ReadToken(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(content))
	if token == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return token, nil
}

// TokenCredentials are for a cloud that accepts fixed bearer tokens, such as the fake cloud. Token is the
// manager's token; the client secret of an application is its token.
type TokenCredentials struct{ Token string }

// Own implements [Credentials].
func (c TokenCredentials) Own() (azcore.TokenCredential, error) { return bearer(c.Token), nil }

// Secret implements [Credentials].
func (TokenCredentials) Secret(_, _, secret string) (azcore.TokenCredential, error) {
	return bearer(secret), nil
}

// Assertion implements [Credentials].
func (TokenCredentials) Assertion(_, _ string, assert func(context.Context) (string, error)) (azcore.TokenCredential, error) {
	return assertion(assert), nil
}

type bearer string

// GetToken implements the SDK's interface.
func (b bearer) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	if b == "" {
		return azcore.AccessToken{}, azidentity.NewCredentialUnavailableError("the bearer token is empty")
	}
	return azcore.AccessToken{Token: string(b), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

type assertion func(context.Context) (string, error)

// GetToken implements the SDK's interface.
func (a assertion) GetToken(ctx context.Context, _ policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := a(ctx)
	return azcore.AccessToken{Token: token, ExpiresOn: time.Now().Add(10 * time.Minute)}, err
}

// Endpoint returns the configuration for a cloud by the URL of its Azure Resource Manager.
func Endpoint(resourceManager string) (Config, error) {
	at, err := url.Parse(resourceManager)
	if err != nil || at.Host == "" || (at.Scheme != "http" && at.Scheme != "https") {
		return Config{}, fmt.Errorf("%q is not the URL of an Azure Resource Manager; use a URL such as https://management.azure.com", resourceManager)
	}
	return Config{
		AllowHTTP: at.Scheme == "http",
		Cloud: azcloud.Configuration{
			ActiveDirectoryAuthorityHost: resourceManager,
			Services: map[azcloud.ServiceName]azcloud.ServiceConfiguration{
				azcloud.ResourceManager: {Endpoint: resourceManager, Audience: resourceManager},
			},
		},
	}, nil
}
