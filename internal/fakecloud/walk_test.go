package fakecloud

import (
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/keyvault/armkeyvault"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/storage/armstorage"
	. "github.com/onsi/gomega"
)

var everyMillisecond = &runtime.PollUntilDoneOptions{Frequency: time.Millisecond}

// The whole way, with the SDK's clients and realistic delays.
func TestFromNothingToEncryptedAndBack(t *testing.T) {
	knobs := Realistic()
	knobs.Latency, knobs.PollInterval, knobs.MillisecondHints = Delay{}, Fixed(time.Millisecond), true
	w := newWorld(t, knobs)
	w.perCall = 5 * time.Second

	// Given a vault and a key that are fit for it
	vault, err := w.vaults.Get(w.ctx(), w.demo.Group, w.demo.Vault, nil)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(*vault.Properties.EnablePurgeProtection).To(BeTrue())
	key, err := w.keys.Get(w.ctx(), w.demo.Group, w.demo.Vault, w.demo.Key, nil)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(*key.Properties.Kty).To(Equal(armkeyvault.JSONWebKeyTypeRSA))

	// When an account is created
	poller, err := w.accounts.BeginCreate(w.ctx(), w.demo.Group, "data1", accountParameters(), nil)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(w.mustGet("data1").Properties.ProvisioningState).To(HaveValue(Equal(armstorage.ProvisioningStateCreating)))
	created, err := poller.PollUntilDone(w.ctx(), everyMillisecond)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(*created.Properties.ProvisioningState).To(Equal(armstorage.ProvisioningStateSucceeded))
	w.Expect(*created.Properties.PrimaryEndpoints.Blob).To(Equal("https://data1.blob.core.windows.net/"))

	// Then its identity can be granted the key, and after a while it can use it
	w.clock.Step(5 * time.Second)
	principal := *w.mustGet("data1").Identity.PrincipalID
	w.Expect(w.grant(assignmentName, principal, servicePrincipal())).To(Succeed())
	refusals := 0
	for code(w.encrypt("data1", w.demo.Key, "")) == "KeyVaultAuthenticationFailure" {
		refusals++
		w.Expect(refusals).To(BeNumerically("<", 120), "a grant takes ten minutes at most")
	}
	w.Expect(refusals).To(BeNumerically(">", 0), "a grant takes a while")
	account := w.mustGet("data1")
	w.Expect(*account.Properties.Encryption.KeySource).To(Equal(armstorage.KeySourceMicrosoftKeyvault))
	w.Expect(*account.Properties.Encryption.KeyVaultProperties.CurrentVersionedKeyIdentifier).To(Equal(*key.Properties.KeyURIWithVersion))
	w.Expect(w.cloud.ReadData("data1")).To(Succeed())

	// When all of it is undone
	w.Expect(w.delete("data1")).To(Succeed())
	for w.err404("data1") == nil {
		continue
	}
	_, err = w.roles.Delete(w.ctx(), w.demo.VaultID, assignmentName, nil)
	w.Expect(err).NotTo(HaveOccurred())

	// Then nothing is left, and nothing was made twice
	w.Expect(w.cloud.State().Accounts).To(BeEmpty())
	w.Expect(w.cloud.Orphans()).To(BeEmpty())
	w.Expect(w.cloud.Created("storageAccounts/data1")).To(Equal(1))
	w.Expect(w.cloud.Created("roleAssignments/" + assignmentName)).To(Equal(1))
}

// err404 is nil while the account can be seen.
func (w *world) err404(name string) error {
	_, err := w.get(name)
	return err
}

