package campaign

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/test/campaign/specs"
)

// state is what there is to see of an object and of what was made for it, without what differs from
// one object to the next by its nature: identities, versions, times and addresses.
type state map[string]any

// stateOf reads the state of an object, from the API server or from a cache.
func (w *world) stateOf(ctx context.Context, from client.Reader, o object) (state, error) {
	live := build(o.kind, o.Name, map[string]any{})
	if err := from.Get(ctx, o.NamespacedName, live); err != nil {
		return nil, fmt.Errorf("reading %s: %w", o, err)
	}
	s := state{o.kind: ownState(live)}
	for _, gvk := range childKinds() {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err := from.List(ctx, list, client.InNamespace(o.Namespace)); err != nil {
			return nil, fmt.Errorf("listing %s: %w", gvk.Kind, err)
		}
		for i := range list.Items {
			if owner := metav1.GetControllerOf(&list.Items[i]); owner != nil && owner.UID == live.GetUID() {
				s[gvk.Kind+" "+list.Items[i].GetName()] = childState(&list.Items[i])
			}
		}
	}
	names := []string{o.Namespace, "NAMESPACE", string(live.GetUID()), "UID"}
	if o.kind == "SecureStorage" {
		names = append(names, w.cloudState(live, s)...)
	}
	return s.without(live, names)
}

// ownState is that of the object itself: its spec is given, and the rest the controller writes.
func ownState(live *unstructured.Unstructured) map[string]any {
	status, _ := runtime.DeepCopyJSONValue(live.Object["status"]).(map[string]any)
	for _, field := range []string{"observedGeneration", "waitingSince"} {
		delete(status, field)
	}
	items, _ := status["conditions"].([]any)
	for _, item := range items {
		if condition, ok := item.(map[string]any); ok {
			delete(condition, "lastTransitionTime")
			delete(condition, "observedGeneration")
		}
	}
	return map[string]any{"status": status, "finalizers": live.GetFinalizers(), "managers": managers(live)}
}

// childState is that of a child: all that the controller and the API server make of a spec, and who
// holds which field.
func childState(live *unstructured.Unstructured) map[string]any {
	child := live.DeepCopy()
	// What the applier notes for itself holds the identity of the object.
	annotations := child.GetAnnotations()
	maps.DeleteFunc(annotations, func(key, _ string) bool { return strings.HasPrefix(key, "ssa.fixpoint.dev/") })
	child.SetAnnotations(annotations)
	state := map[string]any{
		"labels": child.GetLabels(), "annotations": child.GetAnnotations(), "finalizers": child.GetFinalizers(),
		"owners": len(child.GetOwnerReferences()), "managers": managers(child),
	}
	for name, value := range child.Object {
		if !slices.Contains([]string{"metadata", "status", "apiVersion", "kind"}, name) {
			state[name] = value
		}
	}
	if child.GetKind() == "Service" {
		for _, field := range []string{"clusterIP", "clusterIPs"} {
			unstructured.RemoveNestedField(child.Object, "spec", field)
		}
	}
	return state
}

// managers are the fields that each field manager of ours holds. What was handed over to others, the
// number of pods where nobody declares it, hangs on what was declared before.
func managers(live *unstructured.Unstructured) map[string]string {
	const ours, handover = "fixpoint-", "-handover"
	all := map[string]string{}
	for _, entry := range live.GetManagedFields() {
		if strings.HasPrefix(entry.Manager, ours) && !strings.HasSuffix(entry.Manager, handover) && entry.FieldsV1 != nil {
			all[strings.Join([]string{entry.Manager, string(entry.Operation), entry.Subresource}, " ")] = string(entry.FieldsV1.GetRawBytes())
		}
	}
	return all
}

// cloudState adds what the cloud has for a SecureStorage, and returns which names to put others for.
func (w *world) cloudState(live *unstructured.Unstructured, s state) []string {
	name, _, _ := unstructured.NestedString(live.Object, "status", "accountName")
	grant, _, _ := unstructured.NestedString(live.Object, "status", "grantID")
	account, there := w.cloud.Account(name)
	if !there {
		s["cloud account"] = "none"
		return nil
	}
	// A tag that is no longer declared stays, because it may be somebody else's by now.
	declared, _, _ := unstructured.NestedStringMap(live.Object, "spec", "tags")
	maps.DeleteFunc(account.Tags, func(key, _ string) bool {
		_, isDeclared := declared[key]
		return !isDeclared && !strings.HasPrefix(key, v1alpha1.TagPrefix)
	})
	s["cloud account"] = map[string]any{
		"sku": account.SKU, "tags": account.Tags, "state": account.ProvisioningState, "key": account.Key, "data": account.Data,
		"settings": account.Settings, "kind": account.Kind, "location": account.Location,
	}
	var grants []string
	for _, a := range w.cloud.State().Assignments {
		if a.PrincipalID == account.Identity.PrincipalID {
			grants = append(grants, a.Role+" at "+a.Scope)
		}
	}
	for _, vault := range w.cloud.State().Vaults {
		for _, policy := range vault.Policies {
			if policy.ObjectID == account.Identity.PrincipalID {
				grants = append(grants, fmt.Sprintf("policy %v of %s", policy.Permissions, vault.Name))
			}
		}
	}
	slices.Sort(grants)
	s["cloud grants"] = grants
	return []string{account.Name, "ACCOUNT", account.Identity.PrincipalID, "PRINCIPAL", grant[strings.LastIndex(grant, "/")+1:], "GRANT"}
}

// without puts others in place of names, and takes out the number of pods where nobody declares it:
// then it is what it was.
func (s state) without(live *unstructured.Unstructured, names []string) (state, error) {
	if _, declared := specs.Get(live.Object, specs.Path{"spec", "replicas"}); !declared {
		if deployment, ok := s["Deployment "+live.GetName()].(map[string]any); ok {
			specs.Remove(deployment, specs.Path{"spec", "replicas"})
		}
		if own, ok := s[live.GetKind()].(map[string]any); ok {
			specs.Remove(own, specs.Path{"status", "replicas"})
			specs.Remove(own, specs.Path{"status", "readyReplicas"})
		}
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("writing a state: %w", err)
	}
	var pairs []string
	for i := 0; i+1 < len(names); i += 2 {
		if names[i] != "" {
			pairs = append(pairs, names[i], names[i+1])
		}
	}
	var plain state
	if err := json.Unmarshal([]byte(strings.NewReplacer(pairs...).Replace(string(text))), &plain); err != nil {
		return nil, fmt.Errorf("reading a state: %w", err)
	}
	return plain, nil
}

// differs says in words how two states differ; nothing if they do not.
func (s state) differs(other state) string { return cmp.Diff(map[string]any(s), map[string]any(other)) }

// versions are the resource versions of an object and all that was made for it.
func versions(ctx context.Context, o object) (map[string]string, error) {
	live, err := o.access().Get(ctx, o.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", o, err)
	}
	all := map[string]string{o.kind: live.GetResourceVersion()}
	for _, gvk := range childKinds() {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err := api.List(ctx, list, client.InNamespace(o.Namespace)); err != nil {
			return nil, fmt.Errorf("listing %s: %w", gvk.Kind, err)
		}
		_ = meta.EachListItem(list, func(item runtime.Object) error {
			if metadata, ok := item.(*metav1.PartialObjectMetadata); ok {
				all[gvk.Kind+" "+metadata.Name] = metadata.ResourceVersion
			}
			return nil
		})
	}
	return all, nil
}
