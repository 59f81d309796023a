package securestorage

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// quick is a cloud with all delays of the real one, each of which takes a few passes.
func quick() fakecloud.Knobs {
	return fakecloud.Knobs{
		AccountCreation: fakecloud.Fixed(4 * time.Second),
		AccountUpdate:   fakecloud.Fixed(time.Second),
		AccountDeletion: fakecloud.Fixed(3 * time.Second),
		NameHold:        fakecloud.Fixed(2 * time.Second),
		ReadAfterWrite:  fakecloud.Fixed(800 * time.Millisecond),
		PrincipalDelay:  fakecloud.Fixed(time.Second),
		DirectoryDelay:  fakecloud.Fixed(30 * time.Second),
		GrantDelay:      fakecloud.Fixed(3 * time.Second),
		PolicyDelay:     fakecloud.Fixed(3 * time.Second),
		RevokeDelay:     fakecloud.Fixed(2 * time.Second),
		PollInterval:    fakecloud.Fixed(time.Second),
		KeyLookup:       fakecloud.Period(24 * time.Hour),
	}
}

// sides of the effect of a call.
var sides = map[bool]string{false: "before", true: "after"}

var accesses = map[string]func(*v1alpha1.SecureStorageSpec){
	"role":   func(*v1alpha1.SecureStorageSpec) {},
	"policy": byPolicy,
}

// newAccessWorld has a vault of the sort that the access asks for.
func newAccessWorld(t *testing.T, access string, edits ...func(*v1alpha1.SecureStorageSpec)) *world {
	t.Helper()
	return newAccessWorldOf(t, quick(), access, edits...)
}

func newAccessWorldOf(t *testing.T, knobs fakecloud.Knobs, access string, edits ...func(*v1alpha1.SecureStorageSpec)) *world {
	t.Helper()
	w := newWorld(t, knobs, append(edits, accesses[access])...)
	if access == "policy" {
		w.addVault("old-vault", fakecloud.VaultSpec{PurgeProtection: true, AccessPolicies: true})
		inVault("old-vault")(&w.storage.Spec)
	}
	return w
}

func (w *world) addVault(name string, spec fakecloud.VaultSpec) {
	w.server.SeedVault(w.demo.Subscription, w.demo.Group, name, spec)
	_, err := w.server.SeedKey(name, w.demo.Key, fakecloud.KeySpec{})
	w.Expect(err).NotTo(HaveOccurred())
}

func TestAProcessMayEndAtAnyCall(t *testing.T) {
	for access := range accesses {
		for after, side := range sides {
			ended := true
			for at := 1; ended; at++ {
				t.Run(fmt.Sprintf("%s/%s call %d", access, side, at), func(t *testing.T) {
					// given a process that ends at this call to the cloud or to the API server
					w := newAccessWorld(t, access)
					w.cut = &cut{at: at, after: after}
					// when the next one goes on
					w.runUntilReady()
					ended = w.cut == nil
					// then there is one account, as declared
					w.Expect(w.created()).To(Equal(1))
					w.Expect(w.storage.Status.Encryption).To(Equal(v1alpha1.EncryptionCustomerKey))
					w.Expect(w.told("DriftCorrected")).To(BeZero(), "nobody else has changed anything")
					w.neverClaimsAKeyThatIsNotUsed()
				})
			}
		}
	}
}

func TestAnswersMayBeLost(t *testing.T) {
	knobs := quick()
	knobs.LostResponses, knobs.ErrorsAfterEffect, knobs.ServerErrors = 0.2, 0.1, 0.1
	for seed := range 20 {
		w := newWorld(t, knobs)
		w.storage.UID += "-" + uidSuffix(seed) // another object has other luck
		w.runUntilReady()
		w.Expect(w.created()).To(Equal(1))
		w.delete()
		w.runUntilGone()
		w.leavesNothing()
	}
}

func TestADeletionMayComeAtAnyTime(t *testing.T) {
	for access := range accesses {
		const passesToReady = 25
		for passes := range passesToReady {
			t.Run(fmt.Sprintf("%s/after %d passes", access, passes), func(t *testing.T) {
				// given
				w := newAccessWorld(t, access)
				for range passes {
					after := w.pass()
					w.clock.Step(after)
				}
				// when
				w.delete()
				w.runUntilGone()
				// then
				w.leavesNothing()
				w.clock.Step(time.Hour)
				w.leavesNothing() // nor does anything come about late
				w.Expect(w.created()).To(BeNumerically("<=", 1))
			})
		}
	}
}

