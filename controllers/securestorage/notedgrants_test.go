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

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// A vault that is not fit is granted nothing, and so it is not noted.
func TestAVaultThatIsNotFitIsNotNoted(t *testing.T) {
	w := newVaultsWorld(t)
	w.runUntilReady()
	for i := range 10 {
		w.edit(inVault(fmt.Sprintf("absent-%d", i)))
		w.passes(2)
		w.Expect(w.ready().Reason).To(Equal(v1alpha1.ReasonVaultMissing))
		w.Expect(w.noted()).To(Equal([]string{w.demo.Vault}))
	}
	w.edit(inVault("third"))
	w.runUntilReady()
	w.hasOneGrant("third")
}

// The grant that the account uses stays until it uses another one; others go before.
func TestTheGrantInUseStaysWhileOthersGo(t *testing.T) {
	w := newVaultsWorld(t)
	w.runUntilReady()
	w.server.Turn(func(k *fakecloud.Knobs) { k.GrantDelay = fakecloud.Fixed(10 * time.Minute) })
	w.edit(inVault("second"))
	w.runUntilReason(v1alpha1.ReasonPropagating)
	w.edit(inVault("third"))
	w.passes(2)
	w.Expect(w.ready().Reason).To(Equal(v1alpha1.ReasonPropagating))
	w.Expect(w.grants()).To(Equal([]string{w.demo.Vault, "third"}))
	w.Expect(w.noted()).To(Equal([]string{w.demo.Vault, "third"}))
	w.Expect(w.server.ReadData(w.name())).To(Succeed())
	w.runUntilReady()
	w.hasOneGrant("third")
}

// A write of the pass before the change may not be seen yet: the account would be left without its key.
func TestAGrantThatMayBeInUseStays(t *testing.T) {
	const callsOfAChange = 16
	for after := range callsOfAChange {
		t.Run(fmt.Sprintf("the process ends after call %d", after+1), func(t *testing.T) {
			// given an account that has just been switched to another vault, which cannot be seen yet
			w := newVaultsWorld(t)
			w.runUntilReady()
			w.server.Turn(func(k *fakecloud.Knobs) { k.GrantDelay = fakecloud.Delay{} })
			w.clock.Step(time.Minute)
			w.edit(inVault("second"))
			w.cut = &cut{at: after + 1, after: true}
			w.runUntil("cut, or ready", func() bool { return w.cut == nil || w.isReady() })
			w.cut = nil
			w.pastUntil = w.clock.Now().Add(2 * time.Second)
			// when the spec goes back at once
			w.edit(inVault(w.demo.Vault))
			for !w.isReady() {
				again := w.pass()
				// then its grant stays for as long as it is used
				account, _ := w.server.Account(w.name())
				used, _, _ := strings.Cut(strings.TrimPrefix(account.Encryption.VaultURI, "https://"), ".")
				w.Expect(w.grants()).To(ContainElement(used))
				w.clock.Step(again)
			}
			w.hasOneGrant(w.demo.Vault)
		})
	}
}

// An ordinary life notes its grant on the way: no status and no pass more for it.
func TestNotingAGrantCostsNothing(t *testing.T) {
	w := newWorld(t, quick())
	w.pass()
	w.Expect(w.storage.Status.Grants).To(Equal([]v1alpha1.SecureStorageGrant{{VaultID: w.demo.VaultID, AccessType: v1alpha1.AccessRoleAssignment}}))
	w.runUntilReady()
	w.hasOneGrant(w.demo.Vault)
	for _, status := range w.statuses {
		for _, c := range status.status.Conditions {
			w.Expect(c.Reason).NotTo(Equal(v1alpha1.ReasonGranting), "the grant is made as soon as there is a principal")
		}
	}
	// and a change costs one status
	w.addVault("second", fakecloud.VaultSpec{PurgeProtection: true})
	w.edit(inVault("second"))
	before := len(w.statuses)
	w.pass()
	w.Expect(w.grants()).To(Equal([]string{w.demo.Vault}))
	w.Expect(w.noted()).To(Equal([]string{w.demo.Vault, "second"}))
	w.Expect(w.statuses).To(HaveLen(before + 1))
	w.pass()
	w.Expect(w.grants()).To(Equal([]string{w.demo.Vault, "second"}))
}

