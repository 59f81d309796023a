package ssa

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// CheckFieldPath checks a path of [Request.HandOver], [Request.RemoveFields] or [Request.UniqueFields] against the JSON
// tags of the object's Go type. The error names the element that does not exist.
func CheckFieldPath(object client.Object, path string) error {
	for _, alternative := range alternatives(path) {
		at, elements := reflect.TypeOf(object), strings.Split(strings.TrimPrefix(alternative, "."), ".")
		for i, element := range elements {
			next, _, ok := fieldType(at, element)
			if !ok {
				return fmt.Errorf("the field path %q does not fit %T: %s has no field %q",
					alternative, object, cmp.Or(strings.Join(elements[:i], "."), "it"), element)
			}
			at = next
		}
	}
	return nil
}

var marshaler = reflect.TypeFor[json.Marshaler]()

// fieldType is the type of the field, map entry or item field of this JSON name.
func fieldType(at reflect.Type, name string) (next reflect.Type, inStruct, ok bool) {
	for at.Kind() == reflect.Pointer || at.Kind() == reflect.Slice || at.Kind() == reflect.Array {
		at = at.Elem()
	}
	switch {
	case name == "" || reflect.PointerTo(at).Implements(marshaler): // the JSON of a marshaler has other fields than its type
	case at.Kind() == reflect.Map:
		next, ok = at.Elem(), true
	case at.Kind() == reflect.Struct:
		inStruct = true
		next, ok = structFieldType(at, name)
	}
	return next, inStruct, ok
}

func structFieldType(at reflect.Type, name string) (reflect.Type, bool) {
	for field := range at.Fields() {
		tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case tag == "" && field.Anonymous:
			if inlined, _, ok := fieldType(field.Type, name); ok {
				return inlined, true
			}
		case tag == name && tag != "-", tag == "" && field.IsExported() && field.Name == name:
			return field.Type, true
		}
	}
	return nil, false
}
