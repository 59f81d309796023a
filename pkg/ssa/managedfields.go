package ssa

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// beforeFirstApply is the manager to which the API server assigns every field of an object that
// had no managed fields when it was first applied to, or that lost them.
// See k8s.io/apimachinery/pkg/util/managedfields/internal/skipnonapplied.go.
const beforeFirstApply = "before-first-apply"

// handOverSuffix names the field manager that holds a field which was handed over, until its new
// manager writes it.
const handOverSuffix = "-handover"

// managedFields are those of one object. Methods change who holds a field, and never its value.
type managedFields struct {
	entries []managedEntry
	changed bool
}

type managedEntry struct {
	metav1.ManagedFieldsEntry
	set fieldSet
}

func parseManagedFields(live metav1.Object) (managedFields, error) {
	m := managedFields{}
	for i := range live.GetManagedFields() {
		entry := &live.GetManagedFields()[i]
		set, err := entryFields(entry)
		if err != nil {
			return m, fmt.Errorf("reading the managed fields of %s: %w", entry.Manager, err)
		}
		m.entries = append(m.entries, managedEntry{*entry, set})
	}
	return m, nil
}

// encode returns the entries if they were changed, and else nil.
func (m managedFields) encode() ([]metav1.ManagedFieldsEntry, error) {
	if !m.changed {
		return nil, nil
	}
	entries := make([]metav1.ManagedFieldsEntry, 0, len(m.entries))
	for _, entry := range m.entries {
		raw, err := entry.set.json()
		if err != nil {
			return nil, err
		}
		entry.FieldsV1 = metav1.NewFieldsV1(string(raw))
		entries = append(entries, entry.ManagedFieldsEntry)
	}
	return entries, nil
}

// except leaves out what the manager applies.
func (m managedFields) except(manager string) managedFields {
	applied := applyEntry(manager, "", "")
	others := managedFields{}
	for _, entry := range m.entries {
		if !entry.isOf(applied) {
			others.entries = append(others.entries, entry)
		}
	}
	return others
}

// fields are those that any manager holds.
func (m managedFields) fields() fieldSet {
	var all fieldSet
	for _, entry := range m.entries {
		all = all.union(entry.set)
	}
	return all
}

// revise gives each entry the fields that revision returns, and removes one that is left without.
func (m *managedFields) revise(revision func(managedEntry) fieldSet) {
	var kept []managedEntry
	for _, entry := range m.entries {
		if revised := revision(entry); !revised.equals(entry.set) {
			m.changed = true
			if entry.set = revised; revised.empty() {
				continue
			}
		}
		kept = append(kept, entry)
	}
	m.entries = kept
}

// grant adds fields to the entry of an applier, and creates the entry if it does not exist.
func (m *managedFields) grant(to metav1.ManagedFieldsEntry, fields fieldSet) {
	i := slices.IndexFunc(m.entries, func(e managedEntry) bool { return e.isOf(to) })
	if i < 0 {
		m.entries = append(m.entries, managedEntry{ManagedFieldsEntry: to})
		i = len(m.entries) - 1
	}
	if entry := &m.entries[i]; !fields.minus(entry.set).empty() {
		entry.set = entry.set.union(fields)
		m.changed = true
	}
}

func (e managedEntry) isOf(other metav1.ManagedFieldsEntry) bool {
	return e.Manager == other.Manager && e.Operation == other.Operation && e.Subresource == other.Subresource
}

// applyEntry is what the API server records for the applies of a manager.
func applyEntry(manager, apiVersion, subresource string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: apiVersion, Subresource: subresource, FieldsType: "FieldsV1",
	}
}

// planManagedFields computes the managed fields that the object needs before the apply, so that
// the apply removes what it no longer contains and keeps what it hands over.
func (a *Applier) planManagedFields(d *Decision) (err error) {
	e, req, m := d.evidence, d.Request, d.evidence.managed
	if len(m.entries) == 0 && !d.reclaim.empty() {
		if m.entries, err = a.attribute(e); err != nil {
			return err
		}
	}
	mine := applyEntry(a.manager, e.target.id.gvk.GroupVersion().String(), "")
	obstacles := d.obstacles()
	migration{
		to:     mine,
		former: a.former,
		shape:  a.schemas.shapeOf(e.desiredTree),
		wanted: e.expected.union(d.reclaim),
		held:   e.held,
		// What was never applied to was unmanaged, whoever controls the object.
		adopting: req.Owner != nil && (e.entry == nil || d.Action == ActionAdopt),
	}.run(&m)
	m.handOver(mine, e.expected, parseFieldPaths(req.HandOver))
	m.seize(mine, obstacles)
	d.blocked = !obstacles.empty()
	d.managedFields, err = m.encode()
	return err
}

