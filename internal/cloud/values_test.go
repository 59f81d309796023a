package cloud

import (
	"fmt"
	"regexp"
	"testing"

	azcloud "github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/keyvault/armkeyvault"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/storage/armstorage"
	. "github.com/onsi/gomega"
)

func TestNamesAreValidAndStable(t *testing.T) {
	g := NewWithT(t)
	seen := map[string]bool{}
	valid := regexp.MustCompile(`^[a-z0-9]{3,24}$`)
	for i := range 10000 {
		name := AccountName(fmt.Sprintf("5b0c7ad7-2f43-4e0e-9a53-%012d", i))
		g.Expect(valid.MatchString(name)).To(BeTrue(), name)
		g.Expect(seen[name]).To(BeFalse())
		seen[name] = true
	}
	// These names must never change: another name is another account, and another grant.
	g.Expect(AccountName("5b0c7ad7-2f43-4e0e-9a53-4f1d5f3b2a10")).To(Equal("fxtx3vywq2avvp7nxrxsc4"))
	const vault = "/subscriptions/s/resourceGroups/g/providers/Microsoft.KeyVault/vaults/v"
	name := grantName(vault, "P")
	g.Expect(name).To(MatchRegexp(`^[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`))
	g.Expect(name).To(Equal("421948a4-18f4-5afe-9cea-82997a448669"))
	g.Expect(name).To(Equal(grantName("/SUBSCRIPTIONS/S/resourcegroups/g/providers/Microsoft.KeyVault/vaults/v", "p")), "ids have no case")
	g.Expect(name).NotTo(Equal(grantName(vault+"2", "P")))
	id := vault + "/providers/Microsoft.Authorization/roleAssignments/" + name
	g.Expect(IsManagedGrant(id, vault, "p")).To(BeTrue())
	g.Expect(IsManagedGrant(id, vault, "q")).To(BeFalse())
	g.Expect(GrantedAt(id)).To(Equal(vault))
	g.Expect(GrantedAt(vault)).To(BeEmpty())
}

// Any field of a response may be missing.
func TestConvertsResponsesWithMissingFields(t *testing.T) {
	g := NewWithT(t)
	g.Expect(accountOf(armstorage.Account{})).To(Equal(&Account{Tags: map[string]string{}}))
	half := accountOf(armstorage.Account{
		SKU: &armstorage.SKU{}, Tags: map[string]*string{"a": nil}, Identity: &armstorage.Identity{},
		Properties: &armstorage.AccountProperties{Encryption: &armstorage.Encryption{KeyVaultProperties: &armstorage.KeyVaultProperties{}}, PrimaryEndpoints: &armstorage.Endpoints{}},
	})
	g.Expect(half.Provisioned()).To(BeFalse())
	g.Expect(half.Tags).To(Equal(map[string]string{"a": ""}))
	g.Expect(vaultOf(armkeyvault.Vault{})).To(Equal(&Vault{Policies: map[string][]string{}}))
	vault := vaultOf(armkeyvault.Vault{Properties: &armkeyvault.VaultProperties{AccessPolicies: []*armkeyvault.AccessPolicyEntry{nil, {}, {Permissions: &armkeyvault.Permissions{Keys: []*armkeyvault.KeyPermissions{nil}}}}}})
	g.Expect(vault.SoftDelete).To(BeTrue(), "old vaults do not mention what cannot be switched off any more")
	g.Expect(vault.PurgeProtection).To(BeFalse())
	g.Expect(keyOf(armkeyvault.Key{})).To(Equal(&Key{}))
	g.Expect(keyOf(armkeyvault.Key{Properties: &armkeyvault.KeyProperties{}}).Enabled).To(BeTrue())
	g.Expect(grantIn([]*armauthorization.RoleAssignment{nil, {}, {Properties: &armauthorization.RoleAssignmentProperties{}}}, "/v", "p")).To(BeNil())
}

