package harness

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// SpecFields are the fields of a kind's spec, by its CRD's schema.
func SpecFields(kind string) []string {
	files, err := filepath.Glob(filepath.Join(Root, "config", "crd", "bases", "*.yaml"))
	if err != nil {
		panic(err) // the pattern is wrong
	}
	for _, file := range files {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		content, err := os.ReadFile(file)
		if err == nil {
			err = yaml.Unmarshal(content, definition)
		}
		if err != nil {
			panic(fmt.Sprintf("reading %s: %v", file, err))
		}
		if definition.Spec.Names.Kind == kind {
			stored := slices.IndexFunc(definition.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
			schema := definition.Spec.Versions[stored].Schema.OpenAPIV3Schema
			return slices.Sorted(maps.Keys(schema.Properties["spec"].Properties))
		}
	}
	panic(fmt.Sprintf("%s has no CRD of the kind %s", filepath.Join(Root, "config", "crd", "bases"), kind))
}

// FieldsChangedBy are the fields of a spec that an edit changes.
func FieldsChangedBy[S any](edit func(*S)) []string {
	var spec S
	before := fieldsOf(spec)
	edit(&spec)
	after := fieldsOf(spec)
	var changed []string
	for field := range after {
		if !reflect.DeepEqual(before[field], after[field]) {
			changed = append(changed, field)
		}
	}
	return changed
}

func fieldsOf(spec any) map[string]any {
	text, err := json.Marshal(spec)
	if err != nil {
		panic(fmt.Sprintf("marshalling a %T: %v", spec, err))
	}
	fields := map[string]any{}
	if err := json.Unmarshal(text, &fields); err != nil {
		panic(fmt.Sprintf("reading a %T: %v", spec, err))
	}
	return fields
}
