package faults

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// stateOf returns the state of one object, its children and its cloud resources, without its name and without
// values that differ between runs.
func (env *Environment) stateOf(kind, name string) Snapshot {
	s := Snapshot{Objects: map[string]map[string]string{}}
	live := env.Get(kind, name)
	if live == nil {
		return s
	}
	account := ""
	if kind == SecureStorage {
		account = accountOf(live)
	}
	n := env.normalizerOf(name, account)
	for _, object := range env.objectAndDescendants(live) {
		if object.GetKind() == "Job" {
			continue
		}
		fields := n.object(object)
		removePathDependent(object, live, fields)
		s.Objects[object.GetKind()+"/"+n.text(object.GetName())] = fields
	}
	if kind == SecureStorage {
		n.cloudOf(env.Cloud, live, account, s)
	}
	return s
}

// objectAndDescendants returns an object, its children, and their children.
func (env *Environment) objectAndDescendants(live *unstructured.Unstructured) []*unstructured.Unstructured {
	family, known := []*unstructured.Unstructured{live}, map[types.UID]bool{live.GetUID(): true}
	for i := 0; i < len(family); i++ {
		uid := family[i].GetUID()
		for _, child := range env.history.filter(func(o *unstructured.Unstructured) bool {
			controller := controllerOf(o)
			return controller != nil && controller.UID == uid && !known[o.GetUID()]
		}) {
			known[child.GetUID()] = true
			family = append(family, child)
		}
	}
	return family
}

// normalizerOf also replaces the object's name and marks the UIDs of deleted objects.
func (env *Environment) normalizerOf(name, account string) normalizer {
	pairs := []string{env.Namespace, "NAMESPACE"}
	if account != "" {
		pairs = append(pairs, account, "ACCOUNT")
	}
	pairs = append(pairs, env.accountKeys()...)
	env.history.mu.Lock()
	defer env.history.mu.Unlock()
	for uid, id := range env.history.names {
		text := "UID(" + id.Kind + ")"
		if live := env.history.live[id]; live == nil || live.GetUID() != uid {
			text = "UID(deleted " + id.Kind + ")"
		}
		pairs = append(pairs, cloud.AccountName(string(uid)), "ACCOUNT of "+text, string(uid), text)
	}
	return normalizer{strings.NewReplacer(append(pairs, name, "NAME")...)}
}

// replicaFields are all fields that contain or follow from the number of replicas.
var replicaFields = regexp.MustCompile(`^\.(spec\.replicas|status\.(replicas|readyReplicas|updatedReplicas|availableReplicas))$|^\.endpoints|f:spec\.f:replicas$`)

// removePathDependent removes fields that by design depend on the history of an object and not only on its spec:
//
//   - the field manager of the last user, and the annotation of TriggerReconcile;
//   - status.drifts;
//   - which versions of a hook have succeeded, and the Job of one that succeeded earlier: it does not run again, and
//     so has no Job if another version ran meanwhile ([hooksRunOnce] and [rolloutsAwaitHooks] check the Jobs);
//   - the number of replicas if the spec does not declare it, because it stays as it was or as an autoscaler set
//     it ([Environment.replicasOutOfBounds] checks the bounds); and the field manager that holds the number after
//     a hand-over, which keeps it if the same number is declared again;
//   - keys of a ConfigMap that another client took over just before they were removed from the spec.
func removePathDependent(object, primary *unstructured.Unstructured, fields map[string]string) {
	if object.GetKind() == "ConfigMap" {
		removeTakenOver(fields)
	}
	isPrimary := object.GetUID() == primary.GetUID()
	_, declared, _ := unstructured.NestedInt64(primary.Object, "spec", "replicas")
	maps.DeleteFunc(fields, func(path, _ string) bool {
		return isPrimary && isUserField(path) || isHandOverField(path) || !declared && replicaFields.MatchString(path)
	})
}

// removeTakenOver removes the keys of a ConfigMap that externalManager owns.
func removeTakenOver(fields map[string]string) {
	const held = ".f:data.f:"
	for path := range fields {
		if at := strings.Index(path, held); at >= 0 && strings.HasPrefix(path, ".metadata.managers."+externalManager+" by ") {
			delete(fields, path)
			delete(fields, ".data."+path[at+len(held):])
		}
	}
}

// isUserField reports whether a field depends on who edited the object, on triggered reconciles, or on past drift.
func isUserField(path string) bool {
	return strings.HasPrefix(path, ".metadata.managers."+user+" by") ||
		strings.Contains(path, "test.fixpoint.dev/poke") ||
		path == ".metadata.annotations" || // empty without the annotation of TriggerReconcile
		strings.HasPrefix(path, ".status.drifts") || strings.Contains(path, ".f:status.f:drifts") ||
		strings.HasPrefix(path, ".status.hooks.preDeploy.succeededVersions") || strings.HasSuffix(path, ".f:succeededVersions")
}

// isHandOverField reports whether the field manager holds the number of replicas until an autoscaler writes it.
func isHandOverField(path string) bool {
	return strings.HasPrefix(path, ".metadata.managers.") && strings.Contains(path, "-handover by Apply ") && strings.HasSuffix(path, ".f:spec.f:replicas")
}

