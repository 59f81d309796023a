package validation

import (
	"context"
	"errors"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

const (
	namespace = "default"
	crdFolder = "../../config/crd/bases"
)

var shared *cluster.Cluster

func TestMain(m *testing.M) {
	cluster.RunTests(m, cluster.Options{CRDPaths: []string{crdFolder}},
		func(c *cluster.Cluster) { shared = c })
}

func appServices(g *WithT) dynamic.ResourceInterface { return objects(g, "AppService") }

// appService builds an AppService from the YAML of its spec.
func appService(g *WithT, name, spec string) *unstructured.Unstructured {
	return build(g, "AppService", name, spec)
}

// objects reads and writes those of a kind.
func objects(g *WithT, kind string) dynamic.ResourceInterface {
	client, err := dynamic.NewForConfig(shared.Admin())
	g.Expect(err).NotTo(HaveOccurred())
	if kind == "NetworkPolicy" { // in samples
		return client.Resource(networkingv1.SchemeGroupVersion.WithResource("networkpolicies")).Namespace(namespace)
	}
	return client.Resource(v1beta1.SchemeGroupVersion.WithResource(plural(kind))).Namespace(namespace)
}

func plural(kind string) string { return strings.ToLower(kind) + "s" }

// build makes an object from the YAML of its spec. Without a spec it has none,
// which is a case of its own.
func build(g *WithT, kind, name, spec string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(v1beta1.SchemeGroupVersion.WithKind(kind))
	object.SetName(name)
	if spec != "" {
		object.Object["spec"] = parse(g, spec)
	}
	return object
}

func parse(g *WithT, text string) map[string]any {
	var fields map[string]any
	g.Expect(yaml.Unmarshal([]byte(text), &fields)).To(Succeed(), "parsing %s", text)
	return fields
}

// tryCreate asks the API server what would become of the object. Nothing is
// stored, so that cases cannot meet each other.
func tryCreate(g *WithT, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return objects(g, object.GetKind()).Create(context.Background(), object, metav1.CreateOptions{
		DryRun: []string{metav1.DryRunAll},
		// A field that a case misspells would otherwise be dropped, and the case
		// would test nothing.
		FieldValidation: metav1.FieldValidationStrict,
	})
}

// tryUpdate asks the API server what would become of the object if it were changed.
func tryUpdate(g *WithT, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return objects(g, object.GetKind()).Update(context.Background(), object, metav1.UpdateOptions{
		DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
}

// tryUpdateStatus asks the same about its status.
func tryUpdateStatus(g *WithT, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return objects(g, object.GetKind()).UpdateStatus(context.Background(), object, metav1.UpdateOptions{
		DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
}

// given stores an object for the time of a test: only what exists can be changed.
func given(t *testing.T, object *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	g := NewWithT(t)
	stored, err := objects(g, object.GetKind()).Create(context.Background(), object, metav1.CreateOptions{
		FieldValidation: metav1.FieldValidationStrict})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		g.Expect(objects(g, object.GetKind()).Delete(context.Background(), object.GetName(), metav1.DeleteOptions{})).To(Succeed())
	})
	return stored
}

// notChecked is what the API server adds when a schema error kept it from
// running rules. It is no finding.
const notChecked = "some validation rules were not checked because the object was invalid; " +
	"correct the existing errors to complete validation"

// complaints are what the API server finds wrong, each as a user reads it: the
// path of the field, a colon, and the message.
func complaints(g *WithT, err error) []string {
	g.Expect(err).To(HaveOccurred(), "the API server accepted the object")
	var status *apierrors.StatusError
	g.Expect(errors.As(err, &status)).To(BeTrue(), "an error of the API server: %v", err)
	g.Expect(apierrors.IsInvalid(err)).To(BeTrue(), "a refusal by validation: %v", err)
	var found []string
	for _, cause := range status.ErrStatus.Details.Causes {
		if strings.HasSuffix(cause.Message, notChecked) {
			continue
		}
		found = append(found, cause.Field+": "+cause.Message)
	}
	return found
}
