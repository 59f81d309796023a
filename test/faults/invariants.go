package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// Violations returns every violation of an invariant that must hold at every event.
func (env *Environment) Violations() []string {
	versions := env.history.all()
	var all []string
	for _, check := range []func([]Version) []string{
		controllerNeverChanges, finalizerBeforeChildren, childrenAreDeletedFirst, readyImpliesReadyDeployment, hooksRunOnce, rolloutsAwaitHooks,
	} {
		all = append(all, check(versions)...)
	}
	all = append(all, env.deletesOnlyManaged(versions)...)
	all = append(all, env.writesByApply()...)
	if env.Cloud != nil {
		all = append(all, env.keyIsNeverRemoved()...)
		all = append(all, env.encryptionIsNotClaimedEarly(versions)...)
		all = append(all, env.observedIsNeverWritten(versions)...)
		all = append(all, env.keysAreOnlyWhereAsked(versions)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func controllerOf(object *unstructured.Unstructured) *metav1.OwnerReference {
	return metav1.GetControllerOfNoCopy(object)
}

func isFixpointKind(reference *metav1.OwnerReference) bool {
	return reference != nil && strings.HasPrefix(reference.APIVersion, v1beta1.SchemeGroupVersion.Group+"/")
}

// controllerNeverChanges checks that no object passes from one controller to another.
func controllerNeverChanges(versions []Version) []string {
	var broken []string
	last := map[types.UID]types.UID{}
	for _, v := range versions {
		controller := controllerOf(v.Object)
		if controller == nil {
			continue
		}
		uid := v.Object.GetUID()
		if before, known := last[uid]; known && before != controller.UID {
			broken = append(broken, fmt.Sprintf("%s passed from one controller to another, %s %s", idOf(v.Object), controller.Kind, controller.Name))
		}
		last[uid] = controller.UID
	}
	return broken
}

// finalizerBeforeChildren checks that the owner has its finalizer when a child is created.
func finalizerBeforeChildren(versions []Version) []string {
	var broken []string
	finalized := map[types.UID]bool{}
	for _, v := range versions {
		if isOwnerKind(v.Object.GetKind()) && slices.Contains(v.Object.GetFinalizers(), finalizer) {
			finalized[v.Object.GetUID()] = true
		}
		controller := controllerOf(v.Object)
		if v.Type == watch.Added && isFixpointKind(controller) && !finalized[controller.UID] {
			broken = append(broken, fmt.Sprintf("%s was created before %s %s had its finalizer", idOf(v.Object), controller.Kind, controller.Name))
		}
	}
	return broken
}

const finalizer = "fixpoint.dev/teardown"

// childrenAreDeletedFirst checks that an owner has no children left when its teardown is complete. It
// ignores owners whose finalizer a user removed before the deletion.
func childrenAreDeletedFirst(versions []Version) []string {
	var broken []string
	children := map[types.UID]map[ID]bool{}
	torn := map[types.UID]bool{}
	for _, v := range versions {
		uid, id := v.Object.GetUID(), idOf(v.Object)
		if isOwnerKind(id.Kind) {
			torn[uid] = torn[uid] || v.Object.GetDeletionTimestamp() != nil && slices.Contains(v.Object.GetFinalizers(), finalizer)
			if v.Type == watch.Deleted && torn[uid] {
				for child := range children[uid] {
					broken = append(broken, fmt.Sprintf("%s still existed when %s was deleted", child, id))
				}
			}
			continue
		}
		for _, owned := range children {
			delete(owned, id)
		}
		if controller := controllerOf(v.Object); v.Type != watch.Deleted && isFixpointKind(controller) {
			if children[controller.UID] == nil {
				children[controller.UID] = map[ID]bool{}
			}
			children[controller.UID][id] = true
		}
	}
	return broken
}

// readyImpliesReadyDeployment checks that the Deployment has been ready as the spec declares before the
// owner is Ready. Ready can lag behind later changes, so earlier readiness counts.
func readyImpliesReadyDeployment(versions []Version) []string {
	var broken []string
	ready, served := map[string][]int64{}, map[string]bool{} // ready holds the numbers of replicas
	for _, v := range versions {
		if v.Type == watch.Deleted {
			continue
		}
		switch v.Object.GetKind() {
		case "Deployment":
			if n, _, _ := unstructured.NestedInt64(v.Object.Object, "status", "readyReplicas"); n > 0 {
				served[v.Object.GetName()] = true
			}
			if image, pods, ok := readyPods(v.Object); ok {
				key := v.Object.GetName() + " " + image
				ready[key] = append(ready[key], pods)
			}
		case MCPServer:
			// Pods of an earlier revision can serve as well.
			idle := field(v.Object, "spec", "replicas") == "0"
			if saysReady(v.Object) && !idle && !served[v.Object.GetName()] {
				broken = append(broken, fmt.Sprintf("%s was Ready although no pod of its Deployment had ever been ready", idOf(v.Object)))
			}
		case AppService:
			image, _, _ := unstructured.NestedString(v.Object.Object, "spec", "image")
			least, most := boundsOf(v.Object)
			asDeclared := slices.ContainsFunc(ready[v.Object.GetName()+" "+image], func(pods int64) bool { return pods >= least && pods <= most })
			if saysReady(v.Object) && !asDeclared && !reportsDrift(v.Object) {
				broken = append(broken, fmt.Sprintf("%s was Ready although its Deployment had never been ready with image %s and %d to %d replicas",
					idOf(v.Object), image, least, most))
			}
		}
	}
	return broken
}

// hooksRunOnce checks that no Job of a hook is created again after it has succeeded, and that no two exist at the same
// time. The name of a Job ends with a digest of what it runs.
func hooksRunOnce(versions []Version) []string {
	var broken []string
	succeeded := map[string]bool{}
	alive := map[types.UID]string{}
	for _, v := range versions {
		owner := controllerOf(v.Object)
		if v.Object.GetKind() != "Job" || owner == nil {
			continue
		}
		run := string(owner.UID) + "/" + v.Object.GetName()
		if v.Type == watch.Deleted {
			delete(alive, owner.UID)
			continue
		}
		if v.Type == watch.Added {
			if succeeded[run] {
				broken = append(broken, fmt.Sprintf("%s was created again after it had succeeded", idOf(v.Object)))
			}
			if other := alive[owner.UID]; other != "" {
				broken = append(broken, fmt.Sprintf("%s was created while Job %s of %s %s existed", idOf(v.Object), other, owner.Kind, owner.Name))
			}
			alive[owner.UID] = v.Object.GetName()
		}
		succeeded[run] = succeeded[run] || jobSucceeded(v.Object)
	}
	return broken
}

func jobSucceeded(job *unstructured.Unstructured) bool {
	status, _, _ := condition(job, string(batchv1.JobComplete))
	return status == "True"
}

// rolloutsAwaitHooks checks that no Deployment gets an image, which its AppService has only ever declared together with
// a hook, before a Job with that image has succeeded.
func rolloutsAwaitHooks(versions []Version) []string {
	var broken []string
	gated, free, succeeded := map[string]bool{}, map[string]bool{}, map[string]bool{}
	running := map[types.UID]string{}
	for _, v := range versions {
		owner := controllerOf(v.Object)
		switch kind := v.Object.GetKind(); {
		case v.Type == watch.Deleted:
		case kind == AppService:
			image := string(v.Object.GetUID()) + " " + field(v.Object, "spec", "image")
			_, isGated, _ := unstructured.NestedMap(v.Object.Object, "spec", "hooks", "preDeploy")
			gated[image], free[image] = gated[image] || isGated, free[image] || !isGated
		case kind == "Job" && owner != nil && jobSucceeded(v.Object):
			succeeded[string(owner.UID)+" "+imageOf(v.Object)] = true
		case kind == "Deployment" && owner != nil:
			image := string(owner.UID) + " " + imageOf(v.Object)
			if running[owner.UID] != image && gated[image] && !free[image] && !succeeded[image] {
				broken = append(broken, fmt.Sprintf("%s was rolled out with image %s before its hook had succeeded", idOf(v.Object), imageOf(v.Object)))
			}
			running[owner.UID] = image
		}
	}
	return broken
}

// imageOf returns the image of the first container in the pod template.
func imageOf(object *unstructured.Unstructured) string {
	containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
	if len(containers) == 0 {
		return ""
	}
	container, _ := containers[0].(map[string]any)
	image, _ := container["image"].(string)
	return image
}

// reportsDrift reports whether the object reports drift under the policy Report. Then changed pods can
// serve as well.
func reportsDrift(object *unstructured.Unstructured) bool {
	drifted, _, generation := condition(object, v1beta1.ConditionDrifted)
	return field(object, "spec", "driftPolicy") == string(v1beta1.DriftReport) && drifted == "True" && generation == object.GetGeneration()
}

// boundsOf returns the allowed numbers of replicas of an AppService: the declared number, or the bounds
// of its autoscaler.
func boundsOf(app *unstructured.Unstructured) (least, most int64) {
	if n, ok, _ := unstructured.NestedInt64(app.Object, "spec", "replicas"); ok {
		return n, n
	}
	least, autoscaled, _ := unstructured.NestedInt64(app.Object, "spec", "autoscaling", "minReplicas")
	most, _, _ = unstructured.NestedInt64(app.Object, "spec", "autoscaling", "maxReplicas")
	if autoscaled {
		return least, most
	}
	return 0, math.MaxInt32
}

// readyPods returns the image and the number of replicas of a Deployment if its rollout is complete.
func readyPods(d *unstructured.Unstructured) (string, int64, bool) {
	if d == nil {
		return "", 0, false
	}
	number := func(path ...string) int64 {
		n, _, _ := unstructured.NestedInt64(d.Object, path...)
		return n
	}
	replicas := number("spec", "replicas")
	isReady := number("status", "observedGeneration") == d.GetGeneration() &&
		number("status", "updatedReplicas") >= replicas && number("status", "availableReplicas") >= replicas
	containers, _, _ := unstructured.NestedSlice(d.Object, "spec", "template", "spec", "containers")
	if !isReady || len(containers) == 0 {
		return "", 0, false
	}
	container, _ := containers[0].(map[string]any)
	image, ok := container["image"].(string)
	return image, replicas, ok
}

// condition returns the status, the reason and the observed generation of a condition. All are zero if
// the object or the condition does not exist.
func condition(object *unstructured.Unstructured, conditionType string) (status, reason string, generation int64) {
	for _, fields := range conditionsOf(object) {
		if fields["type"] != conditionType {
			continue
		}
		status, _ = fields["status"].(string)
		reason, _ = fields["reason"].(string)
		generation, _ = fields["observedGeneration"].(int64)
	}
	return status, reason, generation
}

// conditionsOf returns the conditions of an object, which may be nil.
func conditionsOf(object *unstructured.Unstructured) []map[string]any {
	if object == nil {
		return nil
	}
	list, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	var conditions []map[string]any
	for _, c := range list {
		if fields, ok := c.(map[string]any); ok {
			conditions = append(conditions, fields)
		}
	}
	return conditions
}

// saysReady reports whether Ready is True for the current generation.
func saysReady(object *unstructured.Unstructured) bool {
	status, _, generation := condition(object, "Ready")
	return status == "True" && generation == object.GetGeneration()
}

// deletesOnlyManaged checks that each deletion by a manager has a UID precondition, and that a Fixpoint
// object controlled the deleted object.
func (env *Environment) deletesOnlyManaged(versions []Version) []string {
	var broken []string
	managed := map[types.UID]bool{}
	for _, v := range versions {
		managed[v.Object.GetUID()] = managed[v.Object.GetUID()] || isFixpointKind(controllerOf(v.Object))
	}
	for _, call := range env.Calls() {
		if call.Cloud || call.Verb != "delete" {
			continue
		}
		var options metav1.DeleteOptions
		if err := json.Unmarshal(call.Body, &options); err != nil || options.Preconditions == nil || options.Preconditions.UID == nil {
			broken = append(broken, fmt.Sprintf("a manager deleted %s/%s without a UID precondition", call.Resource, call.Name))
			continue
		}
		if !managed[*options.Preconditions.UID] {
			broken = append(broken, fmt.Sprintf("a manager deleted %s/%s, which no Fixpoint object ever controlled", call.Resource, call.Name))
		}
	}
	return broken
}

// writesByApply checks that managers write only by apply, by deletion, and by JSON patches of managed
// fields.
func (env *Environment) writesByApply() []string {
	var broken []string
	for _, call := range env.Calls() {
		if call.Cloud || !call.Mutates() {
			continue
		}
		ownership := call.Verb == "patch" && bytes.Contains(call.Body, []byte("/metadata/managedFields"))
		if call.Verb != "apply" && call.Verb != "delete" && !ownership && call.Subresource != "token" {
			broken = append(broken, fmt.Sprintf("a manager wrote %s/%s by %s", call.Resource, call.Name, call.Verb))
		}
	}
	return broken
}

// keyIsNeverRemoved checks that no manager switches an account from a customer-managed key back to
// platform keys.
func (env *Environment) keyIsNeverRemoved() []string {
	var broken []string
	encrypted := map[string]bool{}
	for _, entry := range env.Cloud.Ledger() {
		if !strings.Contains(strings.ToLower(entry.Resource), "/storageaccounts/") {
			continue
		}
		switch {
		case entry.Effect == fakecloud.Deleted || entry.Who == fakecloud.WhoMeddler:
			delete(encrypted, entry.Resource)
		case entry.Key == "":
		case entry.Key != string(v1beta1.EncryptionPlatformKeys):
			encrypted[entry.Resource] = true
		case encrypted[entry.Resource]:
			broken = append(broken, fmt.Sprintf("a manager switched %s back to platform keys: %s %s", entry.Resource, entry.Method, entry.Detail))
		}
	}
	return broken
}

// observedIsNeverWritten checks that no manager sent a write for the account of a SecureStorage that has only been observed.
func (env *Environment) observedIsNeverWritten(versions []Version) []string {
	managed, observed := map[string]bool{}, map[string]bool{}
	for _, v := range versions {
		if v.Object.GetKind() != SecureStorage {
			continue
		}
		if field(v.Object, "spec", "managementPolicy") == string(v1beta1.ManagementObserve) {
			observed[accountOf(v.Object)] = true
		} else {
			managed[accountOf(v.Object)] = true
		}
	}
	var broken []string
	for account := range observed {
		if managed[account] {
			continue
		}
		principal := env.Cloud.Principal(account)
		for _, entry := range env.Cloud.Ledger() {
			isOfAccount := strings.Contains(strings.ToLower(entry.Resource)+"/", "/storageaccounts/"+account+"/") || principal != "" && entry.Principal == principal
			if isOfAccount && entry.Who != fakecloud.WhoMeddler && entry.Who != fakecloud.WhoCloud {
				broken = append(broken, fmt.Sprintf("a manager sent %s %s for account %s, which is only observed", entry.Method, entry.Resource, account))
			}
		}
	}
	return broken
}

// keysAreOnlyWhereAsked checks that managers listed the keys only of accounts whose SecureStorage exported them, and that only
// Secrets contain keys.
func (env *Environment) keysAreOnlyWhereAsked(versions []Version) []string {
	asked := map[string]bool{}
	for _, v := range versions {
		if v.Object.GetKind() == SecureStorage && field(v.Object, "spec", "export", "accountKeys") == "true" {
			asked[strings.ToLower(accountOf(v.Object))] = true
		}
	}
	var broken, keys []string
	for _, entry := range env.Cloud.Ledger() {
		of, isList := strings.CutSuffix(strings.ToLower(entry.Resource), listKeys)
		if account := path.Base(of); isList && !asked[account] {
			broken = append(broken, fmt.Sprintf("a manager listed the keys of account %s, which nobody exports", account))
		}
	}
	for account := range asked {
		if current, err := env.Cloud.AccountKeys(account); err == nil {
			keys = append(keys, current[0], current[1])
		}
	}
	for _, v := range versions {
		if kind := v.Object.GetKind(); kind != SecureStorage && kind != "ConfigMap" || len(keys) == 0 {
			continue
		}
		text := fmt.Sprint(v.Object.Object)
		if slices.ContainsFunc(keys, func(key string) bool { return strings.Contains(text, key) || strings.Contains(text, encoded(key)) }) {
			broken = append(broken, fmt.Sprintf("%s contains a key of an account", idOf(v.Object)))
		}
	}
	return broken
}

// encryptionIsNotClaimedEarly checks that an account was encrypted whenever a status with EncryptionReady True is
// written, unless another client changed it. A version with the status of the version before it claims nothing: on a
// busy machine it may be observed seconds later, when the account was lost and another one is being created.
func (env *Environment) encryptionIsNotClaimedEarly(versions []Version) []string {
	var broken []string
	ledger := env.Cloud.Ledger()
	statuses := map[types.UID]any{}
	for _, v := range versions {
		if v.Object.GetKind() != SecureStorage || v.Type == watch.Deleted {
			continue
		}
		before := statuses[v.Object.GetUID()]
		statuses[v.Object.GetUID()] = v.Object.Object["status"]
		status, _, _ := condition(v.Object, v1beta1.ConditionEncryptionReady)
		if status != "True" || equality.Semantic.DeepEqual(before, v.Object.Object["status"]) {
			continue
		}
		account := "/storageaccounts/" + strings.ToLower(accountOf(v.Object))
		var last fakecloud.Entry
		for _, entry := range ledger {
			if entry.Key == "" || entry.Time.After(v.ObservedAt) || !strings.HasSuffix(strings.ToLower(entry.Resource), account) {
				continue
			}
			if last.Who == fakecloud.WhoMeddler && entry.Key == last.Key {
				continue // a later update of the account does not change who switched its key
			}
			last = entry
		}
		if last.Who != fakecloud.WhoMeddler && (last.Key == "" || last.Key == string(v1beta1.EncryptionPlatformKeys)) {
			broken = append(broken, fmt.Sprintf("%s reported EncryptionReady before its account was encrypted: version %d, observed at %s, last change of the key %q at %s",
				idOf(v.Object), v.Revision, v.ObservedAt.Format(timeOfDay), last.Key, last.Time.Format(timeOfDay)))
		}
	}
	return broken
}
