package ssa

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v4/value"
)

// This file is the only one that knows structured-merge-diff v4. The Kubernetes libraries use v6
// of it; what crosses between the two is the JSON of FieldsV1, which both write byte for byte alike.

// fieldSet is a set of field paths, as managedFields records them. The zero value is empty.
type fieldSet struct{ set fieldpath.Set }

// fieldPath is one member of a fieldSet.
type fieldPath struct{ path fieldpath.Path }

// serverOwned are the paths that the API server never records for an applier.
// It follows stripMetaManager in k8s.io/apimachinery/pkg/util/managedfields/internal.
var serverOwned = fieldpath.NewSet(
	fieldpath.MakePathOrDie("apiVersion"),
	fieldpath.MakePathOrDie("kind"),
	fieldpath.MakePathOrDie("metadata"),
	fieldpath.MakePathOrDie("metadata", "name"),
	fieldpath.MakePathOrDie("metadata", "namespace"),
	fieldpath.MakePathOrDie("metadata", "creationTimestamp"),
	fieldpath.MakePathOrDie("metadata", "selfLink"),
	fieldpath.MakePathOrDie("metadata", "uid"),
	fieldpath.MakePathOrDie("metadata", "clusterName"),
	fieldpath.MakePathOrDie("metadata", "generation"),
	fieldpath.MakePathOrDie("metadata", "managedFields"),
	fieldpath.MakePathOrDie("metadata", "resourceVersion"),
)

// parseFields reads the JSON of a FieldsV1; no bytes are the empty set.
func parseFields(raw []byte) (fieldSet, error) {
	var s fieldSet
	if len(raw) == 0 {
		return s, nil
	}
	if err := s.set.FromJSON(bytes.NewReader(raw)); err != nil {
		return fieldSet{}, fmt.Errorf("parsing managed fields: %w", err)
	}
	return s, nil
}

// entryFields reads the field set of one entry of managedFields.
func entryFields(entry *metav1.ManagedFieldsEntry) (fieldSet, error) {
	if entry == nil || entry.FieldsV1 == nil {
		return fieldSet{}, nil
	}
	return parseFields(entry.FieldsV1.GetRawBytes())
}

func (s fieldSet) json() ([]byte, error) {
	raw, err := s.set.ToJSON()
	if err != nil {
		return nil, fmt.Errorf("serializing managed fields: %w", err)
	}
	return raw, nil
}

func (s fieldSet) empty() bool                   { return s.set.Empty() }
func (s fieldSet) has(p fieldPath) bool          { return s.set.Has(p.path) }
func (s fieldSet) equals(other fieldSet) bool    { return s.set.Equals(&other.set) }
func (s fieldSet) minus(other fieldSet) fieldSet { return fieldSet{*s.set.Difference(&other.set)} }
func (s fieldSet) union(other fieldSet) fieldSet { return fieldSet{*s.set.Union(&other.set)} }
func (s fieldSet) intersect(other fieldSet) fieldSet {
	return fieldSet{*s.set.Intersection(&other.set)}
}
func (s fieldSet) withoutServerOwned() fieldSet { return fieldSet{*s.set.Difference(serverOwned)} }

// filter keeps the members for which keep is true.
func (s fieldSet) filter(keep func(fieldpath.Path) bool) fieldSet {
	var kept fieldSet
	s.set.Iterate(func(p fieldpath.Path) {
		if keep(p) {
			kept.set.Insert(p.Copy())
		}
	})
	return kept
}

// tops lists the members that have no ancestor among the members: a removed list item is one
// path, not one for each of its fields.
func (s fieldSet) tops() []fieldPath {
	var tops []fieldPath
	s.set.Iterate(func(p fieldpath.Path) {
		for i := 1; i < len(p); i++ {
			if s.set.Has(p[:i]) {
				return
			}
		}
		tops = append(tops, fieldPath{path: p.Copy()})
	})
	return tops
}

// holds says whether the set contains the path or something below it.
func (s fieldSet) holds(p fieldPath) bool {
	return s.set.Has(p.path) || !s.below(p).empty()
}

