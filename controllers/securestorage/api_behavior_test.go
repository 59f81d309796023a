package securestorage

import (
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// readyFixture has an account that is encrypted already.
func readyFixture(t *testing.T, edits ...func(*v1beta1.SecureStorageSpec)) *fixture {
	t.Helper()
	f := newFixture(t, fastCloud(), edits...)
	f.runUntilReady()
	return f
}

func (f *fixture) accountID() string {
	return "/subscriptions/" + f.demo.Subscription + "/resourceGroups/" + f.demo.Group + "/providers/Microsoft.Storage/storageAccounts/" + f.name()
}

func TestNumberOfCallsIsBounded(t *testing.T) {
	// given a creation that takes five polls at the interval that the cloud suggests
	knobs := fastCloud()
	knobs.PollInterval = fakecloud.Fixed(17 * time.Second)
	knobs.AccountCreation = fakecloud.Fixed(5 * 17 * time.Second)
	knobs.PrincipalDelay = fakecloud.Delay{}
	f := newFixture(t, knobs)
	// when
	f.runUntilReady()
	// then
	t.Logf("%d calls from creation to Ready", f.calls)
	f.Expect(f.calls).To(BeNumerically("<=", 25))
	// and between polls
	const polls = 20
	began, calls := f.clock.Now(), f.calls
	for f.clock.Since(began) < polls*f.storage.Spec.PollInterval.Duration {
		f.clock.Step(f.reconcile())
	}
	intervals := float64(f.clock.Since(began)) / float64(f.storage.Spec.PollInterval.Duration)
	t.Logf("%.2f calls for each poll interval", float64(f.calls-calls)/intervals)
	f.Expect(float64(f.calls - calls)).To(BeNumerically("<=", 3*intervals+3))
}

func TestHonorsRetryAfter(t *testing.T) {
	// given a cloud that accepts the creation with a Retry-After of 17 s
	knobs := fastCloud()
	knobs.PollInterval = fakecloud.Fixed(17 * time.Second)
	f := newFixture(t, knobs)
	// when
	after := f.reconcile()
	// then
	f.Expect(after).To(And(BeNumerically(">=", 17*time.Second), BeNumerically("<=", 19*time.Second)))
}

// Otherwise every retry would be a status write and an Event.
func TestMessagesDoNotChangeBetweenRetries(t *testing.T) {
	f := newFixture(t, fastCloud())
	f.runUntilReady()
	for i := 1; i < len(f.statuses); i++ {
		before, after := f.statuses[i-1].status.Conditions[0], f.statuses[i].status.Conditions[0]
		if before.Reason == after.Reason {
			f.Expect(after.Message).To(Equal(before.Message))
			f.Expect(after.LastTransitionTime).To(Equal(before.LastTransitionTime))
		}
	}
	f.Expect(f.eventsWith("Ready Ready:")).To(BeZero())
	f.Expect(f.eventsWith(": Ready is True")).To(Equal(1))
}

func TestRevertsDriftInTheCloud(t *testing.T) {
	for name, drift := range map[string]struct {
		change func(f *fixture) error
		path   string
	}{
		"platform keys": {func(f *fixture) error { return f.server.UsePlatformKeys(f.name()) }, "encryption.keySource"},
		"another key":   {func(f *fixture) error { return f.server.UseKey(f.name(), f.demo.Vault, "other", "") }, "encryption.keyName"},
		"another vault": {func(f *fixture) error { return f.server.UseKey(f.name(), "elsewhere", f.demo.Key, "") }, "encryption.keyVaultUri"},
		"pinned to another version": {func(f *fixture) error {
			return f.server.UseKey(f.name(), f.demo.Vault, f.demo.Key, strings.Repeat("a", 32))
		}, "encryption.keyVersion"},
		"grant removed": {func(f *fixture) error { return f.server.RemoveGrants(f.server.Principal(f.name())) }, "vaults/fixpoint-demo/access"},
		"one tag removed": {func(f *fixture) error {
			return f.server.SetTags(f.name(), map[string]string{cloud.OwnerTag: string(f.storage.UID)})
		}, "tags.team"},
		"all tags removed": {func(f *fixture) error { return f.server.SetTags(f.name(), nil) }, "tags.fixpoint.dev-owner"},
		"desired tag changed": {func(f *fixture) error {
			return f.server.SetTags(f.name(), map[string]string{cloud.OwnerTag: string(f.storage.UID), "team": "them"})
		}, "tags.team"},
		"identity removed": {func(f *fixture) error { return f.server.DropIdentity(f.name()) }, "identity.type"},
	} {
		t.Run(name, func(t *testing.T) {
			// given
			f := readyFixture(t, tagged(map[string]string{"team": "billing"}))
			f.clock.Step(time.Minute)
			// when
			f.Expect(drift.change(f)).To(Succeed())
			f.poll()
			f.runUntilReady()
			// then the account is as declared
			account, _ := f.server.Account(f.name())
			f.Expect(account.Encryption.KeySource).To(Equal("Microsoft.Keyvault"))
			f.Expect(account.Encryption.KeyName).To(Equal(f.demo.Key))
			f.Expect(account.Tags).To(HaveKeyWithValue("team", "billing"))
			f.Expect(account.Tags).To(HaveKeyWithValue(cloud.OwnerTag, string(f.storage.UID)))
			// and one Event reports it
			f.Expect(f.eventsWith("DriftCorrected", drift.path)).To(Equal(1))
			f.Expect(f.created()).To(Equal(1))
			f.expectEncryptionReadyIsHonest()
			// and the deletion leaves nothing
			f.delete()
			f.runUntilDeleted()
			f.expectNothingLeft()
		})
	}
}

func TestKeepsUnmanagedTags(t *testing.T) {
	f := readyFixture(t, tagged(map[string]string{"team": "billing"}))
	f.Expect(f.server.SetTags(f.name(), map[string]string{"TEAM": "them", "cost": "42"})).To(Succeed())
	f.poll()
	f.runUntilReady()
	account, _ := f.server.Account(f.name())
	f.Expect(account.Tags).To(Equal(map[string]string{"team": "billing", "cost": "42", cloud.OwnerTag: string(f.storage.UID)}))
}

func TestDoesNotRecreateLostAccount(t *testing.T) {
	// given
	f := readyFixture(t)
	// when
	f.Expect(f.server.DeleteAccount(f.name())).To(Succeed())
	f.poll()
	// then
	f.Expect(f.ready().Reason).To(Equal(v1beta1.ReasonAccountLost))
	f.Expect(f.condition("Stalled")).NotTo(BeNil())
	f.Expect(f.storage.Status.Encryption).To(BeEmpty())
	f.poll()
	f.Expect(f.created()).To(Equal(1))
	// and when the user asks for an empty account
	f.edit(recreate)
	f.runUntilReady()
	f.Expect(f.created()).To(Equal(2))
	f.delete()
	f.runUntilDeleted()
	f.expectNothingLeft()
}

func TestRecreatesLostAccountWithPolicyRecreate(t *testing.T) {
	// given
	f := readyFixture(t, recreate)
	// when
	f.Expect(f.server.DeleteAccount(f.name())).To(Succeed())
	f.poll()
	f.runUntilReady()
	// then
	f.Expect(f.created()).To(Equal(2))
	f.Expect(f.eventsWith("DriftCorrected", "storageAccounts/"+f.name())).To(Equal(1))
	f.expectEncryptionReadyIsHonest()
	// and the grant of the lost account is revoked
	f.Expect(f.server.Orphans()).To(BeEmpty())
}

func TestRetriesFailedCreation(t *testing.T) {
	for name, stays := range map[string]bool{"account removed": false, "failed account remains": true} {
		t.Run(name, func(t *testing.T) {
			knobs := fastCloud()
			knobs.FailedAccountsStay = stays
			f := newFixture(t, knobs)
			f.server.Inject(fakecloud.Fault{Resource: "/storageaccounts/", FailLate: true})
			f.runUntilReady()
			f.Expect(f.created()).To(Equal(1))
			f.delete()
			f.runUntilDeleted()
			f.expectNothingLeft()
		})
	}
}

func TestFollowsOrPinsKeyVersion(t *testing.T) {
	t.Run("latest", func(t *testing.T) {
		f := readyFixture(t)
		first := f.storage.Status.KeyVersion
		version, err := f.server.RotateKey(f.demo.Vault, f.demo.Key)
		f.Expect(err).NotTo(HaveOccurred())
		f.clock.Step(25 * time.Hour)
		f.poll()
		f.Expect(f.storage.Status.KeyVersion).To(And(Equal(version), Not(Equal(first))))
		f.Expect(f.isReady()).To(BeTrue())
		f.Expect(f.eventsWith("DriftCorrected")).To(BeZero())
	})
	t.Run("pinned", func(t *testing.T) {
		f := newFixture(t, fastCloud())
		key := f.server.State().Vaults[0].Keys[f.demo.Key]
		first := key.Versions[0].ID
		pinned(first)(&f.storage.Spec)
		f.runUntilReady()
		_, err := f.server.RotateKey(f.demo.Vault, f.demo.Key)
		f.Expect(err).NotTo(HaveOccurred())
		f.clock.Step(25 * time.Hour)
		f.poll()
		f.Expect(f.storage.Status.KeyVersion).To(Equal(first))
		// and when the version is deleted
		f.Expect(f.server.DeleteKeyVersion(f.demo.Vault, f.demo.Key, first)).To(Succeed())
		f.poll()
		f.Expect(f.ready().Reason).To(Equal(v1beta1.ReasonKeyVersionMissing))
		f.Expect(f.storage.Status.Phase).To(Equal(v1beta1.PhaseDegraded))
		// then it is reported, without retries in a loop
		calls, writes := f.calls, f.server.Total("").Writes
		f.Expect(f.reconcile()).To(BeNumerically(">=", f.storage.Spec.PollInterval.Duration))
		f.Expect(f.calls - calls).To(BeNumerically("<=", 5))
		f.Expect(f.server.Total("").Writes).To(Equal(writes))
	})
}

func TestStallsWithReasonAndRemedy(t *testing.T) {
	for name, c := range map[string]struct {
		arrange func(f *fixture)
		edit    func(*v1beta1.SecureStorageSpec)
		reason  string
		says    string
		fix     func(f *fixture)
	}{
		"missing vault": {
			edit: inVault("absent"), reason: v1beta1.ReasonVaultMissing, says: "key vault absent",
			fix: func(f *fixture) { f.addVault("absent", fakecloud.VaultSpec{PurgeProtection: true}) },
		},
		"no purge protection": {
			arrange: func(f *fixture) { f.addVault("unsafe", fakecloud.VaultSpec{}) },
			edit:    inVault("unsafe"), reason: v1beta1.ReasonVaultNotProtected, says: "purge protection",
			fix: func(f *fixture) { f.Expect(f.server.SetPurgeProtection("unsafe", true)).To(Succeed()) },
		},
		"no soft delete": {
			arrange: func(f *fixture) { f.addVault("unsafe", fakecloud.VaultSpec{PurgeProtection: true, NoSoftDelete: true}) },
			edit:    inVault("unsafe"), reason: v1beta1.ReasonVaultNotProtected, says: "soft delete",
		},
		"vault with access policies": {
			arrange: func(f *fixture) {
				f.addVault("policies", fakecloud.VaultSpec{PurgeProtection: true, AccessPolicies: true})
			},
			edit: inVault("policies"), reason: v1beta1.ReasonAccessTypeMismatch, says: "set spec.access.type to AccessPolicy",
			fix: func(f *fixture) { f.edit(byPolicy) },
		},
		"vault with Azure RBAC": {
			edit: byPolicy, reason: v1beta1.ReasonAccessTypeMismatch, says: "set spec.access.type to RoleAssignment",
		},
		"missing key": {
			edit:   func(s *v1beta1.SecureStorageSpec) { s.Key.Name = "absent" },
			reason: v1beta1.ReasonKeyMissing, says: "key absent does not exist",
			fix: func(f *fixture) {
				_, err := f.server.SeedKey(f.demo.Vault, "absent", fakecloud.KeySpec{})
				f.Expect(err).NotTo(HaveOccurred())
			},
		},
		"missing key version": {
			edit: pinned(strings.Repeat("0", 32)), reason: v1beta1.ReasonKeyVersionMissing, says: "version " + strings.Repeat("0", 32) + " of key",
		},
		"version of a missing key": {
			edit: func(s *v1beta1.SecureStorageSpec) {
				s.Key.Name = "absent"
				pinned(strings.Repeat("0", 32))(s)
			},
			reason: v1beta1.ReasonKeyMissing, says: "key absent does not exist",
		},
		"disabled": {
			arrange: func(f *fixture) { f.Expect(f.server.EnableKey(f.demo.Vault, f.demo.Key, "", false)).To(Succeed()) },
			reason:  v1beta1.ReasonKeyDisabled, says: "enable the key",
			fix: func(f *fixture) { f.Expect(f.server.EnableKey(f.demo.Vault, f.demo.Key, "", true)).To(Succeed()) },
		},
		"an elliptic curve": {
			arrange: func(f *fixture) { _, _ = f.server.SeedKey(f.demo.Vault, "ec", fakecloud.KeySpec{Type: "EC"}) },
			edit:    func(s *v1beta1.SecureStorageSpec) { s.Key.Name = "ec" },
			reason:  v1beta1.ReasonKeyUnsuitable, says: "key ec is EC,",
		},
		"a key that cannot wrap": {
			arrange: func(f *fixture) {
				_, _ = f.server.SeedKey(f.demo.Vault, "signs", fakecloud.KeySpec{Ops: []string{"sign", "wrapKey"}})
			},
			edit:   func(s *v1beta1.SecureStorageSpec) { s.Key.Name = "signs" },
			reason: v1beta1.ReasonKeyUnsuitable, says: "does not permit the operation unwrapKey",
		},
		"missing resource group": {
			edit: func(s *v1beta1.SecureStorageSpec) {
				s.Key.Vault.ResourceGroup, s.Provider.ResourceGroup = s.Provider.ResourceGroup, "absent"
			},
			reason: v1beta1.ReasonResourceGroupMissing, says: "create resource group absent",
			fix: func(f *fixture) { f.server.SeedGroup(f.demo.Subscription, "absent", "westeurope") },
		},
		"unknown location": {
			edit:   func(s *v1beta1.SecureStorageSpec) { s.Provider.Location = "atlantis" },
			reason: v1beta1.ReasonInvalidRequest, says: "atlantis",
		},
		"name taken by another account": {
			arrange: func(f *fixture) {
				f.server.SeedGroup(otherSubscription, "foreign", "westeurope")
				f.Expect(f.server.SeedAccount(otherSubscription, "foreign", "coveted", nil)).To(Succeed())
			},
			edit: named("coveted"), reason: v1beta1.ReasonNameTaken, says: "storage account name coveted is already taken",
		},
		"invisible subscription": {
			edit: func(s *v1beta1.SecureStorageSpec) {
				s.Provider.SubscriptionID = otherSubscription
			},
			reason: v1beta1.ReasonResourceGroupMissing, says: "credential",
		},
	} {
		t.Run(name, func(t *testing.T) {
			// given
			f := newFixture(t, fastCloud())
			if c.arrange != nil {
				c.arrange(f)
			}
			if c.edit != nil {
				c.edit(&f.storage.Spec)
			}
			// then
			ready := f.runUntilReason(c.reason)
			f.Expect(ready.Message).To(ContainSubstring(c.says))
			f.Expect(f.condition("Stalled")).NotTo(BeNil())
			// and the next poll reports the same, and is not soon
			f.poll()
			f.Expect(f.ready()).To(Equal(ready))
			f.Expect(f.reconcile()).To(BeNumerically(">=", f.storage.Spec.PollInterval.Duration))
			// and once the cause is fixed, the object becomes Ready
			if c.fix != nil {
				c.fix(f)
				f.runUntilReady()
				f.Expect(f.created()).To(Equal(1))
			}
			// and the object can be deleted; the annotation covers what the cloud cannot answer
			f.storage.Annotations = map[string]string{v1beta1.AnnotationAbandon: "true"}
			f.delete()
			f.runUntilDeleted()
			f.expectNothingLeft()
		})
	}
}

func TestPropagationHasADeadline(t *testing.T) {
	for access := range accesses {
		t.Run(access, func(t *testing.T) {
			// given a grant that never takes effect
			f := newFixtureFor(t, access)
			f.server.Turn(func(k *fakecloud.Knobs) {
				k.GrantDelay, k.PolicyDelay = fakecloud.Fixed(24*time.Hour), fakecloud.Fixed(24*time.Hour)
			})
			// then the controller waits for it
			f.runUntilReason(v1beta1.ReasonPropagating)
			f.Expect(f.condition("Stalled")).To(BeNil())
			began := f.clock.Now()
			// and stalls after the deadline
			f.runUntilReason(v1beta1.ReasonPropagationTimedOut)
			f.Expect(f.clock.Since(began)).To(And(BeNumerically(">", 14*time.Minute), BeNumerically("<", 17*time.Minute)))
			f.Expect(f.condition("Stalled")).NotTo(BeNil())
			// and becomes Ready if the grant takes effect later
			f.clock.Step(24 * time.Hour)
			f.runUntilReady()
		})
	}
}

func TestReportsVaultDeletedDuringPropagation(t *testing.T) {
	f := newFixture(t, fastCloud())
	f.runUntilReason(v1beta1.ReasonPropagating)
	f.Expect(f.server.DeleteVault(f.demo.Vault)).To(Succeed())
	f.runUntilReason(v1beta1.ReasonVaultMissing)
}

// Deleting a key vault deletes its role assignments, and recovering it does not restore them.
func TestGrantsAccessToRecoveredVaultAgain(t *testing.T) {
	f := readyFixture(t)
	f.Expect(f.server.DeleteVault(f.demo.Vault)).To(Succeed())
	f.poll()
	f.Expect(f.ready().Reason).To(Equal(v1beta1.ReasonVaultMissing))
	f.Expect(f.server.RecoverVault(f.demo.Vault)).To(Succeed())
	f.poll()
	f.runUntilReady()
	f.clock.Step(time.Minute)
	f.Expect(f.server.ReadData(f.name())).To(Succeed())
}

func TestReportsDeletedKey(t *testing.T) {
	f := readyFixture(t)
	f.Expect(f.server.DeleteKey(f.demo.Vault, f.demo.Key)).To(Succeed())
	f.poll()
	f.Expect(f.ready().Reason).To(Equal(v1beta1.ReasonKeyMissing))
	f.Expect(f.server.RecoverKey(f.demo.Vault, f.demo.Key)).To(Succeed())
	f.poll()
	f.Expect(f.isReady()).To(BeTrue())
}

func TestNamesMissingPermissionAndRole(t *testing.T) {
	for action, says := range map[string]string{
		"Microsoft.Storage/storageAccounts/read":        "Storage Account Contributor on resource group",
		"Microsoft.Storage/storageAccounts/write":       "Storage Account Contributor on resource group",
		"Microsoft.KeyVault/vaults/read":                "Key Vault Reader on key vault",
		"Microsoft.KeyVault/vaults/keys/read":           "Key Vault Reader on key vault",
		"Microsoft.Authorization/roleAssignments/read":  "Role Based Access Control Administrator on key vault",
		"Microsoft.Authorization/roleAssignments/write": "Role Based Access Control Administrator on key vault",
	} {
		t.Run(action, func(t *testing.T) {
			f := newFixture(t, fastCloud())
			f.server.Deny(fakecloud.Denial{Action: action})
			f.Expect(f.runUntilReason(v1beta1.ReasonPermissionMissing).Message).To(And(ContainSubstring(says), ContainSubstring(action)))
			f.server.Allow("")
			f.runUntilReady()
		})
	}
}

func TestWaitsWhileThrottled(t *testing.T) {
	// given a cloud that accepts fewer requests than the client assumes
	knobs := fastCloud()
	knobs.Writes = fakecloud.Bucket{Capacity: 1, PerSecond: 0.1}
	knobs.Reads = fakecloud.Bucket{Capacity: 6, PerSecond: 0.2}
	f := newFixture(t, knobs)
	// when
	f.runUntilReady()
	// then requests were refused, and none came before its Retry-After
	total := f.server.Total("")
	f.Expect(total.Throttled).To(BeNumerically(">", 0))
	f.Expect(total.EarlyRetries).To(BeZero())
	f.Expect(f.created()).To(Equal(1))
}

func TestReportsUnavailableCloud(t *testing.T) {
	f := readyFixture(t)
	f.server.Inject(fakecloud.Fault{Method: http.MethodGet, Times: 2, Status: http.StatusServiceUnavailable, Code: "ServerTimeout"})
	f.poll()
	f.Expect(f.ready().Reason).To(Equal(v1beta1.ReasonCloudUnavailable))
	f.Expect(f.storage.Status.KeyVersion).NotTo(BeEmpty(), "the last known values stay")
	f.Expect(f.storage.Status.Phase).To(Equal(v1beta1.PhaseDegraded))
	f.runUntilReady()
}

func TestDoesNotTouchUnmanagedAccount(t *testing.T) {
	for name, tags := range map[string]map[string]string{"without an owner": nil, "of another SecureStorage": {cloud.OwnerTag: "another"}} {
		t.Run(name, func(t *testing.T) {
			// given
			f := newFixture(t, fastCloud(), named("coveted"))
			f.Expect(f.server.SeedAccount(f.demo.Subscription, f.demo.Group, "coveted", tags)).To(Succeed())
			// then
			f.runUntilReason(v1beta1.ReasonAccountNotOwned)
			f.poll()
			f.delete()
			f.runUntilDeleted()
			account, ok := f.server.Account("coveted")
			f.Expect(ok).To(BeTrue())
			f.Expect(account.Version).To(BeEquivalentTo(1))
			f.Expect(f.storage.Status.AccountID).To(BeEmpty())
		})
	}
}

// Another client creates the account between the read and the write of the controller.
func TestDoesNotTouchAccountCreatedConcurrently(t *testing.T) {
	f := newFixture(t, fastCloud(), named("coveted"))
	s := &scope{storage: f.storage, access: f.process.access, clock: f.clock}
	f.Expect(s.connectAndRead(t.Context())).To(Succeed())
	f.Expect(f.server.SeedAccount(f.demo.Subscription, f.demo.Group, "coveted", map[string]string{"cost": "42"})).To(Succeed())
	verdict, err := ensureStorageAccount(t.Context(), s)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(verdict.Reason()).To(Equal(v1beta1.ReasonOperationInProgress))
	account, _ := f.server.Account("coveted")
	f.Expect(account.Tags).To(Equal(map[string]string{"cost": "42"}))
}

// Only the creation of an account can give its queues and tables the key of the account.
func TestEncryptionSaysWhatTheKeyDoesNotProtect(t *testing.T) {
	for name, test := range map[string]struct {
		exists bool
		want   string
	}{
		"an account that was created":  {want: "storage account is encrypted with key storage"},
		"an account that existed then": {exists: true, want: "storage account is encrypted with key storage, except its queues and tables, whose keys Azure manages since it was created; to encrypt them with the key too, create a new SecureStorage"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, fastCloud(), named("coveted"), adopt, retain)
			if test.exists {
				f.Expect(f.server.SeedAccount(f.demo.Subscription, f.demo.Group, "coveted", nil)).To(Succeed())
			}
			f.runUntilReady()
			f.Expect(f.condition(v1beta1.ConditionEncryptionReady).Message).To(Equal(test.want))
			account, _ := f.server.Account("coveted")
			f.Expect(account.AccountKeyed).To(HaveLen(map[bool]int{true: 0, false: 2}[test.exists]))
		})
	}
}

