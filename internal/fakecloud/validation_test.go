package fakecloud

import (
	"encoding/json"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// Rejected requests have the codes and messages of Azure.
func TestRejectsInvalidRequests(t *testing.T) {
	const version = "?api-version=2024-01-01"
	body := func(change func(map[string]any)) string {
		document := map[string]any{"location": "westeurope", "kind": "StorageV2", "sku": map[string]any{"name": "Standard_LRS"}}
		if change != nil {
			change(document)
		}
		text, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	set := func(key string, value any) string { return body(func(d map[string]any) { d[key] = value }) }
	without := func(key string) string { return body(func(d map[string]any) { delete(d, key) }) }
	many := map[string]string{}
	for i := range 51 {
		many[strings.Repeat("x", i+1)] = ""
	}
	f := newFixture(t, Instant())
	account, group := f.accountPath("data1"), "/subscriptions/"+f.demo.Subscription+"/resourceGroups/"+f.demo.Group
	assignment := f.demo.VaultID + "/providers/Microsoft.Authorization/roleAssignments/"

	for _, c := range []struct {
		name, method, path, body string
		status                   int
		code, message            string
	}{
		{"no api-version", "GET", account, "", 400, "MissingApiVersionParameter", "required for all requests"},
		{"unknown api-version", "GET", account + "?api-version=1999-01-01", "", 400, "InvalidResourceType", "The supported api-versions are '2022-09-01,"},
		{"unknown resource type", "GET", group + "/providers/Microsoft.Storage/carts/x" + version, "", 404, "InvalidResourceType", "carts"},
		{"unknown provider", "GET", group + "/providers/Microsoft.Bakery/breads/x" + version, "", 404, "InvalidResourceNamespace", "Microsoft.Bakery"},
		{"method that is not supported", "POST", account + version, "{}", 405, "HttpMethodNotAllowed", "POST"},
		{"unknown subscription", "GET", "/subscriptions/nope/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/data1" + version, "", 404, "SubscriptionNotFound", "nope"},
		{"unknown resource group", "PUT", strings.Replace(account, f.demo.Group, "nope", 1) + version, body(nil), 404, "ResourceGroupNotFound", "nope"},
		{"unknown account", "GET", f.accountPath("missing") + version, "", 404, "ResourceNotFound", "storageAccounts/missing"},
		{"no body", "PUT", account + version, "", 400, "InvalidRequestContent", "empty"},
		{"bad body", "PUT", account + version, "{", 400, "InvalidRequestContent", "could not be deserialized"},
		{"body of the wrong types", "PUT", account + version, `{"tags":{"a":1}}`, 400, "InvalidRequestContent", "tags"},
		{"name with capitals", "PUT", f.accountPath("Data1") + version, body(nil), 400, "AccountNameInvalid", "between 3 and 24 characters"},
		{"name too short", "PUT", f.accountPath("ab") + version, body(nil), 400, "AccountNameInvalid", ""},
		{"no location", "PUT", account + version, without("location"), 400, "LocationRequired", ""},
		{"unknown location", "PUT", account + version, set("location", "moon"), 400, "LocationNotAvailableForResourceType", "moon"},
		{"no sku", "PUT", account + version, without("sku"), 400, "InvalidValuesForRequestParameters", "sku"},
		{"no kind", "PUT", account + version, without("kind"), 400, "InvalidValuesForRequestParameters", "kind"},
		{"unknown sku", "PUT", account + version, set("sku", map[string]any{"name": "Golden"}), 400, "InvalidRequestPropertyValue", "Golden"},
		{"unknown identity", "PUT", account + version, set("identity", map[string]any{"type": "Crowd"}), 400, "InvalidRequestPropertyValue", "identity"},
		{"too many tags", "PUT", account + version, set("tags", many), 400, "TagCountExceeded", "51"},
		{"tag name too long", "PUT", account + version, set("tags", map[string]string{strings.Repeat("k", 129): ""}), 400, "InvalidTagNameLength", "128"},
		{"tag name with reserved characters", "PUT", account + version, set("tags", map[string]string{"a/b": ""}), 400, "InvalidTagNameCharacters", "a/b"},
		{"tag value too long", "PUT", account + version, set("tags", map[string]string{"k": strings.Repeat("v", 257)}), 400, "InvalidTagValueLength", "256"},
		{"encryption without a key", "PUT", account + version, set("properties", map[string]any{"encryption": map[string]any{"keySource": "Microsoft.Keyvault"}}), 400, "MissingKeyvaultProperties", ""},
		{"encryption without an identity", "PUT", account + version, set("properties", map[string]any{"encryption": map[string]any{"keySource": "Microsoft.Keyvault", "keyvaultproperties": map[string]any{"keyname": "storage", "keyvaulturi": "https://fixpoint-demo.vault.azure.net"}}}), 400, "MissingMsiHeaders", ""},
		{"encryption with a key that is not there", "PUT", account + version, set("properties", map[string]any{"encryption": map[string]any{"services": map[string]any{"queue": map[string]any{"keyType": "Mine"}}}}), 400, "InvalidRequestPropertyValue", "encryption.services.queue.keyType"},
		{"encryption of the wrong type", "PUT", account + version, set("properties", map[string]any{"encryption": 1}), 400, "InvalidRequestContent", ""},
		{"location in a PATCH", "PATCH", account + version, `{"location":"westeurope"}`, 400, "InvalidRequestContent", "location"},
		{"assignment that is not named by a GUID", "PUT", assignment + "mine?api-version=2022-04-01", "{}", 400, "InvalidRoleAssignmentId", "mine"},
		{"assignment without a principal", "PUT", assignment + assignmentName + "?api-version=2022-04-01", "{}", 400, "InvalidRequestContent", "principalId"},
		{"assignment of an unknown role", "PUT", assignment + assignmentName + "?api-version=2022-04-01", `{"properties":{"principalId":"` + assignmentName + `","roleDefinitionId":"/x/00000000-0000-0000-0000-000000000000"}}`, 400, "RoleDefinitionDoesNotExist", ""},
		{"assignment on a missing vault", "PUT", strings.Replace(assignment, "vaults/fixpoint-demo", "vaults/gone", 1) + assignmentName + "?api-version=2022-04-01", `{"properties":{"principalId":"` + assignmentName + `","roleDefinitionId":"/x/` + CryptoServiceEncryptionUser + `"}}`, 404, "ResourceNotFound", "vaults/gone"},
		{"unknown assignment", "GET", assignment + assignmentName + "?api-version=2022-04-01", "", 404, "RoleAssignmentNotFound", ""},
		{"unknown filter", "GET", strings.TrimSuffix(assignment, "/") + "?api-version=2022-04-01&$filter=colour%20eq%20'red'", "", 400, "UnsupportedQuery", "colour"},
		{"filter by scope and principal", "GET", strings.TrimSuffix(assignment, "/") + "?api-version=2022-04-01&$filter=atScope()%20and%20principalId%20eq%20'x'", "", 400, "UnsupportedQuery", "atScope()"},
		{"unknown vault", "GET", group + "/providers/Microsoft.KeyVault/vaults/gone?api-version=2024-11-01", "", 404, "ResourceNotFound", "vaults/gone"},
		{"unknown key", "GET", f.demo.VaultID + "/keys/gone?api-version=2024-11-01", "", 404, "KeyNotFound", "gone"},
		{"disabled purge protection", "PATCH", f.demo.VaultID + "?api-version=2024-11-01", `{"properties":{"enablePurgeProtection":false}}`, 400, "BadRequest", "irreversible"},
		{"bad vault name", "PUT", group + "/providers/Microsoft.KeyVault/vaults/a--b?api-version=2024-11-01", "{}", 400, "VaultNameNotValid", ""},
		{"unknown role", "GET", group + "/providers/Microsoft.Authorization/roleDefinitions/x?api-version=2022-04-01", "", 404, "RoleDefinitionDoesNotExist", ""},
		{"bad lock", "PUT", group + "/providers/Microsoft.Authorization/locks/l?api-version=2020-05-01", `{"properties":{"level":"Soft"}}`, 400, "InvalidLockLevel", ""},
		{"unknown operation", "GET", "/subscriptions/" + f.demo.Subscription + "/providers/Microsoft.Storage/locations/x/asyncoperations/y" + version, "", 404, "ResourceNotFound", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := NewWithT(t)
			response, text := f.raw(c.method, c.path, c.body)
			var refusal struct {
				Error struct{ Code, Message string }
			}
			g.Expect(json.Unmarshal([]byte(text), &refusal)).To(Succeed(), text)
			g.Expect(response.StatusCode).To(Equal(c.status), text)
			g.Expect(refusal.Error.Code).To(Equal(c.code))
			g.Expect(refusal.Error.Message).To(ContainSubstring(c.message))
			g.Expect(response.Header.Get("x-ms-request-id")).NotTo(BeEmpty())
			g.Expect(response.Header.Get("x-ms-correlation-request-id")).NotTo(BeEmpty())
		})
	}
	f.Expect(f.cloud.Effects(Created, "")).To(BeEmpty(), "rejected requests had no effect")
}

func TestRejectsChangesOfImmutableFields(t *testing.T) {
	f := newFixture(t, Instant())
	f.Expect(f.create("data1")).To(Succeed())
	parameters := accountParameters()
	*parameters.Location = "northeurope"
	_, err := f.accounts.BeginCreate(f.ctx(), f.demo.Group, "data1", parameters, nil)
	f.Expect(code(err)).To(Equal("InvalidResourceLocation"))
	parameters = accountParameters()
	*parameters.Kind = "BlobStorage"
	_, err = f.accounts.BeginCreate(f.ctx(), f.demo.Group, "data1", parameters, nil)
	f.Expect(code(err)).To(Equal("AccountPropertyCannotBeUpdated"))
}

func TestTokens(t *testing.T) {
	for name, c := range map[string]struct {
		token  string
		status int
		code   string
	}{
		"none":          {"", 401, "AuthenticationFailed"},
		"unknown token": {"Bearer nonsense", 401, "InvalidAuthenticationToken"},
		"of the tester": {"Bearer " + Token("tester"), 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, Instant())
			response, text := f.raw("GET", "/subscriptions/"+f.demo.Subscription+"?api-version=2022-09-01", "", "Authorization", c.token)
			f.Expect(response.StatusCode).To(Equal(c.status))
			f.Expect(text).To(ContainSubstring(c.code))
			if c.status == 401 {
				f.Expect(response.Header.Get("WWW-Authenticate")).To(HavePrefix("Bearer authorization_uri="))
			}
		})
	}
}

func TestConfiguredTokens(t *testing.T) {
	g := NewWithT(t)
	cloud := New(Options{Tokens: map[string]string{"secret-1": "manager-1"}})
	name, _, known := cloud.owner("secret-1")
	g.Expect(name).To(Equal("manager-1"))
	g.Expect(known).To(BeTrue())
	_, _, known = cloud.owner(Token("tester"))
	g.Expect(known).To(BeFalse(), "only the tokens that were configured count")
}
