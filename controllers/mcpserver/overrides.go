package mcpserver

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/managedfields"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/kubeschema"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
)

// deploymentTypes has the schema by which the API server merges Deployments.
var deploymentTypes = sync.OnceValue(func() managedfields.TypeConverter {
	return kubeschema.NewTypeConverter(clientgoscheme.Scheme)
})

// overridesError is an error in spec.podOverrides that only a change of the spec fixes.
type overridesError struct{ cause error }

func (e *overridesError) Error() string {
	return "spec.podOverrides is not a valid part of a pod template: " + e.cause.Error() + "; correct spec.podOverrides"
}

// Unwrap returns the error of the merge.
func (e *overridesError) Unwrap() error { return e.cause }

// ConditionReason is the reason for a condition that reports this error.
func (e *overridesError) ConditionReason() string { return v1beta1.ReasonInvalid }

// Permanent is true: retries do not help.
func (e *overridesError) Permanent() bool { return true }

// withOverrides merges spec.podOverrides into the template as the API server merges an apply.
func withOverrides(desired *appsv1ac.DeploymentApplyConfiguration, overrides *v1beta1.MCPServerPodOverrides) (*appsv1ac.DeploymentApplyConfiguration, error) {
	if overrides == nil {
		return desired, nil
	}
	base, err := jsonOf(desired)
	if err != nil {
		return nil, fmt.Errorf("encoding the Deployment: %w", err)
	}
	over, err := overridesOf(overrides)
	if err != nil {
		return nil, &overridesError{err}
	}
	typedBase, err := deploymentTypes().ObjectToTyped(&unstructured.Unstructured{Object: base})
	if err != nil {
		return nil, fmt.Errorf("converting the Deployment to its schema: %w", err)
	}
	typedOver, err := deploymentTypes().ObjectToTyped(&unstructured.Unstructured{Object: over})
	if err != nil {
		return nil, &overridesError{err}
	}
	merged, err := typedBase.Merge(typedOver)
	if err != nil {
		return nil, &overridesError{err}
	}
	result := &appsv1ac.DeploymentApplyConfiguration{}
	if err := workload.Convert(merged.AsValue().Unstructured(), result); err != nil {
		return nil, &overridesError{err}
	}
	return result, nil
}

// overridesOf is a Deployment with only the overrides.
func overridesOf(overrides *v1beta1.MCPServerPodOverrides) (map[string]any, error) {
	template := map[string]any{}
	if metadata := overrides.Metadata; metadata != nil {
		template["metadata"] = map[string]any{"labels": stringTree(metadata.Labels), "annotations": stringTree(metadata.Annotations)}
	}
	if overrides.Spec != nil && len(overrides.Spec.Raw) > 0 {
		spec := map[string]any{}
		if err := utiljson.Unmarshal(overrides.Spec.Raw, &spec); err != nil {
			return nil, err
		}
		if err := checkQuantities("spec", spec); err != nil {
			return nil, err
		}
		template["spec"] = spec
	}
	return map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"spec": map[string]any{"template": template},
	}, nil
}

func stringTree(values map[string]string) map[string]any {
	t := map[string]any{}
	for key, value := range values {
		t[key] = value
	}
	return t
}