func TestAdoption(t *testing.T) {
	t.Run("adopts an account without an owner", func(t *testing.T) {
		f := newFixture(t, fastCloud(), named("coveted"), adopt, retain)
		f.Expect(f.server.SeedAccount(f.demo.Subscription, f.demo.Group, "coveted", map[string]string{"cost": "42"})).To(Succeed())
		f.runUntilReady()
		account, _ := f.server.Account("coveted")
		f.Expect(account.Tags).To(HaveKeyWithValue("cost", "42"))
		f.Expect(account.Encryption.KeySource).To(Equal("Microsoft.Keyvault"))
		f.Expect(f.created()).To(BeZero())
	})
	t.Run("does not adopt an account of another SecureStorage", func(t *testing.T) {
		f := newFixture(t, fastCloud(), named("coveted"), adopt)
		f.Expect(f.server.SeedAccount(f.demo.Subscription, f.demo.Group, "coveted", map[string]string{cloud.OwnerTag: "another"})).To(Succeed())
		f.runUntilReason(v1beta1.ReasonAccountNotOwned)
	})
	t.Run("does not adopt an account in another location", func(t *testing.T) {
		f := newFixture(t, fastCloud(), named("coveted"), adopt, func(s *v1beta1.SecureStorageSpec) { s.Provider.Location = "northeurope" })
		f.Expect(f.server.SeedAccount(f.demo.Subscription, f.demo.Group, "coveted", nil)).To(Succeed())
		f.Expect(f.runUntilReason(v1beta1.ReasonAccountNotOwned).Message).To(ContainSubstring("westeurope"))
	})
}

