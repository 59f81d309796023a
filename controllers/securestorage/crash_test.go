package securestorage

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// fastCloud has all the delays of Azure, each of which takes a few reconciles.
func fastCloud() fakecloud.Knobs {
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

// sides says on which side of the effect of a call the process crashes.
var sides = map[bool]string{false: "before", true: "after"}

var accesses = map[string]func(*v1beta1.SecureStorageSpec){
	"role":   func(*v1beta1.SecureStorageSpec) {},
	"policy": byPolicy,
}

// newFixtureFor has a key vault that supports the access type.
func newFixtureFor(t *testing.T, access string, edits ...func(*v1beta1.SecureStorageSpec)) *fixture {
	t.Helper()
	return newFixtureWith(t, fastCloud(), access, edits...)
}

func newFixtureWith(t *testing.T, knobs fakecloud.Knobs, access string, edits ...func(*v1beta1.SecureStorageSpec)) *fixture {
	t.Helper()
	f := newFixture(t, knobs, append(edits, accesses[access])...)
	if access == "policy" {
		f.addVault("old-vault", fakecloud.VaultSpec{PurgeProtection: true, AccessPolicies: true})
		inVault("old-vault")(&f.storage.Spec)
	}
	return f
}

func (f *fixture) addVault(name string, spec fakecloud.VaultSpec) {
	f.server.SeedVault(f.demo.Subscription, f.demo.Group, name, spec)
	_, err := f.server.SeedKey(name, f.demo.Key, fakecloud.KeySpec{})
	f.Expect(err).NotTo(HaveOccurred())
}

func TestRecoversFromCrashAtAnyCall(t *testing.T) {
	for access := range accesses {
		whole := newFixtureFor(t, access)
		for _, crash := range whole.crashesUntil(whole.runUntilReady) {
			t.Run(access+"/"+crash.call, func(t *testing.T) {
				// given a process that crashes at this call to the cloud or to the API server
				f := crash.restart(t)
				// when the next process continues
				f.runUntilReady()
				// then one account exists, as declared
				f.Expect(f.created()).To(Equal(1))
				f.Expect(f.storage.Status.Encryption).To(Equal(v1beta1.EncryptionCustomerKey))
				f.Expect(f.eventsWith("DriftCorrected")).To(BeZero(), "nothing was changed outside of the controller")
				f.expectEncryptionReadyIsHonest()
			})
		}
	}
}

func TestToleratesLostResponses(t *testing.T) {
	knobs := fastCloud()
	knobs.LostResponses, knobs.ErrorsAfterEffect, knobs.ServerErrors = 0.2, 0.1, 0.1
	for seed := range 20 {
		f := newFixture(t, knobs)
		f.storage.UID += "-" + uidSuffix(seed) // the faults depend on the UID
		f.runUntilReady()
		f.Expect(f.created()).To(Equal(1))
		f.delete()
		f.runUntilDeleted()
		f.expectNothingLeft()
	}
}

func TestCanBeDeletedAtAnyTime(t *testing.T) {
	for access := range accesses {
		const reconcilesToReady = 25
		for n := range reconcilesToReady {
			t.Run(fmt.Sprintf("%s/after %d reconciles", access, n), func(t *testing.T) {
				// given
				f := newFixtureFor(t, access)
				for range n {
					after := f.reconcile()
					f.clock.Step(after)
				}
				// when
				f.delete()
				f.runUntilDeleted()
				// then
				f.expectNothingLeft()
				f.clock.Step(time.Hour)
				f.expectNothingLeft() // also not after a delay
				f.Expect(f.created()).To(BeNumerically("<=", 1))
			})
		}
	}
}

// The process crashes during the creation, and the object is deleted before the next process starts:
// the teardown also finds what the status did not record.
func TestDeletionAfterCrashLeavesNothing(t *testing.T) {
	for access := range accesses {
		whole := newFixtureFor(t, access)
		for _, crash := range whole.crashesUntil(whole.runUntilReady) {
			t.Run(access+"/"+crash.call, func(t *testing.T) {
				// given
				f := crash.open(t)
				// when
				f.delete()
				f.runUntilDeleted()
				// then
				f.expectNothingLeft()
				f.clock.Step(time.Hour)
				f.expectNothingLeft()
			})
		}
	}
}

// The next process crashes during the teardown, in a cloud that deletes accounts immediately: the
// principal ID that only the account had is not lost.
func TestTeardownRecoversFromTwoCrashes(t *testing.T) {
	t.Parallel()
	knobs := fastCloud()
	knobs.AccountDeletion, knobs.ReadAfterWrite = fakecloud.Fixed(0), fakecloud.Fixed(0)
	for access := range accesses {
		whole := newFixtureWith(t, knobs, access)
		for _, crash := range whole.crashesUntil(whole.runUntilReady, true) {
			t.Run(access+"/"+crash.call, func(t *testing.T) {
				// given
				deleted := crash.open(t)
				// when
				deleted.delete()
				for _, then := range deleted.crashesUntil(deleted.runUntilDeleted, true) {
					t.Run("then "+then.call, func(t *testing.T) {
						f := then.restart(t)
						f.runUntilDeleted()
						// then
						f.expectNothingLeft()
					})
				}
			})
		}
	}
}

// The object is deleted while the account that was just created is not visible yet.
func TestDeletionWaitsForInvisibleAccount(t *testing.T) {
	knobs := fastCloud()
	knobs.ReadAfterWrite = fakecloud.Fixed(100 * time.Second)
	f := newFixture(t, knobs)
	f.reconcile()
	f.delete()
	f.runUntilDeleted()
	f.expectNothingLeft()
	f.Expect(f.created()).To(Equal(1))
	f.Expect(f.calls).To(BeNumerically("<", 60), "it asks less often the longer it waits")
}

func TestTeardownRecoversFromCrashAtAnyCall(t *testing.T) {
	t.Parallel()
	for access := range accesses {
		// The process crashes whether the deletion comes early or late.
		for _, n := range []int{1, 6, 25} {
			// given
			whole := newFixtureFor(t, access)
			whole.reconcileTimes(n)
			whole.delete()
			for _, crash := range whole.crashesUntil(whole.runUntilDeleted) {
				t.Run(fmt.Sprintf("%s/deleted after %d reconciles/%s", access, n, crash.call), func(t *testing.T) {
					// when
					f := crash.restart(t)
					f.runUntilDeleted()
					// then
					f.expectNothingLeft()
				})
			}
		}
	}
}

// expectEncryptionReadyIsHonest checks every status against the ledger: while EncryptionReady was True,
// the account was encrypted with the key, apart from changes made outside of the controller.
func (f *fixture) expectEncryptionReadyIsHonest() {
	f.t.Helper()
	for i, status := range f.statuses {
		if !isEncrypted(status.status) {
			continue
		}
		until := f.clock.Now()
		if i+1 < len(f.statuses) {
			until = f.statuses[i+1].at
		}
		for _, entry := range f.server.Ledger() {
			isWithin := !entry.Time.Before(status.at) && entry.Time.Before(until)
			if isWithin && entry.Who != fakecloud.WhoMeddler && entry.Key == string(v1beta1.EncryptionPlatformKeys) {
				f.Expect(entry).To(BeNil(), "EncryptionReady was True from %s to %s", status.at, until)
			}
		}
	}
}
