package plan

import (
	"slices"
	"strings"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// childLists are the kinds of all children.
func childLists() []client.ObjectList {
	return []client.ObjectList{
		&corev1.ConfigMapList{}, &corev1.SecretList{}, &corev1.ServiceList{}, &corev1.ServiceAccountList{}, &appsv1.DeploymentList{}, &autoscalingv2.HorizontalPodAutoscalerList{},
		&batchv1.JobList{}, &policyv1.PodDisruptionBudgetList{}, &networkingv1.IngressList{}, &networkingv1.NetworkPolicyList{},
	}
}

// snapshot is everything in the namespace by kind and name.
func (w *environment) snapshot() map[string]client.Object {
	w.t.Helper()
	found := map[string]client.Object{}
	for _, list := range childLists() {
		w.must(w.server.List(w.ctx, list, client.InNamespace(namespace)))
		w.must(meta.EachListItem(list, func(item runtime.Object) error {
			if live, ok := item.(client.Object); ok {
				kinds, _, err := w.scheme.ObjectKinds(live)
				found[kinds[0].Kind+"/"+live.GetName()] = live
				return err
			}
			return nil
		}))
	}
	return found
}

// settleChildren does what the controllers of Kubernetes do, and returns whether it changed anything.
func (r *run) settleChildren() (moved bool) {
	children := r.snapshot()
	r.server.CollectGarbage()
	if len(r.snapshot()) < len(children) {
		return true
	}
	for _, key := range sortedKeys(children) {
		live := children[key]
		if !metav1.IsControlledBy(live, r.object) {
			continue
		}
		before := live.DeepCopyObject()
		switch live := live.(type) {
		case *appsv1.Deployment:
			setRolledOut(live)
		case *autoscalingv2.HorizontalPodAutoscaler:
			r.scale(live)
			live.Status.Conditions = []autoscalingv2.HorizontalPodAutoscalerCondition{{Type: autoscalingv2.AbleToScale, Status: corev1.ConditionTrue, Reason: "ReadyForNewScale"}}
		case *batchv1.Job:
			live.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
		case *policyv1.PodDisruptionBudget:
			live.Status.ObservedGeneration = live.Generation
		}
		if !equality.Semantic.DeepEqual(before, live) {
			r.Expect(r.server.Status().Update(r.ctx, live)).To(Succeed())
			moved = true
		}
	}
	return moved
}

func setRolledOut(d *appsv1.Deployment) {
	replicas := int32(1)
	if d.Spec.Replicas != nil {
		replicas = *d.Spec.Replicas
	}
	d.Status = appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation, Replicas: replicas, UpdatedReplicas: replicas, AvailableReplicas: replicas, ReadyReplicas: replicas,
		Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable"}},
	}
}

// scale brings the Deployment between the bounds of its autoscaler.
func (r *run) scale(h *autoscalingv2.HorizontalPodAutoscaler) {
	var d appsv1.Deployment
	if err := r.server.Get(r.ctx, client.ObjectKeyFromObject(h), &d); err != nil {
		return // it does not exist yet
	}
	least, is := int32(1), int32(1)
	if h.Spec.MinReplicas != nil {
		least = *h.Spec.MinReplicas
	}
	if d.Spec.Replicas != nil {
		is = *d.Spec.Replicas
	}
	want := min(max(is, least), h.Spec.MaxReplicas)
	if d.Spec.Replicas != nil && want == is {
		return
	}
	d.Spec.Replicas = &want
	r.Expect(r.server.Update(r.ctx, &d, client.FieldOwner("horizontal-pod-autoscaler"))).To(Succeed())
}

// drift changes something that the spec does not say: a child, or the cloud. It returns false if there is nothing yet.
func (r *run) drift() bool {
	if r.definition.Name == "SecureStorage" {
		return r.driftCloud()
	}
	children := r.snapshot()
	var owned []string
	for _, key := range sortedKeys(children) {
		if metav1.IsControlledBy(children[key], r.object) {
			owned = append(owned, key)
		}
	}
	if len(owned) == 0 {
		return false
	}
	key := owned[r.random.IntN(len(owned))]
	live := children[key]
	changes := append(anyChild(), byKind(live)...)
	chosen := changes[r.random.IntN(len(changes))]
	r.note("drift of %s: %s", key, chosen.what)
	if chosen.edit == nil {
		r.Expect(r.server.Delete(r.ctx, live)).To(Succeed())
		return true
	}
	chosen.edit(live)
	who := []string{"kubectl-edit", "helm", "fixpoint-" + strings.ToLower(r.definition.Name)}[r.random.IntN(3)]
	r.Expect(r.server.Update(r.ctx, live, client.FieldOwner(who))).To(Succeed())
	return true
}