func TestDeletionKeepsAccountHandedOverToAnotherOwner(t *testing.T) {
	// given an account whose owner tag was changed to another owner
	f := readyFixture(t)
	f.Expect(f.server.SetTags(f.name(), map[string]string{cloud.OwnerTag: "another"})).To(Succeed())
	f.poll()
	f.Expect(f.ready().Reason).To(Equal(v1beta1.ReasonAccountNotOwned))
	// when
	f.delete()
	f.runUntilDeleted()
	// then the account and its grant remain
	_, ok := f.server.Account(f.name())
	f.Expect(ok).To(BeTrue())
	f.Expect(f.server.ReadData(f.name())).To(Succeed())
}

func TestRetainOnlyRemovesOwnerTag(t *testing.T) {
	// given
	f := readyFixture(t, retain, tagged(map[string]string{"team": "storage"}))
	before := len(f.writes())
	// when
	f.delete()
	f.runUntilDeleted()
	// then the tag was removed, and an Event reports what remains
	f.Expect(f.changes(before)).To(HaveExactElements(HaveField("Method", "PATCH")))
	account, _ := f.server.Account(f.name())
	f.Expect(account.Tags).To(Equal(map[string]string{"team": "storage"}))
	f.Expect(f.eventsWith("Normal Retained", f.name())).To(Equal(1))
	f.clock.Step(time.Hour)
	f.Expect(f.server.ReadData(f.name())).To(Succeed())
}

