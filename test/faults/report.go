package faults

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/yaml"
)

// timeOfDay is the layout of times in reports.
const timeOfDay = "15:04:05.000"

// Report describes the environment: its history, the calls, the logs, and the current objects.
func (env *Environment) Report() string {
	var b strings.Builder
	const lines = 120
	fmt.Fprintf(&b, "=== environment %s\n--- versions\n", env.Namespace)
	versions := env.Versions()
	for _, v := range versions[max(0, len(versions)-lines):] {
		fmt.Fprintf(&b, "%s %d %s %s\n", v.ObservedAt.Format(timeOfDay), v.Revision, v.Type, summarize(v))
	}
	b.WriteString("--- calls of managers\n")
	calls := slices.DeleteFunc(env.Calls(), func(c Call) bool { return c.Cached })
	for _, call := range calls[max(0, len(calls)-lines):] {
		fmt.Fprintf(&b, "%s manager %d: %s\n", call.At.Format(timeOfDay), call.Manager, call)
	}
	if env.Cloud != nil {
		b.WriteString("--- cloud ledger\n")
		ledger := env.Cloud.Ledger()
		for _, e := range ledger[max(0, len(ledger)-lines):] {
			fmt.Fprintf(&b, "%s %s %s %s %d %s %s %s\n", e.Time.Format(timeOfDay), e.Who, e.Method, e.Resource, e.Status, e.Code, e.Effect, e.Detail)
		}
	}
	env.mu.Lock()
	managers := slices.Clone(env.managers)
	env.mu.Unlock()
	for _, m := range managers {
		fmt.Fprintf(&b, "--- log of manager %d\n%s\n", m.Number, strings.Join(m.Log(), "\n"))
	}
	for _, object := range env.history.filter(func(o *unstructured.Unstructured) bool { return isOwnerKind(o.GetKind()) }) {
		text, _ := yaml.Marshal(object.Object) // it was decoded from JSON
		fmt.Fprintf(&b, "--- %s\n%s", idOf(object), text)
	}
	return b.String()
}

// summarize returns the identity, the Ready condition and the last field manager of a version.
func summarize(v Version) string {
	o := v.Object
	text := idOf(o).String()
	if o.GetDeletionTimestamp() != nil {
		text += fmt.Sprintf(" terminating %q", o.GetFinalizers())
	}
	if isOwnerKind(o.GetKind()) {
		status, reason, generation := condition(o, "Ready")
		text += fmt.Sprintf(" generation %d Ready=%s %s of %d%s", o.GetGeneration(), status, reason, generation, notedGrants(o))
	}
	if v.Type == watch.Deleted {
		return text
	}
	var latest string
	for _, entry := range o.GetManagedFields() {
		latest = entry.Manager + " " + entry.Subresource
	}
	return text + ", last field manager " + latest
}

// notedGrants lists the grants in the status of a SecureStorage: vaults and principals.
func notedGrants(o *unstructured.Unstructured) string {
	grants, _, _ := unstructured.NestedSlice(o.Object, "status", "grants")
	text := ""
	for _, g := range grants {
		if grant, ok := g.(map[string]any); ok {
			text += fmt.Sprintf(" grant(%s %v)", path.Base(fmt.Sprint(grant["vaultID"])), grant["principalID"])
		}
	}
	return text
}
