package securestorage

import (
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// readyWorld is one in which the account is encrypted already.
func readyWorld(t *testing.T, edits ...func(*v1alpha1.SecureStorageSpec)) *world {
	t.Helper()
	w := newWorld(t, quick(), edits...)
	w.runUntilReady()
	return w
}

func (w *world) accountID() string {
	return "/subscriptions/" + w.demo.Subscription + "/resourceGroups/" + w.demo.Group + "/providers/Microsoft.Storage/storageAccounts/" + w.name()
}

func TestTheBarForCalls(t *testing.T) {
	// given a provisioning that takes five polls of the pace that the cloud suggests
	knobs := quick()
	knobs.PollInterval = fakecloud.Fixed(17 * time.Second)
	knobs.AccountCreation = fakecloud.Fixed(5 * 17 * time.Second)
	knobs.PrincipalDelay = fakecloud.Delay{}
	w := newWorld(t, knobs)
	// when
	w.runUntilReady()
	// then
	t.Logf("%d calls from nothing to Ready", w.calls)
	w.Expect(w.calls).To(BeNumerically("<=", 25))
	// and at rest
	const polls = 20
	began, calls := w.clock.Now(), w.calls
	for w.clock.Since(began) < polls*w.storage.Spec.PollInterval.Duration {
		w.clock.Step(w.pass())
	}
	intervals := float64(w.clock.Since(began)) / float64(w.storage.Spec.PollInterval.Duration)
	t.Logf("%.2f calls at rest for each poll interval", float64(w.calls-calls)/intervals)
	w.Expect(float64(w.calls - calls)).To(BeNumerically("<=", 3*intervals+3))
}

func TestRetryAfterIsKept(t *testing.T) {
	// given a cloud that accepts the account and asks to be left alone for 17 s
	knobs := quick()
	knobs.PollInterval = fakecloud.Fixed(17 * time.Second)
	w := newWorld(t, knobs)
	// when
	after := w.pass()
	// then
	w.Expect(after).To(And(BeNumerically(">=", 17*time.Second), BeNumerically("<=", 19*time.Second)))
}

// Statuses and messages are the same from try to try, or every look would be a write and an Event.
func TestWaitingSaysTheSame(t *testing.T) {
	w := newWorld(t, quick())
	w.runUntilReady()
	for i := 1; i < len(w.statuses); i++ {
		before, after := w.statuses[i-1].status.Conditions[0], w.statuses[i].status.Conditions[0]
		if before.Reason == after.Reason {
			w.Expect(after.Message).To(Equal(before.Message))
			w.Expect(after.LastTransitionTime).To(Equal(before.LastTransitionTime))
		}
	}
	w.Expect(w.told("Ready Ready:")).To(BeZero())
	w.Expect(w.told(": Ready is True")).To(Equal(1))
}

func TestDriftIsPutBack(t *testing.T) {
	for name, drift := range map[string]struct {
		meddle func(w *world) error
		path   string
	}{
		"platform keys": {func(w *world) error { return w.server.UsePlatformKeys(w.name()) }, "encryption.keySource"},
		"another key":   {func(w *world) error { return w.server.UseKey(w.name(), w.demo.Vault, "other", "") }, "encryption.keyName"},
		"another vault": {func(w *world) error { return w.server.UseKey(w.name(), "elsewhere", w.demo.Key, "") }, "encryption.keyVaultUri"},
		"pinned elsewhere": {func(w *world) error {
			return w.server.UseKey(w.name(), w.demo.Vault, w.demo.Key, strings.Repeat("a", 32))
		}, "encryption.keyVersion"},
		"grant removed": {func(w *world) error { return w.server.RemoveGrants(w.server.Principal(w.name())) }, "vaults/fixpoint-demo/access"},
		"one tag removed": {func(w *world) error {
			return w.server.SetTags(w.name(), map[string]string{cloud.OwnerTag: string(w.storage.UID)})
		}, "tags.team"},
		"all tags removed": {func(w *world) error { return w.server.SetTags(w.name(), nil) }, "tags.fixpoint.dev-owner"},
		"a tag of ours edit": {func(w *world) error {
			return w.server.SetTags(w.name(), map[string]string{cloud.OwnerTag: string(w.storage.UID), "team": "them"})
		}, "tags.team"},
		"identity removed": {func(w *world) error { return w.server.DropIdentity(w.name()) }, "identity.type"},
	} {
		t.Run(name, func(t *testing.T) {
			// given
			w := readyWorld(t, tagged(map[string]string{"team": "billing"}))
			w.clock.Step(time.Minute)
			// when
			w.Expect(drift.meddle(w)).To(Succeed())
			w.poll()
			w.runUntilReady()
			// then it is as declared
			account, _ := w.server.Account(w.name())
			w.Expect(account.Encryption.KeySource).To(Equal("Microsoft.Keyvault"))
			w.Expect(account.Encryption.KeyName).To(Equal(w.demo.Key))
			w.Expect(account.Tags).To(HaveKeyWithValue("team", "billing"))
			w.Expect(account.Tags).To(HaveKeyWithValue(cloud.OwnerTag, string(w.storage.UID)))
			// and was told once
			w.Expect(w.told("DriftCorrected", drift.path)).To(Equal(1))
			w.Expect(w.created()).To(Equal(1))
			w.neverClaimsAKeyThatIsNotUsed()
			// and nothing is left of it
			w.delete()
			w.runUntilGone()
			w.leavesNothing()
		})
	}
}

func TestTagsOfOthersStay(t *testing.T) {
	w := readyWorld(t, tagged(map[string]string{"team": "billing"}))
	w.Expect(w.server.SetTags(w.name(), map[string]string{"TEAM": "them", "cost": "42"})).To(Succeed())
	w.poll()
	w.runUntilReady()
	account, _ := w.server.Account(w.name())
	w.Expect(account.Tags).To(Equal(map[string]string{"team": "billing", "cost": "42", cloud.OwnerTag: string(w.storage.UID)}))
}

func TestALostAccountIsNotMadeAnew(t *testing.T) {
	// given
	w := readyWorld(t)
	// when
	w.Expect(w.server.DeleteAccount(w.name())).To(Succeed())
	w.poll()
	// then
	w.Expect(w.ready().Reason).To(Equal(v1alpha1.ReasonAccountLost))
	w.Expect(w.condition("Stalled")).NotTo(BeNil())
	w.Expect(w.storage.Status.Encryption).To(BeEmpty())
	w.poll()
	w.Expect(w.created()).To(Equal(1))
	// and when the user wants an empty one
	w.edit(recreate)
	w.runUntilReady()
	w.Expect(w.created()).To(Equal(2))
	w.delete()
	w.runUntilGone()
	w.leavesNothing()
}

func TestALostAccountIsMadeAnewIfThePolicySaysSo(t *testing.T) {
	// given
	w := readyWorld(t, recreate)
	// when
	w.Expect(w.server.DeleteAccount(w.name())).To(Succeed())
	w.poll()
	w.runUntilReady()
	// then
	w.Expect(w.created()).To(Equal(2))
	w.Expect(w.told("DriftCorrected", "storageAccounts/"+w.name())).To(Equal(1))
	w.neverClaimsAKeyThatIsNotUsed()
	// and the grant of the account that is lost is not left
	w.Expect(w.server.Orphans()).To(BeEmpty())
}

func TestACreationThatFailsLateIsTriedAgain(t *testing.T) {
	for name, stays := range map[string]bool{"and vanishes": false, "and stays as a failure": true} {
		t.Run(name, func(t *testing.T) {
			knobs := quick()
			knobs.FailedAccountsStay = stays
			w := newWorld(t, knobs)
			w.server.Inject(fakecloud.Fault{Resource: "/storageaccounts/", FailLate: true})
			w.runUntilReady()
			w.Expect(w.created()).To(Equal(1))
			w.delete()
			w.runUntilGone()
			w.leavesNothing()
		})
	}
}

func TestKeysAreFollowedOrPinned(t *testing.T) {
	t.Run("latest", func(t *testing.T) {
		w := readyWorld(t)
		first := w.storage.Status.KeyVersion
		version, err := w.server.RotateKey(w.demo.Vault, w.demo.Key)
		w.Expect(err).NotTo(HaveOccurred())
		w.clock.Step(25 * time.Hour)
		w.poll()
		w.Expect(w.storage.Status.KeyVersion).To(And(Equal(version), Not(Equal(first))))
		w.Expect(w.isReady()).To(BeTrue())
		w.Expect(w.told("DriftCorrected")).To(BeZero())
	})
	t.Run("pinned", func(t *testing.T) {
		w := newWorld(t, quick())
		key := w.server.State().Vaults[0].Keys[w.demo.Key]
		first := key.Versions[0].ID
		pinned(first)(&w.storage.Spec)
		w.runUntilReady()
		_, err := w.server.RotateKey(w.demo.Vault, w.demo.Key)
		w.Expect(err).NotTo(HaveOccurred())
		w.clock.Step(25 * time.Hour)
		w.poll()
		w.Expect(w.storage.Status.KeyVersion).To(Equal(first))
		// and when the version disappears
		w.Expect(w.server.DeleteKeyVersion(w.demo.Vault, w.demo.Key, first)).To(Succeed())
		w.poll()
		w.Expect(w.ready().Reason).To(Equal(v1alpha1.ReasonKeyVersionMissing))
		w.Expect(w.storage.Status.Phase).To(Equal(v1alpha1.SecureStorageDegraded))
		// then it is an alarm, and no loop
		calls, writes := w.calls, w.server.Total("").Writes
		w.Expect(w.pass()).To(BeNumerically(">=", w.storage.Spec.PollInterval.Duration))
		w.Expect(w.calls - calls).To(BeNumerically("<=", 5))
		w.Expect(w.server.Total("").Writes).To(Equal(writes))
	})
}

func TestWhatIsCheckedBeforeHarm(t *testing.T) {
	for name, c := range map[string]struct {
		arrange func(w *world)
		edit    func(*v1alpha1.SecureStorageSpec)
		reason  string
		says    string
		mend    func(w *world)
	}{
		"no vault": {
			edit: inVault("absent"), reason: v1alpha1.ReasonVaultMissing, says: "key vault absent",
			mend: func(w *world) { w.addVault("absent", fakecloud.VaultSpec{PurgeProtection: true}) },
		},
		"no purge protection": {
			arrange: func(w *world) { w.addVault("unsafe", fakecloud.VaultSpec{}) },
			edit:    inVault("unsafe"), reason: v1alpha1.ReasonVaultNotProtected, says: "purge protection",
			mend: func(w *world) { w.Expect(w.server.SetPurgeProtection("unsafe", true)).To(Succeed()) },
		},
		"no soft delete": {
			arrange: func(w *world) { w.addVault("unsafe", fakecloud.VaultSpec{PurgeProtection: true, NoSoftDelete: true}) },
			edit:    inVault("unsafe"), reason: v1alpha1.ReasonVaultNotProtected, says: "soft delete",
		},
		"a vault of access policies": {
			arrange: func(w *world) {
				w.addVault("policies", fakecloud.VaultSpec{PurgeProtection: true, AccessPolicies: true})
			},
			edit: inVault("policies"), reason: v1alpha1.ReasonAccessTypeMismatch, says: "set spec.access.type to AccessPolicy",
			mend: func(w *world) { w.edit(byPolicy) },
		},
		"a vault of roles": {
			edit: byPolicy, reason: v1alpha1.ReasonAccessTypeMismatch, says: "set spec.access.type to RoleAssignment",
		},
		"no key": {
			edit:   func(s *v1alpha1.SecureStorageSpec) { s.Key.KeyName = "absent" },
			reason: v1alpha1.ReasonKeyMissing, says: "has no key absent",
			mend: func(w *world) {
				_, err := w.server.SeedKey(w.demo.Vault, "absent", fakecloud.KeySpec{})
				w.Expect(err).NotTo(HaveOccurred())
			},
		},
		"no such version": {
			edit: pinned(strings.Repeat("0", 32)), reason: v1alpha1.ReasonKeyVersionMissing, says: "has no version",
		},
		"a version of no key": {
			edit: func(s *v1alpha1.SecureStorageSpec) {
				s.Key.KeyName = "absent"
				pinned(strings.Repeat("0", 32))(s)
			},
			reason: v1alpha1.ReasonKeyMissing, says: "has no key absent",
		},
		"disabled": {
			arrange: func(w *world) { w.Expect(w.server.EnableKey(w.demo.Vault, w.demo.Key, "", false)).To(Succeed()) },
			reason:  v1alpha1.ReasonKeyDisabled, says: "enable it",
			mend: func(w *world) { w.Expect(w.server.EnableKey(w.demo.Vault, w.demo.Key, "", true)).To(Succeed()) },
		},
		"an elliptic curve": {
			arrange: func(w *world) { _, _ = w.server.SeedKey(w.demo.Vault, "ec", fakecloud.KeySpec{Type: "EC"}) },
			edit:    func(s *v1alpha1.SecureStorageSpec) { s.Key.KeyName = "ec" },
			reason:  v1alpha1.ReasonKeyUnsuitable, says: "key ec is EC,",
		},
		"a key that may not wrap": {
			arrange: func(w *world) {
				_, _ = w.server.SeedKey(w.demo.Vault, "signs", fakecloud.KeySpec{Ops: []string{"sign", "wrapKey"}})
			},
			edit:   func(s *v1alpha1.SecureStorageSpec) { s.Key.KeyName = "signs" },
			reason: v1alpha1.ReasonKeyUnsuitable, says: "does not allow unwrapKey",
		},
		"no resource group": {
			edit: func(s *v1alpha1.SecureStorageSpec) {
				s.Key.Vault.ResourceGroup, s.Provider.ResourceGroup = s.Provider.ResourceGroup, "absent"
			},
			reason: v1alpha1.ReasonResourceGroupMissing, says: "create resource group absent",
			mend: func(w *world) { w.server.SeedGroup(w.demo.Subscription, "absent", "westeurope") },
		},
		"a location that there is not": {
			edit:   func(s *v1alpha1.SecureStorageSpec) { s.Provider.Location = "atlantis" },
			reason: v1alpha1.ReasonInvalidRequest, says: "atlantis",
		},
		"a name of somebody else": {
			arrange: func(w *world) {
				w.server.SeedGroup("00000000-0000-4000-8000-00000000beef", "theirs", "westeurope")
				w.Expect(w.server.SeedAccount("00000000-0000-4000-8000-00000000beef", "theirs", "coveted", nil)).To(Succeed())
			},
			edit: named("coveted"), reason: v1alpha1.ReasonNameTaken, says: "the name coveted is taken",
		},
		"a subscription out of sight": {
			edit: func(s *v1alpha1.SecureStorageSpec) {
				s.Provider.SubscriptionID = "00000000-0000-4000-8000-00000000beef"
			},
			reason: v1alpha1.ReasonResourceGroupMissing, says: "credential",
		},
	} {
		t.Run(name, func(t *testing.T) {
			// given
			w := newWorld(t, quick())
			if c.arrange != nil {
				c.arrange(w)
			}
			if c.edit != nil {
				c.edit(&w.storage.Spec)
			}
			// then
			ready := w.runUntilReason(c.reason)
			w.Expect(ready.Message).To(ContainSubstring(c.says))
			w.Expect(w.condition("Stalled")).NotTo(BeNil())
			// and it is the same at the next look, which is not soon
			w.poll()
			w.Expect(w.ready()).To(Equal(ready))
			w.Expect(w.pass()).To(BeNumerically(">=", w.storage.Spec.PollInterval.Duration))
			// and when it is mended it goes on
			if c.mend != nil {
				c.mend(w)
				w.runUntilReady()
				w.Expect(w.created()).To(Equal(1))
			}
			// and lets go: what cannot be asked about, by a person's word
			w.storage.Annotations = map[string]string{v1alpha1.AnnotationAbandon: "true"}
			w.delete()
			w.runUntilGone()
			w.leavesNothing()
		})
	}
}

func TestPropagationHasADeadline(t *testing.T) {
	for access := range accesses {
		t.Run(access, func(t *testing.T) {
			// given a grant that is never honoured
			w := newAccessWorld(t, access)
			w.server.Turn(func(k *fakecloud.Knobs) {
				k.GrantDelay, k.PolicyDelay = fakecloud.Fixed(24*time.Hour), fakecloud.Fixed(24*time.Hour)
			})
			// then it is waited for
			w.runUntilReason(v1alpha1.ReasonPropagating)
			w.Expect(w.condition("Stalled")).To(BeNil())
			began := w.clock.Now()
			// and not for ever
			w.runUntilReason(v1alpha1.ReasonPropagationTimedOut)
			w.Expect(w.clock.Since(began)).To(And(BeNumerically(">", 14*time.Minute), BeNumerically("<", 17*time.Minute)))
			w.Expect(w.condition("Stalled")).NotTo(BeNil())
			// and it is Ready when it comes after all
			w.clock.Step(24 * time.Hour)
			w.runUntilReady()
		})
	}
}

func TestAVaultThatBecomesUnfitIsNamed(t *testing.T) {
	w := newWorld(t, quick())
	w.runUntilReason(v1alpha1.ReasonPropagating)
	w.Expect(w.server.DeleteVault(w.demo.Vault)).To(Succeed())
	w.runUntilReason(v1alpha1.ReasonVaultMissing)
}

// Deleting a vault takes its role assignments along, and recovering it does not bring them back.
func TestARecoveredVaultIsGrantedAgain(t *testing.T) {
	w := readyWorld(t)
	w.Expect(w.server.DeleteVault(w.demo.Vault)).To(Succeed())
	w.poll()
	w.Expect(w.ready().Reason).To(Equal(v1alpha1.ReasonVaultMissing))
	w.Expect(w.server.RecoverVault(w.demo.Vault)).To(Succeed())
	w.poll()
	w.runUntilReady()
	w.clock.Step(time.Minute)
	w.Expect(w.server.ReadData(w.name())).To(Succeed())
}

func TestADeletedKeyIsAnAlarm(t *testing.T) {
	w := readyWorld(t)
	w.Expect(w.server.DeleteKey(w.demo.Vault, w.demo.Key)).To(Succeed())
	w.poll()
	w.Expect(w.ready().Reason).To(Equal(v1alpha1.ReasonKeyMissing))
	w.Expect(w.server.RecoverKey(w.demo.Vault, w.demo.Key)).To(Succeed())
	w.poll()
	w.Expect(w.isReady()).To(BeTrue())
}

func TestMissingPermissionsAreNamed(t *testing.T) {
	for action, says := range map[string]string{
		"Microsoft.Storage/storageAccounts/read":        "Storage Account Contributor on resource group",
		"Microsoft.Storage/storageAccounts/write":       "Storage Account Contributor on resource group",
		"Microsoft.KeyVault/vaults/read":                "Key Vault Reader on key vault",
		"Microsoft.KeyVault/vaults/keys/read":           "Key Vault Reader on key vault",
		"Microsoft.Authorization/roleAssignments/read":  "Role Based Access Control Administrator on key vault",
		"Microsoft.Authorization/roleAssignments/write": "Role Based Access Control Administrator on key vault",
	} {
		t.Run(action, func(t *testing.T) {
			w := newWorld(t, quick())
			w.server.Deny(fakecloud.Denial{Action: action})
			w.Expect(w.runUntilReason(v1alpha1.ReasonPermissionMissing).Message).To(And(ContainSubstring(says), ContainSubstring(action)))
			w.server.Allow("")
			w.runUntilReady()
		})
	}
}

func TestThrottlingIsHonoured(t *testing.T) {
	// given a cloud that takes few writes and reads, and a client that believes it takes more
	knobs := quick()
	knobs.Writes = fakecloud.Bucket{Capacity: 1, PerSecond: 0.1}
	knobs.Reads = fakecloud.Bucket{Capacity: 6, PerSecond: 0.2}
	w := newWorld(t, knobs)
	// when
	w.runUntilReady()
	// then it was refused, and did not come back too early
	total := w.server.Total("")
	w.Expect(total.Throttled).To(BeNumerically(">", 0))
	w.Expect(total.EarlyRetries).To(BeZero())
	w.Expect(w.created()).To(Equal(1))
}

func TestACloudThatIsOut(t *testing.T) {
	w := readyWorld(t)
	w.server.Inject(fakecloud.Fault{Method: http.MethodGet, Times: 2, Status: http.StatusServiceUnavailable, Code: "ServerTimeout"})
	w.poll()
	w.Expect(w.ready().Reason).To(Equal(v1alpha1.ReasonCloudUnavailable))
	w.Expect(w.storage.Status.KeyVersion).NotTo(BeEmpty(), "what was seen last still stands")
	w.Expect(w.storage.Status.Phase).To(Equal(v1alpha1.SecureStorageDegraded))
	w.runUntilReady()
}

func TestAStrangersAccountIsNotTouched(t *testing.T) {
	for name, tags := range map[string]map[string]string{"of nobody": nil, "of another SecureStorage": {cloud.OwnerTag: "another"}} {
		t.Run(name, func(t *testing.T) {
			// given
			w := newWorld(t, quick(), named("coveted"))
			w.Expect(w.server.SeedAccount(w.demo.Subscription, w.demo.Group, "coveted", tags)).To(Succeed())
			// then
			w.runUntilReason(v1alpha1.ReasonAccountNotOwned)
			w.poll()
			w.delete()
			w.runUntilGone()
			account, ok := w.server.Account("coveted")
			w.Expect(ok).To(BeTrue())
			w.Expect(account.Version).To(BeEquivalentTo(1))
			w.Expect(w.storage.Status.AccountID).To(BeEmpty())
		})
	}
}

// A stranger makes the account between our look and our write.
func TestAStrangerWhoIsFasterIsNotTouched(t *testing.T) {
	w := newWorld(t, quick(), named("coveted"))
	s := &scope{storage: w.storage, door: w.process.reconciler.door, clock: w.clock}
	w.Expect(s.begin(t.Context())).To(Succeed())
	w.Expect(w.server.SeedAccount(w.demo.Subscription, w.demo.Group, "coveted", map[string]string{"cost": "42"})).To(Succeed())
	verdict, err := ensureStorageAccount(t.Context(), s)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(verdict.Reason()).To(Equal(v1alpha1.ReasonOperationInProgress))
	account, _ := w.server.Account("coveted")
	w.Expect(account.Tags).To(Equal(map[string]string{"cost": "42"}))
}

func TestAdoption(t *testing.T) {
	t.Run("of an account of nobody", func(t *testing.T) {
		w := newWorld(t, quick(), named("coveted"), adopt, retain)
		w.Expect(w.server.SeedAccount(w.demo.Subscription, w.demo.Group, "coveted", map[string]string{"cost": "42"})).To(Succeed())
		w.runUntilReady()
		account, _ := w.server.Account("coveted")
		w.Expect(account.Tags).To(HaveKeyWithValue("cost", "42"))
		w.Expect(account.Encryption.KeySource).To(Equal("Microsoft.Keyvault"))
		w.Expect(w.created()).To(BeZero())
	})
	t.Run("not of another SecureStorage's", func(t *testing.T) {
		w := newWorld(t, quick(), named("coveted"), adopt)
		w.Expect(w.server.SeedAccount(w.demo.Subscription, w.demo.Group, "coveted", map[string]string{cloud.OwnerTag: "another"})).To(Succeed())
		w.runUntilReason(v1alpha1.ReasonAccountNotOwned)
	})
	t.Run("not from another location", func(t *testing.T) {
		w := newWorld(t, quick(), named("coveted"), adopt, func(s *v1alpha1.SecureStorageSpec) { s.Provider.Location = "northeurope" })
		w.Expect(w.server.SeedAccount(w.demo.Subscription, w.demo.Group, "coveted", nil)).To(Succeed())
		w.Expect(w.runUntilReason(v1alpha1.ReasonAccountNotOwned).Message).To(ContainSubstring("westeurope"))
	})
}

func TestAnAccountThatIsHandedOverIsLetGo(t *testing.T) {
	// given an account whose tag somebody has given to another owner
	w := readyWorld(t)
	w.Expect(w.server.SetTags(w.name(), map[string]string{cloud.OwnerTag: "another"})).To(Succeed())
	w.poll()
	w.Expect(w.ready().Reason).To(Equal(v1alpha1.ReasonAccountNotOwned))
	// when
	w.delete()
	w.runUntilGone()
	// then both the account and its grant stay
	_, ok := w.server.Account(w.name())
	w.Expect(ok).To(BeTrue())
	w.Expect(w.server.ReadData(w.name())).To(Succeed())
}

func TestRetain(t *testing.T) {
	// given
	w := readyWorld(t, retain)
	calls := w.calls
	// when
	w.delete()
	w.runUntilGone()
	// then nothing was asked of the cloud, and it is said
	w.Expect(w.calls).To(Equal(calls))
	w.Expect(w.told("Normal Retained", w.name())).To(Equal(1))
	w.clock.Step(time.Hour)
	w.Expect(w.server.ReadData(w.name())).To(Succeed())
}

func TestRetainTellsOfAnAccountThatIsBeingMade(t *testing.T) {
	w := newWorld(t, quick(), retain)
	w.pass()
	w.delete()
	w.runUntilGone()
	w.Expect(w.told("Normal Retained", w.name())).To(Equal(1))
}

func TestALockHoldsTheDeletionUp(t *testing.T) {
	for name, scope := range map[string]func(w *world) string{
		"account": (*world).accountID,
		"vault":   func(w *world) string { return w.demo.VaultID },
	} {
		t.Run("on the "+name, func(t *testing.T) {
			// given
			w := readyWorld(t)
			w.Expect(w.server.Lock(scope(w), "keep", "CanNotDelete")).To(Succeed())
			// when
			w.delete()
			// then it waits and says on what, and data that stays can be read
			w.Expect(w.runUntilReason(v1alpha1.ReasonDeletionBlocked).Message).To(ContainSubstring("lock"))
			w.clock.Step(time.Hour)
			w.pass()
			if name == "account" {
				w.Expect(w.server.ReadData(w.name())).To(Succeed())
				account, _ := w.server.Account(w.name())
				w.Expect(account.Encryption.KeySource).To(Equal("Microsoft.Keyvault"), "a lock must not cost the encryption")
			}
			// and goes on without the lock
			w.Expect(w.server.Unlock(scope(w))).To(Succeed())
			w.runUntilGone()
			w.leavesNothing()
		})
	}
}

func TestAbandon(t *testing.T) {
	abandon := func(w *world) {
		w.storage.Annotations = map[string]string{v1alpha1.AnnotationAbandon: "true"}
		w.delete()
		w.runUntilGone()
	}
	t.Run("a lock", func(t *testing.T) {
		w := readyWorld(t)
		w.Expect(w.server.Lock(w.accountID(), "keep", "CanNotDelete")).To(Succeed())
		abandon(w)
		w.Expect(w.told("Warning Abandoned", w.name(), "grant on key vault")).To(Equal(1))
		w.clock.Step(time.Hour)
		w.Expect(w.server.ReadData(w.name())).To(Succeed(), "an account that stays keeps its key")
	})
	t.Run("a cloud that is out of reach", func(t *testing.T) {
		w := readyWorld(t)
		w.server.Turn(func(k *fakecloud.Knobs) { k.ServerErrors = 1 })
		abandon(w)
		w.Expect(w.told("Warning Abandoned", w.name())).To(Equal(1))
	})
	t.Run("credentials that are gone", func(t *testing.T) {
		w := readyWorld(t)
		w.edit(func(s *v1alpha1.SecureStorageSpec) {
			s.Provider.CredentialsRef = &v1alpha1.SecureStorageCredentialsRef{Name: "absent"}
		})
		abandon(w)
		w.Expect(w.told("Warning Abandoned", w.name())).To(Equal(1))
	})
	t.Run("nothing, if all goes well", func(t *testing.T) {
		w := readyWorld(t)
		abandon(w)
		w.leavesNothing()
		w.Expect(w.told("Abandoned")).To(BeZero())
	})
	t.Run("an object that is not being deleted means nothing", func(t *testing.T) {
		w := newWorld(t, quick())
		w.storage.Annotations = map[string]string{v1alpha1.AnnotationAbandon: "true"}
		w.runUntilReady()
		w.Expect(w.told("Abandoned")).To(BeZero())
	})
}

func TestADeletionWithoutItsResourceGroupEnds(t *testing.T) {
	w := newWorld(t, quick(), func(s *v1alpha1.SecureStorageSpec) {
		s.Key.Vault.ResourceGroup, s.Provider.ResourceGroup = s.Provider.ResourceGroup, "absent"
	})
	w.runUntilReason(v1alpha1.ReasonResourceGroupMissing)
	w.delete()
	w.runUntilGone()
}

func TestACredentialOfOnesOwn(t *testing.T) {
	// given a Secret that is not there yet
	const token = "fakecloud:billing"
	w := newWorld(t, quick(), func(s *v1alpha1.SecureStorageSpec) {
		s.Provider.CredentialsRef = &v1alpha1.SecureStorageCredentialsRef{Name: "azure"}
	})
	w.Expect(w.runUntilReason(v1alpha1.ReasonCredentialsMissing).Message).To(ContainSubstring("Secret azure"))
	// when it lacks a key
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{UID: "1", ResourceVersion: "1"}, Data: map[string][]byte{"tenantID": []byte("t"), "clientID": []byte("c")}}
	w.secrets["billing/azure"] = secret
	w.pass()
	w.Expect(w.ready().Message).To(ContainSubstring("clientSecret"))
	// when it is wrong
	secret.Data["clientSecret"], secret.ResourceVersion = []byte("wrong"), "2"
	w.runUntilReason(v1alpha1.ReasonCredentialsInvalid)
	// when it is right
	secret.Data["clientSecret"], secret.ResourceVersion = []byte(token), "3"
	w.runUntilReady()
	// then everything was done in its name
	for _, entry := range w.server.Ledger() {
		w.Expect(entry.Who).To(BeElementOf("billing", ""))
	}
	w.Expect(w.report()).NotTo(ContainSubstring(token))
}

func TestSuspended(t *testing.T) {
	w := readyWorld(t)
	w.edit(func(s *v1alpha1.SecureStorageSpec) { s.Suspend = true })
	calls := w.calls
	w.pass()
	w.Expect(w.calls).To(Equal(calls))
	w.Expect(w.storage.Status.Phase).To(Equal(v1alpha1.SecureStorageSuspended))
	w.Expect(w.storage.Status.KeyVersion).NotTo(BeEmpty())
	// and deletion still works
	w.delete()
	w.runUntilGone()
	w.leavesNothing()
}
