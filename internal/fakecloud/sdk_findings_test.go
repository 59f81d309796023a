package fakecloud

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// ask sends a request to Azure Resource Manager, without the SDK.
func (f *fixture) ask(method, path, body string) map[string]any {
	f.t.Helper()
	got := f.data(method, "management.azure.com", path, body, Token("tester"))
	f.Expect(got.status).To(Equal(http.StatusOK), "%v", got.body)
	return got.body
}

// Each API version shows only the provisioning states that its SDKs know.
func TestProvisioningStateOfAnAPIVersion(t *testing.T) {
	f := newFixture(t, Knobs{AccountDeletion: Fixed(time.Minute)})
	f.Expect(f.create("data1")).To(Succeed())
	state := func(version string) any {
		properties, _ := f.ask("GET", f.accountPath("data1")+"?api-version="+version, "")["properties"].(map[string]any)
		return properties["provisioningState"]
	}
	f.Expect(state("2025-08-01")).To(Equal("Succeeded"))
	f.Expect(f.delete("data1")).To(Succeed())
	f.Expect(state("2024-01-01")).To(Equal("Deleting"))
	f.Expect(state("2025-08-01")).To(BeNil())
}

func TestFiltersRoleDefinitions(t *testing.T) {
	f := newFixture(t, Instant())
	const path = "/subscriptions/" + DemoSubscription + "/providers/Microsoft.Authorization/roleDefinitions?api-version=2022-04-01"
	filtered := func(filter string) answer {
		return f.data("GET", "management.azure.com", path+"&$filter="+url.QueryEscape(filter), "", Token("tester"))
	}
	f.Expect(filtered("").body["value"]).To(HaveLen(len(builtInRoles)))
	f.Expect(filtered("atScopeAndBelow()").body["value"]).To(HaveLen(len(builtInRoles)))
	f.Expect(filtered("roleName eq 'Key Vault Reader'").body["value"]).To(ConsistOf(HaveKeyWithValue("name", "21090545-7ca7-4776-b22c-e363652d74d2")))
	f.Expect(filtered("roleName eq 'Baker'").body["value"]).To(BeEmpty())
	f.Expect(filtered("color eq 'red'").code()).To(Equal("UnsupportedQuery"))
}

func TestNameOfAKeyVaultIsChecked(t *testing.T) {
	f := newFixture(t, Instant())
	const path = "/subscriptions/" + DemoSubscription + "/providers/Microsoft.KeyVault/checkNameAvailability?api-version=2024-11-01"
	for name, reason := range map[string]string{"sdk-vault": "", "1-vault": "AccountNameInvalid", f.demo.Vault: "AlreadyExists"} {
		body := f.ask("POST", path, `{"type":"Microsoft.KeyVault/vaults","name":"`+name+`"}`)
		got, _ := body["reason"].(string)
		f.Expect(got).To(Equal(reason), name)
		f.Expect(body["nameAvailable"]).To(Equal(reason == ""), name)
	}
}

// An SDK that does not know the authority reads from its configuration where the keys of tokens are, too.
func TestConfigurationOfTheAuthority(t *testing.T) {
	f := newFixture(t, Instant())
	recorder := httptest.NewRecorder()
	f.cloud.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://localhost/"+Tenant+"/v2.0/.well-known/openid-configuration", http.NoBody))
	var configuration map[string]string
	f.Expect(json.Unmarshal(recorder.Body.Bytes(), &configuration)).To(Succeed())
	f.Expect(configuration).To(And(HaveKey("issuer"), HaveKey("token_endpoint"), HaveKey("authorization_endpoint"), HaveKey("jwks_uri")))
}

func TestExpiredTokenIsRefused(t *testing.T) {
	f := newFixture(t, Instant())
	token := f.cloud.issue("known")
	get := func() answer {
		return f.data("GET", "management.azure.com", "/subscriptions/"+DemoSubscription+"?api-version=2021-04-01", "", token)
	}
	f.Expect(get().status).To(Equal(http.StatusOK))
	f.clock.Step(tokenLife)
	f.Expect(get().status).To(Equal(http.StatusUnauthorized))
	f.Expect(get().code()).To(Equal("ExpiredAuthenticationToken"))
}

func TestLoginErrors(t *testing.T) {
	f := newFixture(t, Instant())
	f.cloud.RegisterClient("known", "s3cret")
	for name, c := range map[string]struct {
		form   url.Values
		status int
		error  string
		code   float64
	}{
		"unknown application": {url.Values{"client_id": {"other"}, "client_secret": {"s3cret"}}, 400, "unauthorized_client", 700016},
		"wrong secret":        {url.Values{"client_id": {"known"}, "client_secret": {"wrong"}}, 401, "invalid_client", 7000215},
		"no secret":           {url.Values{"client_id": {"known"}}, 401, "invalid_client", 7000218},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://localhost/"+Tenant+"/oauth2/v2.0/token", strings.NewReader(c.form.Encode()))
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			recorder := httptest.NewRecorder()
			f.cloud.ServeHTTP(recorder, request)
			g.Expect(recorder.Code).To(Equal(c.status))
			var body map[string]any
			g.Expect(json.Unmarshal(recorder.Body.Bytes(), &body)).To(Succeed())
			g.Expect(body).To(And(HaveKeyWithValue("error", c.error), HaveKeyWithValue("error_codes", ConsistOf(c.code)), HaveKey("timestamp"), HaveKey("trace_id"), HaveKey("correlation_id")))
		})
	}
}
