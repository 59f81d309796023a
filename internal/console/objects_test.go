package console

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

func TestEditedDocumentIsTheNamedObject(t *testing.T) {
	const valid = "apiVersion: fixpoint.dev/v1beta1\nkind: AppService\nmetadata: {name: web, namespace: shop}\nspec: {image: a}\n"
	for name, c := range map[string]struct{ from, to, want string }{
		"as it is":          {"", "", ""},
		"without a place":   {", namespace: shop", "", ""},
		"an older version":  {"v1beta1", "v1alpha1", `apiVersion is "fixpoint.dev/v1alpha1": set fixpoint.dev/v1beta1`},
		"without a version": {"apiVersion: fixpoint.dev/v1beta1\n", "", `apiVersion is "": set fixpoint.dev/v1beta1`},
		"another kind":      {"AppService", "MCPServer", `kind is "MCPServer": set AppService`},
		"another name":      {"name: web", "name: cart", `metadata.name is "cart"`},
		"another place":     {"namespace: shop", "namespace: bank", `metadata.namespace is "bank"`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/", strings.NewReader(strings.Replace(valid, c.from, c.to, 1)))
			document, err := named{"appservices", "shop", "web"}.document(r)
			if c.want != "" {
				g.Expect(err).To(MatchError(ContainSubstring(c.want)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(document.GetNamespace()).To(Equal("shop"))
		})
	}
}
