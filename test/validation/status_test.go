package validation

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

// Tools that use kstatus take a resource without conditions and without an observed generation for one
// that is current. Until a manager has reconciled it, its observed generation is one that cannot be right.
func TestUnreconciledObjectIsInProgress(t *testing.T) {
	for _, cases := range kinds {
		kind, spec := cases.kind, cases.acceptances["the least"].spec
		t.Run(kind, func(t *testing.T) {
			g := NewWithT(t)
			given(t, build(g, kind, "unseen", spec))

			live, err := objects(g, kind).Get(context.Background(), "unseen", metav1.GetOptions{})

			g.Expect(err).NotTo(HaveOccurred())
			observed, found, err := unstructured.NestedInt64(live.Object, "status", "observedGeneration")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(found).To(BeTrue())
			g.Expect(observed).To(BeEquivalentTo(-1))
			result, err := status.Compute(live)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(result.Status).To(Equal(status.InProgressStatus))
		})
	}
}
