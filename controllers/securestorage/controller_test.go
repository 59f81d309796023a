package securestorage

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// The adoption policy of the spec is about accounts: exported objects are never adopted.
func TestPoliciesOfExportedObjects(t *testing.T) {
	g := NewWithT(t)
	policies := definition(nil, nil).Policies(newScope(adopt).storage)
	g.Expect(policies.Adoption).To(Equal(ssa.AdoptNever))
	g.Expect(policies.Drift).To(Equal(ssa.DriftPolicy("Correct")))
	g.Expect(policies.Redact).NotTo(BeNil())
}

// A Secret is also watched as an export, and to release it.
func TestSecretEnqueuesItsNamesake(t *testing.T) {
	exports := func(name string, keys bool, secret string) *v1beta1.SecureStorage {
		storage := &v1beta1.SecureStorage{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
		storage.Spec.Export = &v1beta1.SecureStorageExport{AccountKeys: keys}
		storage.Spec.Provider.CredentialsSecretRef = &v1beta1.SecureStorageCredentialsSecretRef{Name: secret}
		return storage
	}
	reader := fake.NewClientBuilder().WithScheme(testScheme()).WithObjects(
		exports("keys", true, "azure"), exports("no-keys", false, "azure"),
	).Build()
	for name, c := range map[string]struct {
		finalizers []string
		want       []string
	}{
		"keys":      {want: []string{"shop/keys"}},
		"no-keys":   {},
		"azure":     {finalizers: []string{SecretFinalizer}, want: []string{"shop/keys", "shop/no-keys"}},
		"unused":    {},
		"protected": {finalizers: []string{SecretFinalizer}, want: []string{"shop/protected"}},
	} {
		t.Run(name, func(t *testing.T) {
			enqueued := []string{}
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Finalizers: c.finalizers}}
			for _, request := range storagesWith(reader)(t.Context(), secret) {
				enqueued = append(enqueued, request.String())
			}
			NewWithT(t).Expect(enqueued).To(ConsistOf(c.want))
		})
	}
	broken := interceptor.NewClient(reader, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return errors.New("the cache is not synced")
	}})
	protected := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "azure", Finalizers: []string{SecretFinalizer}}}
	NewWithT(t).Expect(storagesWith(broken)(t.Context(), protected)).To(BeEmpty(), "nothing is known about who needs it")
}

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
