package specs

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// Path is the path of a value: a string is a field or the key of a map, an int the index of a list.
type Path []any

// Child returns the path of a value below.
func (p Path) Child(step any) Path { return append(slices.Clip(slices.Clone(p)), step) }

// String returns the path as the API server writes it in messages.
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

// Covers reports whether the other path equals this one or lies below it.
func (p Path) Covers(other Path) bool {
	return len(p) <= len(other) && slices.Equal(p, other[:len(p)])
}

// Get returns the value at a path and whether it exists.
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

// Set sets the value at a path. Its parent must exist.
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

// Remove removes a field.
func Remove(tree any, path Path) {
	holder, _ := Get(tree, path[:len(path)-1])
	if fields, ok := holder.(map[string]any); ok {
		if name, isName := path[len(path)-1].(string); isName {
			delete(fields, name)
		}
	}
}

// Clone returns a deep copy.
func Clone(tree map[string]any) map[string]any { return runtime.DeepCopyJSON(tree) }
