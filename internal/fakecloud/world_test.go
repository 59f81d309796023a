package fakecloud

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/keyvault/armkeyvault"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/storage/armstorage"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// world is a cloud on a fake clock, with the SDK's clients talking to it.
type world struct {
	*GomegaWithT
	t        *testing.T
	cloud    *Server
	clock    *clocktesting.FakeClock
	endpoint *Endpoint
	demo     Demo
	// perCall passes on the clock with every call.
	perCall time.Duration

	accounts *armstorage.AccountsClient
	vaults   *armkeyvault.VaultsClient
	keys     *armkeyvault.KeysClient
	roles    *armauthorization.RoleAssignmentsClient
}

func newWorld(t *testing.T, knobs Knobs) *world {
	t.Helper()
	clock := clocktesting.NewFakeClock(noon)
	return worldAround(t, New(Options{Clock: clock, Seed: 7, Knobs: knobs}), clock)
}

func worldAround(t *testing.T, cloud *Server, clock *clocktesting.FakeClock) *world {
	t.Helper()
	w := &world{GomegaWithT: NewWithT(t), t: t, cloud: cloud, clock: clock, endpoint: cloud.Start(), demo: cloud.SeedDemo()}
	t.Cleanup(w.endpoint.Close)
	w.as("tester")
	return w
}

// Do implements policy.Transporter: time passes between calls.
func (w *world) Do(request *http.Request) (*http.Response, error) {
	w.clock.Step(w.perCall)
	return w.endpoint.Client().Do(request)
}

// as makes the clients those of a caller.
func (w *world) as(who string) {
	w.t.Helper()
	options := w.endpoint.ClientOptions()
	options.Transport = w
	credential := w.endpoint.Credential(who)
	var errs [4]error
	w.accounts, errs[0] = armstorage.NewAccountsClient(w.demo.Subscription, credential, options)
	w.vaults, errs[1] = armkeyvault.NewVaultsClient(w.demo.Subscription, credential, options)
	w.keys, errs[2] = armkeyvault.NewKeysClient(w.demo.Subscription, credential, options)
	w.roles, errs[3] = armauthorization.NewRoleAssignmentsClient(w.demo.Subscription, credential, options)
	w.Expect(errors.Join(errs[:]...)).To(Succeed())
}

func (w *world) ctx() context.Context { return w.t.Context() }

func accountParameters() armstorage.AccountCreateParameters {
	return armstorage.AccountCreateParameters{
		Location: to.Ptr("westeurope"), Kind: to.Ptr(armstorage.KindStorageV2),
		SKU:      &armstorage.SKU{Name: to.Ptr(armstorage.SKUNameStandardLRS)},
		Identity: &armstorage.Identity{Type: to.Ptr(armstorage.IdentityTypeSystemAssigned)},
		Tags:     map[string]*string{"owner": to.Ptr("uid-1")},
	}
}

// create sends the PUT and does not wait.
func (w *world) create(name string) error {
	_, err := w.accounts.BeginCreate(w.ctx(), w.demo.Group, name, accountParameters(), nil)
	return err
}

func (w *world) get(name string) (armstorage.Account, error) {
	got, err := w.accounts.GetProperties(w.ctx(), w.demo.Group, name, nil)
	return got.Account, err
}

func (w *world) mustGet(name string) armstorage.Account {
	w.t.Helper()
	account, err := w.get(name)
	w.Expect(err).NotTo(HaveOccurred())
	return account
}

func (w *world) delete(name string) error {
	_, err := w.accounts.Delete(w.ctx(), w.demo.Group, name, nil)
	return err
}

func (w *world) patch(name string, parameters armstorage.AccountUpdateParameters) (armstorage.Account, error) {
	got, err := w.accounts.Update(w.ctx(), w.demo.Group, name, parameters, nil)
	return got.Account, err
}

func (w *world) tag(name, value string) error {
	_, err := w.patch(name, armstorage.AccountUpdateParameters{Tags: map[string]*string{"owner": to.Ptr(value)}})
	return err
}

// encrypt asks for the demo's key, or the given one of its vault.
func (w *world) encrypt(name, key, version string) error {
	_, err := w.patch(name, encryption("https://"+w.demo.Vault+".vault.azure.net", key, version))
	return err
}

func encryption(vault, key, version string) armstorage.AccountUpdateParameters {
	return armstorage.AccountUpdateParameters{Properties: &armstorage.AccountPropertiesUpdateParameters{Encryption: &armstorage.Encryption{
		KeySource:          to.Ptr(armstorage.KeySourceMicrosoftKeyvault),
		KeyVaultProperties: &armstorage.KeyVaultProperties{KeyVaultURI: to.Ptr(vault), KeyName: to.Ptr(key), KeyVersion: to.Ptr(version)},
	}}}
}

const assignmentName = "11111111-2222-4333-8444-555555555555"

// grant gives a principal the encryption role on the demo's vault.
func (w *world) grant(name, principal string, kind *armauthorization.PrincipalType) error {
	_, err := w.roles.Create(w.ctx(), w.demo.VaultID, name, armauthorization.RoleAssignmentCreateParameters{
		Properties: &armauthorization.RoleAssignmentProperties{
			PrincipalID: to.Ptr(principal), PrincipalType: kind,
			RoleDefinitionID: to.Ptr("/subscriptions/" + w.demo.Subscription + "/providers/Microsoft.Authorization/roleDefinitions/" + CryptoServiceEncryptionUser),
		},
	}, nil)
	return err
}

func servicePrincipal() *armauthorization.PrincipalType {
	return to.Ptr(armauthorization.PrincipalTypeServicePrincipal)
}

// encrypted brings an account to where it is encrypted with the demo's key, in a cloud
// without delays.
func (w *world) encrypted(name string) {
	w.t.Helper()
	w.Expect(w.create(name)).To(Succeed())
	w.Expect(w.grant(assignmentName, w.cloud.Principal(name), servicePrincipal())).To(Succeed())
	w.Expect(w.encrypt(name, w.demo.Key, "")).To(Succeed())
}

// code is the error code that the SDK saw.
func code(err error) string {
	var refused *azcore.ResponseError
	if errors.As(err, &refused) {
		return refused.ErrorCode
	}
	if err != nil {
		return "not a response: " + err.Error()
	}
	return ""
}

func status(err error) int {
	var refused *azcore.ResponseError
	if errors.As(err, &refused) {
		return refused.StatusCode
	}
	return 0
}

// raw sends a request that the SDK would not send.
func (w *world) raw(method, path, body string, headers ...string) (*http.Response, string) {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.ctx(), method, w.endpoint.URL+path, strings.NewReader(body))
	w.Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Authorization", "Bearer "+Token("tester"))
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := w.endpoint.Client().Do(request)
	w.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	w.Expect(err).NotTo(HaveOccurred())
	return response, string(text)
}

func (w *world) accountPath(name string) string {
	return "/subscriptions/" + w.demo.Subscription + "/resourceGroups/" + w.demo.Group + "/providers/Microsoft.Storage/storageAccounts/" + name
}

// urlQuery escapes a filter: the SDK's role assignments client sends it as it is.
func urlQuery(text string) string { return strings.ReplaceAll(text, " ", "%20") }
