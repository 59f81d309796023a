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

// Kind is a kind of ours: its schema, and specs to begin with.
type Kind struct {
	// Name is such as AppService.
	Name string
	// Schema is that of the whole object.
	Schema Schema
	// Seeds are objects, of which only the spec is set, by their names.
	Seeds map[string]map[string]any
}

//go:embed seeds/*.yaml
var seeds embed.FS

// Read reads the kinds whose definitions lie in a folder.
func Read(folder string) ([]Kind, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
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
	if len(definition.Spec.Versions) != 1 {
		return Kind{}, fmt.Errorf("%s has %d versions: this package knows one", file, len(definition.Spec.Versions))
	}
	kind := Kind{
		Name:   definition.Spec.Names.Kind,
		Schema: *definition.Spec.Versions[0].Schema.OpenAPIV3Schema,
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

// SeedNames lists the seeds, always in the same order.
func (k Kind) SeedNames() []string { return slices.Sorted(maps.Keys(k.Seeds)) }

// Parse reads YAML. Whole numbers become int64, as in what the API server sends.
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

// isMap says whether the schema is of a map, and not of an object with named fields.
func isMap(schema Schema) bool {
	return schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil
}

func hasItems(schema Schema) bool { return schema.Items != nil && schema.Items.Schema != nil }

func keepsUnknown(schema Schema) bool {
	return schema.XPreserveUnknownFields != nil && *schema.XPreserveUnknownFields
}

// valueOf decodes a default or a value of an enum.
func valueOf(raw apiextensionsv1.JSON) any {
	var value any
	if err := utiljson.Unmarshal(raw.Raw, &value); err != nil {
		panic(fmt.Sprintf("a value in a schema: %v", err)) // the API server has taken it
	}
	return value
}

// enumOf lists the values of an enum of strings.
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

// sample is a small value that fits the schema's types. Rules may find it wrong.
func sample(schema Schema) any {
	switch {
	case schema.Default != nil:
		return valueOf(*schema.Default)
	case len(schema.Enum) > 0:
		return valueOf(schema.Enum[0])
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
			return []any{sample(*schema.Items.Schema)}
		}
		return []any{}
	default:
		fields := map[string]any{}
		for _, name := range schema.Required {
			fields[name] = sample(schema.Properties[name])
		}
		return fields
	}
}

// step is the schema of what lies below.
func step(schema Schema, to any) Schema {
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

// Furnish makes what holds the value at a path, with all that is required beside it.
func Furnish(schema Schema, tree map[string]any, path Path) {
	at := Path{}
	for i, to := range path {
		holder, ok := Get(tree, at)
		if !ok {
			panic(fmt.Sprintf("furnishing %s: nothing at %s", path, at))
		}
		if index, isIndex := to.(int); isIndex {
			if items, isList := holder.([]any); isList && len(items) <= index && i < len(path) {
				Set(tree, at, append(items, sample(step(schema, to))))
			}
		}
		at, schema = at.Child(to), step(schema, to)
		if i == len(path)-1 {
			return
		}
		if _, there := Get(tree, at); !there {
			Set(tree, at, sample(schema))
		}
	}
}
