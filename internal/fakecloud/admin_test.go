package fakecloud

import (
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/storage/armstorage"
	. "github.com/onsi/gomega"
)

func TestAdmin(t *testing.T) {
	f := newFixture(t, Instant())
	f.encrypted("data1")
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		answer                   string
	}{
		{"the page", "GET", "/", "", 200, "<title>fake-cloud</title>"},
		{"health", "GET", "/healthz", "", 200, ""},
		{"the state", "GET", "/_admin/state", "", 200, `"provisioningState":"Succeeded"`},
		{"the ledger", "GET", "/_admin/ledger?since=2&resource=data1", "", 200, `"effect":"updated"`},
		{"a bad place to start", "GET", "/_admin/ledger?since=now", "", 400, "since"},
		{"the counts", "GET", "/_admin/counts?resource=storageaccounts", "", 200, `"tester":{"reads":0,"writes":2`},
		{"orphans", "GET", "/_admin/orphans", "", 200, "[]"},
		{"the knobs", "GET", "/_admin/knobs", "", 200, `"keyLookup":"24h0m0s"`},
		{"turning a knob", "PUT", "/_admin/knobs", `{"grantDelay":"1s..2s"}`, 200, `"grantDelay":"1s..2s"`},
		{"an invalid knob", "PUT", "/_admin/knobs", `{"grantDelay":"soon"}`, 400, "soon"},
		{"a preset", "PUT", "/_admin/knobs?preset=realistic/100", "", 200, `"pollInterval":"170ms"`},
		{"an unknown preset", "PUT", "/_admin/knobs?preset=wild", "", 400, "instant, realistic"},
		{"back", "PUT", "/_admin/knobs?preset=instant", "", 200, `"pollInterval":"0s"`},
		{"a fault", "POST", "/_admin/faults", `{"resource":"nowhere","status":500}`, 200, "done"},
		{"time", "POST", "/_admin/advance?by=1h", "", 200, "2026-03-01T13:00:00Z"},
		{"time backwards into nonsense", "POST", "/_admin/advance?by=soon", "", 400, "soon"},
		{"seeding", "POST", "/_admin/seed", `{"subscription":"00000000-0000-4000-8000-000000000002","group":"g","vault":"seeded","purgeProtection":true,"key":"k","client":"app","secret":"s3cret","account":"seeded1"}`, 200, "version"},
		{"seeding the demo", "POST", "/_admin/seed", `{"demo":true}`, 200, "fixpoint-demo"},
		{"seeding a key without a vault", "POST", "/_admin/seed", `{"vault":"","key":"k"}`, 400, "key vault  does not exist"},
		{"data", "GET", "/_data/data1", "", 200, "readable"},
		{"meddling", "POST", "/_admin/meddle", `{"action":"disableKey","vault":"fixpoint-demo","key":"storage"}`, 200, "done"},
		{"unavailable data", "GET", "/_data/data1", "", 403, "KeyVaultEncryptionKeyNotFound"},
		{"removing grants by account", "POST", "/_admin/meddle", `{"action":"removeGrants","account":"data1"}`, 200, "done"},
		{"meddling with a missing account", "POST", "/_admin/meddle", `{"action":"usePlatformKeys","account":"missing"}`, 400, "account missing does not exist"},
		{"an unknown action", "POST", "/_admin/meddle", `{"action":"bewitch"}`, 400, "use one of deleteAccount, deleteKey"},
		{"something else", "GET", "/_admin/secrets", "", 404, "docs/fakecloud.md"},
	} {
		response, text := f.raw(c.method, c.path, c.body)
		f.Expect(response.StatusCode).To(Equal(c.status), c.name+": "+text)
		f.Expect(text).To(ContainSubstring(c.answer), c.name)
	}
	f.Expect(f.cloud.Ledger()).To(ContainElement(And(HaveField("Who", WhoMeddler), HaveField("Detail", ContainSubstring("enabled=false")))))
}

func TestRealClockCannotBeAdvanced(t *testing.T) {
	cloud := New(Options{})
	_, err := cloud.advance("1s")
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("real clock")))
}

// azidentity logs in as it does at Microsoft Entra ID.
func TestIssuesTokensToAzidentity(t *testing.T) {
	f := newFixture(t, Instant())
	f.clock.SetTime(time.Now()) // The SDK checks the age of tokens with the real clock.
	const app = "0a0a0a0a-0000-4000-8000-000000000001"
	f.cloud.RegisterClient(app, "s3cret")
	options := policy.ClientOptions{Cloud: f.endpoint.Cloud(), Transport: f.endpoint.Client(), Retry: policy.RetryOptions{MaxRetries: -1}}
	for _, c := range []struct{ secret, want string }{{"s3cret", app}, {"wrong", ""}} {
		credential, err := azidentity.NewClientSecretCredential(Tenant, app, c.secret, &azidentity.ClientSecretCredentialOptions{ClientOptions: options, DisableInstanceDiscovery: true})
		f.Expect(err).NotTo(HaveOccurred())
		accounts, err := armstorage.NewAccountsClient(f.demo.Subscription, credential, f.endpoint.ClientOptions())
		f.Expect(err).NotTo(HaveOccurred())
		_, err = accounts.BeginCreate(f.ctx(), f.demo.Group, "data1", accountParameters(), nil)
		if c.want == "" {
			f.Expect(err).To(MatchError(ContainSubstring("AADSTS7000215")))
			continue
		}
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(f.cloud.Ledger()).To(ContainElement(And(HaveField("Who", app), HaveField("Effect", Created))))
	}
	token := f.cloud.issue(app)
	f.clock.Step(tokenLife)
	response, _ := f.raw("GET", "/subscriptions/"+f.demo.Subscription+"?api-version=2022-09-01", "", "Authorization", "Bearer "+token)
	f.Expect(response.StatusCode).To(Equal(http.StatusUnauthorized), "a token has its time")
}

func TestPlainHTTP(t *testing.T) {
	g := NewWithT(t)
	cloud := New(Options{})
	demo := cloud.SeedDemo()
	endpoint := cloud.StartHTTP()
	defer endpoint.Close()
	accounts, err := armstorage.NewAccountsClient(demo.Subscription, endpoint.Credential("tester"), endpoint.ClientOptions())
	g.Expect(err).NotTo(HaveOccurred())
	_, err = accounts.BeginCreate(t.Context(), demo.Group, "data1", accountParameters(), nil)
	g.Expect(err).NotTo(HaveOccurred())
}

func TestShiftedClockAdvances(t *testing.T) {
	g := NewWithT(t)
	clock := &ShiftedClock{}
	cloud := New(Options{Clock: clock})
	before := clock.Now()
	_, err := cloud.advance("24h")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(clock.Since(before)).To(BeNumerically("~", 24*time.Hour, time.Minute))
}