func TestRetainReportsAccountThatIsBeingCreated(t *testing.T) {
	f := newFixture(t, fastCloud(), retain)
	f.reconcile()
	f.delete()
	f.runUntilDeleted()
	f.Expect(f.eventsWith("Normal Retained", f.name())).To(Equal(1))
	account, _ := f.server.Account(f.name())
	f.Expect(account.Tags).NotTo(HaveKey(cloud.OwnerTag))
}

func TestLockBlocksDeletion(t *testing.T) {
	for name, scope := range map[string]func(f *fixture) string{
		"account": (*fixture).accountID,
		"vault":   func(f *fixture) string { return f.demo.VaultID },
	} {
		t.Run("on the "+name, func(t *testing.T) {
			// given
			f := readyFixture(t)
			f.Expect(f.server.Lock(scope(f), "keep", "CanNotDelete")).To(Succeed())
			// when
			f.delete()
			// then the deletion waits and names the lock, and the data of a locked account is readable
			f.Expect(f.runUntilReason(v1beta1.ReasonDeletionBlocked).Message).To(ContainSubstring("lock"))
			f.clock.Step(time.Hour)
			f.reconcile()
			if name == "account" {
				f.Expect(f.server.ReadData(f.name())).To(Succeed())
				account, _ := f.server.Account(f.name())
				f.Expect(account.Encryption.KeySource).To(Equal("Microsoft.Keyvault"), "a lock must not change the encryption")
			}
			// and continues without the lock
			f.Expect(f.server.Unlock(scope(f))).To(Succeed())
			f.runUntilDeleted()
			f.expectNothingLeft()
		})
	}
}

