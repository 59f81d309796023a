package ssa

import (
	"fmt"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// schemas are asked in turn for the schema of a kind: those of the options, those of Kubernetes, and at last one that
// deduces it from the value, as the API server does for kinds without one. Each is built when it is first asked: those
// of Kubernetes stay in memory with 1 MB, and take 20 MB for a moment.
type schemas []func() managedfields.TypeConverter

// kubernetesTypes are the schemas of k8s.io/api.
var kubernetesTypes = sync.OnceValue(func() managedfields.TypeConverter { return applyconfigurations.NewTypeConverter(clientgoscheme.Scheme) })

func newSchemas(scheme *runtime.Scheme, builders []func(*runtime.Scheme) managedfields.TypeConverter) schemas {
	var s schemas
	for _, build := range builders {
		s = append(s, sync.OnceValue(func() managedfields.TypeConverter { return build(scheme) }))
	}
	return append(s, kubernetesTypes, managedfields.NewDeducedTypeConverter)
}

// fieldsOf computes the FieldsV1 that the API server records for an apply of this document. deduced is true if no schema
// knows the kind: a server that has one records other fields.
func (s schemas) fieldsOf(tree map[string]any) (fields string, deduced bool, err error) {
	var problem error
	for i, converter := range s {
		typed, err := converter().ObjectToTyped(&unstructured.Unstructured{Object: tree})
		if err != nil {
			problem = err
			continue
		}
		set, err := typed.ToFieldSet()
		if err != nil {
			return "", false, fmt.Errorf("computing the field set: %w", err)
		}
		raw, err := set.ToJSON()
		if err != nil {
			return "", false, fmt.Errorf("serializing the field set: %w", err)
		}
		parsed, err := parseFields(raw)
		if err != nil {
			return "", false, err
		}
		fields, err := fieldsJSON(parsed.Difference(serverOwned))
		return fields, i == len(s)-1, err
	}
	return "", false, fmt.Errorf("typing the configuration: %w", problem)
}

// fieldsAtEnd counts the last elements of the path that are fields of structs, by the Go type of the object.
func fieldsAtEnd(object client.Object, p fieldPath) (count int) {
	at := reflect.TypeOf(object)
	for _, pe := range p {
		if pe.FieldName == nil {
			count = 0 // the type of an item is found through that of its list
			continue
		}
		next, inStruct, ok := fieldType(at, *pe.FieldName)
		if !ok {
			return 0
		}
		if at = next; !inStruct {
			count = -1
		}
		count++
	}
	return count
}

func decode(raw []byte) (map[string]any, error) {
	tree := map[string]any{}
	if err := utiljson.Unmarshal(raw, &tree); err != nil {
		return nil, fmt.Errorf("decoding an apply configuration: %w", err)
	}
	return tree, nil
}
