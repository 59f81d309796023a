package ssa

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Drift is one managed field that another field manager has changed or removed.
type Drift struct {
	// Path reads as in the API server's conflict messages: .spec.template.spec.containers[name="web"].image.
	Path string
	// Manager is the field manager that holds the field now. It is empty where the API server records none, as for who
	// removed a field or wiped the managed fields, or records it under its name in another version of the API.
	Manager string
	// Operation and Subresource (such as scale) say how the manager wrote it.
	Operation   metav1.ManagedFieldsOperationType
	Subresource string
	// Desired and Actual are the values as compact JSON. Actual is empty if the field was removed.
	Desired, Actual string
}

// String reads like "kubectl-edit changed .spec.replicas from 3 to 5".
func (d Drift) String() string {
	who := cmp.Or(d.Manager, "an unknown field manager")
	switch {
	case d.Actual != "":
		return fmt.Sprintf("%s changed %s from %s to %s", who, d.Path, d.Desired, d.Actual)
	case d.Desired != "":
		return fmt.Sprintf("%s removed %s (was %s)", who, d.Path, d.Desired)
	default:
		return fmt.Sprintf("%s removed %s", who, d.Path)
	}
}

// redacted stands for values that must not leave a Secret.
const redacted = `"(redacted)"`

// managedFieldsPath is the path of the drift that a wipe of all managed fields is.
var managedFieldsPath = makeFieldPath("metadata", "managedFields")

// describeDrift keeps and describes the lost fields whose live value differs from the desired one. Where another manager
// has restored the value, only the ownership is lost.
func describeDrift(e evidence, lost []fieldPath) (differ []fieldPath, drifts []Drift) {
	others, secret := e.managed.except(e.target.entry()), e.target.id.gvk.Kind == "Secret"
	for _, path := range lost {
		want, wanted := lookup(e.target.tree, path)
		have, found := lookup(e.liveTree, path)
		if wanted && found && reflect.DeepEqual(want, have) {
			continue
		}
		drift := Drift{Path: path.String()}
		if taker := others.takerOf(path, e.target.id.apiVersion()); taker != nil {
			drift.Manager, drift.Operation, drift.Subresource = taker.Manager, taker.Operation, taker.Subresource
		}
		if wanted {
			drift.Desired = compact(want, secret)
		}
		if found && !path.Equals(managedFieldsPath) { // entries of others, with times
			drift.Actual = compact(have, secret)
		}
		differ, drifts = append(differ, path), append(drifts, drift)
	}
	return differ, drifts
}

// takerOf is the entry of the manager that took the field. An Update records a field only if it changes its value, and
// takes it from all others then. So among several that hold the field, the one that holds it by Update has changed it,
// and the others agreed. If all of them apply it, the bookkeeping does not tell: the last is as good a guess as any. What
// may hold it as a part of an atomic field at another API version counts only if nobody holds it by its name: a struct of
// which all fields were taken looks the same.
func (m managedFields) takerOf(path fieldPath, apiVersion string) *managedEntry {
	var holders, atomic []managedEntry
	for _, e := range m.entries {
		switch {
		case holds(e.set, path):
			holders = append(holders, e)
		case e.APIVersion != apiVersion && holdsAtomic(e.set, path):
			atomic = append(atomic, e)
		}
	}
	if len(holders) == 0 {
		holders = atomic
	}
	if len(holders) == 0 {
		return nil
	}
	taker := slices.MaxFunc(holders, func(x, y managedEntry) int {
		return cmp.Or(
			cmp.Compare(x.Operation, y.Operation), // Update after Apply
			ptr.Deref(x.Time, metav1.Time{}).Compare(ptr.Deref(y.Time, metav1.Time{}).Time),
		)
	})
	return &taker
}

func compact(v any, secret bool) string {
	if secret {
		return redacted
	}
	raw, _ := json.Marshal(v) // it was decoded from JSON
	return string(raw)
}