func TestLists(t *testing.T) {
	w := newWorld(t, Instant())
	w.encrypted("data1")
	w.Expect(w.create("data2")).To(Succeed())

	page, err := w.accounts.NewListByResourceGroupPager(w.demo.Group, nil).NextPage(w.ctx())
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(page.Value).To(HaveLen(2))

	versions, err := w.keys.NewListVersionsPager(w.demo.Group, w.demo.Vault, w.demo.Key, nil).NextPage(w.ctx())
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(versions.Value).To(HaveLen(1))
	version, err := w.keys.GetVersion(w.ctx(), w.demo.Group, w.demo.Vault, w.demo.Key, *versions.Value[0].Name, nil)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(version.Properties.KeyURIWithVersion).To(Equal(versions.Value[0].Properties.KeyURIWithVersion))
}

func TestAssignmentFilters(t *testing.T) {
	w := newWorld(t, Instant())
	w.encrypted("data1")
	principal := w.cloud.Principal("data1")
	group := "/subscriptions/" + w.demo.Subscription + "/resourceGroups/" + w.demo.Group
	for name, c := range map[string]struct {
		scope, filter string
		found         int
	}{
		"all at the scope":             {w.demo.VaultID, "", 1},
		"by principal":                 {w.demo.VaultID, "principalId eq '" + principal + "'", 1},
		"by somebody else":             {w.demo.VaultID, "principalId eq 'somebody'", 0},
		"assigned to":                  {w.demo.VaultID, "assignedTo('" + principal + "')", 1},
		"above, which shows below":     {group, "principalId eq '" + principal + "'", 1},
		"above, but only at the scope": {group, "atScope()", 0},
		"at the scope":                 {w.demo.VaultID, "atScope() and assignedTo('" + principal + "')", 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			options := &armauthorization.RoleAssignmentsClientListForScopeOptions{}
			if c.filter != "" {
				options.Filter = to.Ptr(urlQuery(c.filter))
			}
			page, err := w.roles.NewListForScopePager(c.scope, options).NextPage(t.Context())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(page.Value).To(HaveLen(c.found))
		})
	}
}

// The SDK puts the filter into the address as it is, and an address with spaces is no
// HTTP: whoever does not escape it hears 400, here as there.
func TestAFilterHasToBeEscapedByTheCaller(t *testing.T) {
	w := newWorld(t, Instant())
	options := &armauthorization.RoleAssignmentsClientListForScopeOptions{Filter: to.Ptr("principalId eq 'x'")}
	_, err := w.roles.NewListForScopePager(w.demo.VaultID, options).NextPage(w.ctx())
	w.Expect(status(err)).To(Equal(400))
}

func TestTheCallerIsInTheLedger(t *testing.T) {
	w := newWorld(t, Instant())
	w.as("manager-1")
	w.Expect(w.create("data1")).To(Succeed())
	w.as("manager-2")
	w.Expect(w.tag("data1", "uid-2")).To(Succeed())
	w.Expect(w.tag("data1", "uid-2")).To(Succeed())
	_, err := w.get("data1")
	w.Expect(err).NotTo(HaveOccurred())

	ledger := w.cloud.Ledger()
	w.Expect(ledger).To(HaveLen(3))
	w.Expect(ledger[0]).To(And(HaveField("Who", "manager-1"), HaveField("Method", "PUT"), HaveField("Effect", Created), HaveField("Time", noon)))
	w.Expect(ledger[1]).To(And(HaveField("Who", "manager-2"), HaveField("Method", "PATCH"), HaveField("Effect", Updated), HaveField("Detail", "tags")))
	w.Expect(ledger[2]).To(HaveField("Effect", NoChange))
	w.Expect(ledger[0].RequestID).NotTo(Or(BeEmpty(), Equal(ledger[1].RequestID)))
	w.Expect(ledger[0].ClientRequestID).NotTo(BeEmpty(), "the client options ask the SDK for one")
	w.Expect(w.cloud.Counts("storageAccounts/data1")).To(Equal(map[string]Count{"manager-1": {Writes: 1}, "manager-2": {Reads: 1, Writes: 2}}))
	w.Expect(w.cloud.Total("").Calls()).To(Equal(4))
}
