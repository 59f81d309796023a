package ssa

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v4/value"
)

// This file is the only one that knows structured-merge-diff v4. The Kubernetes libraries use v6
// of it; what crosses between the two is the JSON of FieldsV1, which both write byte for byte alike.
type (
	fieldSet  = fieldpath.Set  // never changed once it is built
	fieldPath = fieldpath.Path // prints as in the API server's conflict messages
)

// serverOwned are the paths that the API server never records for an applier. It follows stripMetaManager in
// k8s.io/apimachinery/pkg/util/managedfields/internal.
var serverOwned = pathSet(makeFieldPath("apiVersion"), makeFieldPath("kind"), makeFieldPath("metadata"),
	makeFieldPath("metadata", "name"), makeFieldPath("metadata", "namespace"), makeFieldPath("metadata", "creationTimestamp"),
	makeFieldPath("metadata", "selfLink"), makeFieldPath("metadata", "uid"), makeFieldPath("metadata", "clusterName"),
	makeFieldPath("metadata", "generation"), makeFieldPath("metadata", "managedFields"), makeFieldPath("metadata", "resourceVersion"))

// maxNesting bounds the field sets that other clients write, because they take time with the square of their depth. The
// deepest schemas of Kubernetes have some twenty levels.
const maxNesting = 128

// parseFields reads the JSON of a FieldsV1; no bytes are the empty set.
func parseFields(raw []byte) (*fieldSet, error) {
	set := &fieldSet{}
	if len(raw) == 0 {
		return set, nil
	}
	if err := set.FromJSON(bytes.NewReader(raw)); err != nil {
		return nil, fmt.Errorf("parsing managed fields: %w", err)
	}
	return set, nil
}

// nesting is at least how deep the braces of a JSON document are nested: those in strings count too.
func nesting(raw []byte) (deepest int) {
	depth := 0
	for _, c := range raw {
		switch c {
		case '{':
			depth++
		case '}':
			depth--
		}
		deepest = max(deepest, depth)
	}
	return deepest
}

// entryFields reads the field set of an entry. One that no schema gives counts as empty, so that it cannot stop the applier.
func entryFields(entry *metav1.ManagedFieldsEntry) *fieldSet {
	if entry == nil || nesting(entry.FieldsV1.GetRawBytes()) > maxNesting {
		return &fieldSet{}
	}
	set, err := parseFields(entry.FieldsV1.GetRawBytes())
	if err != nil {
		return &fieldSet{}
	}
	return set
}

func fieldsJSON(s *fieldSet) (string, error) {
	raw, err := s.ToJSON()
	if err != nil {
		return "", fmt.Errorf("serializing managed fields: %w", err)
	}
	return string(raw), nil
}

// filter keeps the members for which keep is true.
func filter(s *fieldSet, keep func(fieldPath) bool) *fieldSet {
	kept := &fieldSet{}
	s.Iterate(func(p fieldPath) {
		if keep(p) {
			kept.Insert(p.Copy())
		}
	})
	return kept
}

// tops lists the members that have no ancestor among the members: a removed list item is one path.
func tops(s *fieldSet) []fieldPath {
	var found []fieldPath
	s.Iterate(func(p fieldPath) {
		if len(ancestors(s, p)) == 0 {
			found = append(found, p.Copy())
		}
	})
	return found
}

// holds says whether the set contains the path or something below it.
func holds(s *fieldSet, p fieldPath) bool { return s.Has(p) || !below(s, p).Empty() }

// ancestors are the members that the path lies within. In sets of the same schema they are only markers of list items and
// maps, which are no claims to what is in them.
func ancestors(s *fieldSet, p fieldPath) (members []fieldPath) {
	for i := 1; i < len(p); i++ {
		if s.Has(p[:i]) {
			members = append(members, p[:i])
		}
	}
	return members
}

// holdsAtomic says whether the set, at another API version, contains what may be an atomic struct or list there, and
// the path lies within. A marker is none, if the set contains something in it. Metadata is the same at all versions.
func holdsAtomic(s *fieldSet, p fieldPath) bool {
	return !makeFieldPath("metadata").Equals(p[:1]) &&
		slices.ContainsFunc(ancestors(s, p), func(above fieldPath) bool { return below(s, above).Empty() })
}

// below is the part of the set under the path, relative to it.
func below(s *fieldSet, p fieldPath) *fieldSet {
	for _, pe := range p {
		s = s.WithPrefix(pe)
	}
	return s
}

// within is the part of the set at the paths and below them.
func within(s *fieldSet, paths []fieldPath) *fieldSet {
	return s.Difference(s.RecursiveDifference(pathSet(paths...)))
}

// claimTo is the set that manages the value at the path, with all fields of it. A list is one field.
func claimTo(v any, at fieldPath) *fieldSet {
	claim := pathSet(at)
	fields, _ := v.(map[string]any)
	for name, field := range fields {
		claim = claim.Union(claimTo(field, slices.Concat(at, makeFieldPath(name))))
	}
	return claim
}

