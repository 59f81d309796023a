package securestorage_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers/securestorage"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

const credentials = "azure"

func withSecret(s *v1beta1.SecureStorageSpec) {
	s.Provider.CredentialsSecretRef = &v1beta1.SecureStorageCredentialsSecretRef{Name: credentials}
}

func (w *fixture) createCredentials() *corev1.Secret {
	w.T.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: credentials, Namespace: w.Namespace},
		StringData: map[string]string{"tenantID": "tenant", "clientID": "client", "clientSecret": fakecloud.Token("manager")},
	}
	w.Expect(api.Create(w.Ctx, secret)).To(Succeed())
	return secret
}

// secret reads the Secret; nil if it does not exist.
func (w *fixture) secret(g Gomega) *corev1.Secret {
	var secret corev1.Secret
	err := api.Get(w.Ctx, client.ObjectKey{Namespace: w.Namespace, Name: credentials}, &secret)
	if apierrors.IsNotFound(err) {
		return nil
	}
	g.Expect(err).NotTo(HaveOccurred())
	return &secret
}

// The namespace controller deletes the Secret at any time, here first.
func TestDeletesAccountsOfANamespaceWhoseSecretIsDeletedFirst(t *testing.T) {
	t.Parallel()
	w := newFixture(t, brisk())
	manager := w.startManager()
	secret := w.createCredentials()
	w.create("first", withSecret)
	w.create("second", withSecret)
	w.eventuallyReady("first")
	w.eventuallyReady("second")
	w.Expect(w.secret(w).Finalizers).To(ConsistOf(securestorage.SecretFinalizer))
	// when the Secret and the namespace are deleted, while the manager restarts
	w.Stop(manager)
	w.Expect(api.Delete(w.Ctx, secret)).To(Succeed())
	w.Expect(api.Delete(w.Ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}})).To(Succeed())
	w.startManager()
	// then the accounts are deleted with the credentials of the Secret, and the namespace goes
	w.Eventually(func(g Gomega) {
		err := api.Get(w.Ctx, client.ObjectKey{Name: w.Namespace}, &corev1.Namespace{})
		g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
	}).Should(Succeed())
	w.leavesNothing()
}

func TestReleasesTheSecretThatNoDeletionNeeds(t *testing.T) {
	t.Parallel()
	w := newFixture(t, brisk())
	w.startManager()
	secret := w.createCredentials()
	w.create("deleted", withSecret)
	w.create("retained", withSecret, func(s *v1beta1.SecureStorageSpec) { s.DeletionPolicy = v1beta1.DeletionRetain })
	w.eventuallyReady("deleted")
	w.eventuallyReady("retained")
	w.Expect(w.secret(w).Finalizers).To(ConsistOf(securestorage.SecretFinalizer))
	// A Secret that is deleted is used until the deletion that needs it is complete.
	w.Expect(api.Delete(w.Ctx, secret)).To(Succeed())
	w.Expect(w.secret(w).DeletionTimestamp).NotTo(BeNil())
	w.delete("deleted")
	w.eventuallyGone("deleted")
	w.Eventually(func(g Gomega) { g.Expect(w.secret(g)).To(BeNil()) }).Should(Succeed())
	w.eventuallyReason("retained", v1beta1.ReasonCredentialsMissing)
}
