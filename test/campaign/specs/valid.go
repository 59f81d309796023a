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

// Variants are what the fields of a spec may be, by the kind's meaning and not only by its schema.
type Variants struct {
	// Required fields are never left out, and Fixed ones never change.
	Required, Fixed []string
	// Fields have the values that are chosen from.
	Fields map[string][]any
	// Bad are differences that make a good spec a bad one.
	Bad []map[string]any
}

// Variants reads those of the kind.
func (k Kind) Variants() (Variants, error) {
	text, err := variantFiles.ReadFile("variants/" + strings.ToLower(k.Name) + ".yaml")
	if err != nil {
		return Variants{}, fmt.Errorf("reading variants: %w", err)
	}
	var v Variants
	if err := yaml.Unmarshal(text, &v); err != nil {
		return Variants{}, fmt.Errorf("parsing the variants of %s: %w", k.Name, err)
	}
	tree, err := Parse(string(text)) // for whole numbers
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

// Generator makes valid specs, the same ones again for the same chance. Rules between fields may find
// one wrong: then the next is to be asked for.
type Generator struct {
	kind     Kind
	variants Variants
	random   *rand.Rand
}

// NewGenerator makes a generator that draws from the given chance.
func NewGenerator(kind Kind, random *rand.Rand) (*Generator, error) {
	variants, err := kind.Variants()
	if err != nil {
		return nil, err
	}
	return &Generator{kind: kind, variants: variants, random: random}, nil
}

// First makes a spec from nothing.
func (g *Generator) First() map[string]any {
	spec := map[string]any{}
	for _, name := range g.names() {
		g.draw(spec, name)
	}
	return spec
}

// Next makes another one of a spec, as a user edits: a few fields, or now and then all of them.
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

// Bad makes a spec that is wrong of one that is good, and says what is.
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

// draw chooses a value of a field, or leaves it out, and moves what in it is a number or a choice.
func (g *Generator) draw(spec map[string]any, name string) {
	delete(spec, name)
	if !slices.Contains(g.variants.Required, name) && g.random.IntN(2) == 0 {
		return
	}
	values := g.variants.Fields[name]
	spec[name] = runtime.DeepCopyJSONValue(values[g.random.IntN(len(values))])
	tree := map[string]any{"spec": spec}
	for _, site := range Sites(g.kind.Schema, tree) {
		if site.Present && len(site.Path) > 1 && site.Path[1] == name && !slices.Contains(g.variants.Fixed, name) && g.random.IntN(4) == 0 {
			g.move(tree, site)
		}
	}
}

// move puts another value there that the schema allows, near its bounds or anywhere between them.
func (g *Generator) move(tree map[string]any, site Site) {
	schema := site.Schema
	switch {
	case schema.Type == "integer" && schema.Minimum != nil && schema.Maximum != nil:
		least, most := int64(*schema.Minimum), int64(*schema.Maximum)
		choices := []int64{least, most, least + g.random.Int64N(most-least+1)}
		Set(tree, site.Path, choices[g.random.IntN(len(choices))])
	case len(site.Path) == 2 && len(schema.Enum) > 0:
		values := enumOf(schema)
		Set(tree, site.Path, values[g.random.IntN(len(values))])
	}
}
