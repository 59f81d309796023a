package cloud_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// newTestClient returns a client of a fake cloud with an account, and the desired account.
func newTestClient(t *testing.T) (*fakecloud.Server, *cloud.Client, cloud.NewAccount) {
	t.Helper()
	g := NewWithT(t)
	server := fakecloud.New(fakecloud.Options{})
	demo := server.SeedDemo()
	endpoint := server.StartHTTP()
	t.Cleanup(endpoint.Close)
	client, err := cloud.New(cloud.Config{Cloud: endpoint.Cloud(), AllowHTTP: true, Transport: endpoint.Client()}).
		Client(demo.Subscription, cloud.Credential{Name: "own", Token: endpoint.Credential("manager"), Scopes: []cloud.Scope{cloud.Anywhere}})
	g.Expect(err).NotTo(HaveOccurred())
	account := cloud.NewAccount{Group: demo.Group, Name: "fixpointdata", Location: demo.Location, SKU: "Standard_LRS", Tags: map[string]string{"team": "billing"}}
	return server, client, account
}

// Every write is bound to what was read, so that a concurrent change is neither overwritten nor deleted.
func TestWritesFailIfAccountWasChangedConcurrently(t *testing.T) {
	sku := "Standard_ZRS"
	for name, write := range map[string]func(c *cloud.Client, desired cloud.NewAccount, read *cloud.Account) error{
		"create over an existing account": func(c *cloud.Client, desired cloud.NewAccount, _ *cloud.Account) error {
			_, err := c.CreateAccount(t.Context(), desired, nil)
			return err
		},
		"create over a failed account": func(c *cloud.Client, desired cloud.NewAccount, read *cloud.Account) error {
			_, err := c.CreateAccount(t.Context(), desired, read)
			return err
		},
		"update": func(c *cloud.Client, desired cloud.NewAccount, read *cloud.Account) error {
			_, err := c.UpdateAccount(t.Context(), desired.Group, read, cloud.Change{SKU: &sku, Tags: desired.Tags})
			return err
		},
		"delete": func(c *cloud.Client, desired cloud.NewAccount, read *cloud.Account) error {
			return c.DeleteAccount(t.Context(), desired.Group, read)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server, client, desired := newTestClient(t)
			// given an account that was read
			_, err := client.CreateAccount(t.Context(), desired, nil)
			g.Expect(err).NotTo(HaveOccurred())
			read, err := client.Account(t.Context(), desired.Group, desired.Name)
			g.Expect(err).NotTo(HaveOccurred())
			// when another client changes it before the write
			g.Expect(server.SetTags(desired.Name, map[string]string{"team": "shipping"})).To(Succeed())
			changed, _ := server.Account(desired.Name)
			err = write(client, desired, read)
			// then the write is rejected
			g.Expect(cloud.Is(err, cloud.InProgress)).To(BeTrue(), "%v", err)
			account, exists := server.Account(desired.Name)
			g.Expect(exists).To(BeTrue())
			g.Expect(account.Version).To(Equal(changed.Version))
			g.Expect(account.Tags).To(Equal(map[string]string{"team": "shipping"}))
		})
	}
}

// An update returns the version that it wrote, so that the next write is bound to it.
func TestWritesSucceedWithoutConcurrentChange(t *testing.T) {
	g := NewWithT(t)
	server, client, desired := newTestClient(t)
	_, err := client.CreateAccount(t.Context(), desired, nil)
	g.Expect(err).NotTo(HaveOccurred())
	account, err := client.Account(t.Context(), desired.Group, desired.Name)
	g.Expect(err).NotTo(HaveOccurred())
	account, err = client.UpdateAccount(t.Context(), desired.Group, account, cloud.Change{Tags: map[string]string{"team": "sales"}})
	g.Expect(err).NotTo(HaveOccurred())
	updated := account
	account, err = client.UpdateAccount(t.Context(), desired.Group, account, cloud.Change{Tags: map[string]string{"team": "support"}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cloud.Is(client.DeleteAccount(t.Context(), desired.Group, updated), cloud.InProgress)).To(BeTrue(), "an earlier version")
	g.Expect(client.DeleteAccount(t.Context(), desired.Group, account)).To(Succeed())
	_, exists := server.Account(desired.Name)
	g.Expect(exists).To(BeFalse())
	g.Expect(client.DeleteAccount(t.Context(), desired.Group, account)).To(Succeed(), "an account that does not exist is no error")
}
