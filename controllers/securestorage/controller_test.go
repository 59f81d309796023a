package securestorage

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

func TestSecretEnqueuesTheStoragesWithItsCredentials(t *testing.T) {
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(v1beta1.AddToScheme(scheme)).To(Succeed())
	storage := func(namespace, name string, ref *v1beta1.SecureStorageCredentialsSecretRef) *v1beta1.SecureStorage {
		return &v1beta1.SecureStorage{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec:       v1beta1.SecureStorageSpec{Provider: v1beta1.SecureStorageProvider{CredentialsSecretRef: ref}},
		}
	}
	azure := &v1beta1.SecureStorageCredentialsSecretRef{Name: "azure"}
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		storage("shop", "first", azure), storage("shop", "second", azure),
		storage("shop", "other-secret", &v1beta1.SecureStorageCredentialsSecretRef{Name: "gcp"}),
		storage("shop", "without", nil), storage("bank", "other-namespace", azure),
	).Build()

	var enqueued []string
	for _, request := range storagesWith(reader)(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "azure"}}) {
		enqueued = append(enqueued, request.String())
	}

	g.Expect(enqueued).To(ConsistOf("shop/first", "shop/second"))
}
