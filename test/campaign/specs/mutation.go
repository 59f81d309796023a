package specs

import (
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Expectation is what has to become of a spec.
type Expectation int

const (
	// Refused by the API server, with the path of the field in the message.
	Refused Expectation = iota
	// Judged: the schema's types and limits let it in, and rules may not. Who lets it in has to live
	// with it.
	Judged
	// LikeAbsent: what is stored is as if the field were left out; or the API server refuses it as
	// Refused does.
	LikeAbsent
	// Pruned: refused with strict field validation, and dropped without it.
	Pruned
)

// Mutation changes one place of a seed.
type Mutation struct {
	// What is done, for people: such as "above the maximum".
	What string
	// Path of the field that a message has to name.
	Path Path
	// Value that is put there; without Sets the field is taken out.
	Value any
	Sets  bool
	Want  Expectation
	// Present: the seed sets the place.
	Present bool
}

// What is done where any text may stand, of which there are many.
const (
	SomeText = "some text"
	SomeKey  = "some key"
)

// String tells a mutation from all others of its seed.
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

// Apply makes the mutation of a seed, which stays as it is.
func (m Mutation) Apply(schema Schema, seed map[string]any) map[string]any {
	tree := Clone(seed)
	Furnish(schema, tree, m.Path)
	if !m.Sets {
		Remove(tree, m.Path)
		return tree
	}
	Set(tree, m.Path, m.Value)
	return tree
}

// Mutations lists what a seed's places can be changed to, in an order that does not change.
func Mutations(schema Schema, seed map[string]any) []Mutation {
	var all []Mutation
	for _, site := range Sites(schema, seed) {
		all = append(all, mutationsAt(site)...)
	}
	return all
}

func mutationsAt(site Site) []Mutation {
	m := &mutations{site: site}
	m.types()
	m.null()
	switch {
	case site.Schema.XIntOrString:
		m.judge("a quantity or a number of a sort", intOrStrings...)
	case len(site.Schema.Enum) > 0:
		m.enum()
	case site.Schema.Type == "string":
		m.strings()
	case site.Schema.Type == "integer":
		m.integers()
	case site.Schema.Type == "array":
		m.lists()
	case isMap(site.Schema):
		m.maps()
	case keepsUnknown(site.Schema):
		m.judge("part of a pod", podParts()...)
	case site.Schema.Type == "object":
		m.objects()
	case site.Schema.Type == "boolean":
		m.judge("a boolean", true, false)
	}
	return m.all
}

type mutations struct {
	site Site
	all  []Mutation
}

func (m *mutations) add(want Expectation, what string, value any) {
	m.all = append(m.all, Mutation{What: what, Path: m.site.Path, Value: value, Sets: true, Want: want, Present: m.site.Present})
}

func (m *mutations) refuse(what string, values ...any) {
	for _, value := range values {
		m.add(Refused, what, value)
	}
}

func (m *mutations) judge(what string, values ...any) {
	for _, value := range values {
		m.add(Judged, what, value)
	}
}

// types has a value of every type that is not the schema's.
func (m *mutations) types() {
	values := map[string]any{
		"string": "text", "integer": int64(7), "boolean": true, "array": []any{}, "object": map[string]any{}, "number": 1.5,
	}
	for _, name := range []string{"string", "integer", "boolean", "array", "object", "number"} {
		switch {
		case name == m.site.Schema.Type,
			m.site.Schema.XIntOrString && (name == "string" || name == "integer"):
			continue
		}
		m.refuse("of type "+name, values[name])
	}
}

// null is what a template leaves that has no value for something. In a list it stands for nothing;
// elsewhere it is as good as left out.
func (m *mutations) null() {
	if _, isItem := m.site.Path[len(m.site.Path)-1].(int); isItem {
		m.refuse("null", nil)
		return
	}
	m.add(LikeAbsent, "null", nil)
}

func (m *mutations) enum() {
	values := enumOf(m.site.Schema)
	m.refuse("not of the enum", "", "campaign", values[0]+" ", " "+values[0], swapCase(values[0]), strings.Join(values, ",")+",")
	for _, value := range values {
		m.judge("of the enum", value)
	}
}

func swapCase(text string) string {
	if upper := strings.ToUpper(text); upper != text {
		return upper
	}
	return strings.ToLower(text)
}

func (m *mutations) strings() {
	schema := m.site.Schema
	if schema.MaxLength != nil {
		most := int(*schema.MaxLength)
		m.refuse("longer than the maximum", strings.Repeat("a", most+1), strings.Repeat("ä", most+1))
		m.judge("as long as the maximum", strings.Repeat("a", most), "/"+strings.Repeat("a", most-1))
	}
	if schema.MinLength != nil && *schema.MinLength > 0 {
		m.refuse("shorter than the minimum", strings.Repeat("a", int(*schema.MinLength)-1))
	}
	for _, text := range texts {
		if schema.MaxLength != nil && len(text) > int(*schema.MaxLength) || schema.MinLength != nil && len(text) < int(*schema.MinLength) {
			continue
		}
		m.judge(SomeText, text)
	}
}

func (m *mutations) integers() {
	schema := m.site.Schema
	const tooMuch = float64(1 << 63) // an int64 does not hold it
	m.refuse("beyond all integers", tooMuch, -2*tooMuch)
	if schema.Format == "int32" {
		m.refuse("beyond its format", int64(1)<<31, -int64(1)<<31-1)
	}
	numbers := map[string]int64{"zero": 0, "minus one": -1, "the least of its format": -1 << 31, "the most of its format": 1<<31 - 1}
	if schema.Minimum != nil {
		numbers["one below the minimum"], numbers["the minimum"] = int64(*schema.Minimum)-1, int64(*schema.Minimum)
	}
	if schema.Maximum != nil {
		numbers["the maximum"], numbers["one above the maximum"] = int64(*schema.Maximum), int64(*schema.Maximum)+1
	}
	for _, what := range []string{
		"zero", "minus one", "the least of its format", "the most of its format",
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
		m.judge(what, number)
	}
}

func (m *mutations) lists() {
	schema := m.site.Schema
	items, _ := m.site.Value.([]any)
	item := sample(*schema.Items.Schema)
	if len(items) > 0 {
		item = items[0]
	}
	if schema.MaxItems != nil {
		m.refuse("more items than the maximum", repeat(item, int(*schema.MaxItems)+1))
	}
	if schema.MinItems != nil && *schema.MinItems > 0 {
		m.refuse("fewer items than the minimum", repeat(item, int(*schema.MinItems)-1))
	} else {
		m.judge("no items", []any{})
	}
	if schema.XListType != nil && *schema.XListType != "atomic" {
		m.refuse("an item twice", []any{item, item})
	} else if len(items) > 0 {
		m.judge("an item twice", []any{item, item})
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
	schema := m.site.Schema
	value := sample(*schema.AdditionalProperties.Schema)
	if schema.MaxProperties != nil {
		entries := map[string]any{}
		for i := range int(*schema.MaxProperties) + 1 {
			entries[fmt.Sprintf("key%d", i)] = value
		}
		m.refuse("more keys than the maximum", entries)
	}
	m.judge("no keys", map[string]any{})
	for _, key := range keys {
		m.judge(SomeKey, map[string]any{key: value})
	}
}

func (m *mutations) objects() {
	schema, path := m.site.Schema, m.site.Path
	m.all = append(m.all, Mutation{What: "an unknown field", Path: path.Child("campaignUnknown"), Value: int64(1), Sets: true, Want: Pruned, Present: m.site.Present})
	for _, name := range schema.Required {
		if schema.Properties[name].Default != nil {
			continue
		}
		m.all = append(m.all, Mutation{What: "left out", Path: path.Child(name), Want: Refused, Present: m.site.Present})
	}
	if len(schema.Required) == 0 {
		m.judge("empty", map[string]any{})
	}
}

// Changes lists changes of what a stored object must not change: the fields whose rules look at the
// old value.
func Changes(schema Schema, seed map[string]any) []Mutation {
	var all []Mutation
	for _, site := range Sites(schema, seed) {
		for _, rule := range site.Schema.XValidations {
			if strings.Contains(rule.Rule, "oldSelf") {
				all = append(all, changesOf(site, rule)...)
			}
		}
	}
	return all
}

func changesOf(site Site, rule apiextensionsv1.ValidationRule) []Mutation {
	var all []Mutation
	if field := strings.TrimPrefix(rule.FieldPath, "."); field != "" {
		value, present := Get(site.Value, Path{field})
		site = Site{Path: site.Path.Child(field), Schema: step(site.Schema, field), Value: value, Present: present}
		if present {
			all = append(all, Mutation{What: "taken away", Path: site.Path})
		} else {
			value = "campaign000"
			site.Value = value
		}
	}
	others := enumOf(site.Schema)
	if text, ok := site.Value.(string); ok && len(others) == 0 {
		others = []string{text[:len(text)-1] + "0", text[:len(text)-1] + "1", strings.ToUpper(text)}
	}
	for _, other := range others {
		if other != site.Value || !site.Present {
			all = append(all, Mutation{What: "changed", Path: site.Path, Value: other, Sets: true})
		}
	}
	return all
}
