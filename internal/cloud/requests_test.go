package cloud

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"
)

// wire answers requests, the last answer again and again, and keeps what was sent.
type wire struct {
	answers []canned
	sent    []sentRequest
}

type sentRequest struct {
	method, path string
	query        url.Values
	header       http.Header
	body         string
	deadline     time.Time
}

// Do implements the SDK's transport.
func (w *wire) Do(request *http.Request) (*http.Response, error) {
	var body []byte
	if request.Body != nil {
		var err error
		if body, err = io.ReadAll(request.Body); err != nil {
			return nil, err
		}
	}
	deadline, _ := request.Context().Deadline()
	w.sent = append(w.sent, sentRequest{request.Method, request.URL.Path, request.URL.Query(), request.Header.Clone(), string(body), deadline})
	answer := w.answers[0]
	if len(w.answers) > 1 {
		w.answers = w.answers[1:]
	}
	return answer.Do(request)
}

func answersWith(status int, body string, headers ...string) canned {
	header := http.Header{"Content-Type": {"application/json"}}
	for i := 0; i < len(headers); i += 2 {
		header.Set(headers[i], headers[i+1])
	}
	return canned{status, header, []byte(body)}
}

const wireTime = "2026-03-01T12:00:00Z"

// clientOn returns a client of the Azure public cloud, the requests of which are answered as given.
func clientOn(t *testing.T, answers ...canned) (*Client, *wire) {
	t.Helper()
	w := &wire{answers: answers}
	now, err := time.Parse(time.RFC3339, wireTime)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	client, err := New(Config{Transport: w, Clock: clocktesting.NewFakePassiveClock(now)}).
		Client("s", Credential{Name: "own", Token: bearer("t"), Scopes: []Scope{Anywhere}})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return client, w
}

const (
	accountPath = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a"
	vaultPath   = "/subscriptions/s/resourceGroups/g/providers/Microsoft.KeyVault/vaults/v"
	rolesOf     = vaultPath + "/providers/Microsoft.Authorization/roleAssignments"
)