// An account in another resource group has the same identity, and loses its key with the grant.
func TestDeletionKeepsGrantOfMovedAccount(t *testing.T) {
	moved := func(t *testing.T) *fixture {
		// given
		f := readyFixture(t)
		f.server.SeedGroup(f.demo.Subscription, "other", f.demo.Location)
		f.Expect(f.server.MoveAccount(f.name(), "other")).To(Succeed())
		return f
	}
	blocked := func(f *fixture) {
		// when
		f.delete()
		// then
		f.Expect(f.runUntilReason(v1beta1.ReasonDeletionBlocked).Message).To(ContainSubstring("if the account was moved, move it back"))
		f.clock.Step(time.Hour)
		f.reconcile()
		f.Expect(f.server.ReadData(f.name())).To(Succeed())
	}
	t.Run("until it is moved back", func(t *testing.T) {
		f := moved(t)
		blocked(f)
		f.Expect(f.server.MoveAccount(f.name(), f.demo.Group)).To(Succeed())
		f.runUntilDeleted()
		f.expectNothingLeft()
	})
	t.Run("from a group that was deleted", func(t *testing.T) {
		f := moved(t)
		f.server.Inject(fakecloud.Fault{Method: http.MethodGet, Resource: "/storageaccounts/" + f.name(), Times: 1000, Status: http.StatusNotFound, Code: "ResourceGroupNotFound"})
		blocked(f)
	})
	t.Run("and abandoned", func(t *testing.T) {
		f := moved(t)
		blocked(f)
		f.storage.Annotations = map[string]string{v1beta1.AnnotationAbandon: "true"}
		f.runUntilDeleted()
		f.Expect(f.eventsWith("Warning Abandoned", f.name(), "its grant on key vault "+f.demo.Vault)).To(Equal(1))
		f.clock.Step(time.Hour)
		f.Expect(f.server.ReadData(f.name())).To(Succeed())
	})
}

