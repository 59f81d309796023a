package azure

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/controllers/securestorage"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

var (
	onAzure = flag.Bool("azure", false, "run the life in the subscription of "+subscriptionVariable)
	suite   *harness.Suite
	api     client.WithWatch
)

func TestMain(m *testing.M) {
	if flag.Parse(); *onAzure {
		_, err := azureTarget(os.Getenv)
		harness.Must(err)
	}
	options := harness.Options{Cluster: cluster.Options{Parts: cluster.EtcdAndAPI}, Parallel: 2}
	harness.Run(m, options, func(s *harness.Suite) error {
		suite, api = s, s.API
		return nil
	})
}

// TestLifeOfASecureStorage runs in a subscription of Azure with the flag -azure, and in the fake cloud without it.
func TestLifeOfASecureStorage(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	if *onAzure {
		at, err := azureTarget(os.Getenv)
		g.Expect(err).NotTo(HaveOccurred())
		ctx, stop := context.WithTimeout(interruptible(t), time.Hour)
		defer stop()
		g.Expect(newLife(t, g, at).run(ctx)).To(Succeed())
		return
	}
	fake, at := fakeTarget(t)
	g.Expect(newLife(t, g, at).run(t.Context())).To(Succeed())
	g.Expect(fake.Effects(fakecloud.Created, "/storageaccounts/")).To(HaveLen(1))
	expectRemoved(g, fake)
}

// Whatever fails, nothing is left.
func TestFailedLifeIsRemoved(t *testing.T) {
	account := func(method string, more fakecloud.Fault) fakecloud.Fault {
		more.Method, more.Resource, more.Times = method, "/storageAccounts/", 1000
		return more
	}
	denied := fakecloud.Fault{Status: http.StatusForbidden, Code: "AuthorizationFailed"}
	const waiting = "waiting for the account that is encrypted with the key"
	for name, c := range map[string]struct {
		spoil func(*fakecloud.Server)
		want  string
	}{
		"no key vault": {func(s *fakecloud.Server) {
			s.Deny(fakecloud.Denial{Action: "Microsoft.KeyVault/vaults/write"})
		}, "creating key vault"},
		"no account":       {func(s *fakecloud.Server) { s.Inject(account("PUT", denied)) }, waiting},
		"no encryption":    {func(s *fakecloud.Server) { s.Inject(account("PATCH", denied)) }, waiting},
		"a failed account": {func(s *fakecloud.Server) { s.Inject(account("PUT", fakecloud.Fault{FailLate: true})) }, waiting},
		"no grant": {func(s *fakecloud.Server) {
			s.Deny(fakecloud.Denial{Action: "Microsoft.Authorization/roleAssignments/write"})
		}, waiting},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			fake, at := fakeTarget(t)
			c.spoil(fake)
			at.patience = 4 * time.Second
			g.Expect(newLife(t, g, at).run(t.Context())).To(MatchError(ContainSubstring(c.want)))
			expectRemoved(g, fake)
		})
	}
}

// An interrupt ends the life, but not the removal.
func TestInterruptedLifeIsRemoved(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	fake, at := fakeTarget(t)
	ctx, interrupt := context.WithCancel(t.Context())
	lived := newLife(t, g, at)
	lived.log = func(format string, args ...any) {
		t.Logf(format, args...)
		if args[1] == "changing the tags" {
			interrupt()
		}
	}
	g.Expect(lived.run(ctx)).To(MatchError(context.Canceled))
	expectRemoved(g, fake)
}

