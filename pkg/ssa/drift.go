package ssa

import (
	"encoding/json"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Drift is one field of ours that somebody else has changed or removed.
type Drift struct {
	// Path is the field in the notation of the API server's conflict messages,
	// such as .spec.template.spec.containers[name="web"].image.
	Path string
	// Manager is the field manager that holds the field now. It is empty where the API server
	// records nobody: it keeps no account of who removed a field or wiped the managed fields.
	Manager string
	// Operation and Subresource say how the manager wrote it: by Update or Apply, and through
	// which subresource (such as scale), if any.
	Operation   metav1.ManagedFieldsOperationType
	Subresource string
	// Desired is our value, as compact JSON.
	Desired string
	// Actual is the value that the live object holds, as compact JSON; empty if it was removed.
	Actual string
}

// String reads like "kubectl-edit changed .spec.replicas from 3 to 5".
func (d Drift) String() string {
	who := d.Manager
	if who == "" {
		who = "somebody"
	}
	if d.Actual == "" && d.Desired == "" {
		return fmt.Sprintf("%s removed %s", who, d.Path)
	}
	if d.Actual == "" {
		return fmt.Sprintf("%s removed %s (was %s)", who, d.Path, d.Desired)
	}
	return fmt.Sprintf("%s changed %s from %s to %s", who, d.Path, d.Desired, d.Actual)
}

// redacted stands for values that must not leave a Secret.
const redacted = `"(redacted)"`

// managedFieldsPath is the path of the drift that a wipe of all managed fields is.
var managedFieldsPath = makeFieldPath("metadata", "managedFields")

// describe turns the paths that we lost into drifts, by looking at who holds them now.
func describe(lost []fieldPath, desired map[string]any, live client.Object, manager string) ([]Drift, error) {
	if len(lost) == 0 {
		return nil, nil
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return nil, fmt.Errorf("converting the live object: %w", err)
	}
	holders, err := holdersOf(live, manager)
	if err != nil {
		return nil, err
	}
	secret := desired["kind"] == "Secret"
	drifts := make([]Drift, 0, len(lost))
	for _, path := range lost {
		drift := Drift{Path: path.String()}
		if holder := latestHolder(holders, path, desired["apiVersion"]); holder != nil {
			drift.Manager, drift.Operation, drift.Subresource = holder.entry.Manager, holder.entry.Operation, holder.entry.Subresource
		}
		if v, ok := path.lookup(desired); ok {
			drift.Desired = compact(v, secret)
		}
		if v, ok := path.lookup(tree); ok {
			drift.Actual = compact(v, secret)
		}
		drifts = append(drifts, drift)
	}
	return drifts, nil
}

// holder is the field set of one other manager.
type holder struct {
	entry  *metav1.ManagedFieldsEntry
	fields fieldSet
}

func holdersOf(meta metav1.Object, manager string) ([]holder, error) {
	entries := meta.GetManagedFields()
	holders := make([]holder, 0, len(entries))
	for i := range entries {
		entry := &entries[i]
		if entry.Manager == manager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" {
			continue
		}
		fields, err := entryFields(entry)
		if err != nil {
			return nil, fmt.Errorf("reading the managed fields of %s: %w", entry.Manager, err)
		}
		holders = append(holders, holder{entry: entry, fields: fields})
	}
	return holders, nil
}

// latestHolder prefers, among several co-owners, the one that wrote last: it is the one that
// took the field from us.
func latestHolder(holders []holder, path fieldPath, apiVersion any) *holder {
	var latest *holder
	for i := range holders {
		h := &holders[i]
		if !h.fields.holds(path) && (h.entry.APIVersion == apiVersion || !h.fields.holdsAbove(path)) {
			continue
		}
		if latest == nil || (h.entry.Time != nil && (latest.entry.Time == nil || latest.entry.Time.Before(h.entry.Time))) {
			latest = h
		}
	}
	return latest
}

func compact(v any, secret bool) string {
	if secret {
		return redacted
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(raw)
}

// stillDiffer drops the paths at which live holds our value again: another manager put it back,
// so that only the ownership is lost, and taking it up changes no value.
func stillDiffer(lost []fieldPath, desired map[string]any, live runtime.Object) ([]fieldPath, error) {
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return nil, fmt.Errorf("converting the live object: %w", err)
	}
	var differ []fieldPath
	for _, path := range lost {
		want, wanted := path.lookup(desired)
		have, found := path.lookup(tree)
		if wanted && found && reflect.DeepEqual(want, have) {
			continue
		}
		differ = append(differ, path)
	}
	return differ, nil
}
