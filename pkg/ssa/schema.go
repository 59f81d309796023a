package ssa

import (
	"encoding/json"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// schemas finds the field set of a configuration: it asks each converter in turn, and falls back
// to deducing the schema from the value, as the API server does for kinds without one.
type schemas []managedfields.TypeConverter

// typed is a document with the first schema that fits it.
func (s schemas) typed(tree map[string]any) (*typed.TypedValue, managedfields.TypeConverter, error) {
	var problem error
	for _, converter := range append(s[:len(s):len(s)], managedfields.NewDeducedTypeConverter()) {
		value, err := converter.ObjectToTyped(&unstructured.Unstructured{Object: tree})
		if err == nil {
			return value, converter, nil
		}
		problem = err
	}
	return nil, nil, fmt.Errorf("typing the configuration: %w", problem)
}

// fieldsOf computes the FieldsV1 that the API server records for an apply of this document.
func (s schemas) fieldsOf(tree map[string]any) (fieldSet, error) {
	value, _, err := s.typed(tree)
	if err != nil {
		return fieldSet{}, err
	}
	set, err := value.ToFieldSet()
	if err != nil {
		return fieldSet{}, fmt.Errorf("computing the field set: %w", err)
	}
	raw, err := set.ToJSON()
	if err != nil {
		return fieldSet{}, fmt.Errorf("serializing the field set: %w", err)
	}
	parsed, err := parseFields(raw)
	return parsed.withoutServerOwned(), err
}

// fieldsV1Of is fieldsOf as the API server writes it.
func (s schemas) fieldsV1Of(tree map[string]any) (string, error) {
	set, err := s.fieldsOf(tree)
	if err != nil {
		return "", err
	}
	fields, err := set.json()
	return string(fields), err
}

// leavesUnchanged is true if merging the document into live leaves live's values as they are. It is
// exact for kinds whose values the API server stores as they were sent, which holds for every
// custom resource: nothing there is normalized.
func (s schemas) leavesUnchanged(tree map[string]any, live client.Object) (bool, error) {
	liveTree, err := treeOf(live)
	if err != nil {
		return false, err
	}
	liveTree["apiVersion"], liveTree["kind"] = tree["apiVersion"], tree["kind"]
	before, converter, err := s.typed(liveTree)
	if err != nil {
		return false, err
	}
	change, err := converter.ObjectToTyped(&unstructured.Unstructured{Object: tree})
	if err != nil {
		return false, fmt.Errorf("typing the configuration: %w", err)
	}
	after, err := before.Merge(change)
	if err != nil {
		return false, fmt.Errorf("merging the configuration into the live object: %w", err)
	}
	difference, err := before.Compare(after)
	if err != nil {
		return false, fmt.Errorf("comparing the merged object with the live one: %w", err)
	}
	return difference.IsSame(), nil
}

// fieldsAtEnd counts, for paths of a kind, the last elements that are fields of structs. The rest
// ends in a list item, in the key of a map, or is empty.
type fieldsAtEnd func(fieldPath) int

// shapeOf finds the shape of the kind that a document is of, once it is asked for. In a schema that
// is deduced everything is a map.
func (s schemas) shapeOf(tree map[string]any) fieldsAtEnd {
	value := sync.OnceValue(func() *typed.TypedValue {
		for _, converter := range s {
			if value, err := converter.ObjectToTyped(&unstructured.Unstructured{Object: tree}); err == nil {
				return value
			}
		}
		return nil
	})
	return func(p fieldPath) int {
		if value() == nil {
			return 0
		}
		return countFieldsAtEnd(p, value().Schema(), value().TypeRef())
	}
}

func countFieldsAtEnd(p fieldPath, schema *schema.Schema, at schema.TypeRef) int {
	count := 0
	for _, pe := range p.path {
		atom, ok := schema.Resolve(at)
		switch {
		case !ok:
			return 0
		case pe.FieldName == nil && atom.List != nil:
			count, at = 0, atom.List.ElementType
		case pe.FieldName == nil || atom.Map == nil:
			return 0
		default:
			field, known := atom.FindField(*pe.FieldName)
			if !known {
				count, at = 0, atom.Map.ElementType
				continue
			}
			count, at = count+1, field.Type
		}
	}
	return count
}

// treeOf is the object as decoded JSON.
func treeOf(live runtime.Object) (map[string]any, error) {
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return nil, fmt.Errorf("converting the live object: %w", err)
	}
	return tree, nil
}

func decode(raw []byte) (map[string]any, error) {
	tree := map[string]any{}
	if err := utiljson.Unmarshal(raw, &tree); err != nil {
		return nil, fmt.Errorf("decoding an apply configuration: %w", err)
	}
	return tree, nil
}

func encode(tree map[string]any) ([]byte, error) {
	raw, err := json.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("serializing an apply configuration: %w", err)
	}
	return raw, nil
}
