package securestorage

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

func withSecret(name string) func(*v1beta1.SecureStorageSpec) {
	return func(s *v1beta1.SecureStorageSpec) {
		s.Provider.CredentialsSecretRef = &v1beta1.SecureStorageCredentialsSecretRef{Name: name}
		s.Provider.WorkloadIdentity = nil
	}
}

func withIdentity(s *v1beta1.SecureStorageSpec) {
	s.Provider.CredentialsSecretRef, s.Provider.WorkloadIdentity = nil, &v1beta1.SecureStorageWorkloadIdentity{}
}

// storageNamed has an account in Azure, and the finalizer of the controller.
func storageNamed(name string, edits ...func(*v1beta1.SecureStorageSpec)) *v1beta1.SecureStorage {
	storage := &v1beta1.SecureStorage{
		ObjectMeta: metav1.ObjectMeta{Namespace: "billing", Name: name, Finalizers: []string{Finalizer}},
		Spec:       v1beta1.SecureStorageSpec{DeletionPolicy: v1beta1.DeletionDelete},
		Status:     v1beta1.SecureStorageStatus{AccountID: "/subscriptions/1/account"},
	}
	for _, edit := range edits {
		edit(&storage.Spec)
	}
	return storage
}

func TestNeededSecret(t *testing.T) {
	unfinalized := storageNamed("invoices", withSecret("azure"))
	unfinalized.Finalizers = []string{"example.com/other"}
	cases := map[string]struct {
		storage *v1beta1.SecureStorage
		want    string
	}{
		"account is deleted":       {storageNamed("invoices", withSecret("azure")), "azure"},
		"account is retained":      {storageNamed("invoices", withSecret("azure"), retain), ""},
		"account is only observed": {storageNamed("invoices", withSecret("azure"), observe), ""},
		"workload identity":        {storageNamed("invoices", withIdentity), ""},
		"teardown is complete":     {unfinalized, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { NewWithT(t).Expect(neededSecret(c.storage)).To(Equal(c.want)) })
	}
}

// TestNamespaceWithoutItsSecretIsDeletedAfterACrashAtAnyCall: the namespace controller deletes the Secret first, whatever
// the controller has done by then.
func TestNamespaceWithoutItsSecretIsDeletedAfterACrashAtAnyCall(t *testing.T) {
	whole := newFixtureWith(t, fastCloud(), "role", withSecret("own"))
	untilReady := func() {
		for !whole.isReady() {
			whole.clock.Step(whole.reconcile())
		}
	}
	for _, crash := range whole.crashesUntil(untilReady) {
		t.Run(crash.call, func(t *testing.T) {
			// given a process that crashes at this call to the cloud or to the API server
			f := crash.open(t)
			if crash.survivor == nil {
				f.clock.Step(afterCrash)
			}
			// when the namespace is deleted, with the Secret first
			f.deleteSecret("own")
			f.delete()
			// then the deletion completes, unless the Secret has gone, because nothing was created yet
			if f.secrets["billing/own"] == nil {
				f.Expect(f.created()).To(BeZero())
				return
			}
			f.runUntilDeleted()
			f.expectNothingLeft()
			f.reconcile()
			f.Expect(f.secrets).NotTo(HaveKey("billing/own"))
		})
	}
}

// deleteSecret deletes a Secret as a user does. Without a finalizer it is removed at once.
func (f *fixture) deleteSecret(name string) {
	key := "billing/" + name
	if len(f.secrets[key].Finalizers) == 0 {
		delete(f.secrets, key)
		return
	}
	f.secrets[key].DeletionTimestamp = &metav1.Time{Time: f.clock.Now()}
}