// driftOf is one change of a child by another client. Without edit, the child is deleted.
type driftOf struct {
	what string
	edit func(client.Object)
}

func anyChild() []driftOf {
	return []driftOf{
		{"deleted", nil},
		{"a label is added", func(o client.Object) { setLabel(o, "team", "shop") }},
		{"a label is changed", func(o client.Object) { setLabel(o, "app.kubernetes.io/managed-by", "helm") }},
		{"labels are removed", func(o client.Object) { o.SetLabels(nil) }},
		{"annotations are removed", func(o client.Object) { o.SetAnnotations(nil) }},
		{"managed fields are removed", func(o client.Object) { o.SetManagedFields([]metav1.ManagedFieldsEntry{{}}) }},
		{"the owner is removed", func(o client.Object) { o.SetOwnerReferences(nil) }},
	}
}

func setLabel(o client.Object, key, value string) {
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[key] = value
	o.SetLabels(labels)
}

// byKind are changes of fields that the kind of a child has.
func byKind(live client.Object) []driftOf {
	switch live := live.(type) {
	case *appsv1.Deployment:
		pod := &live.Spec.Template.Spec
		return []driftOf{
			{"replicas", func(client.Object) { n := int32(7); live.Spec.Replicas = &n }},
			{"image", func(client.Object) { pod.Containers[0].Image = "registry.test/other:1" }},
			{"environment", func(client.Object) {
				pod.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "other"}, {Name: "Z", Value: "new"}}
			}},
			{"a port", func(client.Object) { pod.Containers[0].Ports[0].ContainerPort++ }},
			{"a container is added", func(client.Object) {
				pod.Containers = append(pod.Containers, corev1.Container{Name: "proxy", Image: "proxy:1"})
			}},
			{"strategy", func(client.Object) {
				live.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
			}},
			{"template labels", func(client.Object) { live.Spec.Template.Labels["team"] = "shop" }},
			{"template annotations", func(client.Object) { live.Spec.Template.Annotations = map[string]string{"restarted": "now"} }},
		}
	case *corev1.Service:
		return []driftOf{
			{"port", func(client.Object) { live.Spec.Ports[0].Port++ }},
			{"target port", func(client.Object) { live.Spec.Ports[0].TargetPort = intstr.FromInt32(1) }},
			{"selector", func(client.Object) { live.Spec.Selector = map[string]string{"other": "x"} }},
			{"session affinity", func(client.Object) { live.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }},
		}
	case *corev1.ConfigMap:
		return []driftOf{
			{"data", func(client.Object) { live.Data = map[string]string{"MODE": "other"} }},
			{"all data", func(client.Object) { live.Data = nil }},
		}
	case *autoscalingv2.HorizontalPodAutoscaler:
		return []driftOf{{"maximum", func(client.Object) { live.Spec.MaxReplicas++ }}, {"metrics", func(client.Object) { live.Spec.Metrics = nil }}}
	case *policyv1.PodDisruptionBudget:
		return []driftOf{{"selector", func(client.Object) { live.Spec.Selector = nil }}}
	case *networkingv1.Ingress:
		return []driftOf{{"rules", func(client.Object) { live.Spec.Rules = nil }}, {"class", func(client.Object) { live.Spec.IngressClassName = nil }}}
	default:
		return nil
	}
}

// driftCloud changes the storage account outside of the manager.
func (r *run) driftCloud() bool {
	r.Expect(r.read()).To(BeTrue())
	storage, ok := r.object.(*v1beta1.SecureStorage)
	r.Expect(ok).To(BeTrue())
	id := storage.Status.AccountID
	account := id[strings.LastIndex(id, "/")+1:]
	if _, exists := r.cloud.Account(account); !exists {
		return false
	}
	changes := []struct {
		what string
		do   func() error
	}{
		{"tags", func() error { return r.cloud.SetTags(account, map[string]string{"other": "x"}) }},
		{"platform keys", func() error { return r.cloud.UsePlatformKeys(account) }},
		{"no identity", func() error { return r.cloud.DropIdentity(account) }},
		{"no grants", func() error { return r.cloud.RemoveGrants(r.cloud.Principal(account)) }},
		{"account deleted", func() error { return r.cloud.DeleteAccount(account) }},
		{"new key version", func() error { _, err := r.cloud.RotateKey("fixpoint-demo", "storage"); return err }},
	}
	chosen := changes[r.random.IntN(len(changes))]
	if err := chosen.do(); err != nil {
		r.Expect(err).To(MatchError(ContainSubstring("has no grants")), "%s: only what is not there cannot drift", chosen.what)
		r.note("no drift of the cloud: %v", err)
		return false
	}
	r.note("drift of the cloud: %s", chosen.what)
	return true
}

func sortedKeys(objects map[string]client.Object) []string {
	keys := make([]string, 0, len(objects))
	for key := range objects {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