// attribute returns the entry that the API server would create at the first apply to an object whose
// managed fields were wiped. Without it, what others have set would be removed together with what
// is reclaimed.
func (a *Applier) attribute(e evidence) ([]managedEntry, error) {
	tree, gvk := maps.Clone(e.liveTree), e.target.id.gvk
	delete(tree, statusSubresource)
	tree["apiVersion"], tree["kind"] = gvk.GroupVersion().String(), gvk.Kind
	all, err := a.schemas.fieldsOf(tree)
	if err != nil {
		return nil, fmt.Errorf("attributing the fields of %s: %w", e.target.id, err)
	}
	entry := applyEntry(beforeFirstApply, gvk.GroupVersion().String(), "")
	entry.Operation = metav1.ManagedFieldsOperationUpdate
	return []managedEntry{{entry, all}}, nil
}

// migration transfers to an applier what other managers hold by Update. Without it, a field that
// the applier drops later would stay, because they still hold it. Entries at other API versions
// are left unchanged: their paths are those of another schema.
type migration struct {
	// to is the applier's entry.
	to metav1.ManagedFieldsEntry
	// former managers wrote for the applier: it gains all that they hold, and what is not desired is
	// removed with the next apply.
	former sets.Set[string]
	// adopting: the object was unmanaged. What is wanted is taken from everybody; the rest stays.
	adopting bool
	// wanted are the fields that are applied, or were.
	wanted fieldSet
	// held are the fields that the applier holds. The API server's beforeFirstApply gives them up.
	held fieldSet
	// shape of the object's kind; nil for a status, which only former managers give up.
	shape fieldsAtEnd
}

func (g migration) run(m *managedFields) {
	var gained fieldSet
	m.revise(func(e managedEntry) fieldSet {
		switch {
		case e.Operation != metav1.ManagedFieldsOperationUpdate || e.Subresource != g.to.Subresource || e.APIVersion != g.to.APIVersion:
			return e.set
		case g.former.Has(e.Manager):
			gained = gained.union(e.set)
			return fieldSet{}
		case g.shape == nil:
			return e.set
		case e.Manager == beforeFirstApply:
			return g.rest(e.set, g.wanted.union(g.held))
		case g.adopting:
			return g.rest(e.set, g.wanted)
		default:
			return e.set
		}
	})
	if !gained.empty() {
		m.grant(g.to, gained)
	}
}

// rest is what stays with another manager: neither what is taken, nor what would keep a list item or
// a struct in the object when the applier drops it.
func (g migration) rest(held, taken fieldSet) fieldSet {
	return held.minus(taken).outsideItemsOf(taken).outsideStructsOf(taken, g.shape).withoutEmptied(held)
}

// handOver adds the fields that are about to be dropped to the entry of a manager of their own, so
// that they keep their value until their new manager writes them.
func (m *managedFields) handOver(from metav1.ManagedFieldsEntry, wanted fieldSet, paths []fieldPath) {
	var dropped fieldSet
	for _, entry := range m.entries {
		for _, path := range paths {
			if entry.isOf(from) && !wanted.holds(path) {
				dropped = dropped.union(entry.set.within(path))
			}
		}
	}
	if !dropped.empty() {
		m.grant(applyEntry(from.Manager+handOverSuffix, from.APIVersion, ""), dropped)
	}
}

// seize makes the applier the only manager of the fields, so that an apply without them removes
// them.
func (m *managedFields) seize(by metav1.ManagedFieldsEntry, fields fieldSet) {
	if fields.empty() {
		return
	}
	m.revise(func(e managedEntry) fieldSet {
		if e.isOf(by) {
			return e.set
		}
		return e.set.minus(fields).withoutEmptied(e.set)
	})
	m.grant(by, fields)
}

// obstacles are the fields that must be seized so that the apply removes them: what the API server
// refuses beside the configuration, and what others have taken of that which is no longer desired.
func (d *Decision) obstacles() fieldSet {
	e, found := d.evidence, d.reclaim
	for _, path := range parseFieldPaths(d.Request.RemoveFields) {
		if v, ok := path.lookup(e.liveTree); ok && !e.expected.holds(path) {
			found = found.union(pathSet(append(leavesOf(v, path), path)...))
		}
	}
	if d.Left {
		return found // desired items are left as others have changed them, so none takes their place
	}
	for _, unique := range d.Request.UniqueFields {
		for _, rival := range rivalItems(e, unique) {
			v, _ := rival.lookup(e.liveTree)
			found = found.union(pathSet(append(leavesOf(v, rival), rival)...))
		}
	}
	return found
}

// rivalItems are the list items that are not desired and share the value of the unique field with
// one that is. An edit of an item's key, such as the number of a port, replaces the item by a rival.
func rivalItems(e evidence, unique string) []fieldPath {
	list, field := cutLast(unique)
	items := e.expected.items(list)
	return slices.DeleteFunc(e.managed.fields().items(list), func(other fieldPath) bool {
		v, ok := other.child(field).lookup(e.liveTree)
		return !ok || e.expected.holds(other) || !slices.ContainsFunc(items, func(item fieldPath) bool {
			want, ok := item.child(field).lookup(e.desiredTree)
			return ok && item.isBeside(other) && reflect.DeepEqual(want, v)
		})
	})
}