func TestStatesOfAccounts(t *testing.T) {
	for state, want := range map[string]struct{ provisioned, failed, deleting bool }{
		"Creating":  {},
		"Succeeded": {provisioned: true},
		"Failed":    {failed: true},
		"Canceled":  {failed: true},
		"Deleting":  {deleting: true},
	} {
		t.Run(state, func(t *testing.T) {
			g, account := NewWithT(t), Account{State: state}
			g.Expect(account.Provisioned()).To(Equal(want.provisioned))
			g.Expect(account.Failed()).To(Equal(want.failed))
			g.Expect(account.IsDeleting()).To(Equal(want.deleting))
		})
	}
}

func TestConvertsResponses(t *testing.T) {
	g := NewWithT(t)
	account := accountOf(armstorage.Account{
		Location: to.Ptr("West Europe"),
		Identity: &armstorage.Identity{Type: to.Ptr(armstorage.IdentityTypeSystemAssignedUserAssigned), PrincipalID: to.Ptr("p")},
		Properties: &armstorage.AccountProperties{
			ProvisioningState: to.Ptr(armstorage.ProvisioningStateSucceeded),
			Encryption: &armstorage.Encryption{KeySource: to.Ptr(armstorage.KeySourceMicrosoftKeyvault), KeyVaultProperties: &armstorage.KeyVaultProperties{
				CurrentVersionedKeyIdentifier: to.Ptr("https://v.vault.azure.net/keys/k/0123"),
			}, EncryptionIdentity: &armstorage.EncryptionIdentity{EncryptionUserAssignedIdentity: to.Ptr("user")}},
		},
	})
	g.Expect(account.Encryption.UserIdentity).To(Equal("user"))
	g.Expect(account.Location).To(Equal("westeurope"))
	g.Expect(account.Provisioned()).To(BeTrue())
	g.Expect(account.HasIdentity).To(BeTrue())
	g.Expect(account.Encryption.CurrentVersion).To(Equal("0123"))
	g.Expect(withSystemIdentity(account)).To(Equal(armstorage.IdentityTypeSystemAssignedUserAssigned))
	g.Expect(withSystemIdentity(&Account{})).To(Equal(armstorage.IdentityTypeSystemAssigned))
}

// Otherwise a URI that Azure returns with the port would look like another key vault, and the encryption like drift.
func TestPortOfKeyVaultsIsIgnored(t *testing.T) {
	g := NewWithT(t)
	for uri, want := range map[string]string{
		"https://v.vault.azure.net:443/keys/k/0123": "https://v.vault.azure.net/keys/k/0123",
		"https://v.vault.azure.net:443/":            "https://v.vault.azure.net/",
		"https://v.vault.azure.net:443":             "https://v.vault.azure.net",
		"https://v.vault.azure.net:4430/keys/k":     "https://v.vault.azure.net:4430/keys/k",
		"https://v.vault.azure.net/keys/k":          "https://v.vault.azure.net/keys/k",
		"":                                          "",
	} {
		key := keyOf(armkeyvault.Key{Properties: &armkeyvault.KeyProperties{KeyURI: &uri, KeyURIWithVersion: &uri}})
		g.Expect([]string{key.ID, key.VersionID}).To(HaveEach(want))
		encryption := encryptionOf(&armstorage.Encryption{KeyVaultProperties: &armstorage.KeyVaultProperties{KeyVaultURI: &uri, CurrentVersionedKeyIdentifier: &uri}})
		g.Expect([]string{encryption.VaultURI, encryption.CurrentKeyID}).To(HaveEach(want))
	}
}

