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

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// stateOf is the state of one object, of all that it controls, and of what it has in the cloud, without
// what is another in each run and without its name.
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
		fields := n.object(object)
		removePathDependent(object, live, fields)
		s.Objects[object.GetKind()+"/"+n.text(object.GetName())] = fields
	}
	if kind == SecureStorage {
		n.cloudOf(env.Cloud, live, account, s)
	}
	return s
}

// familyOf is an object with all that it controls, and what that controls.
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

// normalizerOf replaces the object's name as well, and says of UIDs that are those of objects that are
// gone.
func (env *Environment) normalizerOf(name, account string) normalizer {
	pairs := []string{env.Namespace, "NAMESPACE"}
	if account != "" {
		pairs = append(pairs, account, "ACCOUNT")
	}
	env.history.mu.Lock()
	defer env.history.mu.Unlock()
	for uid, id := range env.history.names {
		text := "UID(" + id.Kind + ")"
		if live := env.history.live[id]; live == nil || live.GetUID() != uid {
			text = "UID(former " + id.Kind + ")"
		}
		pairs = append(pairs, cloud.AccountName(string(uid)), "ACCOUNT of "+text, string(uid), text)
	}
	return normalizer{strings.NewReplacer(append(pairs, name, "NAME")...)}
}

// counts of pods, in an object of ours, a Deployment and what else tells of them.
var replicaFields = regexp.MustCompile(`^\.(spec\.replicas|status\.(replicas|readyReplicas|updatedReplicas|availableReplicas))$|^\.endpoints|f:spec\.f:replicas$`)

// leaveAside takes out what by design hangs on the way and not on the spec alone:
//
//   - which manager of a person wrote the object of ours last, and the poke at it;
//   - status.drifts, which tell of the past;
//   - the number of pods where the spec does not declare it: it stays what it was, or what an autoscaler
//     has made of it, which has to be within its bounds ([World.outOfBounds]); and the manager that held it
//     when it was handed over, which goes on holding it if the same number is declared again.
//   - what somebody has taken over of a ConfigMap just before it was taken out of the spec: then it is theirs.
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

// leaveTaken leaves aside the keys of a ConfigMap that a stranger holds.
func removeTakenOver(fields map[string]string) {
	const held = ".f:data.f:"
	for path := range fields {
		if at := strings.Index(path, held); at >= 0 && strings.HasPrefix(path, ".metadata.managers."+externalManager+" by ") {
			delete(fields, path)
			delete(fields, ".data."+path[at+len(held):])
		}
	}
}

// isUsersOwn is what hangs on who wrote an object of ours, how often it was poked, and what had drifted.
func isUserField(path string) bool {
	return strings.HasPrefix(path, ".metadata.managers."+user+" by") ||
		strings.Contains(path, "test.fixpoint.dev/poke") ||
		path == ".metadata.annotations" || // what is left of them without the poke
		strings.HasPrefix(path, ".status.drifts") || strings.Contains(path, ".f:status.f:drifts")
}

// isHandOver is the field manager that holds the number of pods until an autoscaler writes it.
func isHandOverField(path string) bool {
	return strings.HasPrefix(path, ".metadata.managers.") && strings.Contains(path, "-handover by Apply ") && strings.HasSuffix(path, ".f:spec.f:replicas")
}

// outOfBounds says of an object of ours that has an autoscaler whether the number of its pods is beyond
// what that allows.
func (env *Environment) replicasOutOfBounds(live *unstructured.Unstructured) []string {
	least, autoscaled, _ := unstructured.NestedInt64(live.Object, "spec", "autoscaling", "minReplicas")
	most, _, _ := unstructured.NestedInt64(live.Object, "spec", "autoscaling", "maxReplicas")
	deployment := env.Get("Deployment", live.GetName())
	if !autoscaled || deployment == nil {
		return nil
	}
	pods, _, _ := unstructured.NestedInt64(deployment.Object, "spec", "replicas")
	if pods < least || pods > most {
		return []string{fmt.Sprintf("%s has %d pods, and %d to %d are declared", idOf(live), pods, least, most)}
	}
	return nil
}

