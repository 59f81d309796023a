package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// kubeControllers simulates the Kubernetes controllers for one environment: Deployments, autoscalers,
// disruption budgets, endpoints and garbage collection. It writes the same subresources under the same
// field manager as the real controllers, and reconciles an object whenever it changes.
type kubeControllers struct {
	env    *Environment
	queue  chan ID
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	// revisions holds the pod template hash and the revision of each Deployment, by UID.
	revisions map[types.UID]rollout
	// pending counts the events that are queued, being processed, or about to be queued again.
	pending atomic.Int64
}

type rollout struct {
	template uint64
	revision int
}

func newKubeControllers(env *Environment) *kubeControllers {
	const roomy = 10000
	k := &kubeControllers{env: env, queue: make(chan ID, roomy), done: make(chan struct{}), revisions: map[types.UID]rollout{}}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	go k.run()
	return k
}

func (k *kubeControllers) close() {
	k.cancel()
	<-k.done
}

// enqueue is called at every event.
func (k *kubeControllers) enqueue(object *unstructured.Unstructured) {
	k.pending.Add(1)
	select {
	case k.queue <- idOf(object):
	case <-k.ctx.Done():
	}
}

// isIdle reports whether every event has been processed.
func (k *kubeControllers) isIdle() bool { return k.pending.Load() == 0 }

// reactionTime is the delay of the simulated controllers, so that managers have to wait for them.
const reactionTime = 20 * time.Millisecond

func (k *kubeControllers) run() {
	defer close(k.done)
	for {
		select {
		case id := <-k.queue:
			select {
			case <-time.After(reactionTime):
			case <-k.ctx.Done():
				return
			}
			batch, taken := k.drainQueue(id)
			for _, id := range batch {
				k.process(id)
			}
			k.pending.Add(-taken)
		case <-k.ctx.Done():
			return
		}
	}
}

// drainQueue returns the object and all other queued objects, without duplicates, and how many events these were.
func (k *kubeControllers) drainQueue(first ID) (batch []ID, taken int64) {
	batch, taken = []ID{first}, 1
	for {
		select {
		case id := <-k.queue:
			taken++
			if !slices.Contains(batch, id) {
				batch = append(batch, id)
			}
		default:
			return batch, taken
		}
	}
}

// process reconciles an object and requeues it on an error.
func (k *kubeControllers) process(id ID) {
	err := k.reconcile(id)
	if err == nil || apierrors.IsNotFound(err) || k.ctx.Err() != nil {
		return
	}
	k.pending.Add(1)
	time.AfterFunc(reactionTime, func() {
		select {
		case k.queue <- id:
		case <-k.ctx.Done():
		}
	})
}

func (k *kubeControllers) reconcile(id ID) error {
	object := k.env.history.get(id)
	switch {
	case object == nil && id.Kind == endpointSlice:
		return k.updateEndpoints(id) // it can belong to an earlier Service
	case object == nil:
		return k.collectOrphansOf(id)
	}
	if object.GetDeletionTimestamp() != nil {
		return k.finishDeletion(object)
	}
	if err := k.collectOrphan(object); err != nil {
		return err
	}
	switch id.Kind {
	case AppService, MCPServer, SecureStorage:
		return k.collectOrphansOf(id)
	case "Deployment":
		return k.completeRollout(object)
	case "HorizontalPodAutoscaler":
		return k.updateAutoscaler(object)
	case "PodDisruptionBudget":
		return k.updateDisruptionBudget(object)
	case "Job":
		return k.completeJob(object)
	case "Service", endpointSlice:
		return k.updateEndpoints(id)
	default:
		return nil
	}
}

// toTyped converts an observed object.
func toTyped[T any](object *unstructured.Unstructured, into *T) (*T, error) {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into); err != nil {
		return nil, fmt.Errorf("reading %s: %w", idOf(object), err)
	}
	return into, nil
}

// patch sends a merge patch with preconditions on the UID and the resource version.
func (k *kubeControllers) patch(object client.Object, fields map[string]any, subresource ...string) error {
	metadata, _ := fields["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["uid"], metadata["resourceVersion"] = object.GetUID(), object.GetResourceVersion()
	fields["metadata"] = metadata
	raw, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	target, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%T is not a client.Object", object)
	}
	patch := client.RawPatch(types.MergePatchType, raw)
	if len(subresource) > 0 {
		return k.env.Cluster.controllers.SubResource(subresource[0]).Patch(k.ctx, target, patch, client.FieldOwner(fieldManager))
	}
	return k.env.Cluster.controllers.Patch(k.ctx, target, patch, client.FieldOwner(fieldManager))
}

