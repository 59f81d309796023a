package controllers

import (
	"testing"

	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fixpoint-dev/fixpoint/controllers/appservice"
	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
	"github.com/fixpoint-dev/fixpoint/controllers/securestorage"
	"github.com/fixpoint-dev/fixpoint/internal/kubeschema"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// Otherwise the schemas of all kinds of Kubernetes are loaded.
func TestSchemasOfAllChildrenOfKubernetesAreKnown(t *testing.T) {
	g := NewWithT(t)
	applied := []client.Object{&batchv1.Job{}} // the hooks of an AppService are no children
	applied = append(applied, childrenOf(g, appservice.Phases())...)
	applied = append(applied, childrenOf(g, mcpserver.Phases())...)
	applied = append(applied, childrenOf(g, securestorage.Phases())...)
	g.Expect(len(applied)).To(BeNumerically(">", 10))
	converter := kubeschema.NewTypeConverter(NewScheme())
	for _, object := range applied {
		kind, err := apiutil.GVKForObject(object, NewScheme())
		g.Expect(err).NotTo(HaveOccurred())
		if !clientgoscheme.Scheme.Recognizes(kind) {
			continue
		}
		empty := &unstructured.Unstructured{}
		empty.SetGroupVersionKind(kind)
		_, err = converter.ObjectToTyped(empty)
		g.Expect(err).NotTo(HaveOccurred(), "add %s to hack/kubeschema and run make generate", kind)
	}
}

func childrenOf[S any](g *WithT, all []phases.Phase[S]) (children []client.Object) {
	for _, phase := range all {
		declaration, err := phase.Declare(NewScheme())
		g.Expect(err).NotTo(HaveOccurred())
		if declaration.Child != nil {
			children = append(children, declaration.Child)
		}
	}
	return children
}