// forget makes the status one of the version that knew of one grant.
func (w *world) forget() { w.storage.Status.Grants = nil }

func TestAStatusOfTheVersionBefore(t *testing.T) {
	for access := range accesses {
		t.Run(access+"/is completed once", func(t *testing.T) {
			// given
			w := newAccessWorld(t, access)
			w.runUntilReady()
			want := w.storage.Status.DeepCopy()
			w.forget()
			statuses, events, writes := len(w.statuses), len(w.events), w.server.Total("").Writes
			// when
			w.poll()
			w.poll()
			// then
			w.Expect(w.statuses).To(HaveLen(statuses + 2)) // the world's API server writes what is the same, too
			w.Expect(w.storage.Status).To(Equal(*want))
			w.Expect(w.events).To(HaveLen(events))
			w.Expect(w.server.Total("").Writes).To(Equal(writes))
		})
		for n := range enough {
			t.Run(fmt.Sprintf("%s/half-way, after %d passes", access, n), func(t *testing.T) {
				w := newAccessWorld(t, access)
				w.runUntilReady()
				w.forget()
				w.addVault("second", fakecloud.VaultSpec{PurgeProtection: true, AccessPolicies: access == "policy"})
				w.edit(inVault("second"))
				w.passes(n)
				w.edit(inVault(w.demo.Vault))
				if access == "policy" {
					w.edit(inVault("old-vault"))
				}
				w.runUntilReady()
				w.Expect(w.grants()).To(HaveLen(1))
				w.Expect(w.grants()).To(Equal(w.noted()))
			})
		}
		t.Run(access+"/is deleted", func(t *testing.T) {
			w := newAccessWorld(t, access)
			w.runUntilReady()
			w.forget()
			w.delete()
			w.runUntilGone()
			w.leavesNothing()
		})
	}
}

// What somebody else has granted is not noted by a change to its vault, and is never taken back.
func TestAGrantOfSomebodyElseStays(t *testing.T) {
	w := newVaultsWorld(t)
	w.runUntilReady()
	w.grantByHand("second")
	w.clock.Step(time.Minute)
	w.edit(inVault("second"))
	w.runUntilReady()
	w.Expect(w.grants()).To(Equal([]string{"second"}))
	w.Expect(w.noted()).To(BeEmpty())
	w.edit(inVault("third"))
	w.runUntilReady()
	w.Expect(w.grants()).To(Equal([]string{"second", "third"}))
	w.Expect(w.noted()).To(Equal([]string{"third"}))
}

// grantByHand makes the grant as a person would, under a name of its own.
func (w *world) grantByHand(vault string) {
	w.t.Helper()
	id := strings.TrimSuffix(w.demo.VaultID, w.demo.Vault) + vault
	body := fmt.Sprintf(`{"properties": {"principalId": %q, "principalType": "ServicePrincipal", "roleDefinitionId": "/subscriptions/%s/providers/Microsoft.Authorization/roleDefinitions/%s"}}`,
		w.server.Principal(w.name()), w.demo.Subscription, cloud.CryptoUserRole)
	request := httptest.NewRequestWithContext(w.t.Context(), http.MethodPut,
		"https://fake.test"+id+"/providers/Microsoft.Authorization/roleAssignments/00000000-0000-4000-8000-00000000beef?api-version=2022-04-01", strings.NewReader(body))
	request.Header.Set("Authorization", "Bearer "+fakecloud.Token("person"))
	request.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	w.server.ServeHTTP(answer, request)
	w.Expect(answer.Code).To(Equal(http.StatusCreated), answer.Body.String())
}

