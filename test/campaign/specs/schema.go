package specs

import (
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// Schema is the structural schema of a value.
type Schema = apiextensionsv1.JSONSchemaProps

// Kind is a Fixpoint kind: its schema and its seeds.
type Kind struct {
	// Name is, for example, AppService.
	Name string
	// Schema is the schema of the whole object.
	Schema Schema
	// Seeds holds objects with only a spec, by name.
	Seeds map[string]map[string]any
}

//go:embed seeds/*.yaml
var seeds embed.FS

// Read reads the kinds from a directory of CRDs.
func Read(directory string) ([]Kind, error) {
	files, err := filepath.Glob(filepath.Join(directory, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("looking for definitions: %w", err)
	}
	var kinds []Kind
	for _, file := range files {
		kind, err := read(file)
		if err != nil {
			return nil, err
		}
		kinds = append(kinds, kind)
	}
	return kinds, nil
}

func read(file string) (Kind, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return Kind{}, fmt.Errorf("reading a definition: %w", err)
	}
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &definition); err != nil {
		return Kind{}, fmt.Errorf("parsing %s: %w", file, err)
	}
	stored := slices.IndexFunc(definition.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
	if stored < 0 {
		return Kind{}, fmt.Errorf("%s has no storage version", file)
	}
	kind := Kind{
		Name:   definition.Spec.Names.Kind,
		Schema: *definition.Spec.Versions[stored].Schema.OpenAPIV3Schema,
		Seeds:  map[string]map[string]any{},
	}
	entries, err := seeds.ReadDir("seeds")
	if err != nil {
		return Kind{}, fmt.Errorf("listing seeds: %w", err)
	}
	for _, entry := range entries {
		of, name, _ := strings.Cut(strings.TrimSuffix(entry.Name(), ".yaml"), "-")
		if of != strings.ToLower(kind.Name) {
			continue
		}
		text, err := seeds.ReadFile("seeds/" + entry.Name())
		if err != nil {
			return Kind{}, fmt.Errorf("reading a seed: %w", err)
		}
		spec, err := Parse(string(text))
		if err != nil {
			return Kind{}, fmt.Errorf("%s: %w", entry.Name(), err)
		}
		kind.Seeds[name] = map[string]any{"spec": spec}
	}
	return kind, nil
}

// SeedNames returns the names of the seeds, sorted.
func (k Kind) SeedNames() []string { return slices.Sorted(maps.Keys(k.Seeds)) }

// Parse parses YAML. Integers become int64, as in responses of the API server.
func Parse(text string) (map[string]any, error) {
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("parsing YAML: %w", err)
	}
	var tree map[string]any
	if err := utiljson.Unmarshal(raw, &tree); err != nil {
		return nil, fmt.Errorf("reading a tree: %w", err)
	}
	return tree, nil
}

// isMap reports whether the schema describes a map and not an object with fixed fields.
func isMap(schema Schema) bool {
	return schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil
}

func hasItems(schema Schema) bool { return schema.Items != nil && schema.Items.Schema != nil }

func preservesUnknown(schema Schema) bool {
	return schema.XPreserveUnknownFields != nil && *schema.XPreserveUnknownFields
}

// decodeValue decodes a default or an enum value.
func decodeValue(raw apiextensionsv1.JSON) any {
	var value any
	if err := utiljson.Unmarshal(raw.Raw, &value); err != nil {
		panic(fmt.Sprintf("a value in a schema: %v", err)) // the API server accepts the schema
	}
	return value
}

// enumOf returns the values of an enum of strings.
func enumOf(schema Schema) []string {
	var values []string
	for _, raw := range schema.Enum {
		var value string
		if json.Unmarshal(raw.Raw, &value) == nil {
			values = append(values, value)
		}
	}
	return values
}

// exampleOf returns a small value that matches the schema. Rules can refuse it.
func exampleOf(schema Schema) any {
	switch {
	case schema.Default != nil:
		return decodeValue(*schema.Default)
	case len(schema.Enum) > 0:
		return decodeValue(schema.Enum[0])
	case schema.XIntOrString:
		return int64(1)
	}
	switch schema.Type {
	case "string":
		return "a"
	case "integer", "number":
		if schema.Minimum != nil {
			return int64(*schema.Minimum)
		}
		return int64(1)
	case "boolean":
		return true
	case "array":
		if hasItems(schema) && schema.MinItems != nil && *schema.MinItems > 0 {
			return []any{exampleOf(*schema.Items.Schema)}
		}
		return []any{}
	default:
		fields := map[string]any{}
		for _, name := range schema.Required {
			fields[name] = exampleOf(schema.Properties[name])
		}
		return fields
	}
}

// schemaOf returns the schema of a value below.
func schemaOf(schema Schema, to any) Schema {
	switch to := to.(type) {
	case int:
		if hasItems(schema) {
			return *schema.Items.Schema
		}
	case string:
		if property, ok := schema.Properties[to]; ok {
			return property
		}
		if isMap(schema) {
			return *schema.AdditionalProperties.Schema
		}
	}
	return Schema{}
}

// CreateParents creates the parents of the value at a path, with their required fields.
func CreateParents(schema Schema, tree map[string]any, path Path) {
	at := Path{}
	for i, to := range path {
		holder, ok := Get(tree, at)
		if !ok {
			panic(fmt.Sprintf("furnishing %s: nothing at %s", path, at))
		}
		if index, isIndex := to.(int); isIndex {
			if items, isList := holder.([]any); isList && len(items) <= index && i < len(path) {
				Set(tree, at, append(items, exampleOf(schemaOf(schema, to))))
			}
		}
		at, schema = at.Child(to), schemaOf(schema, to)
		if i == len(path)-1 {
			return
		}
		if _, there := Get(tree, at); !there {
			Set(tree, at, exampleOf(schema))
		}
	}
}