func TestSecretIsReleasedWhenItIsNotNeeded(t *testing.T) {
	for name, edit := range map[string]func(*v1beta1.SecureStorageSpec){
		"spec names another Secret":     withSecret("other"),
		"spec names an identity":        withIdentity,
		"account is retained":           retain,
		"account is only observed":      observe,
		"spec names no credentials now": func(s *v1beta1.SecureStorageSpec) { s.Provider.CredentialsSecretRef = nil },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixtureWith(t, fastCloud(), "role", withSecret("own"))
			other := f.secrets["billing/own"].DeepCopy()
			other.UID = "2"
			f.secrets["billing/other"] = other
			f.runUntilReady()
			f.Expect(f.isProtected("own")).To(BeTrue())
			f.process.access.tokens = tokensOf{}

			f.edit(edit)
			f.reconcile()

			f.Expect(f.isProtected("own")).To(BeFalse())
			f.Expect(f.isProtected("other")).To(Equal(neededSecret(f.storage) == "other"))
		})
	}
}

// TestSecretWithoutAccountIsNotProtected: a Secret whose credential never worked is needed for nothing.
func TestSecretWithoutAccountIsNotProtected(t *testing.T) {
	f := newFixtureWith(t, fastCloud(), "role", withSecret("own"))
	f.secrets["billing/own"].Data["clientSecret"] = []byte("wrong")
	f.runUntilReason(v1beta1.ReasonCredentialsInvalid)
	f.Expect(f.isProtected("own")).To(BeFalse())
}

func TestNothingIsCreatedWithASecretThatIsBeingDeleted(t *testing.T) {
	f := newFixtureWith(t, fastCloud(), "role", withSecret("own"))
	f.secrets["billing/own"].DeletionTimestamp = &metav1.Time{Time: f.clock.Now()}
	ready := f.runUntilReason(v1beta1.ReasonCredentialsMissing)
	f.Expect(ready.Message).To(ContainSubstring("Secret own (spec.provider.credentialsSecretRef) is being deleted; create it again"))
	f.Expect(f.created()).To(BeZero())
}

// secretsOf writes finalizers to the fake client.
type secretsOf struct{ client.Client }

func (s secretsOf) EnsureFinalizer(ctx context.Context, live client.Object, finalizer string) (client.Object, error) {
	live.SetFinalizers(append(live.GetFinalizers(), finalizer))
	return live, s.Update(ctx, live)
}

func (s secretsOf) RemoveFinalizer(ctx context.Context, live client.Object, finalizer string) error {
	live.SetFinalizers(slices.DeleteFunc(live.GetFinalizers(), func(f string) bool { return f == finalizer }))
	return s.Update(ctx, live)
}

func TestUpdateOfProtection(t *testing.T) {
	secret := func(name string, finalizers ...string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "billing", Name: name, Finalizers: finalizers}}
	}
	deleting := secret("azure", "example.com/other")
	deleting.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	elsewhere := storageNamed("invoices", withSecret("azure"))
	elsewhere.Namespace = "shop"
	unrecorded := storageNamed("invoices", withSecret("azure"))
	unrecorded.Status = v1beta1.SecureStorageStatus{}
	protected := secret("azure", "example.com/other", SecretFinalizer)
	both := []string{"example.com/other", SecretFinalizer}
	cases := map[string]struct {
		secret   *corev1.Secret
		storages []client.Object
		want     []string
	}{
		"new":                        {secret("azure"), []client.Object{storageNamed("invoices", withSecret("azure"))}, []string{SecretFinalizer}},
		"protected":                  {protected, []client.Object{storageNamed("invoices", withSecret("azure"))}, both},
		"nothing in Azure yet":       {secret("azure"), []client.Object{unrecorded}, nil},
		"created a moment ago":       {protected, []client.Object{unrecorded}, both},
		"being deleted":              {deleting, []client.Object{storageNamed("invoices", withSecret("azure"))}, []string{"example.com/other"}},
		"needed by another":          {protected, []client.Object{storageNamed("invoices", withIdentity), storageNamed("orders", withSecret("azure"))}, both},
		"needed by none":             {protected, []client.Object{storageNamed("invoices", withIdentity), storageNamed("orders", withSecret("azure"), retain)}, []string{"example.com/other"}},
		"last one is gone":           {protected, nil, []string{"example.com/other"}},
		"needed in other namespaces": {protected, []client.Object{elsewhere}, []string{"example.com/other"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			api := fake.NewClientBuilder().WithScheme(testScheme()).WithObjects(c.secret.DeepCopy()).WithObjects(c.storages...).Build()
			p := &secretProtection{cached: api, uncached: api, finalizers: secretsOf{api}}

			g.Expect(p.update(t.Context(), client.ObjectKey{Namespace: "billing", Name: "invoices"})).To(Succeed())

			var found corev1.Secret
			g.Expect(api.Get(t.Context(), client.ObjectKeyFromObject(c.secret), &found)).To(Succeed())
			g.Expect(found.Finalizers).To(Equal(c.want))
		})
	}
}