// What Azure is asked for decides what protects the data.
func TestRequestsOfWrites(t *testing.T) {
	sku := "Standard_ZRS"
	read := &Account{Name: "a", etag: `"7"`}
	for name, c := range map[string]struct {
		call         func(c *Client) error
		method, path string
		// condition is the header that makes the write conditional.
		condition, value string
		body             string
	}{
		"creates an account that permits only TLS 1.2, no anonymous access, and the customer's key for all of its data": {
			func(c *Client) error {
				_, err := c.CreateAccount(t.Context(), NewAccount{Group: "g", Name: "a", Location: "westeurope", SKU: "Standard_LRS", Tags: map[string]string{"team": "billing"}}, nil)
				return err
			},
			http.MethodPut, accountPath, "If-None-Match", "*",
			`{"kind": "StorageV2", "location": "westeurope", "sku": {"name": "Standard_LRS"}, "tags": {"team": "billing"}, "identity": {"type": "SystemAssigned"},
			  "properties": {"supportsHttpsTrafficOnly": true, "minimumTlsVersion": "TLS1_2", "allowBlobPublicAccess": false,
			    "encryption": {"keySource": "Microsoft.Storage", "services": {"queue": {"keyType": "Account"}, "table": {"keyType": "Account"}}}}}`,
		},
		"creates a premium account, which has neither queues nor tables": {
			func(c *Client) error {
				_, err := c.CreateAccount(t.Context(), NewAccount{Group: "g", Name: "a", Location: "westeurope", SKU: "Premium_LRS"}, nil)
				return err
			},
			http.MethodPut, accountPath, "If-None-Match", "*",
			`{"kind": "StorageV2", "location": "westeurope", "sku": {"name": "Premium_LRS"}, "identity": {"type": "SystemAssigned"},
			  "properties": {"supportsHttpsTrafficOnly": true, "minimumTlsVersion": "TLS1_2", "allowBlobPublicAccess": false}}`,
		},
		"changes only what is given": {
			func(c *Client) error { _, err := c.UpdateAccount(t.Context(), "g", read, Change{}); return err },
			http.MethodPatch, accountPath, "If-Match", `"7"`, `{}`,
		},
		"changes the SKU, the tags and the identity": {
			func(c *Client) error {
				_, err := c.UpdateAccount(t.Context(), "g", read, Change{SKU: &sku, Tags: map[string]string{"team": "billing"}, Identity: true})
				return err
			},
			http.MethodPatch, accountPath, "If-Match", `"7"`,
			`{"sku": {"name": "Standard_ZRS"}, "tags": {"team": "billing"}, "identity": {"type": "SystemAssigned"}}`,
		},
		"keeps user-assigned identities": {
			func(c *Client) error {
				_, err := c.UpdateAccount(t.Context(), "g", &Account{Name: "a", hasUserIdentity: true}, Change{Identity: true})
				return err
			},
			http.MethodPatch, accountPath, "", "", `{"identity": {"type": "SystemAssigned,UserAssigned"}}`,
		},
		"encrypts blobs and files with the version of the customer's key": {
			func(c *Client) error {
				_, err := c.UpdateAccount(t.Context(), "g", read, Change{Encryption: &Encryption{KeySource: CustomerManaged, VaultURI: "https://v.vault.azure.net", KeyName: "k", KeyVersion: "1"}})
				return err
			},
			http.MethodPatch, accountPath, "If-Match", `"7"`,
			`{"properties": {"encryption": {"keySource": "Microsoft.Keyvault", "services": {"blob": {"enabled": true}, "file": {"enabled": true}},
			  "keyvaultproperties": {"keyvaulturi": "https://v.vault.azure.net", "keyname": "k", "keyversion": "1"}}}}`,
		},
		"uses the key with the identity of the account again": {
			func(c *Client) error {
				other := &Account{Name: "a", Encryption: Encryption{UserIdentity: "user"}}
				_, err := c.UpdateAccount(t.Context(), "g", other, Change{Encryption: &Encryption{KeySource: CustomerManaged, VaultURI: "https://v.vault.azure.net", KeyName: "k"}})
				return err
			},
			http.MethodPatch, accountPath, "", "",
			`{"properties": {"encryption": {"keySource": "Microsoft.Keyvault", "services": {"blob": {"enabled": true}, "file": {"enabled": true}},
			  "keyvaultproperties": {"keyvaulturi": "https://v.vault.azure.net", "keyname": "k", "keyversion": ""}, "identity": {"userAssignedIdentity": ""}}}}`,
		},
		"names no key for platform-managed keys": {
			func(c *Client) error {
				_, err := c.UpdateAccount(t.Context(), "g", read, Change{Encryption: &Encryption{KeySource: PlatformKeys}})
				return err
			},
			http.MethodPatch, accountPath, "If-Match", `"7"`,
			`{"properties": {"encryption": {"keySource": "Microsoft.Storage", "services": {"blob": {"enabled": true}, "file": {"enabled": true}}}}}`,
		},
		"deletes the version that was read": {
			func(c *Client) error { return c.DeleteAccount(t.Context(), "g", read) },
			http.MethodDelete, accountPath, "If-Match", `"7"`, ``,
		},
		"asks for the name of a storage account": {
			func(c *Client) error { _, err := c.IsNameAvailable(t.Context(), "g", "a"); return err },
			http.MethodPost, "/subscriptions/s/providers/Microsoft.Storage/checkNameAvailability", "", "",
			`{"name": "a", "type": "Microsoft.Storage/storageAccounts"}`,
		},
		"grants the role that permits only wrapping keys, to a service principal": {
			func(c *Client) error { _, err := c.CreateGrant(t.Context(), "a", vaultPath, "p"); return err },
			http.MethodPut, rolesOf + "/" + grantName(vaultPath, "p"), "", "",
			`{"properties": {"principalId": "p", "principalType": "ServicePrincipal",
			  "roleDefinitionId": "/subscriptions/s/providers/Microsoft.Authorization/roleDefinitions/e147488a-f6f5-4113-8e2d-b22465e65bf6"}}`,
		},
		"revokes the grant by its name": {
			func(c *Client) error { _, err := c.DeleteGrant(t.Context(), "a", vaultPath, "p"); return err },
			http.MethodDelete, rolesOf + "/" + grantName(vaultPath, "p"), "", "", ``,
		},
		"adds an access policy": {
			func(c *Client) error { return c.SetAccessPolicy(t.Context(), "a", "g", "v", "tenant", "p") },
			http.MethodPut, vaultPath + "/accessPolicies/add", "", "",
			`{"properties": {"accessPolicies": [{"objectId": "p", "tenantId": "tenant", "permissions": {"keys": ["get", "wrapKey", "unwrapKey"]}}]}}`,
		},
		"removes an access policy": {
			func(c *Client) error { return c.RemoveAccessPolicy(t.Context(), "a", "g", "v", "tenant", "p") },
			http.MethodPut, vaultPath + "/accessPolicies/remove", "", "",
			`{"properties": {"accessPolicies": [{"objectId": "p", "tenantId": "tenant", "permissions": {"keys": ["get", "wrapKey", "unwrapKey"]}}]}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			client, w := clientOn(t, answersWith(http.StatusOK, `{}`))
			g.Expect(c.call(client)).To(Succeed())
			g.Expect(w.sent).To(HaveLen(1))
			sent := w.sent[0]
			g.Expect(sent.method + " " + sent.path).To(Equal(c.method + " " + c.path))
			for _, header := range []string{"If-Match", "If-None-Match"} {
				if header == c.condition {
					g.Expect(sent.header[header]).To(Equal([]string{c.value}), header)
				} else {
					g.Expect(sent.header).NotTo(HaveKey(header))
				}
			}
			if c.body == "" {
				g.Expect(sent.body).To(BeEmpty())
			} else {
				g.Expect(sent.body).To(MatchJSON(c.body))
			}
		})
	}
}

func TestRequestsOfReads(t *testing.T) {
	for name, c := range map[string]struct {
		call         func(c *Client) error
		path, filter string
	}{
		"account": {func(c *Client) error { _, err := c.Account(t.Context(), "g", "a"); return err }, accountPath, ""},
		"accounts": {
			func(c *Client) error { _, err := c.Accounts("").Next(t.Context()); return err },
			"/subscriptions/s/providers/Microsoft.Storage/storageAccounts", "",
		},
		"accounts of a group": {
			func(c *Client) error { _, err := c.Accounts("g").Next(t.Context()); return err },
			"/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts", "",
		},
		"key vault":  {func(c *Client) error { _, err := c.Vault(t.Context(), "a", "g", "v"); return err }, vaultPath, ""},
		"key vaults": {func(c *Client) error { _, err := c.Vaults().Next(t.Context()); return err }, "/subscriptions/s/providers/Microsoft.KeyVault/vaults", ""},
		"latest key": {
			func(c *Client) error { _, err := c.Key(t.Context(), "a", "g", "v", "k", ""); return err },
			vaultPath + "/keys/k", "",
		},
		"pinned version of a key": {
			func(c *Client) error { _, err := c.Key(t.Context(), "a", "g", "v", "k", "1"); return err },
			vaultPath + "/keys/k/versions/1", "",
		},
		"role assignments of a principal": {
			func(c *Client) error { _, err := c.Grant(t.Context(), "a", vaultPath, "p"); return err },
			rolesOf, "principalId eq 'p'",
		},
		"role assignments of all principals": {
			func(c *Client) error {
				_, err := c.fetch(t.Context(), list{kind: grantsOnVault, name: vaultPath})
				return err
			},
			rolesOf, "atScope()",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			client, w := clientOn(t, answersWith(http.StatusOK, `{}`))
			g.Expect(c.call(client)).To(Succeed())
			g.Expect(w.sent).To(HaveLen(1))
			g.Expect(w.sent[0].method + " " + w.sent[0].path).To(Equal("GET " + c.path))
			g.Expect(w.sent[0].query.Get("$filter")).To(Equal(c.filter))
		})
	}
}

func TestReadsListsPageByPage(t *testing.T) {
	g := NewWithT(t)
	failed := answersWith(http.StatusServiceUnavailable, `{}`)
	client, w := clientOn(t,
		failed,
		answersWith(http.StatusOK, `{"value": [{"name": "a"}], "nextLink": "https://management.azure.com/next"}`),
		failed,
		answersWith(http.StatusOK, `{"value": [{"name": "b"}]}`),
	)
	pages := client.Accounts("g")
	_, err := pages.Next(t.Context())
	g.Expect(Is(err, Unreachable)).To(BeTrue(), "%v", err)
	g.Expect(pages.More()).To(BeTrue())
	g.Expect(pages.Next(t.Context())).To(ConsistOf(HaveField("Name", "a")))
	g.Expect(pages.More()).To(BeTrue())
	_, err = pages.Next(t.Context())
	g.Expect(Is(err, Unreachable)).To(BeTrue(), "%v", err)
	g.Expect(pages.More()).To(BeTrue(), "a page that failed can be requested again")
	g.Expect(pages.Next(t.Context())).To(ConsistOf(HaveField("Name", "b")))
	g.Expect(pages.More()).To(BeFalse())
	var paths []string
	for _, sent := range w.sent {
		paths = append(paths, sent.path)
	}
	const first = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts"
	g.Expect(paths).To(Equal([]string{first, first, "/next", "/next"}))
}

// A failed account is replaced, unless it was changed since.
func TestReplacesTheFailedAccountThatWasRead(t *testing.T) {
	g := NewWithT(t)
	client, w := clientOn(t, answersWith(http.StatusAccepted, `{}`, "Retry-After", "17"))
	accepted, err := client.CreateAccount(t.Context(), NewAccount{Group: "g", Name: "a"}, &Account{Name: "a", etag: `"7"`})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(accepted).To(Equal(Accepted{RetryAfter: 17 * time.Second}))
	g.Expect(w.sent[0].header.Get("If-Match")).To(Equal(`"7"`))
	g.Expect(w.sent[0].header).NotTo(HaveKey("If-None-Match"))
}

// The callers requeue: a request that waits or is retried here would keep other objects waiting.
func TestSendsEachRequestOnceWithATimeout(t *testing.T) {
	for name, status := range map[string]int{"throttled": http.StatusTooManyRequests, "server error": http.StatusServiceUnavailable, "provider not registered": http.StatusConflict} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			client, w := clientOn(t, answersWith(status, body("MissingSubscriptionRegistration", "x")))
			began := time.Now()
			_, err := client.Account(t.Context(), "g", "a")
			ended := time.Now()
			g.Expect(err).To(HaveOccurred())
			g.Expect(w.sent).To(HaveLen(1))
			const timeout = 20 * time.Second
			g.Expect(w.sent[0].deadline).To(And(BeTemporally(">=", began.Add(timeout)), BeTemporally("<=", ended.Add(timeout))))
			g.Expect(w.sent[0].header.Get("Authorization")).To(Equal("Bearer t"))
			g.Expect(w.sent[0].header.Get("User-Agent")).To(HavePrefix("fixpoint "))
		})
	}
}

const fullAccount = `{"id": "` + accountPath + `", "name": "a", "location": "West Europe", "sku": {"name": "Standard_LRS"}, "tags": {"team": "billing"},
	"identity": {"type": "SystemAssigned", "principalId": "p"},
	"properties": {"provisioningState": "Succeeded", "creationTime": "` + wireTime + `",
		"keyCreationTime": {"key1": "2026-03-01T12:00:01Z", "key2": "2026-03-01T12:00:02Z"},
		"primaryEndpoints": {"blob": "https://a.blob", "dfs": "https://a.dfs", "file": "https://a.file", "queue": "https://a.queue", "table": "https://a.table", "web": "https://a.web"},
		"encryption": {"keySource": "Microsoft.Keyvault", "services": {"blob": {"keyType": "Account"}, "queue": {"keyType": "Account"}}, "keyvaultproperties": {
			"keyvaulturi": "https://v.vault.azure.net", "keyname": "k", "keyversion": "1", "currentVersionedKeyIdentifier": "https://v.vault.azure.net/keys/k/1"}}}}`

func fullAccountRead() *Account {
	created := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return &Account{
		ID: accountPath, Name: "a", Location: "westeurope", SKU: "Standard_LRS", Tags: map[string]string{"team": "billing"},
		State: "Succeeded", CreatedOn: created, HasIdentity: true, PrincipalID: "p",
		Encryption: Encryption{
			KeySource: CustomerManaged, VaultURI: "https://v.vault.azure.net", KeyName: "k", KeyVersion: "1",
			CurrentKeyID: "https://v.vault.azure.net/keys/k/1", CurrentVersion: "1",
		},
		HasServiceKeys: true,
		Endpoints:      Endpoints{Blob: "https://a.blob", DFS: "https://a.dfs", File: "https://a.file", Queue: "https://a.queue", Table: "https://a.table", Web: "https://a.web"},
		KeysCreated:    [2]time.Time{created.Add(time.Second), created.Add(2 * time.Second)},
		etag:           `"7"`,
	}
}

func TestReadsEveryFieldOfResponses(t *testing.T) {
	for name, c := range map[string]struct {
		call   func(c *Client) (any, error)
		answer string
		want   any
	}{
		"account": {func(c *Client) (any, error) { return c.Account(t.Context(), "g", "a") }, fullAccount, fullAccountRead()},
		"updated account": {
			func(c *Client) (any, error) { return c.UpdateAccount(t.Context(), "g", &Account{Name: "a"}, Change{}) },
			fullAccount, fullAccountRead(),
		},
		"account keys": {
			func(c *Client) (any, error) { return c.AccountKeys(t.Context(), "g", "a") },
			`{"keys": [{"keyName": "key2", "value": "two"}, null, {"keyName": "other", "value": "x"}, {"keyName": "key1", "value": "one"}]}`,
			AccountKeys{Key1: "one", Key2: "two"},
		},
		"key vault": {
			func(c *Client) (any, error) { return c.Vault(t.Context(), "a", "g", "v") },
			`{"id": "` + vaultPath + `", "properties": {"vaultUri": "https://v.vault.azure.net", "tenantId": "tenant", "enableSoftDelete": false, "enablePurgeProtection": true,
			  "enableRbacAuthorization": true, "accessPolicies": [{"objectId": "P", "permissions": {"keys": ["Get", "WrapKey"]}}, {"objectId": "q"}]}}`,
			&Vault{
				ID: vaultPath, URI: "https://v.vault.azure.net", Tenant: "tenant", PurgeProtection: true, RBAC: true,
				Policies: map[string][]string{"p": {"get", "wrapkey"}},
			},
		},
		"key vault with soft delete": {
			func(c *Client) (any, error) { return c.Vault(t.Context(), "a", "g", "v") },
			`{"properties": {"enableSoftDelete": true}}`, &Vault{SoftDelete: true, Policies: map[string][]string{}},
		},
		"key that is not disabled": {
			func(c *Client) (any, error) { return c.Key(t.Context(), "a", "g", "v", "k", "") },
			`{"properties": {"attributes": {}}}`, &Key{Enabled: true},
		},
		"key": {
			func(c *Client) (any, error) { return c.Key(t.Context(), "a", "g", "v", "k", "") },
			`{"properties": {"kty": "RSA", "keySize": 2048, "keyUri": "https://v/keys/k", "keyUriWithVersion": "https://v/keys/k/1", "keyOps": ["wrapKey"], "attributes": {"enabled": true}}}`,
			&Key{ID: "https://v/keys/k", VersionID: "https://v/keys/k/1", Version: "1", Enabled: true, Type: "RSA", Size: 2048, Operations: []string{"wrapKey"}},
		},
		"disabled key": {
			func(c *Client) (any, error) { return c.Key(t.Context(), "a", "g", "v", "k", "1") },
			`{"properties": {"attributes": {"enabled": false}}}`, &Key{},
		},
		"role assignment": {
			func(c *Client) (any, error) { return c.Grant(t.Context(), "a", vaultPath, "p") },
			`{"value": [{"id": "first", "properties": {"scope": "` + vaultPath + `", "principalId": "q", "roleDefinitionId": "/x/` + CryptoUserRole + `"}},
			  {"id": "second", "properties": {"scope": "` + vaultPath + `", "principalId": "p", "roleDefinitionId": "/x/` + CryptoUserRole + `", "createdOn": "` + wireTime + `"}}]}`,
			&Grant{ID: "second", CreatedOn: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)},
		},
		"created role assignment": {
			func(c *Client) (any, error) { return c.CreateGrant(t.Context(), "a", vaultPath, "p") },
			`{"id": "created", "properties": {"createdOn": "` + wireTime + `"}}`,
			&Grant{ID: "created", CreatedOn: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)},
		},
		"available name": {func(c *Client) (any, error) { return c.IsNameAvailable(t.Context(), "g", "a") }, `{"nameAvailable": true}`, true},
		"taken name":     {func(c *Client) (any, error) { return c.IsNameAvailable(t.Context(), "g", "a") }, `{"nameAvailable": false}`, false},
		"page of a group": {
			func(c *Client) (any, error) { return c.Accounts("g").Next(t.Context()) },
			`{"value": [null, {"name": "a"}]}`, []*Account{{Name: "a", Tags: map[string]string{}}},
		},
		"page of a subscription": {
			func(c *Client) (any, error) { return c.Accounts("").Next(t.Context()) },
			`{"value": [{"name": "a"}, null]}`, []*Account{{Name: "a", Tags: map[string]string{}}},
		},
		"page of key vaults": {
			func(c *Client) (any, error) { return c.Vaults().Next(t.Context()) },
			`{"value": [{"id": "v"}]}`, []*Vault{{ID: "v", Policies: map[string][]string{}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			client, _ := clientOn(t, answersWith(http.StatusOK, c.answer, "ETag", `"7"`))
			NewWithT(t).Expect(c.call(client)).To(Equal(c.want))
		})
	}
}

// Without this, an unexpected response would look like removed keys.
func TestAccountKeysAreBothOrNone(t *testing.T) {
	for name, answer := range map[string]string{
		"none":       `{}`,
		"only key1":  `{"keys": [{"keyName": "key1", "value": "one"}]}`,
		"only key2":  `{"keys": [{"keyName": "key2", "value": "two"}]}`,
		"empty key2": `{"keys": [{"keyName": "key1", "value": "one"}, {"keyName": "key2"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			client, _ := clientOn(t, answersWith(http.StatusOK, answer))
			keys, err := client.AccountKeys(t.Context(), "g", "a")
			g.Expect(err).To(MatchError("listing the keys of the storage account: the response does not have key1 and key2"))
			g.Expect(keys).To(Equal(AccountKeys{}))
		})
	}
}

func TestDeletedResourcesAreNotDeletedAgain(t *testing.T) {
	missing, denied := answersWith(http.StatusNotFound, body("ResourceNotFound", "x")), answersWith(http.StatusForbidden, body("AuthorizationFailed", "x"))
	for name, call := range map[string]func(c *Client) error{
		"account":       func(c *Client) error { return c.DeleteAccount(t.Context(), "g", &Account{Name: "a"}) },
		"grant":         func(c *Client) error { _, err := c.DeleteGrant(t.Context(), "a", vaultPath, "p"); return err },
		"access policy": func(c *Client) error { return c.RemoveAccessPolicy(t.Context(), "a", "g", "v", "tenant", "p") },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			client, _ := clientOn(t, missing, denied)
			g.Expect(call(client)).To(Succeed())
			g.Expect(Is(call(client), Denied)).To(BeTrue())
		})
	}
}

