package specs

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// TypedPath returns the path of the mutation's field as errors of server-side apply write it: with the keys of list
// items in place of their indices. If the mutation makes an item unidentifiable, or repeats it, the error names the
// list.
func (m Mutation) TypedPath(schema Schema, tree map[string]any) string {
	var b strings.Builder
	at := Path{}
	for _, step := range m.Path {
		switch step := step.(type) {
		case string:
			b.WriteString("." + step)
		case int:
			item, _ := Get(tree, at.Child(step))
			element, ok := elementOf(schema, item, step)
			if !ok {
				return b.String()
			}
			b.WriteString(element)
		}
		schema, at = schemaOf(schema, step), at.Child(step)
	}
	return b.String()
}

// Renderings returns the forms in which validation reports a path: keys of maps follow a dot or stand in brackets, and
// an error of a map's value can name the map.
func Renderings(schema Schema, path Path) []string {
	names := []string{path.String()}
	var brackets Path
	for i, step := range path {
		key, isKey := step.(string)
		if isKey && isMap(schema) {
			names = append(names, brackets.String()+"["+key+"]"+strings.TrimPrefix(path.String(), path[:i+1].String()))
			if i == len(path)-1 {
				names = append(names, brackets.String())
			}
		}
		brackets, schema = path[:i+1], schemaOf(schema, step)
	}
	return names
}

// elementOf returns the path element of a list item, and whether the item can be identified.
func elementOf(list Schema, item any, index int) (string, bool) {
	kind := "atomic"
	if list.XListType != nil {
		kind = *list.XListType
	}
	switch kind {
	case "set":
		if _, isList := item.([]any); isList {
			return "", false // a set cannot hold it
		}
		text, ok := keyText(item)
		return "[=" + text + "]", ok
	case "map":
		fields, ok := item.(map[string]any)
		if !ok {
			return "", false
		}
		keys := slices.Sorted(slices.Values(list.XListMapKeys))
		var pairs []string
		for _, key := range keys {
			value, exists := fields[key]
			if fallback := list.Items.Schema.Properties[key].Default; !exists && fallback != nil {
				value, exists = decodeValue(*fallback), true
			}
			text, ok := keyText(value)
			if !exists || !ok {
				return "", false
			}
			pairs = append(pairs, key+"="+text)
		}
		return "[" + strings.Join(pairs, ",") + "]", true
	default:
		return fmt.Sprintf("[%d]", index), true
	}
}

// keyText renders the value of a key as structured-merge-diff does. Null is not a key.
func keyText(value any) (string, bool) {
	switch value := value.(type) {
	case nil:
		return "", false
	case map[string]any:
		return "", true
	case []any:
		return "[]", true
	default:
		text, err := json.Marshal(value)
		return string(text), err == nil
	}
}
