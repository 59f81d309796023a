package ssa

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// beforeFirstApply is the manager to which the API server assigns every field of an object that
// had no managed fields when it was first applied to, or that lost them.
// See k8s.io/apimachinery/pkg/util/managedfields/internal/skipnonapplied.go.
const beforeFirstApply = "before-first-apply"

// migrate hands over to us what earlier writers by Update hold of our fields. Without it, a field
// that we drop later would stay for ever, because they would still own it. It is the one write
// that is no apply: the API server offers no other way to change who holds a field that keeps
// its value.
//
// What we apply or, in reclaim, have applied is ours.
func (a *Applier) migrate(ctx context.Context, p prepared, live client.Object, adopting bool, reclaim fieldSet) (client.Object, error) {
	if a.dryRun {
		return live, nil
	}
	desired, err := parseFields([]byte(p.fields))
	if err != nil {
		return nil, err
	}
	plan := migration{manager: a.manager, apiVersion: p.id.gvk.GroupVersion().String(), former: a.former, adopting: adopting}
	if adopting || hasManager(live, beforeFirstApply) {
		if plan.shape, err = a.schemas.shapeOf(p.raw); err != nil {
			return nil, err
		}
	}
	return a.carryOut(ctx, p.id, live, plan, desired.union(reclaim))
}

// attribute gives an object whose managed fields were wiped, and of which we are about to reclaim a
// part, the entry for nobody's fields that the API server would make at the first apply. With ours
// as the only entry, what others have put beside our fields would go together with them.
func (a *Applier) attribute(id identity, live client.Object, reclaim fieldSet) (client.Object, error) {
	if len(live.GetManagedFields()) > 0 || reclaim.empty() || a.dryRun {
		return live, nil
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return nil, fmt.Errorf("converting the live object: %w", err)
	}
	delete(tree, statusSubresource)
	tree["apiVersion"], tree["kind"] = id.gvk.GroupVersion().String(), id.gvk.Kind
	raw, err := encode(tree)
	if err != nil {
		return nil, err
	}
	all, err := a.schemas.fieldsOf(raw)
	if err != nil {
		return nil, fmt.Errorf("attributing the fields of %s: %w", id, err)
	}
	fields, err := all.json()
	if err != nil {
		return nil, err
	}
	attributed, _ := live.DeepCopyObject().(client.Object)
	attributed.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager:    beforeFirstApply,
		Operation:  metav1.ManagedFieldsOperationUpdate,
		APIVersion: id.gvk.GroupVersion().String(),
		FieldsType: "FieldsV1",
		FieldsV1:   metav1.NewFieldsV1(string(fields)),
	}})
	return attributed, nil
}

// migrateStatus is migrate for what earlier versions of the operator wrote into the status.
func (a *Applier) migrateStatus(ctx context.Context, id identity, live client.Object) (client.Object, error) {
	if a.dryRun {
		return live, nil
	}
	plan := migration{manager: a.manager, apiVersion: id.gvk.GroupVersion().String(), subresource: statusSubresource, former: a.former}
	return a.carryOut(ctx, id, live, plan, emptyFieldSet())
}

func (a *Applier) carryOut(ctx context.Context, id identity, live client.Object, plan migration, ours fieldSet) (client.Object, error) {
	entries, changed, err := plan.migrate(live.GetManagedFields(), ours)
	if err != nil {
		return nil, fmt.Errorf("migrating the managed fields of %s: %w", id, err)
	}
	if !changed {
		return live, nil
	}
	return a.replaceManagedFields(ctx, id, live, entries)
}

// migrationSuffix names the field manager of the patches that change managed fields. It is not our
// own: to the server such a patch is an Update, and where an Update appears to change a field that
// it only repeats (it does in the metrics of autoscalers that hold quantities), the field would
// pass from our apply to our update, and back with every write.
const migrationSuffix = "-migration"