func TestDeleteGrantSaysWhetherItExisted(t *testing.T) {
	for name, c := range map[string]struct {
		answer  canned
		existed bool
	}{
		"it existed":       {answersWith(http.StatusOK, `{}`), true},
		"it did not exist": {answersWith(http.StatusNoContent, ``), false},
		"its vault is gone": {
			answersWith(http.StatusNotFound, body("ResourceNotFound", "x")), false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			client, _ := clientOn(t, c.answer)
			NewWithT(t).Expect(client.DeleteGrant(t.Context(), "a", vaultPath, "p")).To(Equal(c.existed))
		})
	}
}

// A failed read returns nothing that could be taken for the resource.
func TestFailedCallsReturnNoValue(t *testing.T) {
	for name, call := range map[string]func(c *Client) (any, error){
		"Account": func(c *Client) (any, error) { return c.Account(t.Context(), "g", "a") },
		"UpdateAccount": func(c *Client) (any, error) {
			return c.UpdateAccount(t.Context(), "g", &Account{Name: "a"}, Change{})
		},
		"AccountKeys": func(c *Client) (any, error) { return c.AccountKeys(t.Context(), "g", "a") },
		"CreateAccount": func(c *Client) (any, error) {
			return c.CreateAccount(t.Context(), NewAccount{Group: "g", Name: "a"}, nil)
		},
		"IsNameAvailable":   func(c *Client) (any, error) { return c.IsNameAvailable(t.Context(), "g", "a") },
		"Vault":             func(c *Client) (any, error) { return c.Vault(t.Context(), "a", "g", "v") },
		"Key":               func(c *Client) (any, error) { return c.Key(t.Context(), "a", "g", "v", "k", "") },
		"Key version":       func(c *Client) (any, error) { return c.Key(t.Context(), "a", "g", "v", "k", "1") },
		"Grant":             func(c *Client) (any, error) { return c.Grant(t.Context(), "a", vaultPath, "p") },
		"CreateGrant":       func(c *Client) (any, error) { return c.CreateGrant(t.Context(), "a", vaultPath, "p") },
		"DeleteGrant":       func(c *Client) (any, error) { return c.DeleteGrant(t.Context(), "a", vaultPath, "p") },
		"SetAccessPolicy":   func(c *Client) (any, error) { return nil, c.SetAccessPolicy(t.Context(), "a", "g", "v", "tenant", "p") },
		"Accounts":          func(c *Client) (any, error) { return c.Accounts("").Next(t.Context()) },
		"Accounts of group": func(c *Client) (any, error) { return c.Accounts("g").Next(t.Context()) },
		"Vaults":            func(c *Client) (any, error) { return c.Vaults().Next(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			client, _ := clientOn(t, answersWith(http.StatusForbidden, `{"error": {"code": "AuthorizationFailed", "message": "Denied."}, "id": "x", "name": "a", "value": [{"id": "x"}]}`))
			value, err := call(client)
			g.Expect(Is(err, Denied)).To(BeTrue(), "%v", err)
			g.Expect(err).To(MatchError(HaveSuffix(": Denied. (AuthorizationFailed)")))
			g.Expect(value).To(Or(BeNil(), BeZero()))
		})
	}
}

