package securestorage_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers/securestorage"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
)

// A user of a namespace that may not use the credential of the manager names an account of another team.
func TestForeignAccountIsOutOfReach(t *testing.T) {
	t.Parallel()
	// given a manager whose credential another namespace may use
	w := newFixture(t, brisk())
	w.ambient = securestorage.AmbientScopes{"another": {cloud.Scope("/subscriptions/" + w.demo.Subscription)}}
	w.startManager()
	w.Expect(w.cloud().SeedAccount(w.demo.Subscription, w.demo.Group, "victim", nil)).To(Succeed())
	before, _ := w.cloud().Account("victim")
	// when
	w.create("thief", func(s *v1beta1.SecureStorageSpec) {
		s.AccountName, s.AdoptionPolicy, s.AccountLossPolicy = "victim", v1beta1.AdoptionIfUnowned, v1beta1.LossRecreate
	})
	// then the condition names the field and the flag
	refused := w.eventuallyReason("thief", v1beta1.ReasonCredentialsNotAllowed)
	w.Expect(readyOf(refused).Message).To(And(
		ContainSubstring("spec.provider names no credentials, and namespace "+w.Namespace+" is not allowed to use the credential of the manager"),
		ContainSubstring("--ambient-credentials="+w.Namespace+"=/subscriptions/"+w.demo.Subscription+"/resourceGroups/"+w.demo.Group),
	))
	// and the object can be deleted, which leaves the account as it was
	w.delete("thief")
	w.eventuallyGone("thief")
	w.Expect(w.cloud().Total("").Calls()).To(BeZero())
	after, _ := w.cloud().Account("victim")
	w.Expect(after).To(Equal(before))
}
