package ssatest

import (
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

var kubernetesTypes = sync.OnceValue(func() managedfields.TypeConverter {
	return applyconfigurations.NewTypeConverter(clientgoscheme.Scheme)
})

func builtIn(*runtime.Scheme) managedfields.TypeConverter { return kubernetesTypes() }

// converter knows the schema of the kind.
func (s *Server) converter(kind runtimeschema.GroupVersionKind) managedfields.TypeConverter {
	for _, build := range append(slices.Clone(s.options.TypeConverters), builtIn) {
		converter := build(s.scheme)
		if _, err := converter.ObjectToTyped(blank(Call{Kind: kind})); err == nil {
			return converter
		}
	}
	return customKinds()
}

// CustomKinds knows the schema of kinds that no other converter knows, as the server does. It stands for
// the function that is generated beside apply configurations, in ssa.Options.TypeConverters.
func CustomKinds(*runtime.Scheme) managedfields.TypeConverter { return customKinds() }

// customKind is the schema of kinds that no converter knows: their metadata is that of every kind,
// status.conditions is keyed by type, and the rest is deduced from the value.
type customKind struct{ schema *schema.Schema }

var customKinds = sync.OnceValue(func() customKind {
	known, err := kubernetesTypes().ObjectToTyped(blank(Call{Kind: runtimeschema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}}))
	if err != nil {
		panic(err)
	}
	named := func(name string) schema.TypeRef { return schema.TypeRef{NamedType: &name} }
	mapOf := func(fields ...schema.StructField) schema.Atom {
		return schema.Atom{Map: &schema.Map{Fields: fields, ElementType: named("__untyped_deduced_")}}
	}
	conditions := schema.Atom{List: &schema.List{ElementRelationship: schema.Associative, Keys: []string{"type"}, ElementType: named("__untyped_deduced_")}}
	root := schema.TypeDef{Name: "ssatest", Atom: mapOf(
		schema.StructField{Name: "metadata", Type: named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")},
		schema.StructField{Name: "status", Type: schema.TypeRef{Inlined: mapOf(schema.StructField{Name: "conditions", Type: schema.TypeRef{Inlined: conditions}})}},
	)}
	return customKind{&schema.Schema{Types: append(slices.Clone(known.Schema().Types), root)}}
})

// ObjectToTyped implements managedfields.TypeConverter.
func (c customKind) ObjectToTyped(object runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("a %T is stored", object)
	}
	if kind := u.GroupVersionKind(); clientgoscheme.Scheme.Recognizes(kind) {
		return nil, fmt.Errorf("%s is a kind of Kubernetes, whose schema is known", kind)
	}
	root := "ssatest"
	return typed.AsTyped(value.NewValueInterface(u.Object), c.schema, schema.TypeRef{NamedType: &root}, opts...)
}

// TypedToObject implements managedfields.TypeConverter.
func (customKind) TypedToObject(v *typed.TypedValue) (runtime.Object, error) {
	tree, ok := v.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("a %T is no object", v.AsValue().Unstructured())
	}
	return &unstructured.Unstructured{Object: tree}, nil
}
