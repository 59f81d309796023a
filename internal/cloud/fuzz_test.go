package cloud

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	azcloud "github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"k8s.io/utils/clock"
)

// canned answers every request with the same response, which may be replaced between requests.
type canned struct {
	status  int
	headers http.Header
	body    []byte
}

// Do implements the SDK's transport.
func (c *canned) Do(request *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: c.status, Status: fmt.Sprint(c.status), Header: c.headers.Clone(), Request: request,
		Body: io.NopCloser(bytes.NewReader(c.body)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

const (
	fuzzedVault     = "/subscriptions/s/resourceGroups/g/providers/Microsoft.KeyVault/vaults/v"
	fuzzedPrincipal = "11111111-1111-4111-8111-111111111111"
)

// Whatever the cloud answers, a call returns a value or a typed error with a bounded delay.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []struct {
		status           int
		retryAfter, etag string
		body             string
	}{
		{200, "", `"1"`, `{"id":"/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a","name":"a","location":"West Europe","sku":{"name":"Standard_LRS"},"tags":{"a":null,"b":"c"},"identity":{"type":"SystemAssigned,UserAssigned","principalId":"` + fuzzedPrincipal + `"},"properties":{"provisioningState":"Succeeded","creationTime":"2026-03-01T12:00:00.1Z","encryption":{"keySource":"Microsoft.Keyvault","keyvaultproperties":{"keyvaulturi":"https://v.vault.azure.net","keyname":"k","currentVersionedKeyIdentifier":"https://v.vault.azure.net/keys/k/1"}},"primaryEndpoints":{"blob":"https://a.blob.core.windows.net/"}}}`},
		{200, "", "", `{"id":"v","properties":{"vaultUri":"https://v","tenantId":"t","enablePurgeProtection":true,"accessPolicies":[null,{"objectId":"P","permissions":{"keys":[null,"Get"]}}]}}`},
		{200, "", "", `{"properties":{"kty":"RSA","keySize":2048,"keyUri":"https://v/keys/k","keyUriWithVersion":"https://v/keys/k/1","keyOps":[null,"wrapKey"],"attributes":{"enabled":false}}}`},
		{200, "", "", `{"value":[null,{},{"id":"/x","properties":{"scope":"/subscriptions/s","principalId":"` + fuzzedPrincipal + `","roleDefinitionId":"/x/` + CryptoUserRole + `","createdOn":"2026-03-01T12:00:00Z"}}]}`},
		{200, "", "", `{"value":[],"nextLink":"https://management.azure.com/next"}`},
		{200, "", "", `{"value":[],"nextLink":":"}`},
		{200, "", "", `null`}, {200, "", "", ``}, {200, "", "", `[]`}, {204, "", "", ``}, {304, "", "", ``}, {302, "", "", ``},
		{429, "17", "", `{"error":{"code":"TooManyRequests","message":"slow down"}}`},
		{429, "-1", "", `{"error":{"code":"","message":""}}`},
		{409, "Thu, 01 Jan 2099 00:00:00 GMT", "", `{"error":{"code":"StorageAccountOperationInProgress","message":"RequestId:0123abcd Time:2026-03-01T12:00:00Z"}}`},
		{503, "", "", `<html>`}, {401, "", "", `{"error":"invalid"}`}, {404, "", "", "\xff"},
	} {
		f.Add(seed.status, seed.retryAfter, seed.etag, []byte(seed.body))
	}
	answer := &canned{}
	limits := Limits{ReadsPerSecond: 1e6, ReadsBurst: 1e6, WritesPerSecond: 1e6, WritesBurst: 1e6}
	// The clients of the SDK are built once, because that takes longer than all calls of one input.
	shared, err := newConnection(Config{Cloud: azcloud.AzurePublic, Transport: answer, Clock: clock.RealClock{}, Limits: limits}, "s", bearer("t"))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, status int, retryAfter, etag string, body []byte) {
		if status < 200 || status > 599 {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // nothing takes so long
		defer cancel()
		*answer = canned{status, http.Header{"Retry-After": {retryAfter}, "Etag": {etag}, "Content-Type": {"application/json"}}, body}
		for _, c := range []struct {
			name string
			call func(c *Client) (found bool, err error)
		}{
			{"Account", func(c *Client) (bool, error) { v, err := c.Account(ctx, "g", "a"); return v != nil, err }},
			{"Vault", func(c *Client) (bool, error) { v, err := c.Vault(ctx, "a", "g", "v"); return v != nil, err }},
			{"Key", func(c *Client) (bool, error) { v, err := c.Key(ctx, "a", "g", "v", "k", ""); return v != nil, err }},
			{"Grant", func(c *Client) (bool, error) {
				_, err := c.Grant(ctx, "a", fuzzedVault, fuzzedPrincipal)
				return err == nil, err
			}},
			{"CreateGrant", func(c *Client) (bool, error) {
				v, err := c.CreateGrant(ctx, "a", fuzzedVault, fuzzedPrincipal)
				return v != nil || status != http.StatusOK, err
			}},
			{"CreateAccount", func(c *Client) (bool, error) {
				v, err := c.CreateAccount(ctx, NewAccount{Group: "g", Name: "a"}, nil)
				return v.RetryAfter >= 0 && v.RetryAfter <= maxRetryAfter, err
			}},
		} {
			own := &connection{ // a budget remembers that it was throttled
				subscription: shared.subscription, budget: newBudget(clock.RealClock{}, limits),
				accounts: shared.accounts, vaults: shared.vaults, keys: shared.keys, roles: shared.roles, lists: shared.lists,
			}
			found, err := c.call(&Client{connection: own, scopes: []Scope{Anywhere}})
			if ctx.Err() != nil {
				t.Fatalf("%s does not end", c.name)
			}
			if err == nil {
				if !found {
					t.Errorf("%s returns neither a value nor an error for %d %q", c.name, status, body)
				}
				continue
			}
			typed, ok := AsError(err)
			if !ok || typed.Kind == "" || typed.Message == "" {
				t.Errorf("%s: %d %q is %#v", c.name, status, body, err)
			} else if typed.RetryAfter < 0 || typed.RetryAfter > maxRetryAfter<<maxStreak {
				t.Errorf("%s: the delay is %s", c.name, typed.RetryAfter)
			}
		}
	})
}

