package fakecloud

import (
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/keyvault/armkeyvault"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/storage/armstorage"
	. "github.com/onsi/gomega"
)

func TestLongRunningOperationsThroughTheSDKsPollers(t *testing.T) {
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
			// Given creations that take half a minute
			knobs := Knobs{AccountCreation: Fixed(30 * time.Second), PollInterval: Fixed(time.Millisecond), MillisecondHints: true, AsyncOperation: c.async, FailedAccountsStay: c.stays}
			if c.fails {
				knobs.CreationFailures = 1
			}
			w := newWorld(t, knobs)
			w.perCall = 4 * time.Second

			// When the SDK waits for one
			poller, err := w.accounts.BeginCreate(w.ctx(), w.demo.Group, "data1", accountParameters(), nil)
			w.Expect(err).NotTo(HaveOccurred())
			w.Expect(poller.Done()).To(BeFalse())
			done, err := poller.PollUntilDone(w.ctx(), everyMillisecond)

			// Then it hears how it ended
			w.Expect(code(err)).To(Equal(c.want))
			if c.want == "" {
				w.Expect(*done.Name).To(Equal("data1"))
			}
			_, err = w.get("data1")
			w.Expect(code(err)).To(Equal(c.after))
			if c.fails {
				w.Expect(w.cloud.Effects(Failed, "data1")).To(HaveLen(1))
				w.Expect(w.cloud.Orphans()).To(BeEmpty())
			}
			w.Expect(w.cloud.Total("storageAccounts/data1").Reads).To(BeNumerically(">=", 8), "polls count for the account")
		})
	}
}

func TestProvisioningStates(t *testing.T) {
	w := newWorld(t, Knobs{AccountCreation: Fixed(50 * time.Second), PrincipalDelay: Fixed(10 * time.Second)})
	w.Expect(w.create("data1")).To(Succeed())
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
		w.clock.Step(c.step)
		account := w.mustGet("data1")
		w.Expect(*account.Properties.ProvisioningState).To(Equal(c.state))
		w.Expect(account.Identity.PrincipalID != nil).To(Equal(c.principal))
	}
}

func TestVaultsThroughTheSDKsPollers(t *testing.T) {
	w := newWorld(t, Knobs{VaultCreation: Fixed(30 * time.Second)})
	w.perCall = 4 * time.Second
	parameters := armkeyvault.VaultCreateOrUpdateParameters{
		Location: to.Ptr("westeurope"),
		Properties: &armkeyvault.VaultProperties{
			TenantID: to.Ptr(Tenant), SKU: &armkeyvault.SKU{Family: to.Ptr(armkeyvault.SKUFamilyA), Name: to.Ptr(armkeyvault.SKUNameStandard)},
			EnableRbacAuthorization: to.Ptr(true), EnableSoftDelete: to.Ptr(true),
		},
	}
	create := func() error {
		poller, err := w.vaults.BeginCreateOrUpdate(w.ctx(), w.demo.Group, "mine-1", parameters, nil)
		if err != nil {
			return err
		}
		_, err = poller.PollUntilDone(w.ctx(), everyMillisecond)
		return err
	}

	// A vault is created, deleted softly, and its name cannot be taken
	w.Expect(create()).To(Succeed())
	_, err := w.vaults.Delete(w.ctx(), w.demo.Group, "mine-1", nil)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(code(create())).To(Equal("ConflictError"))
	deleted, err := w.vaults.GetDeleted(w.ctx(), "mine-1", "westeurope", nil)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(deleted.Properties.ScheduledPurgeDate.Sub(*deleted.Properties.DeletionDate)).To(Equal(90 * 24 * time.Hour))

	// It is recovered, deleted again and purged, and then the name is free
	parameters.Properties.CreateMode = to.Ptr(armkeyvault.CreateModeRecover)
	w.Expect(create()).To(Succeed())
	parameters.Properties.CreateMode = nil
	_, err = w.vaults.Delete(w.ctx(), w.demo.Group, "mine-1", nil)
	w.Expect(err).NotTo(HaveOccurred())
	purge, err := w.vaults.BeginPurgeDeleted(w.ctx(), "mine-1", "westeurope", nil)
	w.Expect(err).NotTo(HaveOccurred())
	_, err = purge.PollUntilDone(w.ctx(), everyMillisecond)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(create()).To(Succeed())
}