// Azure leaves out the services that have keys of their own.
func TestAccountHasServiceKeysUnlessQueuesAndTablesHaveTheKeyOfTheAccount(t *testing.T) {
	service := func(kind armstorage.KeyType) *armstorage.EncryptionService {
		return &armstorage.EncryptionService{KeyType: &kind}
	}
	own, account := service(armstorage.KeyTypeService), service(armstorage.KeyTypeAccount)
	for name, test := range map[string]struct {
		sku          string
		queue, table *armstorage.EncryptionService
		want         bool
	}{
		"both have the key of the account": {"Standard_LRS", account, account, false},
		"queues have their own":            {"Standard_LRS", own, account, true},
		"tables have their own":            {"Standard_LRS", account, own, true},
		"queues are left out":              {"Standard_LRS", nil, account, true},
		"tables are left out":              {"Standard_LRS", account, nil, true},
		"premium":                          {"Premium_LRS", nil, nil, false},
	} {
		encryption := &armstorage.Encryption{Services: &armstorage.EncryptionServices{Queue: test.queue, Table: test.table}}
		NewWithT(t).Expect(hasServiceKeys(test.sku, encryption)).To(Equal(test.want), name)
	}
	NewWithT(t).Expect(hasServiceKeys("Standard_LRS", nil)).To(BeTrue(), "no encryption")
}

func TestVersionOf(t *testing.T) {
	for id, version := range map[string]string{
		"https://v.vault.azure.net/keys/k/0123": "0123",
		"https://v.vault.azure.net/keys/k":      "",
		"https://v.vault.azure.net/":            "",
		"":                                      "",
	} {
		NewWithT(t).Expect(versionOf(id)).To(Equal(version), id)
	}
}

// A role assignment counts if it covers the whole key vault, whoever created it.
func TestGrantInFindsRoleAssignmentsThatCoverTheVault(t *testing.T) {
	const vault = "/subscriptions/s/resourceGroups/g/providers/Microsoft.KeyVault/vaults/v"
	role := "/subscriptions/s/providers/Microsoft.Authorization/roleDefinitions/" + CryptoUserRole
	for name, c := range map[string]struct {
		scope, principal, role string
		counts                 bool
	}{
		"on the vault":                    {vault, "p", role, true},
		"in different case":               {"/SUBSCRIPTIONS/s/resourcegroups/G/providers/Microsoft.KeyVault/vaults/V", "P", role, true},
		"on its group":                    {"/subscriptions/s/resourceGroups/g", "p", role, true},
		"on the root scope":               {"/", "p", role, true},
		"on a group with the same prefix": {"/subscriptions/s/resourceGroups/g2", "p", role, false},
		"on a single key":                 {vault + "/keys/other", "p", role, false},
		"of another role":                 {vault, "p", "/x/reader", false},
		"of another principal":            {vault, "q", role, false},
		"on a vault with the same prefix": {vault + "2", "p", role, false},
	} {
		t.Run(name, func(t *testing.T) {
			assignment := &armauthorization.RoleAssignment{Properties: &armauthorization.RoleAssignmentProperties{
				Scope: to.Ptr(c.scope), PrincipalID: to.Ptr(c.principal), RoleDefinitionID: to.Ptr(c.role),
			}}
			NewWithT(t).Expect(grantIn([]*armauthorization.RoleAssignment{assignment}, vault, "p") != nil).To(Equal(c.counts))
		})
	}
}

func TestEndpoint(t *testing.T) {
	g := NewWithT(t)
	config, err := Endpoint("http://127.0.0.1:7443")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config).To(Equal(Config{AllowHTTP: true, Cloud: azcloud.Configuration{
		ActiveDirectoryAuthorityHost: "http://127.0.0.1:7443",
		Services: map[azcloud.ServiceName]azcloud.ServiceConfiguration{
			"resourceManager": {Endpoint: "http://127.0.0.1:7443", Audience: "http://127.0.0.1:7443"},
		},
	}}))
	config, err = Endpoint("https://management.azure.com")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.AllowHTTP).To(BeFalse())
	for _, wrong := range []string{"", "management.azure.com", "ftp://x", "http://", "http://[::1"} {
		_, err := Endpoint(wrong)
		g.Expect(err).To(MatchError(ContainSubstring("use a URL such as")), wrong)
	}
}