// holdsAbove says whether the set contains something that the path lies within. In sets of the
// same schema that is only the marker of a list item or a map, which is no claim to what is in it;
// at another API version it may be an atomic struct or list.
func (s fieldSet) holdsAbove(p fieldPath) bool {
	for i := 1; i < len(p.path); i++ {
		if s.set.Has(p.path[:i]) {
			return true
		}
	}
	return false
}

// below is the part of the set under the path, relative to it.
func (s fieldSet) below(p fieldPath) fieldSet {
	at := &s.set
	for _, pe := range p.path {
		at = at.WithPrefix(pe)
	}
	return fieldSet{*at}
}

// within is the part of the set at the path and below it.
func (s fieldSet) within(p fieldPath) fieldSet {
	return s.filter(func(member fieldpath.Path) bool {
		return len(member) >= len(p.path) && member[:len(p.path)].Equals(p.path)
	})
}

// leavesOf lists the fields of the value at the path, with lists as one field each.
func leavesOf(v any, at fieldPath) []fieldPath {
	fields, ok := v.(map[string]any)
	if !ok || len(fields) == 0 {
		return []fieldPath{at}
	}
	var leaves []fieldPath
	for name, below := range fields {
		leaves = append(leaves, leavesOf(below, at.child(name))...)
	}
	return leaves
}

// outsideItemsOf drops what lies inside list items that the other set owns. An item whose
// remaining fields another manager holds cannot be removed by its owner.
func (s fieldSet) outsideItemsOf(owned fieldSet) fieldSet {
	return s.filter(func(p fieldpath.Path) bool {
		for i := 1; i < len(p); i++ {
			if p[i-1].FieldName == nil && owned.set.Has(p[:i]) {
				return false
			}
		}
		return true
	})
}

// outsideStructsOf drops what lies in structs that the other set owns a part of, and which its owner
// may drop: those below spec, and not spec itself. Other fields of such a struct, often only
// defaults, would keep it in the object without the fields that it needs. What is in a map or in
// a list stays: its keys and items are independent of each other.
func (s fieldSet) outsideStructsOf(owned fieldSet, shape fieldsAtEnd) fieldSet {
	const top = 2
	return s.filter(func(p fieldpath.Path) bool {
		around := p[:max(len(p)-shape(fieldPath{path: p}), min(top, len(p)))]
		return len(around) == len(p) || owned.below(fieldPath{path: around}).empty()
	})
}

// items lists the items, told apart by keys, of the lists that the names lead to, through the items
// of other lists if need be.
func (s fieldSet) items(list []string) []fieldPath {
	var found fieldSet
	s.set.Iterate(func(p fieldpath.Path) {
		var names []string
		for i, pe := range p {
			if pe.FieldName != nil {
				names = append(names, *pe.FieldName)
			}
			if pe.Key != nil && slices.Equal(names, list) {
				found.set.Insert(p[:i+1].Copy())
			}
		}
	})
	var items []fieldPath
	found.set.Iterate(func(p fieldpath.Path) { items = append(items, fieldPath{path: p.Copy()}) })
	return items
}

// outside drops the paths and all that lies below them.
func (s fieldSet) outside(paths []fieldPath) fieldSet {
	dropped := pathSet(paths...)
	return fieldSet{*s.set.RecursiveDifference(&dropped.set)}
}

// withoutEmptied drops the markers of structs, maps and items that held something before and hold
// nothing now: a claim to an empty struct would keep it when its fields are removed.
func (s fieldSet) withoutEmptied(before fieldSet) fieldSet {
	kept := s.filter(func(p fieldpath.Path) bool {
		path := fieldPath{path: p}
		return before.below(path).empty() || !s.below(path).empty()
	})
	if kept.equals(s) {
		return s
	}
	return kept.withoutEmptied(before) // what held only markers is empty now
}

// makeFieldPath builds a path of field names.
func makeFieldPath(names ...string) fieldPath {
	p := make(fieldpath.Path, 0, len(names))
	for i := range names {
		p = append(p, fieldpath.PathElement{FieldName: &names[i]})
	}
	return fieldPath{path: p}
}

