package plugin

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
)

const (
	importedSubscription = "00000000-0000-0000-0000-000000000001"
	importedGroup        = "/subscriptions/" + importedSubscription + "/resourceGroups/"
)

func importedAccount(edits ...func(*cloud.Account)) *cloud.Account {
	account := &cloud.Account{
		ID: importedGroup + "billing/providers/Microsoft.Storage/storageAccounts/invoices", Name: "invoices", Location: "westeurope", SKU: "Standard_GRS",
		Tags:       map[string]string{"Team": "billing", "password": "secret"},
		Encryption: cloud.Encryption{KeySource: cloud.CustomerManaged, VaultURI: "https://Demo-Vault.vault.azure.net/", KeyName: "demo-key"},
	}
	for _, edit := range edits {
		edit(account)
	}
	return account
}

func TestImportDescribesAccount(t *testing.T) {
	vault := func(edit func(*cloud.Vault)) []*cloud.Vault {
		v := &cloud.Vault{ID: importedGroup + "billing/providers/Microsoft.KeyVault/vaults/demo-vault", URI: "https://demo-vault.vault.azure.net", RBAC: true}
		if edit != nil {
			edit(v)
		}
		return []*cloud.Vault{{URI: "https://other.vault.azure.net"}, v}
	}
	const common = `apiVersion: fixpoint.dev/v1beta1
kind: SecureStorage
metadata:
  name: invoices
  namespace: shop
spec:
  access:
    type: `
	const rest = `
  accountName: invoices
  adoptionPolicy: IfUnowned
  deletionPolicy: Retain
  key:
    name: demo-key
    vault:
      name: demo-vault
`
	const provider = `  provider:
    location: westeurope
    resourceGroup: billing
    subscriptionID: ` + importedSubscription + `
`
	for name, c := range map[string]struct {
		options importOptions
		account *cloud.Account
		vaults  []*cloud.Vault
		want    string
		refusal string
	}{
		"role assignment": {account: importedAccount(), vaults: vault(nil), options: importOptions{policy: "Manage"},
			want: common + "RoleAssignment" + rest + "  managementPolicy: Manage\n" + provider + "  sku: Standard_GRS\n"},
		"access policy": {account: importedAccount(), vaults: vault(func(v *cloud.Vault) { v.RBAC = false }), options: importOptions{policy: "Observe"},
			want: common + "AccessPolicy" + rest + "  managementPolicy: Observe\n" + provider + "  sku: Standard_GRS\n"},
		"pinned key in a vault of another resource group": {
			account: importedAccount(func(a *cloud.Account) { a.Encryption.KeyVersion = "0123456789abcdef0123456789abcdef" }),
			vaults:  vault(func(v *cloud.Vault) { v.ID = importedGroup + "keys/providers/Microsoft.KeyVault/vaults/demo-vault" }), options: importOptions{policy: "Observe"},
			want: common + "RoleAssignment" + rest + "      resourceGroup: keys\n    version: 0123456789abcdef0123456789abcdef\n  managementPolicy: Observe\n" + provider + "  sku: Standard_GRS\n"},
		"credentials": {account: importedAccount(), vaults: vault(nil), options: importOptions{policy: "Observe", secret: "azure"},
			want: common + "RoleAssignment" + rest + "  managementPolicy: Observe\n  provider:\n    credentialsSecretRef:\n      name: azure\n" + provider[len("  provider:\n"):] + "  sku: Standard_GRS\n"},
		"platform keys":           {account: importedAccount(func(a *cloud.Account) { a.Encryption = cloud.Encryption{KeySource: "Microsoft.Storage"} }), vaults: vault(nil), refusal: "keys that Azure manages"},
		"another owner":           {account: importedAccount(func(a *cloud.Account) { a.Tags["Fixpoint.dev-owner"] = "uid" }), vaults: vault(nil), refusal: `if that SecureStorage does not exist in any cluster, remove the tag: az tag update --operation delete --resource-id '` + importedAccount().ID + `' --tags 'Fixpoint.dev-owner=uid'`},
		"vault that is not found": {account: importedAccount(), refusal: "spec.key.vaultID"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c.options.subscription = importedSubscription
			one := c.options.derive(c.account, c.vaults)
			text, err := one.manifest("shop")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(text).NotTo(ContainSubstring("secret"))
			if c.refusal != "" {
				g.Expect(text).To(HavePrefix("---\n# Not imported: storage account invoices: "))
				g.Expect(text).To(ContainSubstring(c.refusal))
				return
			}
			g.Expect(text).To(Equal("---\n# Planned: with managementPolicy Manage, the manager would only set its owner tag.\n" + c.want))
		})
	}
}

func TestImportFilters(t *testing.T) {
	for name, c := range map[string]struct {
		filters []string
		matches bool
	}{
		"none":                       {nil, true},
		"name":                       {[]string{"name=inv*"}, true},
		"another name":               {[]string{"name=pay*"}, false},
		"tag, whose name has a case": {[]string{"tag:team=bill*"}, true},
		"tag with another value":     {[]string{"tag:team=sales"}, false},
		"missing tag":                {[]string{"tag:cost=*"}, false},
		"all have to match":          {[]string{"name=inv*", "tag:team=sales"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(importOptions{filters: c.filters}.matches(importedAccount())).To(Equal(c.matches))
		})
	}
}

func TestImportRefusesFlags(t *testing.T) {
	const id = importedSubscription
	for name, c := range map[string]struct {
		options importOptions
		says    string
	}{
		"no subscription":           {importOptions{}, "set --subscription"},
		"subscription by name":      {importOptions{subscription: "demo"}, "not a UUID"},
		"subscription with a path":  {importOptions{subscription: id + "/resourceGroups/demo"}, "not a UUID"},
		"two credentials":           {importOptions{subscription: id, secret: "azure", identity: id + "/" + id}, "mutually exclusive"},
		"identity without tenant":   {importOptions{subscription: id, policy: "Observe", identity: id}, "--workload-identity"},
		"policy":                    {importOptions{subscription: id, policy: "Watch"}, "set Observe or Manage"},
		"filter without a value":    {importOptions{subscription: id, policy: "Observe", filters: []string{"name"}}, "tag:KEY=PATTERN"},
		"filter by another key":     {importOptions{subscription: id, policy: "Observe", filters: []string{"sku=Standard_LRS"}}, "tag:KEY=PATTERN"},
		"filter with a bad pattern": {importOptions{subscription: id, policy: "Observe", filters: []string{"name=["}}, "tag:KEY=PATTERN"},
		"token without endpoint":    {importOptions{subscription: id, policy: "Observe", cloud: planOptions{cloudTokenFile: "token"}}, "requires --cloud-endpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(c.options.check()).To(MatchError(ContainSubstring(c.says)))
		})
	}
	NewWithT(t).Expect(importOptions{subscription: id, policy: string(v1beta1.ManagementManage), identity: id + "/" + id, filters: []string{"tag:a=b=c"}}.check()).To(Succeed())
}

func TestImportThatIsInterruptedDoesNotReportATimeout(t *testing.T) {
	g := NewWithT(t)
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	g.Expect(sleep(ctx, time.Hour)).To(BeIdenticalTo(context.Canceled))
	over, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	g.Expect(sleep(over, time.Hour)).To(MatchError(ContainSubstring("--timeout has passed")))
}