// The error names the resource that needs the permission, from which the message of the user follows.
func TestErrorsNameTheirTarget(t *testing.T) {
	for name, c := range map[string]struct {
		call   func(c *Client) error
		target Target
		doing  string
	}{
		"Account":         {func(c *Client) error { _, err := c.Account(t.Context(), "g", "a"); return err }, OnAccount, "reading the storage account"},
		"AccountKeys":     {func(c *Client) error { _, err := c.AccountKeys(t.Context(), "g", "a"); return err }, OnAccount, "listing the keys of the storage account"},
		"Accounts":        {func(c *Client) error { _, err := c.Accounts("").Next(t.Context()); return err }, OnAccount, "listing the storage accounts"},
		"Accounts of g":   {func(c *Client) error { _, err := c.Accounts("g").Next(t.Context()); return err }, OnAccount, "listing the storage accounts"},
		"Vaults":          {func(c *Client) error { _, err := c.Vaults().Next(t.Context()); return err }, OnVault, "listing the key vaults"},
		"Vault":           {func(c *Client) error { _, err := c.Vault(t.Context(), "a", "g", "v"); return err }, OnVault, "reading the key vault"},
		"Key":             {func(c *Client) error { _, err := c.Key(t.Context(), "a", "g", "v", "k", ""); return err }, OnVault, "reading the key"},
		"SetAccessPolicy": {func(c *Client) error { return c.SetAccessPolicy(t.Context(), "a", "g", "v", "t", "p") }, OnVault, "updating the access policies of the key vault"},
		"Grant":           {func(c *Client) error { _, err := c.Grant(t.Context(), "a", vaultPath, "p"); return err }, OnRoles, "reading the role assignments of the key vault"},
		"CreateGrant":     {func(c *Client) error { _, err := c.CreateGrant(t.Context(), "a", vaultPath, "p"); return err }, OnRoles, "granting access to the key vault"},
		"DeleteGrant":     {func(c *Client) error { _, err := c.DeleteGrant(t.Context(), "a", vaultPath, "p"); return err }, OnRoles, "revoking the access to the key vault"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			client, _ := clientOn(t, answersWith(http.StatusForbidden, body("AuthorizationFailed", "Denied.")))
			outOfScope := *client
			outOfScope.scopes = nil
			for message, client := range map[string]*Client{"Denied. (AuthorizationFailed)": client, "is outside of the scopes": &outOfScope} {
				failure, ok := AsError(c.call(client))
				g.Expect(ok).To(BeTrue())
				g.Expect(failure.Target).To(Equal(c.target))
				g.Expect(failure.Error()).To(And(HavePrefix(c.doing+": "), ContainSubstring(message)))
			}
		})
	}
}