// cloudOf adds what a SecureStorage has in the cloud. Tags that are no longer declared stay, because
// nothing tells them from somebody else's.
func (n normalizer) cloudOf(server *fakecloud.Server, live *unstructured.Unstructured, name string, into Snapshot) {
	account, there := server.Account(name)
	if !there {
		return
	}
	declared, _, _ := unstructured.NestedStringMap(live.Object, "spec", "tags")
	tags := map[string]any{}
	for key, value := range account.Tags {
		if _, ok := declared[key]; ok || strings.HasPrefix(key, v1alpha1.TagPrefix) {
			tags[key] = value
		}
	}
	into.Objects["cloud account"] = n.flat(map[string]any{
		"state": account.ProvisioningState, "key": account.Key, "data": account.Data, "sku": account.SKU,
		"location": account.Location, "kind": account.Kind, "tags": tags, "identity": account.Identity.PrincipalID != "",
	})
	for _, grant := range grantsOf(server, account.Identity.PrincipalID) {
		into.Objects["cloud grant "+n.text(grant)] = map[string]string{"": "there"}
	}
}

// grantsOf are what a principal may do, in words.
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

// leftovers are what there is that should not be: objects of ours that nobody wishes for, children of
// what is gone, accounts and grants that are nobody's.
func (env *Environment) leftovers(wished map[ID]bool, retained []string) []string {
	var left []string
	live := map[types.UID]bool{}
	for _, o := range env.history.filter(func(*unstructured.Unstructured) bool { return true }) {
		live[o.GetUID()] = true
		if isOwnerKind(o.GetKind()) && !wished[idOf(o)] {
			left = append(left, fmt.Sprintf("%s is there, and was deleted", idOf(o)))
		}
	}
	for _, o := range env.history.filter(func(o *unstructured.Unstructured) bool { return metav1.GetControllerOfNoCopy(o) != nil }) {
		if controller := controllerOf(o); !live[controller.UID] {
			left = append(left, fmt.Sprintf("%s is left of a %s that is gone", idOf(o), controller.Kind))
		}
	}
	known := append(slices.Clone(retained), env.deletedPastFinalizer()...)
	for id := range wished {
		if account := env.Account(id.Name); id.Kind == SecureStorage && account != "" {
			known = append(known, account)
		}
	}
	return append(left, env.leftoversInCloud(known, retained)...)
}

// pastFinalizers are the accounts of SecureStorages that the API server deleted although they had a
// finalizer. It looks whether there is one and then deletes, and does not notice one that comes in
// between: then nobody is asked to tear anything down.
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
		// What nobody had come to adopt before it was given up is nobody's.
		isNobodys := strings.HasPrefix(account.Name, adopted) && account.Tags[cloud.OwnerTag] == ""
		if !slices.Contains(known, account.Name) && !isNobodys {
			left = append(left, fmt.Sprintf("account %s is left in the cloud", account.Name))
		}
		principals[account.Identity.PrincipalID] = true
	}
	// What stays with an account that is retained stays as it was, even what an identity had that somebody
	// has dropped.
	for _, entry := range env.Cloud.Ledger() {
		if entry.Principal != "" && slices.ContainsFunc(retained, func(name string) bool {
			return strings.HasSuffix(strings.ToLower(entry.Resource), "/storageaccounts/"+name)
		}) {
			principals[entry.Principal] = true
		}
	}
	for _, a := range state.Assignments {
		if !principals[a.PrincipalID] {
			left = append(left, fmt.Sprintf("a grant of %s on %s is left, of %s, which is gone", a.Role, a.Scope, a.PrincipalID))
		}
	}
	for _, vault := range state.Vaults {
		for _, policy := range vault.Policies {
			if !principals[policy.ObjectID] {
				left = append(left, fmt.Sprintf("a policy of vault %s is left, of %s, which is gone", vault.Name, policy.ObjectID))
			}
		}
	}
	return left
}