// completeRollout writes the status of a Deployment whose pods are all ready.
func (k *kubeControllers) completeRollout(object *unstructured.Unstructured) error {
	d, err := toTyped(object, &appsv1.Deployment{})
	if err != nil {
		return err
	}
	if revision := k.revisionOf(d); d.Annotations[revisionAnnotation] != revision {
		return k.patch(d, map[string]any{"metadata": map[string]any{"annotations": map[string]any{revisionAnnotation: revision}}})
	}
	replicas := *d.Spec.Replicas
	if d.Status.ObservedGeneration == d.Generation && d.Status.AvailableReplicas == replicas {
		return k.reconcileAlso(ID{"Service", d.Name}, ID{"HorizontalPodAutoscaler", d.Name})
	}
	now := metav1.Now()
	return k.patch(d, map[string]any{"status": appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation, Replicas: replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas,
		Conditions: []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable", LastUpdateTime: now, LastTransitionTime: now},
			{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable", LastUpdateTime: now, LastTransitionTime: now},
		},
	}}, "status")
}

const revisionAnnotation = "deployment.kubernetes.io/revision"

// revisionOf counts the changes of a Deployment's pod template.
func (k *kubeControllers) revisionOf(d *appsv1.Deployment) string {
	hash := fnv.New64a()
	raw, _ := json.Marshal(d.Spec.Template) // it was decoded from JSON
	hash.Write(raw)
	known := k.revisions[d.UID]
	if known.template != hash.Sum64() {
		known = rollout{template: hash.Sum64(), revision: known.revision + 1}
		k.revisions[d.UID] = known
	}
	return strconv.Itoa(known.revision)
}

func (k *kubeControllers) reconcileAlso(ids ...ID) error {
	for _, id := range ids {
		if k.env.history.get(id) == nil {
			continue
		}
		if err := k.reconcile(id); err != nil {
			return err
		}
	}
	return nil
}

// updateAutoscaler scales the Deployment into the bounds of the autoscaler.
func (k *kubeControllers) updateAutoscaler(object *unstructured.Unstructured) error {
	h, err := toTyped(object, &autoscalingv2.HorizontalPodAutoscaler{})
	if err != nil {
		return err
	}
	if target := k.env.history.get(ID{"Deployment", h.Spec.ScaleTargetRef.Name}); target != nil && target.GetDeletionTimestamp() == nil {
		if err := k.scaleDeployment(h, target); err != nil {
			return err
		}
	}
	if len(h.Status.Conditions) > 0 {
		return nil
	}
	now := metav1.Now()
	return k.patch(h, map[string]any{"status": map[string]any{
		"currentReplicas": 0, "desiredReplicas": 0,
		"conditions": []autoscalingv2.HorizontalPodAutoscalerCondition{
			{Type: autoscalingv2.AbleToScale, Status: corev1.ConditionTrue, Reason: "SucceededGetScale", LastTransitionTime: now},
		},
	}}, "status")
}

func (k *kubeControllers) scaleDeployment(h *autoscalingv2.HorizontalPodAutoscaler, target *unstructured.Unstructured) error {
	d, err := toTyped(target, &appsv1.Deployment{})
	if err != nil {
		return err
	}
	wanted := min(max(*d.Spec.Replicas, *h.Spec.MinReplicas), h.Spec.MaxReplicas)
	if wanted == *d.Spec.Replicas {
		return nil
	}
	scale := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: d.Name, Namespace: d.Namespace, UID: d.UID, ResourceVersion: d.ResourceVersion},
		Spec:       autoscalingv1.ScaleSpec{Replicas: wanted},
	}
	return k.env.Cluster.controllers.SubResource("scale").Update(k.ctx, d, client.WithSubResourceBody(scale), client.FieldOwner(fieldManager))
}

// failingImage is an image with which a Job fails.
const failingImage = "registry.test/failing:1"

// completeJob writes the status of a Job whose pod has ended.
func (k *kubeControllers) completeJob(object *unstructured.Unstructured) error {
	job, err := toTyped(object, &batchv1.Job{})
	if err != nil || len(job.Status.Conditions) > 0 {
		return err
	}
	return k.patch(job, map[string]any{"status": harness.JobStatus(imageOf(object) != failingImage)}, "status")
}

func (k *kubeControllers) updateDisruptionBudget(object *unstructured.Unstructured) error {
	b, err := toTyped(object, &policyv1.PodDisruptionBudget{})
	if err != nil || b.Status.ObservedGeneration == b.Generation {
		return err
	}
	return k.patch(b, map[string]any{"status": map[string]any{
		"observedGeneration": b.Generation, "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0,
	}}, "status")
}
