package campaign

import (
	"context"
	"encoding/base64"
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

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/campaign/specs"
)

// state is the observable state of an object and its children, without values that differ between objects: UIDs,
// versions, times and addresses.
type state map[string]any

// stateOf reads the state of an object from the API server or from a cache.
func (env *environment) stateOf(ctx context.Context, from client.Reader, o object) (state, error) {
	live := build(o.kind, o.Name, map[string]any{})
	if err := from.Get(ctx, o.NamespacedName, live); err != nil {
		return nil, fmt.Errorf("reading %s: %w", o, err)
	}
	s, names := state{o.kind: ownState(live)}, []string{o.Namespace, "NAMESPACE", string(live.GetUID()), "UID"}
	for _, gvk := range childKinds() {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err := from.List(ctx, list, client.InNamespace(o.Namespace)); err != nil {
			return nil, fmt.Errorf("listing %s: %w", gvk.Kind, err)
		}
		for i := range list.Items {
			if owner := metav1.GetControllerOf(&list.Items[i]); owner != nil && owner.UID == live.GetUID() {
				s[gvk.Kind+" "+list.Items[i].GetName()] = childState(&list.Items[i])
				names = append(names, string(list.Items[i].GetUID()), "UID of "+gvk.Kind)
			}
		}
	}
	if o.kind == "SecureStorage" {
		names = append(names, env.cloudState(live, s)...)
	}
	return s.normalized(live, names)
}

// ownState returns the status, the finalizers and the managed fields of the object itself.
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

// childState returns the fields and the managed fields of a child.
func childState(live *unstructured.Unstructured) map[string]any {
	child := live.DeepCopy()
	// The applier's record contains the owner's UID.
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
	if secretType, _, _ := unstructured.NestedString(child.Object, "type"); secretType == v1beta1.SecretTypeSessionKeys {
		state["data"] = "KEYS" // random, with times as names
		state["managers"] = "KEYS"
	}
	if child.GetKind() == "Service" {
		for _, field := range []string{"clusterIP", "clusterIPs"} {
			unstructured.RemoveNestedField(child.Object, "spec", field)
		}
	}
	return state
}

// managers returns the fields that each Fixpoint field manager owns. The manager of a hand-over is ignored, because it
// depends on the previous spec.
func managers(live *unstructured.Unstructured) map[string]any {
	const fixpoint, handover = "fixpoint-", "-handover"
	all := map[string]any{}
	for _, entry := range live.GetManagedFields() {
		if strings.HasPrefix(entry.Manager, fixpoint) && !strings.HasSuffix(entry.Manager, handover) && entry.FieldsV1 != nil {
			all[strings.Join([]string{entry.Manager, string(entry.Operation), entry.Subresource}, " ")] = json.RawMessage(entry.FieldsV1.GetRawBytes())
		}
	}
	return all
}

// cloudState adds the cloud resources of a SecureStorage, and returns names and their placeholders.
func (env *environment) cloudState(live *unstructured.Unstructured, s state) []string {
	name, _, _ := unstructured.NestedString(live.Object, "status", "accountName")
	grant, _, _ := unstructured.NestedString(live.Object, "status", "grantID")
	account, there := env.cloud.Account(name)
	if !there {
		s["cloud account"] = "none"
		return nil
	}
	// Tags that are no longer declared remain, because another client may own them.
	declared, _, _ := unstructured.NestedStringMap(live.Object, "spec", "tags")
	maps.DeleteFunc(account.Tags, func(key, _ string) bool {
		_, isDeclared := declared[key]
		return !isDeclared && !strings.HasPrefix(key, v1beta1.TagPrefix)
	})
	s["cloud account"] = map[string]any{
		"sku": account.SKU, "tags": account.Tags, "state": account.ProvisioningState, "key": account.Key, "data": account.Data,
		"settings": account.Settings, "kind": account.Kind, "location": account.Location,
	}
	var grants []string
	for _, a := range env.cloud.State().Assignments {
		if a.PrincipalID == account.Identity.PrincipalID {
			grants = append(grants, a.Role+" at "+a.Scope)
		}
	}
	for _, vault := range env.cloud.State().Vaults {
		for _, policy := range vault.Policies {
			if policy.ObjectID == account.Identity.PrincipalID {
				grants = append(grants, fmt.Sprintf("policy %v of %s", policy.Permissions, vault.Name))
			}
		}
	}
	slices.Sort(grants)
	s["cloud grants"] = grants
	names := []string{account.Name, "ACCOUNT", account.Identity.PrincipalID, "PRINCIPAL", grant[strings.LastIndex(grant, "/")+1:], "GRANT"}
	keys, err := env.cloud.AccountKeys(name)
	if err != nil {
		return names // a refused account has none
	}
	for what, value := range map[string]string{"ACCOUNT": account.Name, "KEY 1": keys[0], "KEY 2": keys[1]} {
		names = append(names, base64.StdEncoding.EncodeToString([]byte(value)), "ENCODED "+what)
	}
	return names
}

