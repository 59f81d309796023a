package securestorage

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

func TestDoesNotRecordGrantOnMissingVault(t *testing.T) {
	f := newVaultsFixture(t)
	f.runUntilReady()
	for i := range 10 {
		f.edit(inVault(fmt.Sprintf("absent-%d", i)))
		f.reconcileTimes(2)
		f.Expect(f.ready().Reason).To(Equal(v1beta1.ReasonVaultMissing))
		f.Expect(f.recorded()).To(Equal([]string{f.demo.Vault}))
	}
	f.edit(inVault("third"))
	f.runUntilReady()
	f.expectOneGrant("third")
}

// The grant in use stays until the account uses another one. Other grants are revoked earlier.
func TestKeepsGrantInUseAndRevokesUnusedGrants(t *testing.T) {
	f := newVaultsFixture(t)
	f.runUntilReady()
	f.server.Turn(func(k *fakecloud.Knobs) { k.GrantDelay = fakecloud.Fixed(10 * time.Minute) })
	f.edit(inVault("second"))
	f.runUntilReason(v1beta1.ReasonPropagating)
	f.edit(inVault("third"))
	f.reconcileTimes(2)
	f.Expect(f.ready().Reason).To(Equal(v1beta1.ReasonPropagating))
	f.Expect(f.grants()).To(Equal([]string{f.demo.Vault, "third"}))
	f.Expect(f.recorded()).To(Equal([]string{f.demo.Vault, "third"}))
	f.Expect(f.server.ReadData(f.name())).To(Succeed())
	f.runUntilReady()
	f.expectOneGrant("third")
}

// The account may have been switched by a write that reads do not show yet. Revoking the former grant
// then would cut off the account from its key.
func TestKeepsGrantThatMayBeInUse(t *testing.T) {
	for name, waitsForPropagation := range map[string]bool{"grant effective at once": false, "after waiting for the grant": true} {
		const callsOfAChange = 16
		for after := range callsOfAChange {
			t.Run(fmt.Sprintf("%s/the process crashes after call %d", name, after+1), func(t *testing.T) {
				// given an account that was just switched to another key vault, which reads do not show yet
				f := newVaultsFixture(t)
				f.runUntilReady()
				f.clock.Step(time.Minute)
				if waitsForPropagation {
					f.edit(inVault("second"))
					f.runUntilReason(v1beta1.ReasonPropagating)
					f.clock.Step(time.Minute)
				} else {
					f.server.Turn(func(k *fakecloud.Knobs) { k.GrantDelay = fakecloud.Delay{} })
					f.edit(inVault("second"))
				}
				f.crashAt = &crashPoint{at: after + 1, after: true}
				f.runUntil("crashed or ready", func() bool { return f.crashAt == nil || f.isReady() })
				f.crashAt = nil
				f.staleUntil = f.clock.Now().Add(2 * time.Second)
				// when the spec is changed back immediately
				f.edit(inVault(f.demo.Vault))
				for !f.isReady() {
					again := f.reconcile()
					// then its grant exists for as long as it is used
					account, _ := f.server.Account(f.name())
					used, _, _ := strings.Cut(strings.TrimPrefix(account.Encryption.VaultURI, "https://"), ".")
					f.Expect(f.grants()).To(ContainElement(used))
					f.clock.Step(again)
				}
				f.expectOneGrant(f.demo.Vault)
			})
		}
	}
}

// During a normal creation, recording the grant needs no extra status write and no extra reconcile.
func TestRecordingGrantNeedsNoExtraReconcile(t *testing.T) {
	f := newFixture(t, fastCloud())
	f.reconcile()
	f.Expect(f.storage.Status.Grants).To(Equal([]v1beta1.SecureStorageGrant{{VaultID: f.demo.VaultID, AccessType: v1beta1.AccessRoleAssignment}}))
	f.runUntilReady()
	f.expectOneGrant(f.demo.Vault)
	for _, status := range f.statuses {
		for _, c := range status.status.Conditions {
			f.Expect(c.Reason).NotTo(Equal(v1beta1.ReasonGranting), "the grant is created as soon as the principal exists")
		}
	}
	// and a change of the key vault needs one extra status write
	f.addVault("second", fakecloud.VaultSpec{PurgeProtection: true})
	f.edit(inVault("second"))
	before := len(f.statuses)
	f.reconcile()
	f.Expect(f.grants()).To(Equal([]string{f.demo.Vault}))
	f.Expect(f.recorded()).To(Equal([]string{f.demo.Vault, "second"}))
	f.Expect(f.statuses).To(HaveLen(before + 1))
	f.reconcile()
	f.Expect(f.grants()).To(Equal([]string{f.demo.Vault, "second"}))
}

