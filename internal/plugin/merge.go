package plugin

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayconfigurations "sigs.k8s.io/gateway-api/applyconfiguration"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// writer is an applier that says what it sends.
type writer interface {
	Writes(decision ssa.Decision) ([]metav1.ManagedFieldsEntry, *unstructured.Unstructured, error)
}

// afterTwoWrites is the object after both writes of a decision that first replaces managed fields, on which the second
// depends, so that a dry run of it alone does not tell. The plugin merges as the API server does, and sends a dry run
// of an update to the result. It is estimated, without what the API server sets itself, if the user may not update the
// object. Nothing is returned if there is one write.
func (r *recorder) afterTwoWrites(ctx context.Context, decision ssa.Decision) (after client.Object, estimated bool, err error) {
	sends, ok := r.Applier.(writer)
	if !ok || !decision.Writes() || decision.Request.Live == nil {
		return nil, false, nil
	}
	entries, body, err := sends.Writes(decision)
	if err != nil || entries == nil {
		return nil, false, err
	}
	live := decision.Request.Live
	merged, err := merge(live, entries, body, r.fieldManager)
	if err != nil {
		return nil, false, fmt.Errorf("merging %s %s: %w", kindName(live), live.GetName(), err)
	}
	merged.SetResourceVersion(live.GetResourceVersion())
	answer, err := typedAs(merged.DeepCopy(), newObjectLike(live))
	if err != nil {
		return nil, false, err
	}
	err = r.api.Update(ctx, answer, client.DryRunAll, client.FieldOwner(r.fieldManager)) //nolint:forbidigo // a dry run writes nothing
	if apierrors.IsForbidden(err) {
		answer, err = typedAs(merged, newObjectLike(live))
		answer.SetGeneration(live.GetGeneration() + 1)
		return answer, true, err
	}
	return answer, false, err
}

// merge applies a document to a live object with other managed fields, as the API server does.
func merge(live client.Object, entries []metav1.ManagedFieldsEntry, body *unstructured.Unstructured, fieldManager string) (*unstructured.Unstructured, error) {
	gvk := body.GroupVersionKind()
	converter := typeConverter()
	if gvk.Group == gatewayGroup {
		converter = gatewayConverter()
	}
	manager, err := managedfields.NewDefaultFieldManager(converter, sameVersion{}, sameVersion{}, sameVersion{}, gvk, gvk.GroupVersion(), "", nil)
	if err != nil {
		return nil, err
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return nil, err
	}
	before := &unstructured.Unstructured{Object: tree}
	before.SetGroupVersionKind(gvk)
	before.SetManagedFields(entries)
	body.SetUID("")
	merged, err := manager.Apply(before, body, fieldManager, true)
	if err != nil {
		return nil, err
	}
	after, ok := merged.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("the result is a %T", merged)
	}
	return after, nil
}

const gatewayGroup = "gateway.networking.k8s.io"

// The schemas are parsed when they are first needed, because that takes longer than most commands.
var (
	typeConverter    = sync.OnceValue(func() managedfields.TypeConverter { return applyconfigurations.NewTypeConverter(clientgoscheme.Scheme) })
	gatewayConverter = sync.OnceValue(func() managedfields.TypeConverter { return gatewayconfigurations.NewTypeConverter(scheme) })
)

// sameVersion converts and defaults by leaving everything as it is: all field managers use one version.
type sameVersion struct{}

// Convert implements runtime.ObjectConvertor.
func (sameVersion) Convert(_, _, _ any) error { return nil }

// ConvertToVersion implements runtime.ObjectConvertor.
func (sameVersion) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

// ConvertFieldLabel implements runtime.ObjectConvertor.
func (sameVersion) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

// Default implements runtime.ObjectDefaulter.
func (sameVersion) Default(runtime.Object) {}

// New implements runtime.ObjectCreater.
func (sameVersion) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	empty := &unstructured.Unstructured{}
	empty.SetGroupVersionKind(kind)
	return empty, nil
}