// All objects wait for the Retry-After of a response, or for a second if it has none.
func TestThrottledResponseHoldsBackFurtherRequests(t *testing.T) {
	for name, c := range map[string]struct {
		headers []string
		want    time.Duration
	}{
		"with Retry-After":    {[]string{"Retry-After", "17"}, 17 * time.Second},
		"without Retry-After": {nil, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			client, w := clientOn(t, answersWith(http.StatusTooManyRequests, body("TooManyRequests", "x"), c.headers...))
			expectThrottled := func(err error, message string) {
				t.Helper()
				failure, ok := AsError(err)
				g.Expect(ok).To(BeTrue())
				g.Expect(failure.Kind).To(Equal(Throttled))
				g.Expect(failure.RetryAfter).To(Equal(c.want))
				g.Expect(failure).To(MatchError(message))
			}
			_, err := client.Account(t.Context(), "g", "a")
			expectThrottled(err, "reading the storage account: x (TooManyRequests)")
			const usedUp = "the request limit of the subscription is used up"
			_, err = client.Account(t.Context(), "g", "b")
			expectThrottled(err, "reading the storage account: "+usedUp)
			expectThrottled(client.DeleteAccount(t.Context(), "g", &Account{Name: "b"}), "deleting the storage account: "+usedUp)
			expectThrottled(client.ReserveReads("b", 3), "beginning: "+usedUp)
			g.Expect(w.sent).To(HaveLen(1))
		})
	}
}

