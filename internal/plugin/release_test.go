package plugin

import (
	"context"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// A GitOps controller may set a policy again at any moment. The data must not be deleted then, nor the tag kept. Whoever
// finds the object suspended must learn why.
func TestReleaseDeletesOnlyWhatRetainsItsAccount(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(*v1beta1.SecureStorage)
		err       string
	}{
		"nothing changes":    {func(*v1beta1.SecureStorage) {}, ""},
		"the status changes": {func(s *v1beta1.SecureStorage) { s.Status.Phase = v1beta1.PhaseSuspended }, ""},
		"the deletion policy is reverted": {func(s *v1beta1.SecureStorage) { s.Spec.DeletionPolicy = v1beta1.DeletionDelete },
			"SecureStorage shop/invoices is not deleted, because spec.deletionPolicy was set to Delete again"},
		"the management policy is reverted": {func(s *v1beta1.SecureStorage) { s.Spec.ManagementPolicy = v1beta1.ManagementObserve },
			"SecureStorage shop/invoices is not deleted, because spec.managementPolicy was set to Observe again"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// given
			live, _ := storage().Object.(*v1beta1.SecureStorage)
			live.Spec.DeletionPolicy = v1beta1.DeletionDelete
			under := clientOf(live)
			change := sync.OnceFunc(func() {
				var s v1beta1.SecureStorage
				g.Expect(under.Get(t.Context(), client.ObjectKeyFromObject(live), &s)).To(Succeed())
				g.Expect(s.Spec.DeletionPolicy).To(Equal(v1beta1.DeletionRetain))
				c.meanwhile(&s)
				g.Expect(under.Update(t.Context(), &s)).To(Succeed())
			})
			api := interceptor.NewClient(under.WithWatch, interceptor.Funcs{
				Delete: func(ctx context.Context, api client.WithWatch, o client.Object, options ...client.DeleteOption) error {
					change()
					return api.Delete(ctx, o, options...)
				},
			})

			// when
			err := (&options{IOStreams: testStreams()}).release(t.Context(), &clients{WithWatch: api, namespace: "shop"}, live, true, time.Minute)

			// then
			after := &v1beta1.SecureStorage{}
			got := under.Get(t.Context(), client.ObjectKeyFromObject(live), after)
			if c.err != "" {
				g.Expect(err).To(MatchError(And(ContainSubstring(c.err), HaveSuffix("it stays suspended: "+releaseReason))))
				g.Expect(got).To(Succeed())
				g.Expect(after.Annotations).To(HaveKeyWithValue(v1beta1.AnnotationReason, releaseReason))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(apierrors.IsNotFound(got)).To(BeTrue(), "%v", got)
		})
	}
}
