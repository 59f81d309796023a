package harness

import (
	"github.com/fixpoint-dev/fixpoint/controllers/securestorage"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// AmbientScopes let all namespaces use the credential of the manager in the subscription of
// [fakecloud.Server.SeedDemo].
func AmbientScopes() securestorage.AmbientScopes {
	return securestorage.AmbientScopes{securestorage.AllNamespaces: {cloud.Scope("/subscriptions/" + fakecloud.DemoSubscription)}}
}