// Each reconcile of a deletion asks for the name of the account before it revokes the grant, and each of these requests waits
// for the write limit.
func TestDeletionEndsWhereWritesAreScarce(t *testing.T) {
	f := newFixture(t, fastCloud())
	f.start(cloud.New(cloud.Config{
		Cloud: fakecloud.CloudAt("https://fake.test"), Transport: f, Clock: f.clock,
		Limits: cloud.Limits{WritesPerSecond: 0.1, WritesBurst: 5},
	}))
	f.runUntilReady()
	f.delete()
	began := f.clock.Now()
	f.runUntilDeleted()
	f.expectNothingLeft()
	f.Expect(f.clock.Since(began)).To(BeNumerically("<", 90*time.Second))
}

func TestHoldOnDataBlocksDeletion(t *testing.T) {
	f := readyFixture(t)
	f.server.Inject(fakecloud.Fault{Method: http.MethodDelete, Resource: "/storageaccounts/" + f.name(), Times: 2, Status: http.StatusConflict, Code: "AccountProtectedFromDeletion"})
	f.delete()
	f.runUntilReason(v1beta1.ReasonDeletionBlocked)
	f.runUntilDeleted()
	f.expectNothingLeft()
}

func TestAbandon(t *testing.T) {
	abandon := func(f *fixture) {
		f.storage.Annotations = map[string]string{v1beta1.AnnotationAbandon: "true"}
		f.delete()
		f.runUntilDeleted()
	}
	t.Run("a lock", func(t *testing.T) {
		f := readyFixture(t)
		f.Expect(f.server.Lock(f.accountID(), "keep", "CanNotDelete")).To(Succeed())
		abandon(f)
		f.Expect(f.eventsWith("Warning Abandoned", f.name(), "grant on key vault")).To(Equal(1))
		f.clock.Step(time.Hour)
		f.Expect(f.server.ReadData(f.name())).To(Succeed(), "an account that remains keeps its key")
	})
	t.Run("unreachable cloud", func(t *testing.T) {
		f := readyFixture(t)
		f.server.Turn(func(k *fakecloud.Knobs) { k.ServerErrors = 1 })
		abandon(f)
		f.Expect(f.eventsWith("Warning Abandoned", f.name())).To(Equal(1))
	})
	t.Run("missing credentials", func(t *testing.T) {
		f := readyFixture(t)
		f.edit(func(s *v1beta1.SecureStorageSpec) {
			s.Provider.CredentialsSecretRef = &v1beta1.SecureStorageCredentialsSecretRef{Name: "absent"}
		})
		abandon(f)
		f.Expect(f.eventsWith("Warning Abandoned", f.name())).To(Equal(1))
	})
	t.Run("nothing, if the deletion succeeds", func(t *testing.T) {
		f := readyFixture(t)
		abandon(f)
		f.expectNothingLeft()
		f.Expect(f.eventsWith("Abandoned")).To(BeZero())
	})
	t.Run("is ignored on an object that is not being deleted", func(t *testing.T) {
		f := newFixture(t, fastCloud())
		f.storage.Annotations = map[string]string{v1beta1.AnnotationAbandon: "true"}
		f.runUntilReady()
		f.Expect(f.eventsWith("Abandoned")).To(BeZero())
	})
}