// dropStatusGrants turns the status into one that was written before status.grants existed.
func (f *fixture) dropStatusGrants() { f.storage.Status.Grants = nil }

func TestUpgradesStatusWithoutGrants(t *testing.T) {
	for access := range accesses {
		t.Run(access+"/is completed once", func(t *testing.T) {
			// given
			f := newFixtureFor(t, access)
			f.runUntilReady()
			want := f.storage.Status.DeepCopy()
			f.dropStatusGrants()
			statuses, events, writes := len(f.statuses), len(f.events), f.server.Total("").Writes
			// when
			f.poll()
			f.poll()
			// then
			f.Expect(f.statuses).To(HaveLen(statuses + 2)) // the fixture also counts writes without a change
			f.Expect(f.storage.Status).To(Equal(*want))
			f.Expect(f.events).To(HaveLen(events))
			f.Expect(f.server.Total("").Writes).To(Equal(writes))
		})
		for n := range maxReconciles {
			t.Run(fmt.Sprintf("%s/changed again after %d reconciles", access, n), func(t *testing.T) {
				f := newFixtureFor(t, access)
				f.runUntilReady()
				f.dropStatusGrants()
				f.addVault("second", fakecloud.VaultSpec{PurgeProtection: true, AccessPolicies: access == "policy"})
				f.edit(inVault("second"))
				f.reconcileTimes(n)
				f.edit(inVault(f.demo.Vault))
				if access == "policy" {
					f.edit(inVault("old-vault"))
				}
				f.runUntilReady()
				f.Expect(f.grants()).To(HaveLen(1))
				f.Expect(f.grants()).To(Equal(f.recorded()))
			})
		}
		t.Run(access+"/is deleted", func(t *testing.T) {
			f := newFixtureFor(t, access)
			f.runUntilReady()
			f.dropStatusGrants()
			f.delete()
			f.runUntilDeleted()
			f.expectNothingLeft()
		})
	}
}

// A role assignment that a user created is not recorded, and is never revoked.
func TestKeepsRoleAssignmentCreatedByUser(t *testing.T) {
	f := newVaultsFixture(t)
	f.runUntilReady()
	f.grantByHand("second")
	f.clock.Step(time.Minute)
	f.edit(inVault("second"))
	f.runUntilReady()
	f.Expect(f.grants()).To(Equal([]string{"second"}))
	f.Expect(f.recorded()).To(BeEmpty())
	f.edit(inVault("third"))
	f.runUntilReady()
	f.Expect(f.grants()).To(Equal([]string{"second", "third"}))
	f.Expect(f.recorded()).To(Equal([]string{"third"}))
}

// grantByHand creates the role assignment as a user does, with another name.
func (f *fixture) grantByHand(vault string) {
	f.t.Helper()
	id := strings.TrimSuffix(f.demo.VaultID, f.demo.Vault) + vault
	body := fmt.Sprintf(`{"properties": {"principalId": %q, "principalType": "ServicePrincipal", "roleDefinitionId": "/subscriptions/%s/providers/Microsoft.Authorization/roleDefinitions/%s"}}`,
		f.server.Principal(f.name()), f.demo.Subscription, cloud.CryptoUserRole)
	request := httptest.NewRequestWithContext(f.t.Context(), http.MethodPut,
		"https://fake.test"+id+"/providers/Microsoft.Authorization/roleAssignments/00000000-0000-4000-8000-00000000beef?api-version=2022-04-01", strings.NewReader(body))
	request.Header.Set("Authorization", "Bearer "+fakecloud.Token("person"))
	request.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	f.server.ServeHTTP(answer, request)
	f.Expect(answer.Code).To(Equal(http.StatusCreated), answer.Body.String())
}

