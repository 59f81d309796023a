package specs

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// Path leads to a value in a tree: a string is a field or the key of a map, an int the index of an
// item.
type Path []any

// Child is the path of what lies below.
func (p Path) Child(step any) Path { return append(slices.Clip(slices.Clone(p)), step) }

// String is the path as the API server writes it in its messages.
func (p Path) String() string {
	var b strings.Builder
	for _, step := range p {
		switch step := step.(type) {
		case int:
			fmt.Fprintf(&b, "[%d]", step)
		case string:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(step)
		}
	}
	return b.String()
}

// Covers says whether the other path leads to the same value or to one below it.
func (p Path) Covers(other Path) bool {
	return len(p) <= len(other) && slices.Equal(p, other[:len(p)])
}

// Get returns the value at a path, and whether there is one.
func Get(tree any, path Path) (any, bool) {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			fields, ok := tree.(map[string]any)
			if !ok {
				return nil, false
			}
			if tree, ok = fields[step]; !ok {
				return nil, false
			}
		case int:
			items, ok := tree.([]any)
			if !ok || step >= len(items) {
				return nil, false
			}
			tree = items[step]
		}
	}
	return tree, true
}

// Set puts a value where a path leads. What holds the value has to be there.
func Set(tree any, path Path, value any) {
	holder, ok := Get(tree, path[:len(path)-1])
	if !ok {
		panic(fmt.Sprintf("setting %s: nothing holds it", path))
	}
	switch step := path[len(path)-1].(type) {
	case string:
		if fields, ok := holder.(map[string]any); ok {
			fields[step] = value
		}
	case int:
		if items, ok := holder.([]any); ok && step < len(items) {
			items[step] = value
		}
	}
}

// Remove takes a field out.
func Remove(tree any, path Path) {
	holder, _ := Get(tree, path[:len(path)-1])
	if fields, ok := holder.(map[string]any); ok {
		if name, isName := path[len(path)-1].(string); isName {
			delete(fields, name)
		}
	}
}

// Clone copies a tree.
func Clone(tree map[string]any) map[string]any { return runtime.DeepCopyJSON(tree) }
