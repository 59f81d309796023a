package console

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fixpoint-dev/fixpoint/internal/plugin"
)

var crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// crds lists the CustomResourceDefinitions, as far as the user may read them.
func (s *Server) crds(w http.ResponseWriter, r *http.Request, c *caller) error {
	items := []any{}
	for _, kind := range plugin.Kinds() {
		live, err := c.api.Resource(crdResource).Get(r.Context(), kind.Resource.Resource+"."+kind.Resource.Group, metav1.GetOptions{})
		switch {
		case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
			continue
		case err != nil:
			return err
		}
		live.SetManagedFields(nil)
		items = append(items, live.Object)
	}
	writeJSON(w, http.StatusOK, map[string]any{"items": items})
	return nil
}

// cloud shows the fake cloud.
func (s *Server) cloud(_ http.ResponseWriter, _ *http.Request, _ *caller) error {
	return notFound("the cloud of the manager is not the fake one")
}
