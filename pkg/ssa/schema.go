package ssa

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/managedfields"
)

// schemas finds the field set of a configuration: it asks each converter in turn, and falls back
// to deducing the schema from the value, as the API server does for kinds without one.
type schemas []managedfields.TypeConverter

// fieldsOf computes the FieldsV1 that the API server records when it is sent this body: a pure
// function of the body and the schema.
func (s schemas) fieldsOf(rawBody []byte) (fieldSet, error) {
	tree, err := decode(rawBody)
	if err != nil {
		return fieldSet{}, err
	}
	object := &unstructured.Unstructured{Object: tree}
	var problem error
	for _, converter := range append(s[:len(s):len(s)], managedfields.NewDeducedTypeConverter()) {
		typed, err := converter.ObjectToTyped(object)
		if err != nil {
			problem = err
			continue
		}
		set, err := typed.ToFieldSet()
		if err != nil {
			return fieldSet{}, fmt.Errorf("computing the field set: %w", err)
		}
		raw, err := set.ToJSON()
		if err != nil {
			return fieldSet{}, fmt.Errorf("serialising the field set: %w", err)
		}
		parsed, err := parseFields(raw)
		if err != nil {
			return fieldSet{}, err
		}
		return parsed.withoutServerOwned(), nil
	}
	return fieldSet{}, fmt.Errorf("typing the configuration: %w", problem)
}

// unchangedBy says whether merging the body into live leaves live's values as they are. It is
// exact for kinds whose values the API server stores as they were sent, which holds for every
// custom resource: nothing there is normalised.
func (s schemas) unchangedBy(rawBody []byte, live runtime.Object) (bool, error) {
	liveTree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return false, fmt.Errorf("converting the live object: %w", err)
	}
	tree, err := decode(rawBody)
	if err != nil {
		return false, err
	}
	liveTree["apiVersion"], liveTree["kind"] = tree["apiVersion"], tree["kind"]
	for _, converter := range append(s[:len(s):len(s)], managedfields.NewDeducedTypeConverter()) {
		before, err := converter.ObjectToTyped(&unstructured.Unstructured{Object: liveTree})
		if err != nil {
			continue
		}
		change, err := converter.ObjectToTyped(&unstructured.Unstructured{Object: tree})
		if err != nil {
			continue
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
	return false, fmt.Errorf("comparing %s with its configuration: no schema fits", tree["kind"])
}

// fieldsAtEnd counts, for paths of a kind, the last elements that are fields of structs. The rest
// ends in a list item, in the key of a map, or is nothing.
type fieldsAtEnd func(fieldPath) int

// shapeOf finds the shape of the kind that a body is of. In a schema that had to be deduced
// everything is a map.
func (s schemas) shapeOf(rawBody []byte) (fieldsAtEnd, error) {
	tree, err := decode(rawBody)
	if err != nil {
		return nil, err
	}
	for _, converter := range s {
		typed, err := converter.ObjectToTyped(&unstructured.Unstructured{Object: tree})
		if err != nil {
			continue
		}
		return func(p fieldPath) int {
			schema, at := typed.Schema(), typed.TypeRef()
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
		}, nil
	}
	return func(fieldPath) int { return 0 }, nil
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
		return nil, fmt.Errorf("serialising an apply configuration: %w", err)
	}
	return raw, nil
}
