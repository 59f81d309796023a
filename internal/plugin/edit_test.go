package plugin

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// An edit that began before another change would revert that change.
func TestEditRefusesADocumentOfAnotherGeneration(t *testing.T) {
	live := app("web").Object
	for name, c := range map[string]struct {
		metadata string
		refused  bool
	}{
		"neither is set":          {"", false},
		"the current generation":  {", generation: 2", false},
		"an earlier generation":   {", generation: 1", true},
		"another resourceVersion": {`, generation: 2, resourceVersion: "1"`, true},
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
