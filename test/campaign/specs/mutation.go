package specs

import (
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Expectation is the expected result of a mutation.
type Expectation int

const (
	// Refused: the API server refuses the spec and names the field.
	Refused Expectation = iota
	// Undetermined: the schema accepts the spec, but a rule can refuse it. An accepted spec must be reconciled.
	Undetermined
	// LikeAbsent: the spec is stored as if the field were absent, or refused.
	LikeAbsent
	// Pruned: the field is refused with strict field validation, and dropped without it.
	Pruned
)

// Mutation changes one location of a seed.
type Mutation struct {
	// What describes the change, such as "above the maximum".
	What string
	// Path is the field that is changed.
	Path Path
	// Reported is the field that the message must name, if it is not Path.
	Reported Path
	// Value is the new value. If Sets is false, the field is removed.
	Value any
	Sets  bool
	Want  Expectation
	// Present is true if the seed sets the location.
	Present bool
}

// These mutations are numerous, because they apply wherever text is allowed.
const (
	SomeText = "some text"
	SomeKey  = "some key"
)

// Field returns the field that the message must name.
func (m Mutation) Field() Path {
	if m.Reported != nil {
		return m.Reported
	}
	return m.Path
}

// String identifies a mutation among those of its seed.
func (m Mutation) String() string {
	if !m.Sets {
		return fmt.Sprintf("%s: %s", m.Path, m.What)
	}
	const most = 60
	value := fmt.Sprintf("%#v", m.Value)
	if len(value) > most {
		value = fmt.Sprintf("%s… (%d)", strings.ToValidUTF8(value[:most], ""), len(value))
	}
	return fmt.Sprintf("%s: %s: %s", m.Path, m.What, value)
}

// Apply returns a mutated copy of a seed.
func (m Mutation) Apply(schema Schema, seed map[string]any) map[string]any {
	tree := Clone(seed)
	CreateParents(schema, tree, m.Path)
	if !m.Sets {
		Remove(tree, m.Path)
		return tree
	}
	Set(tree, m.Path, m.Value)
	return tree
}

// Mutations returns all mutations of a seed in a fixed order.
func Mutations(schema Schema, seed map[string]any) []Mutation {
	var all []Mutation
	for _, location := range Locations(schema, seed) {
		all = append(all, mutationsAt(location)...)
	}
	return all
}

func mutationsAt(location Location) []Mutation {
	m := &mutations{location: location}
	m.types()
	m.null()
	switch {
	case location.Schema.XIntOrString:
		m.undetermined("a quantity or a number", oddQuantities...)
	case len(location.Schema.Enum) > 0:
		m.enum()
	case location.Schema.Type == "string":
		m.strings()
	case location.Schema.Type == "integer":
		m.integers()
	case location.Schema.Type == "array":
		m.lists()
	case isMap(location.Schema):
		m.maps()
	case preservesUnknown(location.Schema):
		m.undetermined("a pod override", podOverrides()...)
	case location.Schema.Type == "object":
		m.objects()
	case location.Schema.Type == "boolean":
		m.undetermined("a boolean", true, false)
	}
	return m.all
}

type mutations struct {
	location Location
	all      []Mutation
}

func (m *mutations) add(want Expectation, what string, value any) {
	m.all = append(m.all, Mutation{What: what, Path: m.location.Path, Value: value, Sets: true, Want: want, Present: m.location.Present})
}

func (m *mutations) refuse(what string, values ...any) {
	for _, value := range values {
		m.add(Refused, what, value)
	}
}

func (m *mutations) undetermined(what string, values ...any) {
	for _, value := range values {
		m.add(Undetermined, what, value)
	}
}

// types tries a value of every other type.
func (m *mutations) types() {
	values := map[string]any{
		"string": "text", "integer": int64(7), "boolean": true, "array": []any{}, "object": map[string]any{}, "number": 1.5,
	}
	for _, name := range []string{"string", "integer", "boolean", "array", "object", "number"} {
		switch {
		case name == m.location.Schema.Type,
			m.location.Schema.XIntOrString && (name == "string" || name == "integer"):
			continue
		}
		m.refuse("of type "+name, values[name])
	}
}

// null tries a null, as templates produce it. It is invalid in a list, and otherwise equals an absent field.
func (m *mutations) null() {
	if _, isItem := m.location.Path[len(m.location.Path)-1].(int); isItem {
		m.refuse("null", nil)
		return
	}
	m.add(LikeAbsent, "null", nil)
}

func (m *mutations) enum() {
	values := enumOf(m.location.Schema)
	m.refuse("not in the enum", "", "campaign", values[0]+" ", " "+values[0], swapCase(values[0]), strings.Join(values, ",")+",")
	for _, value := range values {
		m.undetermined("in the enum", value)
	}
}

func swapCase(text string) string {
	if upper := strings.ToUpper(text); upper != text {
		return upper
	}
	return strings.ToLower(text)
}

func (m *mutations) strings() {
	schema := m.location.Schema
	if schema.MaxLength != nil {
		most := int(*schema.MaxLength)
		m.refuse("longer than the maximum", strings.Repeat("a", most+1), strings.Repeat("ä", most+1))
		m.undetermined("as long as the maximum", strings.Repeat("a", most), "/"+strings.Repeat("a", most-1))
	}
	if schema.MinLength != nil && *schema.MinLength > 0 {
		m.refuse("shorter than the minimum", strings.Repeat("a", int(*schema.MinLength)-1))
	}
	for _, text := range oddTexts {
		if schema.MaxLength != nil && len(text) > int(*schema.MaxLength) || schema.MinLength != nil && len(text) < int(*schema.MinLength) {
			continue
		}
		m.undetermined(SomeText, text)
	}
}

func (m *mutations) integers() {
	schema := m.location.Schema
	const tooMuch = float64(1 << 63) // beyond int64
	m.refuse("beyond int64", tooMuch, -2*tooMuch)
	if schema.Format == "int32" {
		m.refuse("beyond its format", int64(1)<<31, -int64(1)<<31-1)
	}
	numbers := map[string]int64{"zero": 0, "minus one": -1, "the minimum of its format": -1 << 31, "the maximum of its format": 1<<31 - 1}
	if schema.Minimum != nil {
		numbers["one below the minimum"], numbers["the minimum"] = int64(*schema.Minimum)-1, int64(*schema.Minimum)
	}
	if schema.Maximum != nil {
		numbers["the maximum"], numbers["one above the maximum"] = int64(*schema.Maximum), int64(*schema.Maximum)+1
	}
	for _, what := range []string{
		"zero", "minus one", "the minimum of its format", "the maximum of its format",
		"one below the minimum", "the minimum", "the maximum", "one above the maximum",
	} {
		number, ok := numbers[what]
		if !ok {
			continue
		}
		if schema.Minimum != nil && float64(number) < *schema.Minimum || schema.Maximum != nil && float64(number) > *schema.Maximum {
			m.refuse(what, number)
			continue
		}
		m.undetermined(what, number)
	}
}

func (m *mutations) lists() {
	schema := m.location.Schema
	items, _ := m.location.Value.([]any)
	item := exampleOf(*schema.Items.Schema)
	if len(items) > 0 {
		item = items[0]
	}
	if schema.MaxItems != nil {
		m.refuse("more items than the maximum", repeat(item, int(*schema.MaxItems)+1))
	}
	if schema.MinItems != nil && *schema.MinItems > 0 {
		m.refuse("fewer items than the minimum", repeat(item, int(*schema.MinItems)-1))
	} else {
		m.undetermined("an empty list", []any{})
	}
	if schema.XListType != nil && *schema.XListType != "atomic" {
		m.refuse("an item twice", []any{item, item})
		m.all[len(m.all)-1].Reported = m.location.Path.Child(1)
	} else if len(items) > 0 {
		m.undetermined("an item twice", []any{item, item})
	}
}

func repeat(item any, times int) []any {
	items := make([]any, times)
	for i := range items {
		items[i] = item
	}
	return items
}

func (m *mutations) maps() {
	schema := m.location.Schema
	value := exampleOf(*schema.AdditionalProperties.Schema)
	if schema.MaxProperties != nil {
		entries := map[string]any{}
		for i := range int(*schema.MaxProperties) + 1 {
			entries[fmt.Sprintf("key%d", i)] = value
		}
		m.refuse("more keys than the maximum", entries)
	}
	m.undetermined("an empty map", map[string]any{})
	for _, key := range oddKeys {
		m.undetermined(SomeKey, map[string]any{key: value})
	}
}

func (m *mutations) objects() {
	schema, path := m.location.Schema, m.location.Path
	m.all = append(m.all, Mutation{What: "an unknown field", Path: path.Child("campaignUnknown"), Value: int64(1), Sets: true, Want: Pruned, Present: m.location.Present})
	for _, name := range schema.Required {
		if schema.Properties[name].Default != nil {
			continue
		}
		m.all = append(m.all, Mutation{What: "absent", Path: path.Child(name), Want: Refused, Present: m.location.Present})
	}
	if len(schema.Required) == 0 {
		m.undetermined("an empty object", map[string]any{})
	}
}

// Changes returns changes of immutable fields: those with a rule that uses the old value.
func Changes(schema Schema, seed map[string]any) []Mutation {
	var all []Mutation
	for _, location := range Locations(schema, seed) {
		for _, rule := range location.Schema.XValidations {
			if strings.Contains(rule.Rule, "oldSelf") {
				all = append(all, changesOf(location, rule)...)
			}
		}
	}
	return all
}

func changesOf(location Location, rule apiextensionsv1.ValidationRule) []Mutation {
	var all []Mutation
	if field := strings.TrimPrefix(rule.FieldPath, "."); field != "" {
		value, present := Get(location.Value, Path{field})
		location = Location{Path: location.Path.Child(field), Schema: schemaOf(location.Schema, field), Value: value, Present: present}
		if present {
			all = append(all, Mutation{What: "removed", Path: location.Path})
		} else {
			value = "campaign000"
			location.Value = value
		}
	}
	others := enumOf(location.Schema)
	if text, ok := location.Value.(string); ok && len(others) == 0 {
		others = []string{text[:len(text)-1] + "0", text[:len(text)-1] + "1", strings.ToUpper(text)}
	}
	for _, other := range others {
		if other != location.Value || !location.Present {
			all = append(all, Mutation{What: "changed", Path: location.Path, Value: other, Sets: true})
		}
	}
	return all
}
