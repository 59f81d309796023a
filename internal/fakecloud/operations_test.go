package fakecloud

import (
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/keyvault/armkeyvault"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/storage/armstorage"
	. "github.com/onsi/gomega"
)

func TestOperationsWithSDKPollers(t *testing.T) {
	for _, c := range []struct {
		name  string
		async bool
		fails bool
		stays bool
		want  string
		after string
	}{
		{name: "announced by Location"},
		{name: "announced by Azure-AsyncOperation", async: true},
		{name: "fails late, announced by Location", fails: true, want: "StorageAccountOperationFailed", after: "ResourceNotFound"},
		{name: "fails late, announced by Azure-AsyncOperation", async: true, fails: true, want: "StorageAccountOperationFailed", after: "ResourceNotFound"},
		{name: "fails late and stays", fails: true, stays: true, want: "StorageAccountOperationFailed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			// given creations that take half a minute
			knobs := Knobs{AccountCreation: Fixed(30 * time.Second), PollInterval: Fixed(time.Millisecond), MillisecondHints: true, AsyncOperation: c.async, FailedAccountsStay: c.stays}
			if c.fails {
				knobs.CreationFailures = 1
			}
			f := newFixture(t, knobs)
			f.perCall = 4 * time.Second

			// when the SDK polls
			poller, err := f.accounts.BeginCreate(f.ctx(), f.demo.Group, "data1", accountParameters(), nil)
			f.Expect(err).NotTo(HaveOccurred())
			f.Expect(poller.Done()).To(BeFalse())
			done, err := poller.PollUntilDone(f.ctx(), everyMillisecond)

			// then it gets the result
			f.Expect(code(err)).To(Equal(c.want))
			if c.want == "" {
				f.Expect(*done.Name).To(Equal("data1"))
			}
			_, err = f.get("data1")
			f.Expect(code(err)).To(Equal(c.after))
			if c.fails {
				f.Expect(f.cloud.Effects(Failed, "data1")).To(HaveLen(1))
				f.Expect(f.cloud.Orphans()).To(BeEmpty())
			}
			f.Expect(f.cloud.Total("storageAccounts/data1").Reads).To(BeNumerically(">=", 8), "polls count for the account")
		})
	}
}

func TestProvisioningStates(t *testing.T) {
	f := newFixture(t, Knobs{AccountCreation: Fixed(50 * time.Second), PrincipalDelay: Fixed(10 * time.Second)})
	f.Expect(f.create("data1")).To(Succeed())
	for _, c := range []struct {
		step      time.Duration
		state     armstorage.ProvisioningState
		principal bool
	}{
		{0, armstorage.ProvisioningStateCreating, false},
		{40 * time.Second, armstorage.ProvisioningStateResolvingDNS, false},
		{10 * time.Second, armstorage.ProvisioningStateSucceeded, false},
		{10 * time.Second, armstorage.ProvisioningStateSucceeded, true},
	} {
		f.clock.Step(c.step)
		account := f.mustGet("data1")
		f.Expect(*account.Properties.ProvisioningState).To(Equal(c.state))
		f.Expect(account.Identity.PrincipalID != nil).To(Equal(c.principal))
	}
}

func TestVaultsWithSDKPollers(t *testing.T) {
	f := newFixture(t, Knobs{VaultCreation: Fixed(30 * time.Second)})
	f.perCall = 4 * time.Second
	parameters := armkeyvault.VaultCreateOrUpdateParameters{
		Location: to.Ptr("westeurope"),
		Properties: &armkeyvault.VaultProperties{
			TenantID: to.Ptr(Tenant), SKU: &armkeyvault.SKU{Family: to.Ptr(armkeyvault.SKUFamilyA), Name: to.Ptr(armkeyvault.SKUNameStandard)},
			EnableRbacAuthorization: to.Ptr(true), EnableSoftDelete: to.Ptr(true),
		},
	}
	create := func() error {
		poller, err := f.vaults.BeginCreateOrUpdate(f.ctx(), f.demo.Group, "mine-1", parameters, nil)
		if err != nil {
			return err
		}
		_, err = poller.PollUntilDone(f.ctx(), everyMillisecond)
		return err
	}

	// A key vault is created and soft-deleted, and its name is reserved
	f.Expect(create()).To(Succeed())
	_, err := f.vaults.Delete(f.ctx(), f.demo.Group, "mine-1", nil)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(code(create())).To(Equal("ConflictError"))
	deleted, err := f.vaults.GetDeleted(f.ctx(), "mine-1", "westeurope", nil)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(deleted.Properties.ScheduledPurgeDate.Sub(*deleted.Properties.DeletionDate)).To(Equal(90 * 24 * time.Hour))

	// It is recovered, deleted again and purged, and its name is available
	parameters.Properties.CreateMode = to.Ptr(armkeyvault.CreateModeRecover)
	f.Expect(create()).To(Succeed())
	parameters.Properties.CreateMode = nil
	_, err = f.vaults.Delete(f.ctx(), f.demo.Group, "mine-1", nil)
	f.Expect(err).NotTo(HaveOccurred())
	purge, err := f.vaults.BeginPurgeDeleted(f.ctx(), "mine-1", "westeurope", nil)
	f.Expect(err).NotTo(HaveOccurred())
	_, err = purge.PollUntilDone(f.ctx(), everyMillisecond)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(create()).To(Succeed())
}
