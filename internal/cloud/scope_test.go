package cloud_test

import (
	"reflect"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

const subscriptionID = "/subscriptions/00000000-0000-4000-8000-00000000f1c5"

func TestScopeContains(t *testing.T) {
	group := cloud.GroupID("00000000-0000-4000-8000-00000000f1c5", "billing")
	account := cloud.AccountID("00000000-0000-4000-8000-00000000f1c5", "billing", "invoices")
	for name, c := range map[string]struct {
		scope    cloud.Scope
		id       string
		contains bool
	}{
		"itself":                                 {cloud.Scope(subscriptionID), subscriptionID, true},
		"a group of the subscription":            {cloud.Scope(subscriptionID), group, true},
		"an account of the subscription":         {cloud.Scope(subscriptionID), account, true},
		"an account of the group":                {cloud.Scope(group), account, true},
		"in different case":                      {cloud.Scope(group), "/SUBSCRIPTIONS/00000000-0000-4000-8000-00000000F1C5/resourcegroups/BILLING/providers/x", true},
		"the account itself":                     {cloud.Scope(account), account, true},
		"everything":                             {cloud.Anywhere, account, true},
		"a group with the same prefix":           {cloud.Scope(group), group + "2", false},
		"an account with the same prefix":        {cloud.Scope(account), account + "2", false},
		"the group of the account":               {cloud.Scope(account), group, false},
		"another subscription":                   {cloud.Scope(subscriptionID), "/subscriptions/00000000-0000-4000-8000-00000000beef/resourceGroups/billing", false},
		"a dot segment":                          {cloud.Scope(group), group + "/../shipping", false},
		"a single dot":                           {cloud.Scope(group), group + "/./x", false},
		"an escape":                              {cloud.Scope(group), group + "/%2e%2e/shipping", false},
		"a query":                                {cloud.Scope(group), group + "?x=", false},
		"an empty part":                          {cloud.Scope(group), group + "//x", false},
		"an ID without a leading slash":          {cloud.Scope(group), group[1:], false},
		"no ID":                                  {cloud.Anywhere, "", false},
		"the zero value":                         {"", account, false},
		"a dot segment, although all is allowed": {cloud.Anywhere, group + "/../shipping", false},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(c.scope.Contains(c.id)).To(Equal(c.contains))
		})
	}
}

func TestParseScope(t *testing.T) {
	for name, id := range map[string]string{
		"subscription": subscriptionID,
		"group":        subscriptionID + "/resourceGroups/Demo_1.(x)",
		"account":      subscriptionID + "/resourceGroups/demo/providers/Microsoft.Storage/storageAccounts/invoices",
		"vault":        subscriptionID + "/resourcegroups/demo/providers/microsoft.keyvault/vaults/demo-vault",
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			scope, err := cloud.ParseScope(id)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(scope.Contains(id)).To(BeTrue())
		})
	}
	for name, id := range map[string]string{
		"nothing":            "",
		"everything":         "/",
		"a management group": "/providers/Microsoft.Management/managementGroups/all",
		"a UUID":             "00000000-0000-4000-8000-00000000f1c5",
		"a name":             "/subscriptions/production",
		"a wildcard":         "/subscriptions/*",
		"a trailing slash":   subscriptionID + "/",
		"a dot segment":      subscriptionID + "/resourceGroups/..",
		"an escape":          subscriptionID + "/resourceGroups/a%2fb",
		"another resource":   subscriptionID + "/resourceGroups/demo/providers/Microsoft.Compute/disks/data",
		"a second line":      subscriptionID + "\n/",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := cloud.ParseScope(id)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring("is not a scope: set the resource ID of a subscription, resource group, storage account or key vault")))
		})
	}
}