// normalized replaces names by placeholders, and removes what depends on previous specs.
func (s state) normalized(live *unstructured.Unstructured, names []string) (state, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encoding a state: %w", err)
	}
	var pairs []string
	for i := 0; i+1 < len(names); i += 2 {
		if names[i] != "" {
			pairs = append(pairs, names[i], names[i+1])
		}
	}
	var plain state
	if err := json.Unmarshal([]byte(strings.NewReplacer(pairs...).Replace(string(text))), &plain); err != nil {
		return nil, fmt.Errorf("decoding a state: %w", err)
	}
	plain.removeHistory(live)
	return plain, nil
}

// removeHistory removes what depends on previous specs: the number of replicas if the spec does not declare it, for
// which versions a hook has succeeded, and which contract was recorded before it was pinned.
func (s state) removeHistory(live *unstructured.Unstructured) {
	own, _ := s[live.GetKind()].(map[string]any)
	if _, declared := specs.Get(live.Object, specs.Path{"spec", "replicas"}); !declared {
		if deployment, ok := s["Deployment "+live.GetName()].(map[string]any); ok {
			specs.Remove(deployment, specs.Path{"spec", "replicas"})
		}
		specs.Remove(own, specs.Path{"status", "replicas"})
		specs.Remove(own, specs.Path{"status", "readyReplicas"})
	}
	if policy, _ := specs.Get(live.Object, specs.Path{"spec", "contract", "policy"}); policy == string(v1beta1.ContractPin) {
		specs.Remove(own, specs.Path{"status", "contract"})
		specs.Remove(own, specs.Path{"managers", "fixpoint-mcpserver Apply status", "f:status", "f:contract"})
		delete(s, "ConfigMap "+live.GetName()+v1beta1.ContractSuffix) // with that contract in full
	}
	_, hasHook := specs.Get(live.Object, specs.Path{"spec", "hooks", "preDeploy"})
	const manager = "fixpoint-appservice Apply status"
	for _, path := range []specs.Path{{"status", "hooks", "preDeploy", "succeededVersions"}, {"managers", manager, "f:status", "f:hooks", "f:preDeploy", "f:succeededVersions"}} {
		if !hasHook {
			path = path[:len(path)-2]
		}
		specs.Remove(own, path)
	}
}

// withoutJobsMissingIn returns the state without the Jobs that another one does not have: a hook does not run again when
// it has succeeded for an earlier spec.
func (s state) withoutJobsMissingIn(other state) state {
	without := maps.Clone(s)
	maps.DeleteFunc(without, func(child string, _ any) bool {
		_, exists := other[child]
		return strings.HasPrefix(child, "Job ") && !exists
	})
	return without
}

// diff describes how two states differ, or returns an empty string.
func (s state) diff(other state) string { return cmp.Diff(map[string]any(s), map[string]any(other)) }

// versions returns the resource versions of an object and its children.
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
