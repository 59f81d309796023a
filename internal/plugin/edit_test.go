package plugin

import (
	"context"
	"fmt"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// An edit that began before another change would revert that change. One of an object that was deleted would change its
// successor.
func TestEditRefusesADocumentOfAnotherVersion(t *testing.T) {
	live := app("web").Object
	for name, c := range map[string]struct {
		metadata string
		refused  bool
	}{
		"neither is set":          {"", false},
		"the current generation":  {", generation: 2", false},
		"an earlier generation":   {", generation: 1", true},
		"another resourceVersion": {`, generation: 2, resourceVersion: "1"`, true},
		"the same object":         {", generation: 2, uid: uid-web", false},
		"an earlier object":       {", generation: 2, uid: uid-of-a-deleted-one", true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			document, err := ParseDocument(fmt.Appendf(nil, "{apiVersion: fixpoint.dev/v1beta1, kind: AppService, metadata: {namespace: shop, name: web%s}, spec: {image: registry.example.com/shop:3}}", c.metadata))
			g.Expect(err).NotTo(HaveOccurred())
			_, err = (&Client{clients: clientOf(live)}).Edit(t.Context(), "appservices", document, true)
			if c.refused {
				g.Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
			} else {
				g.Expect(err).NotTo(HaveOccurred())
			}
		})
	}
}

// Another change may come after the generation was compared, and before the edit is applied.
func TestEditRefusesWhatChangesMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*v1beta1.AppService)
		refused bool
		image   string
	}{
		"the spec": {func(a *v1beta1.AppService) { a.Spec.Image, a.Generation = "registry.example.com/shop:4", 3 }, true, "registry.example.com/shop:4"},
		"the rest": {func(a *v1beta1.AppService) { a.Annotations = map[string]string{"a": "b"} }, false, "registry.example.com/shop:3"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// given
			live := app("web")
			under := clientOf(live.Object)
			get := func() *v1beta1.AppService {
				var a v1beta1.AppService
				g.Expect(under.Get(t.Context(), client.ObjectKeyFromObject(live), &a)).To(Succeed())
				return &a
			}
			document, err := ParseDocument([]byte("{apiVersion: fixpoint.dev/v1beta1, kind: AppService, metadata: {namespace: shop, name: web, generation: 2}, spec: {replicas: 3, image: registry.example.com/shop:3}}"))
			g.Expect(err).NotTo(HaveOccurred())
			change := sync.OnceFunc(func() {
				a := get()
				c.change(a)
				g.Expect(under.Update(t.Context(), a)).To(Succeed())
			})
			api := interceptor.NewClient(under.WithWatch, interceptor.Funcs{
				Apply: func(ctx context.Context, api client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
					change()
					return api.Apply(ctx, o, options...)
				},
			})

			// when
			_, err = (&Client{clients: &clients{WithWatch: api, namespace: "shop"}}).Edit(t.Context(), "appservices", document, false)

			// then
			g.Expect(apierrors.IsConflict(err)).To(Equal(c.refused), "%v", err)
			g.Expect(err != nil).To(Equal(c.refused), "%v", err)
			g.Expect(get().Spec.Image).To(Equal(c.image))
		})
	}
}

// Who deletes an object must know what becomes of the data.
func TestDeletionSaysWhatBecomesOfTheData(t *testing.T) {
	for name, c := range map[string]struct {
		deletion   v1beta1.SecureStorageDeletionPolicy
		management v1beta1.SecureStorageManagementPolicy
		want       string
	}{
		"retained":                 {v1beta1.DeletionRetain, v1beta1.ManagementManage, "is retained with its data, because spec.deletionPolicy is Retain"},
		"deleted":                  {v1beta1.DeletionDelete, v1beta1.ManagementManage, "is deleted with its data, because spec.deletionPolicy is Delete"},
		"observed":                 {v1beta1.DeletionDelete, v1beta1.ManagementObserve, "is left unchanged with its data, because spec.managementPolicy is Observe"},
		"observed, to be retained": {v1beta1.DeletionRetain, v1beta1.ManagementObserve, "is left unchanged with its data, because spec.managementPolicy is Observe"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			live, isStorage := storage().Object.(*v1beta1.SecureStorage)
			g.Expect(isStorage).To(BeTrue())
			live.Spec.DeletionPolicy, live.Spec.ManagementPolicy = c.deletion, c.management
			live.Status.AccountID = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/invoices"
			goes, err := (&Client{clients: clientOf(live)}).Delete(t.Context(), "securestorages", metav1.ObjectMeta{Namespace: "shop", Name: live.Name}, true)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(goes).To(ContainElement(Child{Kind: "StorageAccount", Name: "invoices", Message: c.want}))
		})
	}
}

// What a deletion takes with it depends on the spec, which may change after the generation was compared.
func TestDeletionRefusesWhatChangesMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*v1beta1.SecureStorage)
		refused bool
	}{
		"the deletion policy": {func(s *v1beta1.SecureStorage) {
			s.Spec.DeletionPolicy, s.Generation = v1beta1.DeletionDelete, s.Generation+1
		}, true},
		"the status": {func(s *v1beta1.SecureStorage) { s.Status.Phase = v1beta1.PhaseReady }, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			live := storage()
			under := clientOf(live.Object)
			change := sync.OnceFunc(func() {
				var s v1beta1.SecureStorage
				g.Expect(under.Get(t.Context(), client.ObjectKeyFromObject(live), &s)).To(Succeed())
				c.change(&s)
				g.Expect(under.Update(t.Context(), &s)).To(Succeed())
			})
			api := interceptor.NewClient(under.WithWatch, interceptor.Funcs{
				Delete: func(ctx context.Context, api client.WithWatch, o client.Object, options ...client.DeleteOption) error {
					change()
					return api.Delete(ctx, o, options...)
				},
			})
			shown := metav1.ObjectMeta{Namespace: "shop", Name: live.GetName(), UID: live.GetUID(), Generation: live.GetGeneration()}
			_, err := (&Client{clients: &clients{WithWatch: api, namespace: "shop"}}).Delete(t.Context(), "securestorages", shown, false)
			g.Expect(apierrors.IsConflict(err)).To(Equal(c.refused), "%v", err)
			g.Expect(err != nil).To(Equal(c.refused), "%v", err)
			err = under.Get(t.Context(), client.ObjectKeyFromObject(live), &v1beta1.SecureStorage{})
			g.Expect(apierrors.IsNotFound(err)).To(Equal(!c.refused), "%v", err)
		})
	}
}