func TestDeletionEndsIfResourceGroupIsMissing(t *testing.T) {
	f := newFixture(t, fastCloud(), func(s *v1beta1.SecureStorageSpec) {
		s.Key.Vault.ResourceGroup, s.Provider.ResourceGroup = s.Provider.ResourceGroup, "absent"
	})
	f.runUntilReason(v1beta1.ReasonResourceGroupMissing)
	f.delete()
	f.runUntilDeleted()
}

func TestUsesCredentialsFromSecret(t *testing.T) {
	// given a Secret that does not exist yet
	const token = "fakecloud:billing"
	f := newFixture(t, fastCloud(), func(s *v1beta1.SecureStorageSpec) {
		s.Provider.CredentialsSecretRef = &v1beta1.SecureStorageCredentialsSecretRef{Name: "azure"}
	})
	f.Expect(f.runUntilReason(v1beta1.ReasonCredentialsMissing).Message).To(ContainSubstring("Secret azure"))
	// when it lacks a key
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{UID: "1", ResourceVersion: "1"}, Data: map[string][]byte{"tenantID": []byte("t"), "clientID": []byte("c")}}
	f.secrets["billing/azure"] = secret
	f.reconcile()
	f.Expect(f.ready().Message).To(ContainSubstring("clientSecret"))
	// when it is wrong
	secret.Data["clientSecret"], secret.ResourceVersion = []byte("wrong"), "2"
	f.runUntilReason(v1beta1.ReasonCredentialsInvalid)
	// when it is right
	secret.Data["clientSecret"], secret.ResourceVersion = []byte(token), "3"
	f.runUntilReady()
	// then all requests used this credential
	for _, entry := range f.server.Ledger() {
		f.Expect(entry.Who).To(BeElementOf("billing", ""))
	}
	f.Expect(f.report()).NotTo(ContainSubstring(token))
}

func TestSuspendedObjectMakesNoCalls(t *testing.T) {
	f := readyFixture(t)
	f.edit(func(s *v1beta1.SecureStorageSpec) { s.Suspend = true })
	calls := f.calls
	f.reconcile()
	f.Expect(f.calls).To(Equal(calls))
	f.Expect(f.storage.Status.Phase).To(Equal(v1beta1.PhaseSuspended))
	f.Expect(f.storage.Status.KeyVersion).NotTo(BeEmpty())
	// and it can be deleted
	f.delete()
	f.runUntilDeleted()
	f.expectNothingLeft()
}