// replaceManagedFields is bound to the version of the object that was judged.
func (a *Applier) replaceManagedFields(ctx context.Context, id identity, live client.Object, entries []metav1.ManagedFieldsEntry) (client.Object, error) {
	patch, err := json.Marshal([]map[string]any{
		{"op": "replace", "path": "/metadata/managedFields", "value": entries},
		{"op": "replace", "path": "/metadata/resourceVersion", "value": live.GetResourceVersion()},
	})
	if err != nil {
		return nil, fmt.Errorf("serialising the managed fields of %s: %w", id, err)
	}
	migrated, err := a.newObject(id)
	if err != nil {
		return nil, err
	}
	if err := a.client.Patch(ctx, migrated, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(a.manager+migrationSuffix)); err != nil {
		return nil, classify(id, err)
	}
	return migrated, nil
}

// migration says whose Update entries give way to our apply.
type migration struct {
	manager    string
	apiVersion string
	// subresource is through which the entries were written, or empty.
	subresource string
	// former wrote for us: all that they hold becomes ours, and what we no longer want goes with
	// the next apply.
	former sets.Set[string]
	// adopting: the object was somebody else's until now. What we want of it becomes ours alone;
	// the rest stays with who wrote it.
	adopting bool
	// shape of the object's kind, where entries of others are divided.
	shape fieldsAtEnd
}

// migrate returns the managed fields as they should be, and whether that is a change.
// Entries at other API versions are left alone: their paths are those of another schema.
func (m migration) migrate(entries []metav1.ManagedFieldsEntry, ours fieldSet) ([]metav1.ManagedFieldsEntry, bool, error) {
	if len(entries) == 0 {
		return entries, false, nil
	}
	gained := emptyFieldSet()
	kept := make([]metav1.ManagedFieldsEntry, 0, len(entries)+1)
	changed := false
	for _, entry := range entries {
		if !m.concerns(entry) {
			kept = append(kept, entry)
			continue
		}
		held, err := entryFields(&entry)
		if err != nil {
			return nil, false, err
		}
		if m.former.Has(entry.Manager) {
			gained, changed = gained.union(held), true
			continue
		}
		rest := m.rest(held, ours)
		if rest.equals(held) {
			kept = append(kept, entry)
			continue
		}
		changed = true
		if rest.empty() {
			continue
		}
		raw, err := rest.json()
		if err != nil {
			return nil, false, err
		}
		entry.FieldsV1 = metav1.NewFieldsV1(string(raw))
		kept = append(kept, entry)
	}
	if gained.empty() {
		return kept, changed, nil
	}
	kept, err := m.grant(kept, gained)
	return kept, true, err
}

// rest is what stays with another manager: neither what is ours, nor what would keep an item or a
// struct of ours from going when we drop it.
func (m migration) rest(held, ours fieldSet) fieldSet {
	if m.shape == nil {
		return held
	}
	return held.minus(ours).outsideItemsOf(ours).outsideStructsOf(ours, m.shape).withoutEmptied(held)
}

func (m migration) concerns(entry metav1.ManagedFieldsEntry) bool {
	if entry.Operation != metav1.ManagedFieldsOperationUpdate || entry.Subresource != m.subresource || entry.APIVersion != m.apiVersion {
		return false
	}
	return m.adopting || m.former.Has(entry.Manager) || entry.Manager == beforeFirstApply
}

// grant adds fields to our entry, which it makes if there is none.
func (m migration) grant(entries []metav1.ManagedFieldsEntry, gained fieldSet) ([]metav1.ManagedFieldsEntry, error) {
	for i := range entries {
		entry := &entries[i]
		if entry.Manager != m.manager || entry.Operation != metav1.ManagedFieldsOperationApply || entry.Subresource != m.subresource {
			continue
		}
		held, err := entryFields(entry)
		if err != nil {
			return nil, err
		}
		raw, err := held.union(gained).json()
		if err != nil {
			return nil, err
		}
		entry.FieldsV1 = metav1.NewFieldsV1(string(raw))
		return entries, nil
	}
	raw, err := gained.json()
	if err != nil {
		return nil, err
	}
	return append(entries, metav1.ManagedFieldsEntry{
		Manager:     m.manager,
		Operation:   metav1.ManagedFieldsOperationApply,
		APIVersion:  m.apiVersion,
		Subresource: m.subresource,
		FieldsType:  "FieldsV1",
		FieldsV1:    metav1.NewFieldsV1(string(raw)),
	}), nil
}

