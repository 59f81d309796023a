package kubeschema_test

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/fixpoint-dev/fixpoint/internal/kubeschema"
)

func TestTypesAreThoseOfClientGo(t *testing.T) {
	g := NewWithT(t)
	deployment := appsv1.SchemeGroupVersion.WithKind("Deployment")
	ours, err := empty(kubeschema.NewTypeConverter(clientgoscheme.Scheme), deployment)
	g.Expect(err).NotTo(HaveOccurred())
	theirs, err := empty(applyconfigurations.NewTypeConverter(clientgoscheme.Scheme), deployment)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(ours.Schema().Types)).To(And(BeNumerically(">", 100), BeNumerically("<", len(theirs.Schema().Types)/3)))
	for _, definition := range ours.Schema().Types {
		original, found := theirs.Schema().FindNamedType(definition.Name)
		g.Expect(found).To(BeTrue(), definition.Name)
		g.Expect(definition.Equals(&original)).To(BeTrue(), definition.Name)
	}
}

// pkg/ssa asks the next converter then.
func TestFailsForOtherKinds(t *testing.T) {
	converter := kubeschema.NewTypeConverter(clientgoscheme.Scheme)
	for _, kind := range []schema.GroupVersionKind{
		appsv1.SchemeGroupVersion.WithKind("StatefulSet"),
		{Group: "example.com", Version: "v1", Kind: "Website"},
	} {
		_, err := empty(converter, kind)
		NewWithT(t).Expect(err).To(HaveOccurred(), kind.String())
	}
}

func empty(converter managedfields.TypeConverter, kind schema.GroupVersionKind) (*typed.TypedValue, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	return converter.ObjectToTyped(object)
}
