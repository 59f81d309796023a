package campaign

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/dynamic"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
)

// dryRun sends objects to the API server without storing them.
type dryRun struct {
	client    dynamic.Interface
	namespace string
	// version is that of the objects: v1beta1, unless a test sets v1alpha1.
	version schema.GroupVersion
	// versions holds the resource versions of the stored objects, which updates need.
	versions map[string]string
}

// method is the request that carries an object.
type method string

const (
	byCreate method = "create"
	byUpdate method = "update"
	byApply  method = "apply"
)

// storedName is the name of the stored object of a seed, the target of updates.
func storedName(seed string) string { return "existing-" + seed }

func newDryRun(namespace string) (*dryRun, error) {
	client, err := dynamic.NewForConfig(shared.Admin())
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return &dryRun{client: client, namespace: namespace, version: v1beta1.SchemeGroupVersion, versions: map[string]string{}}, nil
}

func (d *dryRun) objects(kind string) dynamic.ResourceInterface {
	resource := d.version.WithResource(strings.ToLower(kind) + "s")
	return d.client.Resource(resource).Namespace(d.namespace)
}

// build returns an object with the content of a tree, which it changes.
func build(kind, name string, tree map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: tree}
	object.SetGroupVersionKind(v1beta1.SchemeGroupVersion.WithKind(kind))
	object.SetName(name)
	return object
}

// send sends an object with the given strictness of field validation.
func (d *dryRun) send(ctx context.Context, how method, kind string, object *unstructured.Unstructured, strictness string) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout) // a validation rule can take arbitrarily long
	defer cancel()
	dryRun := []string{metav1.DryRunAll}
	switch how {
	case byUpdate:
		return d.objects(kind).Update(ctx, object, metav1.UpdateOptions{DryRun: dryRun, FieldValidation: strictness})
	case byApply:
		return d.objects(kind).Apply(ctx, object.GetName(), object, metav1.ApplyOptions{
			DryRun: dryRun, FieldManager: "campaign", Force: true})
	default:
		return d.objects(kind).Create(ctx, object, metav1.CreateOptions{DryRun: dryRun, FieldValidation: strictness})
	}
}

// isRefusal reports whether the API server refused the object as invalid. Any other error, such as code 500, is a bug.
func isRefusal(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || isTypedPatchError(err)
}

// isTypedPatchError reports an apply that does not match the schema, which the API server answers with code 500.
func isTypedPatchError(err error) bool {
	status := statusOf(err)
	return status != nil && strings.HasPrefix(status.ErrStatus.Message, "failed to create typed patch object ")
}

// statusOf returns the status of an error of the API server, or nil.
func statusOf(err error) *apierrors.StatusError {
	status := &apierrors.StatusError{}
	if !errors.As(err, &status) {
		return nil
	}
	return status
}

// decoder decodes objects like the manager's watches.
var decoder = serializer.NewCodecFactory(controllers.NewScheme()).UniversalDeserializer()

// checkDecodable checks that the manager can decode what the API server stores. An object that it cannot decode breaks
// the list and the watch of the whole kind.
func checkDecodable(stored *unstructured.Unstructured) error {
	text, err := stored.MarshalJSON()
	if err != nil {
		return fmt.Errorf("encoding the stored object: %w", err)
	}
	_, _, err = decoder.Decode(text, nil, nil)
	return err
}
