package securestorage

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

func realistic() fakecloud.Knobs {
	knobs := fakecloud.Realistic()
	knobs.Latency = fakecloud.Delay{} // the clock stands still during a call
	return knobs
}

func TestFromNothingToReady(t *testing.T) {
	for name, knobs := range map[string]fakecloud.Knobs{"instant": fakecloud.Instant(), "realistic": realistic()} {
		t.Run(name, func(t *testing.T) {
			// given
			w := newWorld(t, knobs)
			// when
			w.runUntilReady()
			// then
			account, ok := w.server.Account(w.name())
			w.Expect(ok).To(BeTrue())
			w.Expect(account.Encryption.KeySource).To(Equal("Microsoft.Keyvault"))
			w.Expect(w.created()).To(Equal(1))
			w.Expect(w.storage.Status.Phase).To(Equal(v1alpha1.SecureStorageReady))
			w.Expect(w.storage.Status.KeyURI).To(Equal(account.Key))
			w.Expect(w.server.Orphans()).To(BeEmpty())
			t.Logf("%d calls, %s", w.calls, w.clock.Since(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)))
			// and it rests
			before := w.calls
			w.poll()
			w.Expect(w.calls - before).To(BeNumerically("<=", 3))
			// and is gone without a trace
			w.delete()
			w.runUntilGone()
			w.leavesNothing()
		})
	}
}