// Responses that are throttled with others between them are not in a row.
func TestAnsweredRequestEndsTheRowOfThrottledOnes(t *testing.T) {
	g := NewWithT(t)
	throttled := answersWith(http.StatusTooManyRequests, body("TooManyRequests", "x"), "Retry-After", "10")
	client, w := clientOn(t, throttled)
	c, _ := client.budget.clock.(*clocktesting.FakePassiveClock)
	expectWait := func(want time.Duration) {
		t.Helper()
		_, err := client.Account(t.Context(), "g", "a")
		failure, _ := AsError(err)
		g.Expect(failure.RetryAfter).To(Equal(want))
		step(c, want+streakTimeout+1)
	}
	expectWait(10 * time.Second)
	expectWait(20 * time.Second)
	w.answers = []canned{answersWith(http.StatusOK, `{}`), throttled}
	g.Expect(client.Account(t.Context(), "g", "a")).NotTo(BeNil())
	expectWait(10 * time.Second)
}

// Each object has its own share of the request limits, whichever resource a request is for.
func TestWritesCountForTheirObject(t *testing.T) {
	for name, call := range map[string]func(c *Client) error{
		"DeleteAccount":   func(c *Client) error { return c.DeleteAccount(t.Context(), "g", &Account{Name: "a"}) },
		"CreateGrant":     func(c *Client) error { _, err := c.CreateGrant(t.Context(), "a", vaultPath, "p"); return err },
		"DeleteGrant":     func(c *Client) error { _, err := c.DeleteGrant(t.Context(), "a", vaultPath, "p"); return err },
		"SetAccessPolicy": func(c *Client) error { return c.SetAccessPolicy(t.Context(), "a", "g", "v", "t", "p") },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			client, w := clientOn(t, answersWith(http.StatusOK, `{}`))
			client.budget, _ = newTestBudget(Limits{WritesPerSecond: 1, WritesBurst: 1})
			g.Expect(call(client)).To(Succeed())
			g.Expect(Is(call(client), Throttled)).To(BeTrue())
			g.Expect(w.sent).To(HaveLen(1))
			g.Expect(client.budget.shares).To(And(HaveLen(1), HaveKey("a")))
		})
	}
	for name, call := range map[string]func(c *Client) error{
		"Account": func(c *Client) error { _, err := c.Account(t.Context(), "g", "a"); return err },
		"Vault":   func(c *Client) error { _, err := c.Vault(t.Context(), "a", "g", "v"); return err },
		"Key":     func(c *Client) error { _, err := c.Key(t.Context(), "a", "g", "v", "k", ""); return err },
		"Grant":   func(c *Client) error { _, err := c.Grant(t.Context(), "a", vaultPath, "p"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			client, _ := clientOn(t, answersWith(http.StatusOK, `{}`))
			g.Expect(client.ReserveReads("a", 1)).To(Succeed())
			g.Expect(call(client)).To(Succeed())
			g.Expect(client.budget.shares["a"].left).To(BeZero(), "it uses the read that was reserved")
		})
	}
}

