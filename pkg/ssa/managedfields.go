package ssa

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// beforeFirstApply is the manager to which the API server assigns every field of an object that had no managed fields
// when it was applied to. See k8s.io/apimachinery/pkg/util/managedfields/internal/skipnonapplied.go.
const beforeFirstApply = "before-first-apply"

// handOverSuffix names the field manager that holds a field which was handed over, until its new manager writes it.
const handOverSuffix = "-handover"

// managedFields are those of one object. Methods change who holds a field, and never its value.
type managedFields struct {
	entries []managedEntry
	changed bool
}

type managedEntry struct {
	metav1.ManagedFieldsEntry
	set *fieldSet
}

// appliedEntry finds the entry that the API server keeps for the manager's applies, or nil.
func appliedEntry(live metav1.Object, manager, subresource string) *metav1.ManagedFieldsEntry {
	entries := live.GetManagedFields()
	for i := range entries {
		if e := &entries[i]; e.Manager == manager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == subresource {
			return e
		}
	}
	return nil
}

// applyEntry is what the API server records for the applies of a manager.
func applyEntry(manager, apiVersion, subresource string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: apiVersion, Subresource: subresource, FieldsType: "FieldsV1",
	}
}

func parseManagedFields(live metav1.Object) (m managedFields) {
	for _, entry := range live.GetManagedFields() {
		m.entries = append(m.entries, managedEntry{entry, entryFields(&entry)})
	}
	return m
}

// encode returns the entries that hold something if any was changed, and else nil.
func (m managedFields) encode() ([]metav1.ManagedFieldsEntry, error) {
	if !m.changed {
		return nil, nil
	}
	entries := make([]metav1.ManagedFieldsEntry, 0, len(m.entries))
	for _, entry := range m.entries {
		if entry.set.Empty() {
			continue
		}
		fields, err := fieldsJSON(entry.set)
		if err != nil {
			return nil, err
		}
		entry.FieldsV1 = metav1.NewFieldsV1(fields)
		entries = append(entries, entry.ManagedFieldsEntry)
	}
	return entries, nil
}

// except leaves out what the applier holds.
func (m managedFields) except(applier metav1.ManagedFieldsEntry) managedFields {
	return managedFields{entries: slices.DeleteFunc(slices.Clone(m.entries), func(e managedEntry) bool { return e.isOf(applier) })}
}

// fields are those that any manager holds.
func (m managedFields) fields() *fieldSet {
	all := &fieldSet{}
	for _, entry := range m.entries {
		all = all.Union(entry.set)
	}
	return all
}

// take removes from each entry the fields that from returns for it, and returns all that was removed.
func (m *managedFields) take(from func(managedEntry) *fieldSet) *fieldSet {
	taken := &fieldSet{}
	m.entries = slices.Clone(m.entries)
	for i, entry := range m.entries {
		if fields := entry.set.Intersection(from(entry)); !fields.Empty() {
			taken, m.changed = taken.Union(fields), true
			m.entries[i].set = withoutEmptied(entry.set.Difference(fields), entry.set)
		}
	}
	return taken
}

// grant adds fields to the entry of an applier.
func (m *managedFields) grant(to metav1.ManagedFieldsEntry, fields *fieldSet) {
	entry := m.entryOf(to)
	if granted := entry.set.Union(fields); !granted.Equals(entry.set) {
		entry.set, m.changed = granted, true
	}
}

// entryOf finds the entry of an applier, or adds an empty one.
func (m *managedFields) entryOf(applier metav1.ManagedFieldsEntry) *managedEntry {
	i := slices.IndexFunc(m.entries, func(e managedEntry) bool { return e.isOf(applier) })
	if i < 0 {
		i = len(m.entries)
		m.entries = append(m.entries, managedEntry{applier, &fieldSet{}})
	}
	return &m.entries[i]
}

// inherit gives an applier what its former managers hold by Update: the next apply removes what is not desired.
func (m *managedFields) inherit(to metav1.ManagedFieldsEntry, former sets.Set[string]) {
	m.grant(to, m.take(func(e managedEntry) *fieldSet {
		if e.updatesBeside(to) && former.Has(e.Manager) {
			return e.set
		}
		return &fieldSet{}
	}))
}

// seize makes the applier the only manager of the fields, so that an apply without them removes them.
func (m *managedFields) seize(by metav1.ManagedFieldsEntry, fields *fieldSet) {
	m.take(func(e managedEntry) *fieldSet {
		if e.isOf(by) {
			return &fieldSet{}
		}
		return fields
	})
	m.grant(by, fields)
}

// updatesBeside leaves out entries at other API versions, whose paths are those of another schema. That of
// beforeFirstApply, which is at the version of whoever applied first, gives up the paths that both schemas have.
func (e managedEntry) updatesBeside(other metav1.ManagedFieldsEntry) bool {
	return e.Operation == metav1.ManagedFieldsOperationUpdate && e.Subresource == other.Subresource &&
		(e.APIVersion == other.APIVersion || e.Manager == beforeFirstApply)
}

func (e managedEntry) isOf(applier metav1.ManagedFieldsEntry) bool {
	return e.Operation == metav1.ManagedFieldsOperationApply && e.Manager == applier.Manager && e.Subresource == applier.Subresource
}