func TestAFormerGrantThatMayNotBeTakenBackIsTold(t *testing.T) {
	w := newVaultsWorld(t)
	w.runUntilReady()
	w.server.Deny(fakecloud.Denial{Action: "Microsoft.Authorization/roleAssignments/delete"})
	w.edit(inVault("second"))
	w.runUntilReady()
	// It is told, in a condition and once in an Event, and not forgotten.
	left := w.condition(v1alpha1.ConditionEncryptionReady)
	w.Expect(left).To(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", v1alpha1.ReasonGrantNotRevoked),
		HaveField("Message", And(ContainSubstring("the grant on key vault "+w.demo.Vault+" is not used any more"), ContainSubstring("roleAssignments/delete")))))
	w.Expect(w.noted()).To(Equal([]string{w.demo.Vault, "second"}))
	w.poll()
	w.Expect(w.condition(v1alpha1.ConditionEncryptionReady)).To(Equal(left))
	w.Expect(w.told(v1alpha1.ReasonGrantNotRevoked)).To(Equal(1))
	// And it goes as soon as it may.
	w.server.Allow("")
	w.poll()
	w.hasOneGrant("second")
	w.Expect(w.condition(v1alpha1.ConditionEncryptionReady).Reason).To(Equal("Ready"))
	w.Expect(w.told("Abandoned")).To(BeZero())
}

// A credential that is refused for a moment loses no grant.
func TestAFormerGrantIsTakenBackWhenTheCredentialIsGoodAgain(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			w := newVaultsWorld(t)
			w.runUntilReady()
			w.server.Inject(fakecloud.Fault{Method: http.MethodDelete, Times: 1, Status: status, Code: "AuthorizationFailed"})
			w.edit(inVault("second"))
			w.runUntilReady()
			w.Expect(w.grants()).To(HaveLen(2))
			w.poll()
			w.hasOneGrant("second")
		})
	}
}

// More former grants than can be noted keep nobody from working either: those are given up, and told.
func TestFormerGrantsThatAreTooManyAreGivenUp(t *testing.T) {
	w := newVaultsWorld(t)
	w.runUntilReady()
	w.server.Deny(fakecloud.Denial{Action: "Microsoft.Authorization/roleAssignments/delete"})
	for n := range mostNoted {
		w.addVault(fmt.Sprintf("vault-%d", n), fakecloud.VaultSpec{PurgeProtection: true})
		w.Expect(w.told("Abandoned")).To(BeZero())
		w.edit(inVault(fmt.Sprintf("vault-%d", n)))
		w.runUntilReady()
	}
	w.Expect(w.told("Warning Abandoned", "key vault "+w.demo.Vault)).To(Equal(1))
	w.Expect(len(w.noted())).To(BeNumerically("<=", mostNoted))
}

// What time mends is waited for: the grant stays noted.
func TestAFormerGrantIsTakenBackWhenTheCloudAnswersAgain(t *testing.T) {
	w := newVaultsWorld(t)
	w.runUntilReady()
	w.server.Inject(fakecloud.Fault{Method: http.MethodDelete, Times: 3, Status: http.StatusServiceUnavailable, Code: "ServerTimeout"})
	w.edit(inVault("second"))
	w.runUntilReady()
	w.hasOneGrant("second")
	w.Expect(w.told("Warning Abandoned")).To(BeZero())
}

// A teardown takes back what it can, and says which grants may be left.
func TestAGrantThatStaysKeepsNoOther(t *testing.T) {
	// given two grants, of which a lock keeps one
	w := newVaultsWorld(t)
	w.runUntilReady()
	w.edit(inVault("second"))
	w.passes(2)
	w.Expect(w.grants()).To(Equal([]string{w.demo.Vault, "second"}))
	w.Expect(w.server.Lock(w.demo.VaultID, "keep", "CanNotDelete")).To(Succeed())
	// when
	w.delete()
	w.runUntilReason(v1alpha1.ReasonDeletionBlocked)
	// then
	w.Expect(w.grants()).To(Equal([]string{w.demo.Vault}))
	w.storage.Annotations = map[string]string{v1alpha1.AnnotationAbandon: "true"}
	w.runUntilGone()
	w.Expect(w.told("Warning Abandoned", "the grant on key vault "+w.demo.Vault+":")).To(Equal(1))
}