func FuzzRetryAfter(f *testing.F) {
	for _, seed := range [][3]string{
		{"17", "", ""}, {"", "120", ""}, {"1", "", "30"}, {"Thu, 01 Jan 2099 00:00:00 GMT", "", ""}, {"-5", "-5", "-5"},
		{"999999999999999999999", "9223372036854775807", "2562047788015216"}, {"1.5", "0x10", "+3"}, {"Thursday, 01-Jan-99 00:00:00 GMT", " 1", "\x00"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, seconds, vendorMilliseconds, milliseconds string) {
		response := &http.Response{Header: http.Header{}}
		response.Header.Set("Retry-After", seconds)
		response.Header.Set("X-Ms-Retry-After-Ms", vendorMilliseconds)
		response.Header.Set("Retry-After-Ms", milliseconds)
		wait := retryAfter(response)
		if wait < 0 || wait > maxRetryAfter {
			t.Errorf("%q, %q, %q is %s", seconds, vendorMilliseconds, milliseconds, wait)
		}
	})
}

// A resource in the scope of a resource group is in that group for the SDK too, which parses its ID in
// another way.
func FuzzScope(f *testing.F) {
	const subscription, group = "00000000-0000-4000-8000-00000000f1c5", "billing"
	for _, id := range []string{
		AccountID(subscription, group, "invoices"), VaultID(subscription, group, "v"), GroupID(subscription, group), GroupID(subscription, group) + "2",
		GroupID(subscription, group) + "/../other", GroupID(subscription, group) + "//", GroupID(subscription, group) + "/%2e%2e", "/", "",
		GroupID(subscription, group) + "/resourceGroups/other/providers/Microsoft.Storage/storageAccounts/a",
		GroupID(subscription, group) + "/subscriptions/other/resourceGroups/x",
		strings.ToUpper(VaultID(subscription, group, "v")) + "/keys/k", "/subscriptions/\u0130", "/subscriptions/" + subscription + "/resourceGroups/\u212a",
	} {
		f.Add(id, id)
	}
	inGroup, err := ParseScope(GroupID(subscription, group))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, scope, id string) {
		if inGroup.Contains(id) {
			parsed, err := arm.ParseResourceID(id)
			if err == nil && (!strings.EqualFold(parsed.SubscriptionID, subscription) || !strings.EqualFold(parsed.ResourceGroupName, group)) {
				t.Errorf("%q is in subscription %s and resource group %s", id, parsed.SubscriptionID, parsed.ResourceGroupName)
			}
		}
		parsed, err := ParseScope(scope)
		if err != nil {
			return
		}
		if !parsed.Contains(scope) || !parsed.Contains(scope+"/x") || parsed.Contains(scope+"x") || parsed.Contains(scope+"/..") {
			t.Errorf("the scope %q has wrong bounds", scope)
		}
		if parsed.Contains(id) && !strings.HasPrefix(strings.ToLower(id), strings.ToLower(scope)) {
			t.Errorf("%q is in the scope %q", id, scope)
		}
	})
}

func FuzzIdentifiers(f *testing.F) {
	for _, seed := range []string{
		"", "https://v.vault.azure.net/keys/k/0123", "https://v.vault.azure.net/keys/", "/keys//keys/", fuzzedVault,
		fuzzedVault + "/providers/Microsoft.Authorization/roleAssignments/" + grantName(fuzzedVault, "p"), "/providers/Microsoft.Authorization/", "\xff/..",
	} {
		f.Add(seed, "p")
	}
	f.Fuzz(func(t *testing.T, id, principal string) {
		if version := versionOf(id); !strings.HasSuffix(id, version) || version != "" && !strings.Contains(id, "/keys/") {
			t.Errorf("the version of %q is %q", id, version)
		}
		if at := GrantedAt(id); !strings.HasPrefix(id, at) {
			t.Errorf("%q is granted at %q", id, at)
		}
		created := fuzzedVault + id + "/providers/Microsoft.Authorization/roleAssignments/" + grantName(id, principal)
		if !IsManagedGrant(created, id, principal) {
			t.Errorf("%q is not managed", created)
		}
		if IsManagedGrant(created, id+"2", principal) {
			t.Errorf("%q is managed at another scope", created)
		}
	})
}
