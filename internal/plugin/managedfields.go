package plugin

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// The elements of managed fields, as the API server serializes them: "f:name" is a field, `k:{"name":"x"}` the item of
// a list by its keys, `v:1` an item by its value, "." the element itself.
const (
	fieldPrefix = "f:"
	keyPrefix   = "k:"
	valuePrefix = "v:"
	itself      = "."
)

// leavesOf lists the paths of the leaves of managed fields, each as its elements, sorted.
func leavesOf(fieldsV1 []byte) [][]string {
	var tree map[string]any
	if err := json.Unmarshal(fieldsV1, &tree); err != nil {
		return nil
	}
	return leavesBelow(tree, nil)
}

func leavesBelow(tree map[string]any, path []string) [][]string {
	var leaves [][]string
	for _, element := range slices.Sorted(maps.Keys(tree)) {
		if element == itself {
			continue
		}
		below := append(slices.Clone(path), element)
		children, _ := tree[element].(map[string]any)
		deeper := leavesBelow(children, below)
		if len(deeper) == 0 {
			deeper = [][]string{below}
		}
		leaves = append(leaves, deeper...)
	}
	return leaves
}

// selects says whether an element of managed fields is the field of that name, or the item of a list.
func selectsItem(element string, item any) bool {
	switch {
	case strings.HasPrefix(element, keyPrefix):
		var keys map[string]any
		fields, isMap := item.(map[string]any)
		if err := json.Unmarshal([]byte(element[len(keyPrefix):]), &keys); err != nil || !isMap {
			return false
		}
		for key, value := range keys {
			if !sameJSON(fields[key], value) {
				return false
			}
		}
		return true
	case strings.HasPrefix(element, valuePrefix):
		var value any
		return json.Unmarshal([]byte(element[len(valuePrefix):]), &value) == nil && sameJSON(item, value)
	default:
		return false
	}
}

// sameJSON compares two values as JSON: numbers have several Go types.
func sameJSON(a, b any) bool {
	one, errOne := json.Marshal(a)
	other, errOther := json.Marshal(b)
	return errOne == nil && errOther == nil && string(one) == string(other)
}