// emptied are the structs, maps and lists of others that an apply of the wanted fields empties. The API server would
// keep them as null, which it refuses in a custom resource (kubernetes-sigs/structured-merge-diff#305).
func (m managedFields) emptied(by metav1.ManagedFieldsEntry, wanted *fieldSet) *fieldSet {
	if m.entryOf(by).set.Difference(wanted).Empty() {
		return &fieldSet{} // nothing is dropped
	}
	left := m.except(by).fields().Union(wanted)
	return left.Difference(withoutEmptied(left, m.fields())).Difference(wanted)
}

// handOver adds the fields that are about to be dropped to an entry of their own, so that they keep their value.
func (m *managedFields) handOver(from metav1.ManagedFieldsEntry, wanted *fieldSet, paths []fieldPath) {
	dropped := slices.DeleteFunc(paths, func(p fieldPath) bool { return holds(wanted, p) })
	m.grant(applyEntry(from.Manager+handOverSuffix, from.APIVersion, ""), within(m.entryOf(from).set, dropped))
}

// planManagedFields computes the managed fields with which the apply removes what it no longer contains, and keeps what
// it hands over.
func (a *Applier) planManagedFields(d *Decision) (err error) {
	e, m, mine := d.evidence, d.evidence.managed, d.evidence.target.entry()
	if len(e.live.GetManagedFields()) == 0 && !d.reclaim.Empty() {
		if m, err = a.attribute(e); err != nil {
			return err
		}
	}
	m.inherit(mine, a.former)
	m.take(d.released)
	m.handOver(mine, e.expected, parseFieldPaths(d.Request.HandOver))
	obstacles := d.obstacles()
	m.seize(mine, obstacles)
	emptied := m.emptied(mine, e.expected)
	m.seize(mine, emptied)
	d.blocked, d.managedFields = m.changed && !obstacles.Union(emptied).Empty(), m
	return nil
}

// released are the fields that another manager must not hold by Update, or they stay when the applier drops them.
func (d Decision) released(other managedEntry) *fieldSet {
	e, owned := d.evidence, d.evidence.expected.Union(d.reclaim)
	switch {
	case !other.updatesBeside(e.target.entry()):
		return &fieldSet{}
	case other.Manager == beforeFirstApply:
		owned = owned.Union(e.held)
	case d.Request.Owner == nil || e.entry != nil && d.Action != ActionAdopt:
		return &fieldSet{} // only what was never applied to was unmanaged, whoever controls the object
	}
	return dependentOn(other.set, owned, func(p fieldPath) int { return fieldsAtEnd(e.live, p) })
}

// attribute returns the entry that the API server would create at an apply to an object whose managed fields were wiped.
// Without it, what others have set would be removed together with what is reclaimed.
func (a *Applier) attribute(e evidence) (managedFields, error) {
	tree := maps.Clone(e.liveTree)
	delete(tree, statusSubresource)
	tree["apiVersion"], tree["kind"] = e.target.id.apiVersion(), e.target.id.gvk.Kind
	fields, _, err := a.schemas.fieldsOf(tree)
	if err != nil {
		return managedFields{}, fmt.Errorf("attributing the fields of %s: %w", e.target.id, err)
	}
	entry := applyEntry(beforeFirstApply, e.target.id.apiVersion(), "")
	entry.Operation, entry.FieldsV1 = metav1.ManagedFieldsOperationUpdate, metav1.NewFieldsV1(fields)
	return parseManagedFields(&metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{entry}}), nil
}

// obstacles are the fields that must be seized so that the apply removes them: what is reclaimed, and what the API server
// refuses beside the configuration.
func (d Decision) obstacles() *fieldSet {
	e, found := d.evidence, d.reclaim
	for _, path := range d.refused() {
		if v, ok := lookup(e.liveTree, path); ok && !holds(e.expected, path) {
			found = found.Union(claimTo(v, path))
		}
	}
	if d.Left {
		return found // desired items are left as others have changed them, so none takes their place
	}
	for _, names := range parseFieldPaths(d.Request.UniqueFields) {
		for _, rival := range rivalItems(e, names) {
			v, _ := lookup(e.liveTree, rival)
			found = found.Union(claimTo(v, rival))
		}
	}
	return found
}

// refused are the paths of [Request.RemoveFields]. Those of fields that exclude each other are beside what is sent: under
// ReportDrift, a field that replaced another stays.
func (d Decision) refused() (paths []fieldPath) {
	sent := d.evidence.expected.Difference(within(d.evidence.expected, d.leave))
	for _, dotted := range d.Request.RemoveFields {
		group := parseFieldPaths(alternatives(dotted))
		if len(group) == 1 {
			paths = append(paths, group...)
			continue
		}
		sent.Iterate(func(p fieldPath) {
			for _, field := range group {
				at, ok := occurrence(p, field)
				if !ok {
					continue
				}
				for _, other := range group {
					paths = append(paths, slices.Concat(at[:len(at)-1], other[len(other)-1:]))
				}
			}
		})
	}
	return paths
}

// rivalItems are the list items that share the value of the unique field with a desired one. An edit of an item's key,
// such as the number of a port, replaces the item by a rival.
func rivalItems(e evidence, unique fieldPath) (rivals []fieldPath) {
	desired := inItems(e.expected, unique)
	for _, p := range inItems(e.managed.fields(), unique) {
		item := p[:len(p)-1]
		v, found := lookup(e.liveTree, p)
		if found && !holds(e.expected, item) && slices.ContainsFunc(desired, func(d fieldPath) bool {
			want, _ := lookup(e.target.tree, d)
			return d[:len(d)-2].Equals(p[:len(p)-2]) && reflect.DeepEqual(want, v) // in the same list
		}) {
			rivals = append(rivals, item)
		}
	}
	return rivals
}
