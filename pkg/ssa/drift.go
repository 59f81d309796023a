package ssa

import (
	"encoding/json"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Drift is one managed field that another field manager has changed or removed.
type Drift struct {
	// Path is the field in the notation of the API server's conflict messages,
	// such as .spec.template.spec.containers[name="web"].image.
	Path string
	// Manager is the field manager that holds the field now. It is empty where the API server
	// records none: it does not record who removed a field or wiped the managed fields.
	Manager string
	// Operation and Subresource say how the manager wrote it: by Update or Apply, and through
	// which subresource (such as scale), if any.
	Operation   metav1.ManagedFieldsOperationType
	Subresource string
	// Desired is the desired value, as compact JSON.
	Desired string
	// Actual is the value that the live object holds, as compact JSON; empty if it was removed.
	Actual string
}

// String reads like "kubectl-edit changed .spec.replicas from 3 to 5".
func (d Drift) String() string {
	who := d.Manager
	if who == "" {
		who = "an unknown field manager"
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

// describeDrift keeps the lost fields whose live value differs from the desired one, and describes
// them. Where another manager has restored the value, only the ownership is lost.
func describeDrift(e evidence, lost []fieldPath) (differ []fieldPath, drifts []Drift) {
	others, secret := e.managed.except(e.target.manager), e.target.id.gvk.Kind == "Secret"
	for _, path := range lost {
		want, wanted := path.lookup(e.desiredTree)
		have, found := path.lookup(e.liveTree)
		if wanted && found && reflect.DeepEqual(want, have) {
			continue
		}
		drift := Drift{Path: path.String()}
		if holder := others.latestHolder(path, e.target.id.gvk.GroupVersion().String()); holder != nil {
			drift.Manager, drift.Operation, drift.Subresource = holder.Manager, holder.Operation, holder.Subresource
		}
		if wanted {
			drift.Desired = compact(want, secret)
		}
		if found {
			drift.Actual = compact(have, secret)
		}
		differ, drifts = append(differ, path), append(drifts, drift)
	}
	return differ, drifts
}

// latestHolder prefers, among several managers of the field, the one that wrote last: it is the one
// that took the field.
func (m managedFields) latestHolder(path fieldPath, apiVersion string) *managedEntry {
	var latest *managedEntry
	for i := range m.entries {
		e := &m.entries[i]
		if !e.set.holds(path) && (e.APIVersion == apiVersion || !e.set.holdsAbove(path)) {
			continue
		}
		if latest == nil || (e.Time != nil && (latest.Time == nil || latest.Time.Before(e.Time))) {
			latest = e
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