func TestVariablesOfTheSubscription(t *testing.T) {
	all := map[string]string{subscriptionVariable: "s", tenantVariable: "t", clientVariable: "c", secretVariable: "x"}
	for name, c := range map[string]struct {
		change map[string]string
		want   string
	}{
		"all":             {nil, ""},
		"a token file":    {map[string]string{secretVariable: "", tokenVariable: "/token"}, ""},
		"a location":      {map[string]string{locationVariable: "northeurope"}, ""},
		"no subscription": {map[string]string{subscriptionVariable: ""}, "not set: AZURE_SUBSCRIPTION_ID; see docs/azure.md"},
		"no secret":       {map[string]string{secretVariable: ""}, "not set: AZURE_CLIENT_SECRET or AZURE_FEDERATED_TOKEN_FILE; see docs/azure.md"},
		"nothing": {
			map[string]string{subscriptionVariable: "", tenantVariable: "", clientVariable: "", secretVariable: ""},
			"not set: AZURE_SUBSCRIPTION_ID, AZURE_TENANT_ID, AZURE_CLIENT_ID, AZURE_CLIENT_SECRET or AZURE_FEDERATED_TOKEN_FILE; see docs/azure.md",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			at, err := azureTarget(func(name string) string {
				if value, changed := c.change[name]; changed {
					return value
				}
				return all[name]
			})
			if c.want != "" {
				g.Expect(err).To(MatchError(ContainSubstring(c.want)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(at.location).To(Equal(map[bool]string{true: "northeurope", false: defaultLocation}[c.change[locationVariable] != ""]))
		})
	}
}

// newLife returns a life with a manager of its own.
func newLife(t *testing.T, g *WithT, at target) *life {
	t.Helper()
	env := suite.NewEnv(t)
	const random = 10
	around, err := newSurroundings(at, "fixpoint-"+rand.String(random))
	g.Expect(err).NotTo(HaveOccurred())
	env.StartManager(suite.Cluster.Config(harness.ManagerUser), controllers.Options{
		Namespaces: []string{env.Namespace}, Controllers: []string{securestorage.Name},
		Cloud: at.cloud, Credentials: at.credentials,
		AmbientScopes: securestorage.AmbientScopes{env.Namespace: {cloud.Scope(around.scope())}},
	})
	t.Logf("everything is in resource group %s; should this test be killed, remove it with: az group delete --name %s --subscription %s", around.group, around.group, at.subscription)
	return &life{surroundings: around, api: api, namespace: env.Namespace, log: t.Logf}
}

// interruptible returns a context that ends with an interrupt.
func interruptible(t *testing.T) context.Context {
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	t.Cleanup(stop)
	return ctx
}

// fakeTarget is a fake cloud with the delays of Azure, divided by a hundred.
func fakeTarget(t *testing.T) (*fakecloud.Server, target) {
	t.Helper()
	knobs := fakecloud.Realistic().Compress(100)
	knobs.KeyLookup = fakecloud.Instant().KeyLookup
	fake := fakecloud.New(fakecloud.Options{Knobs: knobs, Seed: 1})
	fake.SeedSubscription(fakecloud.DemoSubscription, "test")
	endpoint := fake.StartHTTP()
	t.Cleanup(endpoint.Close)
	config := cloud.Config{Cloud: endpoint.Cloud(), AllowHTTP: true, Transport: endpoint.Client()}
	return fake, target{
		subscription: fakecloud.DemoSubscription, tenant: fakecloud.Tenant, location: defaultLocation,
		cloud: config, credentials: cloud.TokenCredentials{Token: fakecloud.Token("test")},
		patience: time.Minute, endPatience: time.Minute, interval: 100 * time.Millisecond,
	}
}

// expectRemoved fails unless the fake cloud has only what cannot be removed: key vaults that are soft-deleted.
func expectRemoved(g *WithT, fake *fakecloud.Server) {
	state := fake.State()
	var left []string
	for _, group := range state.Groups {
		left = append(left, group.ID())
	}
	for _, account := range state.Accounts {
		left = append(left, account.ResourceID+" "+account.ProvisioningState)
	}
	for _, vault := range state.Vaults {
		if vault.DeletedAt == nil {
			left = append(left, vault.ID())
		}
	}
	for _, grant := range state.Assignments {
		left = append(left, fmt.Sprintf("%s of %s", grant.ResourceID, grant.Account))
	}
	g.Expect(left).To(BeEmpty())
}
