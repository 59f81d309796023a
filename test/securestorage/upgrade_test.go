package securestorage_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// A status that a manager has written which knew of one grant is completed once, and nothing else is
// written; and a manager that comes after writes nothing.
func TestCompletesStatusOfThePreviousVersionOnce(t *testing.T) {
	t.Parallel()
	// given
	w := newFixture(t, brisk())
	m := w.startManager()
	w.create("invoices")
	ready := w.eventuallyReady("invoices")
	w.Stop(m)
	ready = w.read(ready.Name)
	w.Expect(ready.Status.Grants).To(ConsistOf(v1beta1.SecureStorageGrant{
		VaultID: w.demo.VaultID, AccessType: v1beta1.AccessRoleAssignment, PrincipalID: ready.Status.PrincipalID,
	}))
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"status": {"grants": null}}`))
	w.Expect(api.Status().Patch(w.Ctx, ready.DeepCopy(), patch)).To(Succeed())
	history := w.history("invoices")
	// when
	w.cloud().ResetCounts()
	m = w.startManager()
	w.eventually("invoices", func(g Gomega, live *v1beta1.SecureStorage) {
		g.Expect(live.Status).To(Equal(ready.Status))
	})
	w.readsTwice()
	w.Stop(m)
	// then
	writes := map[string]bool{}
	for _, version := range history() {
		writes[version.ResourceVersion] = true
	}
	w.Expect(writes).To(HaveLen(2), "the version before, and the one that is complete")
	w.Expect(w.cloud().Total("").Writes).To(BeZero())
	// and the next one has nothing to complete
	completed := w.read("invoices").ResourceVersion
	w.cloud().ResetCounts()
	w.startManager()
	w.readsTwice()
	w.Expect(w.read("invoices").ResourceVersion).To(Equal(completed))
	w.Expect(w.cloud().Total("").Writes).To(BeZero())
}

// readsTwice waits until the cloud has been read twice, so that the first reconcile is over.
func (w *fixture) readsTwice() {
	w.T.Helper()
	const callsOfARead = 3
	w.Eventually(func() int { return w.cloud().Total("").Calls() }).Should(BeNumerically(">=", 2*callsOfARead))
}