// Whatever a phase asks for: a client sends nothing for a resource outside of its scopes.
func TestSendsNothingOutsideOfScopes(t *testing.T) {
	server := fakecloud.New(fakecloud.Options{})
	demo := server.SeedDemo()
	NewWithT(t).Expect(server.SeedAccount(demo.Subscription, demo.Group, "victim", nil)).To(Succeed())
	endpoint := server.StartHTTP()
	t.Cleanup(endpoint.Close)
	account := &cloud.Account{Name: "victim"}
	const principal = "00000000-0000-4000-8000-000000000001"
	calls := map[string]func(c *cloud.Client) error{
		"Account":  func(c *cloud.Client) error { _, err := c.Account(t.Context(), demo.Group, "victim"); return err },
		"Accounts": func(c *cloud.Client) error { _, err := c.Accounts("").Next(t.Context()); return err },
		"Vaults":   func(c *cloud.Client) error { _, err := c.Vaults().Next(t.Context()); return err },
		"CreateAccount": func(c *cloud.Client) error {
			_, err := c.CreateAccount(t.Context(), cloud.NewAccount{Group: demo.Group, Name: "created", Location: demo.Location, SKU: "Standard_LRS"}, nil)
			return err
		},
		"UpdateAccount": func(c *cloud.Client) error {
			_, err := c.UpdateAccount(t.Context(), demo.Group, account, cloud.Change{Identity: true})
			return err
		},
		"DeleteAccount": func(c *cloud.Client) error { return c.DeleteAccount(t.Context(), demo.Group, account) },
		"AccountKeys":   func(c *cloud.Client) error { _, err := c.AccountKeys(t.Context(), demo.Group, "victim"); return err },
		"IsNameAvailable": func(c *cloud.Client) error {
			_, err := c.IsNameAvailable(t.Context(), demo.Group, "victim")
			return err
		},
		"Vault": func(c *cloud.Client) error {
			_, err := c.Vault(t.Context(), "victim", demo.Group, demo.Vault)
			return err
		},
		"Key": func(c *cloud.Client) error {
			_, err := c.Key(t.Context(), "victim", demo.Group, demo.Vault, demo.Key, "")
			return err
		},
		"Grant": func(c *cloud.Client) error {
			_, err := c.Grant(t.Context(), "victim", demo.VaultID, principal)
			return err
		},
		"CreateGrant": func(c *cloud.Client) error {
			_, err := c.CreateGrant(t.Context(), "victim", demo.VaultID, principal)
			return err
		},
		"DeleteGrant": func(c *cloud.Client) error {
			_, err := c.DeleteGrant(t.Context(), "victim", demo.VaultID, principal)
			return err
		},
		"SetAccessPolicy": func(c *cloud.Client) error {
			return c.SetAccessPolicy(t.Context(), "victim", demo.Group, demo.Vault, "tenant", principal)
		},
		"RemoveAccessPolicy": func(c *cloud.Client) error {
			return c.RemoveAccessPolicy(t.Context(), "victim", demo.Group, demo.Vault, "tenant", principal)
		},
	}
	methods := reflect.TypeFor[*cloud.Client]()
	for i := range methods.NumMethod() {
		// ReserveReads and Observing send nothing.
		if name := methods.Method(i).Name; name != "ReserveReads" && name != "Observing" && calls[name] == nil {
			t.Errorf("no case for Client.%s", name)
		}
	}
	for scopes, allowed := range map[string][]cloud.Scope{
		"no scope":             nil,
		"another subscription": {"/subscriptions/00000000-0000-4000-8000-00000000beef"},
		"another group":        {cloud.Scope(demo.GroupID() + "2")},
	} {
		for name, call := range calls {
			t.Run(scopes+"/"+name, func(t *testing.T) {
				g := NewWithT(t)
				client, err := cloud.New(cloud.Config{Cloud: endpoint.Cloud(), AllowHTTP: true, Transport: endpoint.Client()}).
					Client(demo.Subscription, cloud.Credential{Name: "own", Token: endpoint.Credential("manager"), Scopes: allowed})
				g.Expect(err).NotTo(HaveOccurred())
				// when
				err = call(client)
				// then
				g.Expect(cloud.Is(err, cloud.OutOfScope)).To(BeTrue(), "%v", err)
				g.Expect(err).To(MatchError(And(ContainSubstring("/subscriptions/"+demo.Subscription), ContainSubstring("is outside of the scopes in which the credential may be used"))))
				g.Expect(server.Counts("")).To(BeEmpty())
			})
		}
	}
}