// dependentOn are the fields of the set that must go for the owner of the other set to be able to drop what it owns: the
// same fields, those inside its list items, and those in structs below spec that it owns a part of. The last, often
// only defaults, would keep a struct without the fields that it needs. Keys of maps and items of lists are independent.
func dependentOn(s, owned *fieldSet, fieldsAtEnd func(fieldPath) int) *fieldSet {
	const top = 2
	return filter(s, func(p fieldPath) bool {
		isInItem := slices.ContainsFunc(ancestors(owned, p), func(above fieldPath) bool { return above[len(above)-1].FieldName == nil })
		around := p[:max(len(p)-fieldsAtEnd(p), min(top, len(p)))]
		return owned.Has(p) || isInItem || len(around) < len(p) && !below(owned, around).Empty()
	})
}

// sameValues is true if stored has the values that desired has at the leaves of the set. To an empty struct or list,
// other managers may have added something.
func sameValues(s *fieldSet, desired, stored map[string]any) bool {
	return filter(s.Leaves(), func(p fieldPath) bool {
		want, _ := lookup(desired, p)
		have, found := lookup(stored, p)
		if reflect.TypeOf(want) == reflect.TypeOf(have) && isEmptyContainer(want) {
			return false
		}
		return !found || !value.Equals(value.NewValueInterface(want), value.NewValueInterface(have))
	}).Empty()
}

func isEmptyContainer(v any) bool {
	kind := reflect.ValueOf(v).Kind()
	return (kind == reflect.Map || kind == reflect.Slice) && reflect.ValueOf(v).Len() == 0
}

// withoutEmptied drops the markers of what held something before and holds nothing now: a claim to an empty struct would
// keep it when its fields are removed.
func withoutEmptied(s, before *fieldSet) *fieldSet {
	kept := filter(s, func(p fieldPath) bool { return below(before, p).Empty() || !below(s, p).Empty() })
	if kept.Equals(s) {
		return s
	}
	return withoutEmptied(kept, before) // what held only markers is empty now
}

// makeFieldPath builds a path of field names, and of values of sets.
var makeFieldPath = fieldpath.MakePathOrDie

// parseFieldPaths reads paths of field names such as spec.replicas.
func parseFieldPaths(dotted []string) []fieldPath {
	paths := make([]fieldPath, len(dotted))
	for i, d := range dotted {
		for name := range strings.SplitSeq(strings.TrimPrefix(d, "."), ".") {
			paths[i] = append(paths[i], makeFieldPath(name)...)
		}
	}
	return paths
}

// alternatives are the paths that a path stands for whose last element has several names, such as
// spec.minAvailable|maxUnavailable.
func alternatives(dotted string) []string {
	last := strings.LastIndexByte(dotted, '.') + 1
	paths := strings.Split(dotted[last:], "|")
	for i, name := range paths {
		paths[i] = dotted[:last] + name
	}
	return paths
}

// occurrence is the beginning of a path that the field names lead to, inside any items of lists.
func occurrence(p, names fieldPath) (fieldPath, bool) {
	matched := 0
	for i, pe := range p {
		if pe.FieldName == nil {
			continue
		}
		if !pe.Equals(names[matched]) {
			return nil, false
		}
		if matched++; matched == len(names) {
			return p[:i+1], true
		}
	}
	return nil, false
}

// inItems are the members, inside keyed items of lists, that these field names lead to.
func inItems(s *fieldSet, names fieldPath) (found []fieldPath) {
	s.Iterate(func(p fieldPath) {
		fields := slices.DeleteFunc(p.Copy(), func(pe fieldpath.PathElement) bool { return pe.FieldName == nil })
		if fields.Equals(names) && len(p) > 1 && p[len(p)-2].Key != nil {
			found = append(found, p.Copy())
		}
	})
	return found
}

func finalizerPath(finalizer string) fieldPath {
	return makeFieldPath("metadata", "finalizers", value.NewValueInterface(finalizer))
}

func pathSet(paths ...fieldPath) *fieldSet { return fieldpath.NewSet(paths...) }

// lookup finds the value at the path in a decoded JSON document.
func lookup(at any, p fieldPath) (v any, found bool) {
	for _, pe := range p {
		found = false
		switch in := at.(type) {
		case map[string]any:
			if pe.FieldName != nil {
				at, found = in[*pe.FieldName]
			}
		case []any:
			if i := indexOf(in, pe); i >= 0 {
				at, found = in[i], true
			}
		}
		if !found {
			return nil, false
		}
	}
	return at, true
}

// without removes the value at the path from a decoded JSON document, in place, and structs that it has emptied: beside
// what has taken the place of their fields, the API server may refuse even an empty one, such as httpGet.
func without(document map[string]any, p fieldPath) {
	last := len(p) - 1
	parent, _ := lookup(document, p[:last])
	switch in := parent.(type) {
	case map[string]any:
		name := ptr.Deref(p[last].FieldName, "")
		_, exists := in[name]
		delete(in, name)
		if exists && len(in) == 0 && last > 0 && p[last-1].FieldName != nil {
			without(document, p[:last])
		}
	case []any:
		holder, _ := lookup(document, p[:last-1])
		if fields, ok := holder.(map[string]any); ok && indexOf(in, p[last]) >= 0 {
			i := indexOf(in, p[last])
			fields[*p[last-1].FieldName] = slices.Delete(in, i, i+1)
		}
	}
}

// indexOf finds an item of a list. A key field that the item leaves out matches: the schema may default it (a port's
// protocol), and a configuration holds no defaults.
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
