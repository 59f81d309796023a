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

// fixture is a cloud with a fake clock, and the SDK's clients for it.
type fixture struct {
	*GomegaWithT
	t        *testing.T
	cloud    *Server
	clock    *clocktesting.FakeClock
	endpoint *Endpoint
	demo     Demo
	// perCall is how far each request advances the clock.
	perCall time.Duration

	accounts *armstorage.AccountsClient
	vaults   *armkeyvault.VaultsClient
	keys     *armkeyvault.KeysClient
	roles    *armauthorization.RoleAssignmentsClient
}

func newFixture(t *testing.T, knobs Knobs) *fixture {
	t.Helper()
	clock := clocktesting.NewFakeClock(noon)
	return newFixtureWith(t, New(Options{Clock: clock, Seed: 7, Knobs: knobs}), clock)
}

func newFixtureWith(t *testing.T, cloud *Server, clock *clocktesting.FakeClock) *fixture {
	t.Helper()
	f := &fixture{GomegaWithT: NewWithT(t), t: t, cloud: cloud, clock: clock, endpoint: cloud.Start(), demo: cloud.SeedDemo()}
	t.Cleanup(f.endpoint.Close)
	f.as("tester")
	return f
}

// Do implements policy.Transporter. It advances the clock.
func (f *fixture) Do(request *http.Request) (*http.Response, error) {
	f.clock.Step(f.perCall)
	return f.endpoint.Client().Do(request)
}

// as changes the caller of the clients.
func (f *fixture) as(who string) {
	f.t.Helper()
	options := f.endpoint.ClientOptions()
	options.Transport = f
	credential := f.endpoint.Credential(who)
	var errs [4]error
	f.accounts, errs[0] = armstorage.NewAccountsClient(f.demo.Subscription, credential, options)
	f.vaults, errs[1] = armkeyvault.NewVaultsClient(f.demo.Subscription, credential, options)
	f.keys, errs[2] = armkeyvault.NewKeysClient(f.demo.Subscription, credential, options)
	f.roles, errs[3] = armauthorization.NewRoleAssignmentsClient(f.demo.Subscription, credential, options)
	f.Expect(errors.Join(errs[:]...)).To(Succeed())
}

func (f *fixture) ctx() context.Context { return f.t.Context() }

func accountParameters() armstorage.AccountCreateParameters {
	return armstorage.AccountCreateParameters{
		Location: to.Ptr("westeurope"), Kind: to.Ptr(armstorage.KindStorageV2),
		SKU:      &armstorage.SKU{Name: to.Ptr(armstorage.SKUNameStandardLRS)},
		Identity: &armstorage.Identity{Type: to.Ptr(armstorage.IdentityTypeSystemAssigned)},
		Tags:     map[string]*string{"owner": to.Ptr("uid-1")},
	}
}

// create sends the PUT without polling.
func (f *fixture) create(name string) error {
	_, err := f.accounts.BeginCreate(f.ctx(), f.demo.Group, name, accountParameters(), nil)
	return err
}

func (f *fixture) get(name string) (armstorage.Account, error) {
	got, err := f.accounts.GetProperties(f.ctx(), f.demo.Group, name, nil)
	return got.Account, err
}

func (f *fixture) mustGet(name string) armstorage.Account {
	f.t.Helper()
	account, err := f.get(name)
	f.Expect(err).NotTo(HaveOccurred())
	return account
}

func (f *fixture) delete(name string) error {
	_, err := f.accounts.Delete(f.ctx(), f.demo.Group, name, nil)
	return err
}

func (f *fixture) patch(name string, parameters armstorage.AccountUpdateParameters) (armstorage.Account, error) {
	got, err := f.accounts.Update(f.ctx(), f.demo.Group, name, parameters, nil)
	return got.Account, err
}

func (f *fixture) tag(name, value string) error {
	_, err := f.patch(name, armstorage.AccountUpdateParameters{Tags: map[string]*string{"owner": to.Ptr(value)}})
	return err
}

// encrypt encrypts an account with a key of the demo key vault.
func (f *fixture) encrypt(name, key, version string) error {
	_, err := f.patch(name, encryption("https://"+f.demo.Vault+".vault.azure.net", key, version))
	return err
}

func encryption(vault, key, version string) armstorage.AccountUpdateParameters {
	return armstorage.AccountUpdateParameters{Properties: &armstorage.AccountPropertiesUpdateParameters{Encryption: &armstorage.Encryption{
		KeySource:          to.Ptr(armstorage.KeySourceMicrosoftKeyvault),
		KeyVaultProperties: &armstorage.KeyVaultProperties{KeyVaultURI: to.Ptr(vault), KeyName: to.Ptr(key), KeyVersion: to.Ptr(version)},
	}}}
}

const assignmentName = "11111111-2222-4333-8444-555555555555"

// grant assigns the encryption role on the demo key vault to a principal.
func (f *fixture) grant(name, principal string, kind *armauthorization.PrincipalType) error {
	_, err := f.roles.Create(f.ctx(), f.demo.VaultID, name, armauthorization.RoleAssignmentCreateParameters{
		Properties: &armauthorization.RoleAssignmentProperties{
			PrincipalID: to.Ptr(principal), PrincipalType: kind,
			RoleDefinitionID: to.Ptr("/subscriptions/" + f.demo.Subscription + "/providers/Microsoft.Authorization/roleDefinitions/" + CryptoServiceEncryptionUser),
		},
	}, nil)
	return err
}

func servicePrincipal() *armauthorization.PrincipalType {
	return to.Ptr(armauthorization.PrincipalTypeServicePrincipal)
}

// encrypted creates an account that is encrypted with the demo key, in a cloud without delays.
func (f *fixture) encrypted(name string) {
	f.t.Helper()
	f.Expect(f.create(name)).To(Succeed())
	f.Expect(f.grant(assignmentName, f.cloud.Principal(name), servicePrincipal())).To(Succeed())
	f.Expect(f.encrypt(name, f.demo.Key, "")).To(Succeed())
}

// code returns the error code of an SDK error.
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

// raw sends a request without the SDK.
func (f *fixture) raw(method, path, body string, headers ...string) (*http.Response, string) {
	f.t.Helper()
	request, err := http.NewRequestWithContext(f.ctx(), method, f.endpoint.URL+path, strings.NewReader(body))
	f.Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Authorization", "Bearer "+Token("tester"))
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := f.endpoint.Client().Do(request)
	f.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	f.Expect(err).NotTo(HaveOccurred())
	return response, string(text)
}

func (f *fixture) accountPath(name string) string {
	return "/subscriptions/" + f.demo.Subscription + "/resourceGroups/" + f.demo.Group + "/providers/Microsoft.Storage/storageAccounts/" + name
}

// urlQuery escapes a filter, which the SDK's role assignments client does not do.
func urlQuery(text string) string { return strings.ReplaceAll(text, " ", "%20") }