// parseFieldPath reads a path of field names such as spec.replicas.
func parseFieldPath(dotted string) fieldPath {
	return makeFieldPath(strings.Split(strings.TrimPrefix(dotted, "."), ".")...)
}

func parseFieldPaths(dotted []string) []fieldPath {
	paths := make([]fieldPath, 0, len(dotted))
	for _, d := range dotted {
		paths = append(paths, parseFieldPath(d))
	}
	return paths
}

// cutLast splits a path such as spec.ports.name into the names before the last, and the last.
func cutLast(dotted string) (before []string, last string) {
	names := strings.Split(strings.TrimPrefix(dotted, "."), ".")
	return names[:len(names)-1], names[len(names)-1]
}

// child is the path of a field below the path.
func (p fieldPath) child(name string) fieldPath {
	return fieldPath{path: append(p.path.Copy(), fieldpath.PathElement{FieldName: &name})}
}

// isBeside is true if both paths are of items of the same list.
func (p fieldPath) isBeside(other fieldPath) bool {
	last := len(p.path) - 1
	return len(other.path) == len(p.path) && p.path[:last].Equals(other.path[:last])
}

// makeListValuePath builds the path of one value in a set list, such as a finalizer.
func makeListValuePath(item string, names ...string) fieldPath {
	v := value.NewValueInterface(item)
	p := makeFieldPath(names...)
	return fieldPath{path: append(p.path, fieldpath.PathElement{Value: &v})}
}

func pathSet(paths ...fieldPath) fieldSet {
	var s fieldSet
	for _, p := range paths {
		s.set.Insert(p.path)
	}
	return s
}

// String is the notation that the API server uses in its conflict messages, for example
// .spec.template.spec.containers[name="web"].image.
func (p fieldPath) String() string {
	var b strings.Builder
	for _, pe := range p.path {
		b.WriteString(pe.String())
	}
	return b.String()
}

// lookup finds the value at the path in a decoded JSON document.
func (p fieldPath) lookup(tree any) (any, bool) {
	at := tree
	for _, pe := range p.path {
		next, ok := childOf(at, pe)
		if !ok {
			return nil, false
		}
		at = next
	}
	return at, true
}

// remove removes the value at the path from a decoded JSON document, in place.
func (p fieldPath) remove(tree map[string]any) {
	last := len(p.path) - 1
	parent, _ := fieldPath{path: p.path[:last]}.lookup(tree)
	switch parent := parent.(type) {
	case map[string]any:
		if name := p.path[last].FieldName; name != nil {
			delete(parent, *name)
		}
	case []any: // the list is a field: no list holds lists
		holder, _ := fieldPath{path: p.path[:last-1]}.lookup(tree)
		fields, ok := holder.(map[string]any)
		if i := indexOf(parent, p.path[last]); ok && i >= 0 {
			fields[*p.path[last-1].FieldName] = slices.Delete(parent, i, i+1)
		}
	}
}

func childOf(at any, pe fieldpath.PathElement) (any, bool) {
	switch at := at.(type) {
	case map[string]any:
		if pe.FieldName != nil {
			v, ok := at[*pe.FieldName]
			return v, ok
		}
	case []any:
		if i := indexOf(at, pe); i >= 0 {
			return at[i], true
		}
	}
	return nil, false
}

// indexOf finds an item of a list. A key field that the item leaves out matches: the schema may
// default it (a port's protocol), and a configuration holds no defaults.
func indexOf(list []any, pe fieldpath.PathElement) int {
	if pe.Index != nil && *pe.Index < len(list) {
		return *pe.Index
	}
	return slices.IndexFunc(list, func(item any) bool {
		if pe.Value != nil {
			return value.Equals(value.NewValueInterface(item), *pe.Value)
		}
		fields, ok := item.(map[string]any)
		return ok && pe.Key != nil && !slices.ContainsFunc(*pe.Key, func(key value.Field) bool {
			v, ok := fields[key.Name]
			return ok && !value.Equals(value.NewValueInterface(v), key.Value)
		})
	})
}