// The grant may exist under another name, and on another page.
func TestFindsGrantThatAlreadyExists(t *testing.T) {
	g := NewWithT(t)
	next := `"nextLink": "https://management.azure.com/next"`
	client, w := clientOn(t,
		answersWith(http.StatusConflict, body("RoleAssignmentExists", "x")),
		answersWith(http.StatusOK, `{"value": [], `+next+`}`),
		answersWith(http.StatusOK, `{"value": [{"id": "other", "properties": {"scope": "/", "principalId": "o'p", "roleDefinitionId": "/x/`+CryptoUserRole+`"}}], `+next+`}`),
	)
	g.Expect(client.CreateGrant(t.Context(), "a", vaultPath, "o'p")).To(Equal(&Grant{ID: "other"}))
	g.Expect(w.sent).To(HaveLen(3), "no page is read after the one with the grant")
	g.Expect(w.sent[1].path).To(Equal(rolesOf))
	g.Expect(w.sent[1].query.Get("$filter")).To(Equal("principalId eq 'o''p'"))
}

// A list of Azure that does not end takes neither all of the request limit nor all of the memory.
func TestEndlessListsAreAnError(t *testing.T) {
	endless := answersWith(http.StatusOK, `{"value": [], "nextLink": "https://management.azure.com/next"}`)
	for name, call := range map[string]func(c *Client) error{
		"role assignments of a principal": func(c *Client) error { _, err := c.Grant(t.Context(), "a", vaultPath, "p"); return err },
		"accounts": func(c *Client) error {
			_, err := c.fetch(t.Context(), list{kind: accountsOfGroup, group: "g"})
			return err
		},
		"role assignments": func(c *Client) error {
			_, err := c.fetch(t.Context(), list{kind: grantsOnVault, name: vaultPath})
			return err
		},
		"keys": func(c *Client) error {
			_, err := c.fetch(t.Context(), list{kind: keysOfVault, group: "g", name: "v"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			client, w := clientOn(t, endless)
			g.Expect(call(client)).To(MatchError(Or(ContainSubstring("does not end"), ContainSubstring("Azure did not respond"))))
			g.Expect(w.sent).To(HaveLen(maxPages))
		})
	}
}

// An error of the transport is Unreachable, and the SDK's error stays in it.
func TestUnansweredRequestIsUnreachable(t *testing.T) {
	g := NewWithT(t)
	client, err := New(Config{Transport: refusing{}}).Client("s", Credential{Name: "own", Token: bearer("t"), Scopes: []Scope{Anywhere}})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = client.Account(t.Context(), "g", "a")
	g.Expect(Is(err, Unreachable)).To(BeTrue(), "%v", err)
	g.Expect(errors.Is(err, io.ErrUnexpectedEOF)).To(BeTrue())
	g.Expect(err).To(MatchError("reading the storage account: Azure did not respond"))
}

type refusing struct{}

// Do implements the SDK's transport.
func (refusing) Do(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }
