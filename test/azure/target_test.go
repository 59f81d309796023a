package azure

import (
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/fixpoint-dev/fixpoint/internal/cloud"
)

// target is the cloud in which a life runs.
type target struct {
	subscription string
	tenant       string
	location     string
	// cloud and credentials are those of the manager.
	cloud       cloud.Config
	credentials cloud.Credentials
	// patience is how long the SecureStorage may take to become what a step expects, endPatience is how long each
	// removal may take, and interval is the pause between two reads.
	patience    time.Duration
	endPatience time.Duration
	interval    time.Duration
}

const defaultLocation = "westeurope"

// The environment variables are those that the SDK reads.
const (
	subscriptionVariable = "AZURE_SUBSCRIPTION_ID"
	tenantVariable       = "AZURE_TENANT_ID"
	clientVariable       = "AZURE_CLIENT_ID"
	secretVariable       = "AZURE_CLIENT_SECRET"
	tokenVariable        = "AZURE_FEDERATED_TOKEN_FILE"
	locationVariable     = "AZURE_LOCATION"
)

// azureTarget is the subscription that environment variables name.
func azureTarget(variable func(name string) string) (target, error) {
	var missing []string
	for _, name := range []string{subscriptionVariable, tenantVariable, clientVariable} {
		if variable(name) == "" {
			missing = append(missing, name)
		}
	}
	if variable(secretVariable) == "" && variable(tokenVariable) == "" {
		missing = append(missing, secretVariable+" or "+tokenVariable)
	}
	if len(missing) > 0 {
		return target{}, fmt.Errorf("make test-azure needs a subscription and an application that owns it, and these environment variables are not set: %s; see docs/azure.md", strings.Join(missing, ", "))
	}
	location := variable(locationVariable)
	if location == "" {
		location = defaultLocation
	}
	return target{
		subscription: variable(subscriptionVariable), tenant: variable(tenantVariable), location: location,
		credentials: cloud.AzureCredentials{},
		// A grant can take 10 minutes to take effect, and an account some to be created.
		patience: 15 * time.Minute, endPatience: 10 * time.Minute, interval: 5 * time.Second,
	}, nil
}

// client returns the credential of the manager, which creates and removes the resource group of a life, too, and the
// options for clients of the SDK.
func (t target) client() (azcore.TokenCredential, *arm.ClientOptions, error) {
	credential, err := t.credentials.Own()
	if err != nil {
		return nil, nil, fmt.Errorf("reading the credential: %w", err)
	}
	return credential, &arm.ClientOptions{
		// A subscription of its own has used no key vault or storage account before. The fake cloud registers nothing.
		DisableRPRegistration: t.cloud.AllowHTTP,
		ClientOptions: policy.ClientOptions{
			Cloud: t.cloud.Cloud, Transport: t.cloud.Transport, InsecureAllowCredentialWithHTTP: t.cloud.AllowHTTP,
		},
	}, nil
}