// An error is retried, and blocks nothing: neither the next attempt nor other Secrets.
func TestProtectionReportsErrors(t *testing.T) {
	storage := storageNamed("invoices", withSecret("azure"))
	named := func(name string, finalizers ...string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "billing", Name: name, Finalizers: finalizers}}
	}
	failure := errors.New("the API server does not respond")
	for name, c := range map[string]struct {
		get, list func(object any) bool
		message   string
	}{
		"SecureStorage": {get: is[*v1beta1.SecureStorage], message: "getting SecureStorage billing/invoices"},
		"Secrets":       {list: is[*metav1.PartialObjectMetadataList], message: "listing the Secrets of namespace billing"},
		"SecureStorages": {
			list: is[*v1beta1.SecureStorageList], message: "listing the SecureStorages of namespace billing, whose Secrets are kept",
		},
		"Secret": {get: is[*corev1.Secret], message: "protecting Secret azure"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			api := fake.NewClientBuilder().WithScheme(testScheme()).WithObjects(storage.DeepCopy(), named("azure"), named("former", SecretFinalizer, "example.com/other")).Build()
			fails := true
			broken := interceptor.NewClient(api, interceptor.Funcs{
				Get: func(ctx context.Context, with client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
					if fails && c.get != nil && c.get(into) {
						return failure
					}
					return with.Get(ctx, key, into, options...)
				},
				List: func(ctx context.Context, with client.WithWatch, into client.ObjectList, options ...client.ListOption) error {
					if fails && c.list != nil && c.list(into) {
						return failure
					}
					return with.List(ctx, into, options...)
				},
			})
			p := &secretProtection{cached: broken, uncached: broken, finalizers: secretsOf{api}}
			key := client.ObjectKey{Namespace: "billing", Name: "invoices"}
			g.Expect(p.update(t.Context(), key)).To(MatchError(And(ContainSubstring(c.message), ContainSubstring(failure.Error()))))
			fails = false
			g.Expect(p.update(t.Context(), key)).To(Succeed())
			for secret, want := range map[string]bool{"azure": true, "former": false} {
				var found corev1.Secret
				g.Expect(api.Get(t.Context(), client.ObjectKey{Namespace: "billing", Name: secret}, &found)).To(Succeed())
				g.Expect(slices.Contains(found.Finalizers, SecretFinalizer)).To(Equal(want), secret)
			}
		})
	}
}

func is[T any](object any) bool {
	_, ok := object.(T)
	return ok
}

func TestProtectedSecretThatNoStorageNamesIsEnqueued(t *testing.T) {
	g := NewWithT(t)
	reader := fake.NewClientBuilder().WithScheme(testScheme()).Build()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "billing", Name: "azure"}}
	g.Expect(storagesWith(reader)(t.Context(), secret)).To(BeEmpty())
	secret.Finalizers = []string{SecretFinalizer}
	g.Expect(storagesWith(reader)(t.Context(), secret)).To(HaveLen(1))
}
