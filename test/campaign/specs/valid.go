package specs

import (
	"embed"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

//go:embed variants/*.yaml
var variantFiles embed.FS

// Variants holds meaningful values of the fields of a spec.
type Variants struct {
	// Required fields are always set, and Fixed fields never change.
	Required, Fixed []string
	// Fields holds the possible values of each field.
	Fields map[string][]any
	// Bad holds changes that make a valid spec invalid.
	Bad []map[string]any
}

// Variants returns the variants of the kind.
func (k Kind) Variants() (Variants, error) {
	text, err := variantFiles.ReadFile("variants/" + strings.ToLower(k.Name) + ".yaml")
	if err != nil {
		return Variants{}, fmt.Errorf("reading variants: %w", err)
	}
	var v Variants
	if err := yaml.Unmarshal(text, &v); err != nil {
		return Variants{}, fmt.Errorf("parsing the variants of %s: %w", k.Name, err)
	}
	tree, err := Parse(string(text)) // it preserves integers
	if err != nil {
		return Variants{}, err
	}
	fields, _ := tree["fields"].(map[string]any)
	for name, values := range fields {
		v.Fields[name], _ = values.([]any)
	}
	bad, _ := tree["bad"].([]any)
	for i := range bad {
		v.Bad[i], _ = bad[i].(map[string]any)
	}
	return v, nil
}

// Generator generates random valid specs. Rules between fields can refuse some; then the caller generates another.
type Generator struct {
	kind     Kind
	variants Variants
	random   *rand.Rand
}

// NewGenerator returns a generator with a source of randomness.
func NewGenerator(kind Kind, random *rand.Rand) (*Generator, error) {
	variants, err := kind.Variants()
	if err != nil {
		return nil, err
	}
	return &Generator{kind: kind, variants: variants, random: random}, nil
}

// First generates a spec.
func (g *Generator) First() map[string]any {
	spec := map[string]any{}
	for _, name := range g.names() {
		g.draw(spec, name)
	}
	return spec
}

// Next changes a few fields of a spec, like a user, and sometimes all.
func (g *Generator) Next(spec map[string]any) map[string]any {
	const all = 8
	next := runtime.DeepCopyJSON(spec)
	names := slices.DeleteFunc(g.names(), func(name string) bool { return slices.Contains(g.variants.Fixed, name) })
	if g.random.IntN(all) > 0 {
		g.random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		names = names[:1+g.random.IntN(5)]
	}
	for _, name := range names {
		g.draw(next, name)
	}
	return next
}

// Bad returns an invalid spec and its differences from a valid one.
func (g *Generator) Bad(spec map[string]any) (map[string]any, map[string]any) {
	bad := runtime.DeepCopyJSON(spec)
	difference := g.variants.Bad[g.random.IntN(len(g.variants.Bad))]
	for name, value := range difference {
		if value == nil {
			delete(bad, name)
			continue
		}
		bad[name] = runtime.DeepCopyJSONValue(value)
	}
	return bad, difference
}

func (g *Generator) names() []string { return slices.Sorted(maps.Keys(g.variants.Fields)) }

// draw sets or removes a field and varies the numbers and enums in it.
func (g *Generator) draw(spec map[string]any, name string) {
	delete(spec, name)
	if !slices.Contains(g.variants.Required, name) && g.random.IntN(2) == 0 {
		return
	}
	values := g.variants.Fields[name]
	spec[name] = runtime.DeepCopyJSONValue(values[g.random.IntN(len(values))])
	tree := map[string]any{"spec": spec}
	for _, location := range Locations(g.kind.Schema, tree) {
		if location.Present && len(location.Path) > 1 && location.Path[1] == name && !slices.Contains(g.variants.Fixed, name) && g.random.IntN(4) == 0 {
			g.adjust(tree, location)
		}
	}
}

// adjust sets another value that the schema allows, at or between its bounds.
func (g *Generator) adjust(tree map[string]any, location Location) {
	schema := location.Schema
	switch {
	case schema.Type == "integer" && schema.Minimum != nil && schema.Maximum != nil:
		least, most := int64(*schema.Minimum), int64(*schema.Maximum)
		choices := []int64{least, most, least + g.random.Int64N(most-least+1)}
		Set(tree, location.Path, choices[g.random.IntN(len(choices))])
	case len(location.Path) == 2 && len(schema.Enum) > 0:
		values := enumOf(schema)
		Set(tree, location.Path, values[g.random.IntN(len(values))])
	}
}