// replicasOutOfBounds reports an autoscaled object whose number of replicas exceeds the bounds of its autoscaler.
func (env *Environment) replicasOutOfBounds(live *unstructured.Unstructured) []string {
	least, autoscaled, _ := unstructured.NestedInt64(live.Object, "spec", "autoscaling", "minReplicas")
	most, _, _ := unstructured.NestedInt64(live.Object, "spec", "autoscaling", "maxReplicas")
	deployment := env.Get("Deployment", live.GetName())
	if !autoscaled || deployment == nil {
		return nil
	}
	pods, _, _ := unstructured.NestedInt64(deployment.Object, "spec", "replicas")
	if pods < least || pods > most {
		return []string{fmt.Sprintf("%s has %d replicas, want %d to %d", idOf(live), pods, least, most)}
	}
	return nil
}

// cloudOf adds the resources of a SecureStorage in the cloud. It ignores tags that are no longer declared:
// they remain, because they cannot be told apart from tags of other clients.
func (n normalizer) cloudOf(server *fakecloud.Server, live *unstructured.Unstructured, name string, into Snapshot) {
	account, there := server.Account(name)
	if !there {
		return
	}
	declared, _, _ := unstructured.NestedStringMap(live.Object, "spec", "tags")
	tags := map[string]any{}
	for key, value := range account.Tags {
		if _, ok := declared[key]; ok || strings.HasPrefix(key, v1beta1.TagPrefix) {
			tags[key] = value
		}
	}
	into.Objects["cloud account"] = n.flat(map[string]any{
		"state": account.ProvisioningState, "key": account.Key, "data": account.Data, "sku": account.SKU,
		"location": account.Location, "kind": account.Kind, "tags": tags, "identity": account.Identity.PrincipalID != "",
	})
	for _, grant := range grantsOf(server, account.Identity.PrincipalID) {
		into.Objects["cloud grant "+n.text(grant)] = map[string]string{"": "exists"}
	}
}

// grantsOf lists the permissions of a principal.
func grantsOf(server *fakecloud.Server, principal string) []string {
	var grants []string
	state := server.State()
	for _, a := range state.Assignments {
		if a.PrincipalID == principal {
			grants = append(grants, a.Role+" on "+a.Scope)
		}
	}
	for _, vault := range state.Vaults {
		for _, policy := range vault.Policies {
			if policy.ObjectID == principal {
				grants = append(grants, fmt.Sprint("policy of ", vault.Name, ": ", slices.Sorted(maps.Keys(policy.Permissions))))
			}
		}
	}
	slices.Sort(grants)
	return grants
}

// leftovers lists objects that must not exist: undesired Fixpoint objects, children without their owner,
// accounts and grants without a SecureStorage.
func (env *Environment) leftovers(desired map[ID]bool, retained []string) []string {
	var left []string
	live := map[types.UID]bool{}
	for _, o := range env.history.filter(func(*unstructured.Unstructured) bool { return true }) {
		live[o.GetUID()] = true
		if isOwnerKind(o.GetKind()) && !desired[idOf(o)] {
			left = append(left, fmt.Sprintf("%s exists although it was deleted", idOf(o)))
		}
	}
	for _, o := range env.history.filter(func(o *unstructured.Unstructured) bool { return metav1.GetControllerOfNoCopy(o) != nil }) {
		if controller := controllerOf(o); !live[controller.UID] {
			left = append(left, fmt.Sprintf("%s remains of a deleted %s", idOf(o), controller.Kind))
		}
	}
	known := append(slices.Clone(retained), env.deletedPastFinalizer()...)
	for id := range desired {
		if account := env.Account(id.Name); id.Kind == SecureStorage && account != "" {
			known = append(known, account)
		}
	}
	return append(left, env.leftoversInCloud(known, retained)...)
}

// deletedPastFinalizer returns the accounts of SecureStorages that the API server deleted although they had
// a finalizer. Store.Delete checks for finalizers before it deletes and does not notice one that is added
// in between, so that no teardown happens.
func (env *Environment) deletedPastFinalizer() []string {
	var accounts []string
	for _, v := range env.Versions() {
		o := v.Object
		if v.Type == watch.Deleted && o.GetKind() == SecureStorage && o.GetDeletionTimestamp() == nil && slices.Contains(o.GetFinalizers(), finalizer) {
			accounts = append(accounts, accountOf(o))
		}
	}
	return accounts
}

func (env *Environment) leftoversInCloud(known, retained []string) []string {
	var left []string
	state := env.Cloud.State()
	principals := map[string]bool{}
	for _, account := range state.Accounts {
		// An account that was deleted from the spec before its adoption has no owner.
		isUnowned := strings.HasPrefix(account.Name, adopted) && account.Tags[cloud.OwnerTag] == ""
		if !slices.Contains(known, account.Name) && !isUnowned {
			left = append(left, fmt.Sprintf("account %s remains in the cloud", account.Name))
		}
		principals[account.Identity.PrincipalID] = true
	}
	// A retained account keeps its grants, including those of an identity that was removed.
	for _, entry := range env.Cloud.Ledger() {
		if entry.Principal != "" && slices.ContainsFunc(retained, func(name string) bool {
			return strings.HasSuffix(strings.ToLower(entry.Resource), "/storageaccounts/"+name)
		}) {
			principals[entry.Principal] = true
		}
	}
	for _, a := range state.Assignments {
		if !principals[a.PrincipalID] {
			left = append(left, fmt.Sprintf("the grant %s on %s remains for %s, which was deleted", a.Role, a.Scope, a.PrincipalID))
		}
	}
	for _, vault := range state.Vaults {
		for _, policy := range vault.Policies {
			if !principals[policy.ObjectID] {
				left = append(left, fmt.Sprintf("a policy of vault %s remains for %s, which was deleted", vault.Name, policy.ObjectID))
			}
		}
	}
	return left
}