// seize makes us the only manager that holds the fields, so that an apply without them removes
// them from the object.
func (a *Applier) seize(ctx context.Context, id identity, live client.Object, fields fieldSet) (client.Object, error) {
	if fields.empty() {
		return live, nil
	}
	entries, changed, err := seized(live.GetManagedFields(), fields, a.manager, id.gvk.GroupVersion().String())
	if err != nil || !changed || a.dryRun {
		return live, err
	}
	return a.replaceManagedFields(ctx, id, live, entries)
}

func seized(entries []metav1.ManagedFieldsEntry, fields fieldSet, manager, apiVersion string) ([]metav1.ManagedFieldsEntry, bool, error) {
	var kept []metav1.ManagedFieldsEntry
	missing, changed := fields, false
	for _, entry := range entries {
		held, err := entryFields(&entry)
		if err != nil {
			return nil, false, err
		}
		rest := held.minus(fields).withoutEmptied(held)
		isOurs := entry.Manager == manager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == ""
		switch {
		case isOurs:
			missing = fields.minus(held)
		case rest.equals(held):
		default:
			changed = true
			if rest.empty() {
				continue
			}
			raw, err := rest.json()
			if err != nil {
				return nil, false, err
			}
			entry.FieldsV1 = metav1.NewFieldsV1(string(raw))
		}
		kept = append(kept, entry)
	}
	if missing.empty() {
		return kept, changed, nil
	}
	kept, err := migration{manager: manager, apiVersion: apiVersion}.grant(kept, missing)
	return kept, true, err
}

// inTheWay lists what has to be seized so that the apply removes it: what stands in the way of the
// configuration, and what others have taken of that which we no longer want.
func (a *Applier) inTheWay(p prepared, live client.Object, req Request, verdict judgement) (fieldSet, error) {
	inTheWay := verdict.reclaim
	if len(req.Displaces) == 0 {
		return inTheWay, nil
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return fieldSet{}, fmt.Errorf("converting the live object: %w", err)
	}
	wanted, err := parseFields([]byte(p.fields))
	if err != nil {
		return fieldSet{}, err
	}
	for _, path := range parseFieldPaths(req.Displaces) {
		v, ok := path.lookup(tree)
		if !ok || wanted.holds(path) {
			continue
		}
		inTheWay = inTheWay.union(pathSet(append(leavesOf(v, path), path)...))
	}
	if len(verdict.leave) > 0 {
		return inTheWay, nil // where our items are left as others have made them, theirs are in nobody's way
	}
	rivals, err := rivalItems(p, live, tree, wanted, req.Displaces)
	return inTheWay.union(rivals), err
}

// rivalItems lists the items of lists that have a value in common with an item that we want, and are
// not that item. Whoever changes the key of an item of ours, such as the number of a port, has taken
// ours away and put such a one in its place.
func rivalItems(p prepared, live client.Object, tree map[string]any, wanted fieldSet, displaces []string) (fieldSet, error) {
	rivals := emptyFieldSet()
	desired, err := decode(p.raw)
	if err != nil {
		return rivals, err
	}
	held := emptyFieldSet()
	for i := range live.GetManagedFields() {
		fields, err := entryFields(&live.GetManagedFields()[i])
		if err != nil {
			return rivals, err
		}
		held = held.union(fields)
	}
	for _, displaced := range displaces {
		list, field := cutLast(displaced)
		ours := wanted.items(list)
		for _, theirs := range held.items(list) {
			v, ok := theirs.lookup(tree)
			if ok && !wanted.holds(theirs) && slices.ContainsFunc(ours, func(item fieldPath) bool { return theirs.rivals(item, field, v, desired) }) {
				rivals = rivals.union(pathSet(append(leavesOf(v, theirs), theirs)...))
			}
		}
	}
	return rivals, nil
}
