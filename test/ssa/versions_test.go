package ssa_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration"
	"github.com/fixpoint-dev/fixpoint/internal/conversion"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// The versions of this project's kinds.
var (
	alpha = v1alpha1.SchemeGroupVersion
	beta  = v1beta1.SchemeGroupVersion
)

// betaTypes are the schemas of v1beta1, which all appliers share, because it takes a while to parse them.
var betaTypes = sync.OnceValue(func() managedfields.TypeConverter { return applyconfiguration.NewTypeConverter(scheme) })

// alphaTypes are the schemas of v1alpha1, which has no generated apply configurations, from the API server.
var alphaTypes managedfields.TypeConverter

// readAlphaTypes sets alphaTypes once the API server publishes them.
func readAlphaTypes(cfg *rest.Config) error {
	resources, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return err
	}
	document, err := openapi3.NewRoot(resources.OpenAPIV3()).GVSpec(alpha)
	if err != nil {
		return err
	}
	alphaTypes, err = managedfields.NewTypeConverter(document.Components.Schemas, false)
	return err
}

// alphaConfiguration is a configuration of v1alpha1.
type alphaConfiguration struct {
	metav1ac.TypeMetaApplyConfiguration    `json:",inline"`
	*metav1ac.ObjectMetaApplyConfiguration `json:"metadata,omitempty"`
	Spec                                   map[string]any `json:"spec"`
}

// IsApplyConfiguration implements [ssa.Configuration].
func (alphaConfiguration) IsApplyConfiguration() {}

// alphaConfigurationOf converts a configuration of v1beta1.
func alphaConfigurationOf(c ssa.Configuration) (ssa.Configuration, error) {
	converted := &alphaConfiguration{}
	return converted, toAlpha(c, converted)
}

// toAlpha converts what has the JSON of an object of v1beta1.
func toAlpha(from, into any) error {
	raw, err := json.Marshal(from)
	if err != nil {
		return err
	}
	if raw, err = conversion.Convert(raw, alpha.String()); err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

// inAlpha is a client that writes objects of v1beta1 in v1alpha1.
func inAlpha(c client.WithWatch) client.Client {
	return interceptor.NewClient(c, interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			converted, err := alphaOf(obj)
			if err != nil {
				return err
			}
			return c.Update(ctx, converted, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			converted, err := alphaOf(obj)
			if err != nil {
				return err
			}
			body, err := patch.Data(obj)
			if patch.Type() == types.ApplyPatchType && err == nil {
				body, err = conversion.Convert(body, alpha.String())
			}
			if err != nil {
				return err
			}
			return c.Patch(ctx, converted, client.RawPatch(patch.Type(), body), opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, subresource string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
			converted, err := alphaOf(obj)
			if err != nil {
				return err
			}
			return c.SubResource(subresource).Update(ctx, converted, opts...)
		},
	})
}

// alphaOf converts an object of v1beta1.
func alphaOf(obj client.Object) (*unstructured.Unstructured, error) {
	gvk, err := api.GroupVersionKindFor(obj)
	if err != nil {
		return nil, err
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	converted := &unstructured.Unstructured{Object: tree}
	converted.SetGroupVersionKind(gvk)
	return converted, toAlpha(converted, converted)
}

// isVersioned reports whether a configuration is of one of this project's kinds.
func isVersioned(c ssa.Configuration) bool { return *c.GetAPIVersion() == beta.String() }

// in reads an object in a version of its kind.
func in(ctx context.Context, version schema.GroupVersion, obj client.Object) (client.Object, error) {
	gvk, err := api.GroupVersionKindFor(obj)
	if err != nil {
		return nil, err
	}
	created, err := scheme.New(version.WithKind(gvk.Kind))
	if err != nil {
		return nil, err
	}
	live, ok := created.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%T is not an object", created)
	}
	return live, api.Get(ctx, client.ObjectKeyFromObject(obj), live)
}
