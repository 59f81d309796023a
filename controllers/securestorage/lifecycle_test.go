package securestorage

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

func realistic() fakecloud.Knobs {
	knobs := fakecloud.Realistic()
	knobs.Latency = fakecloud.Delay{} // the fake clock does not advance during a call
	return knobs
}

func TestCreatesPollsAndDeletes(t *testing.T) {
	for name, knobs := range map[string]fakecloud.Knobs{"instant": fakecloud.Instant(), "realistic": realistic()} {
		t.Run(name, func(t *testing.T) {
			// given
			f := newFixture(t, knobs)
			// when
			f.runUntilReady()
			// then
			account, ok := f.server.Account(f.name())
			f.Expect(ok).To(BeTrue())
			f.Expect(account.Encryption.KeySource).To(Equal("Microsoft.Keyvault"))
			f.Expect(f.created()).To(Equal(1))
			f.Expect(f.storage.Status.Phase).To(Equal(v1beta1.PhaseReady))
			f.Expect(f.storage.Status.KeyURI).To(Equal(account.Key))
			f.Expect(f.server.Orphans()).To(BeEmpty())
			t.Logf("%d calls, %s", f.calls, f.clock.Since(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)))
			// and a poll takes few calls
			before := f.calls
			f.poll()
			f.Expect(f.calls - before).To(BeNumerically("<=", 3))
			// and the deletion leaves nothing
			f.delete()
			f.runUntilDeleted()
			f.expectNothingLeft()
		})
	}
}

// TestDemoIsReadyWithinTenSeconds: `make run` uses realistic delays, compressed a hundred times.
func TestDemoIsReadyWithinTenSeconds(t *testing.T) {
	knobs, err := fakecloud.Preset("realistic/100")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	knobs.Latency = fakecloud.Delay{} // the fake clock does not advance during a call
	// The delays depend on the account name.
	f := newFixture(t, knobs, func(s *v1beta1.SecureStorageSpec) { s.AccountName = "invoices" })
	began := f.clock.Now()
	f.runUntilReady()
	t.Logf("Ready after %s", f.clock.Since(began))
	f.Expect(f.clock.Since(began)).To(BeNumerically("<", 10*time.Second))
}