func TestReportsFormerGrantThatCannotBeRevoked(t *testing.T) {
	f := newVaultsFixture(t)
	f.runUntilReady()
	f.server.Deny(fakecloud.Denial{Action: "Microsoft.Authorization/roleAssignments/delete"})
	f.edit(inVault("second"))
	f.runUntilReady()
	// EncryptionReady and one Event report it, and it stays recorded.
	left := f.condition(v1beta1.ConditionEncryptionReady)
	f.Expect(left).To(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", v1beta1.ReasonGrantNotRevoked),
		HaveField("Message", And(ContainSubstring("the unused grant on key vault "+f.demo.Vault+" cannot be revoked"), ContainSubstring("roleAssignments/delete")))))
	f.Expect(f.recorded()).To(Equal([]string{f.demo.Vault, "second"}))
	f.poll()
	f.Expect(f.condition(v1beta1.ConditionEncryptionReady)).To(Equal(left))
	f.Expect(f.eventsWith(v1beta1.ReasonGrantNotRevoked)).To(Equal(1))
	// It is revoked as soon as this is permitted.
	f.server.Allow("")
	f.poll()
	f.expectOneGrant("second")
	f.Expect(f.condition(v1beta1.ConditionEncryptionReady).Reason).To(Equal("Ready"))
	f.Expect(f.eventsWith("Abandoned")).To(BeZero())
}

func TestRevokesFormerGrantOnceCredentialWorksAgain(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			f := newVaultsFixture(t)
			f.runUntilReady()
			f.server.Inject(fakecloud.Fault{Method: http.MethodDelete, Times: 1, Status: status, Code: "AuthorizationFailed"})
			f.edit(inVault("second"))
			f.runUntilReady()
			f.Expect(f.grants()).To(HaveLen(2))
			f.poll()
			f.expectOneGrant("second")
		})
	}
}

// If more former grants cannot be revoked than can be recorded, the oldest are abandoned with an Event.
func TestAbandonsFormerGrantsIfRecordIsFull(t *testing.T) {
	f := newVaultsFixture(t)
	f.runUntilReady()
	f.server.Deny(fakecloud.Denial{Action: "Microsoft.Authorization/roleAssignments/delete"})
	for n := range maxRecordedGrants {
		f.addVault(fmt.Sprintf("vault-%d", n), fakecloud.VaultSpec{PurgeProtection: true})
		f.Expect(f.eventsWith("Abandoned")).To(BeZero())
		f.edit(inVault(fmt.Sprintf("vault-%d", n)))
		f.runUntilReady()
	}
	f.Expect(f.eventsWith("Warning Abandoned", "key vault "+f.demo.Vault)).To(Equal(1))
	f.Expect(len(f.recorded())).To(BeNumerically("<=", maxRecordedGrants))
}

func TestRevokesFormerGrantOnceCloudIsAvailableAgain(t *testing.T) {
	f := newVaultsFixture(t)
	f.runUntilReady()
	f.server.Inject(fakecloud.Fault{Method: http.MethodDelete, Times: 3, Status: http.StatusServiceUnavailable, Code: "ServerTimeout"})
	f.edit(inVault("second"))
	f.runUntilReady()
	f.expectOneGrant("second")
	f.Expect(f.eventsWith("Warning Abandoned")).To(BeZero())
}

func TestTeardownRevokesOtherGrantsIfOneIsLocked(t *testing.T) {
	// given two grants, one of which is locked
	f := newVaultsFixture(t)
	f.runUntilReady()
	f.edit(inVault("second"))
	f.reconcileTimes(2)
	f.Expect(f.grants()).To(Equal([]string{f.demo.Vault, "second"}))
	f.Expect(f.server.Lock(f.demo.VaultID, "keep", "CanNotDelete")).To(Succeed())
	// when
	f.delete()
	f.runUntilReason(v1beta1.ReasonDeletionBlocked)
	// then
	f.Expect(f.grants()).To(Equal([]string{f.demo.Vault}))
	f.storage.Annotations = map[string]string{v1beta1.AnnotationAbandon: "true"}
	f.runUntilDeleted()
	f.Expect(f.eventsWith("Warning Abandoned", ": the grant on key vault "+f.demo.Vault+" may still exist in Azure")).To(Equal(1))
}