// The process ends while the storage comes about, and before the next one has looked, it is deleted:
// what the status could not say any more must be found all the same.
func TestADeletionMayFollowTheEndOfAProcess(t *testing.T) {
	for access := range accesses {
		for after, side := range sides {
			ended := true
			for at := 1; ended; at++ {
				t.Run(fmt.Sprintf("%s/%s call %d", access, side, at), func(t *testing.T) {
					// given
					w := newAccessWorld(t, access)
					w.cut = &cut{at: at, after: after}
					w.runUntil("cut, or ready", func() bool { return w.cut == nil || w.isReady() })
					ended = w.cut == nil
					w.cut = nil
					// when
					w.delete()
					w.runUntilGone()
					// then
					w.leavesNothing()
					w.clock.Step(time.Hour)
					w.leavesNothing()
				})
			}
		}
	}
}

// And the next process ends while it tears down, in a cloud where an account is gone as soon as it is
// deleted: what only the account could tell, and the status did not say yet, must not go with it.
func TestTwoProcessesMayEnd(t *testing.T) {
	t.Parallel()
	knobs := quick()
	knobs.AccountDeletion, knobs.ReadAfterWrite = fakecloud.Fixed(0), fakecloud.Fixed(0)
	for access := range accesses {
		began := true
		for at := 1; began; at++ {
			ended := true
			for then := 1; ended; then++ {
				t.Run(fmt.Sprintf("%s/after call %d, then after call %d", access, at, then), func(t *testing.T) {
					// given
					w := newAccessWorldOf(t, knobs, access)
					w.cut = &cut{at: at, after: true}
					w.runUntil("cut, or ready", func() bool { return w.cut == nil || w.isReady() })
					began = w.cut == nil
					// when
					w.delete()
					w.cut = &cut{at: then, after: true}
					w.runUntilGone()
					ended = w.cut == nil
					// then
					w.leavesNothing()
				})
			}
		}
	}
}

// Deleted while an account that was just asked for cannot be seen yet.
func TestADeletionFindsAnAccountThatIsNotSeenYet(t *testing.T) {
	knobs := quick()
	knobs.ReadAfterWrite = fakecloud.Fixed(10 * time.Second)
	w := newWorld(t, knobs)
	w.pass()
	w.delete()
	w.runUntilGone()
	w.leavesNothing()
	w.Expect(w.created()).To(Equal(1))
}

func TestAProcessMayEndDuringATeardown(t *testing.T) {
	t.Parallel()
	for access := range accesses {
		for after, side := range sides {
			// The instants of one run: whether the deletion comes early or late, the process may end.
			for _, passes := range []int{1, 6, 25} {
				ended := true
				for at := 1; ended; at++ {
					t.Run(fmt.Sprintf("%s/deleted after %d passes/%s call %d", access, passes, side, at), func(t *testing.T) {
						// given
						w := newAccessWorld(t, access)
						for range passes {
							after := w.pass()
							w.clock.Step(after)
						}
						w.delete()
						// when
						w.cut = &cut{at: at, after: after}
						w.runUntilGone()
						ended = w.cut == nil
						// then
						w.leavesNothing()
					})
				}
			}
		}
	}
}

// neverClaimsAKeyThatIsNotUsed holds every status against the ledger: while EncryptionReady was True,
// the account was encrypted with the key, but for what somebody else did.
func (w *world) neverClaimsAKeyThatIsNotUsed() {
	w.t.Helper()
	for i, status := range w.statuses {
		if !isEncrypted(status.status) {
			continue
		}
		until := w.clock.Now()
		if i+1 < len(w.statuses) {
			until = w.statuses[i+1].at
		}
		for _, entry := range w.server.Ledger() {
			isWithin := !entry.Time.Before(status.at) && entry.Time.Before(until)
			if isWithin && entry.Who != fakecloud.WhoMeddler && entry.Key == string(v1alpha1.EncryptionPlatformKeys) {
				w.Expect(entry).To(BeNil(), "EncryptionReady was True from %s to %s", status.at, until)
			}
		}
	}
}
