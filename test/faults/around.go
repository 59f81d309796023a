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
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// around plays for one world what a cluster has beside the managers: the controllers of Deployments,
// autoscalers, disruption budgets and endpoints, and the garbage collector. They write as the real
// ones do, under the same field manager and to the same subresources, and look at an object anew
// whenever it changes.
type around struct {
	world  *World
	queue  chan ID
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	// revisions are those of Deployments, by UID: what their pods look like, and how often that has
	// changed.
	revisions map[types.UID]rollout
	working   atomic.Bool
}

type rollout struct {
	template uint64
	revision int
}

func newAround(w *World) *around {
	const roomy = 10000
	a := &around{world: w, queue: make(chan ID, roomy), done: make(chan struct{}), revisions: map[types.UID]rollout{}}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	go a.run()
	return a
}

func (a *around) close() {
	a.cancel()
	<-a.done
}

// notice is told of every event.
func (a *around) notice(object *unstructured.Unstructured) {
	select {
	case a.queue <- idOf(object):
	case <-a.ctx.Done():
	}
}

// isIdle says whether there is nothing that has yet to be looked at.
func (a *around) isIdle() bool { return len(a.queue) == 0 && !a.working.Load() }

// lag is how long the surroundings take to notice something, so that there is something to wait for.
const lag = 20 * time.Millisecond

func (a *around) run() {
	defer close(a.done)
	for {
		select {
		case id := <-a.queue:
			select {
			case <-time.After(lag):
			case <-a.ctx.Done():
				return
			}
			a.working.Store(true)
			for _, id := range a.batch(id) {
				a.look(id)
			}
			a.working.Store(false)
		case <-a.ctx.Done():
			return
		}
	}
}

// batch is the object with all others that wait, each once.
func (a *around) batch(first ID) []ID {
	batch := []ID{first}
	for {
		select {
		case id := <-a.queue:
			if !slices.Contains(batch, id) {
				batch = append(batch, id)
			}
		default:
			return batch
		}
	}
}

// look looks at one object, and again if it has changed in the meantime.
func (a *around) look(id ID) {
	err := a.act(id)
	if err == nil || apierrors.IsNotFound(err) || a.ctx.Err() != nil {
		return
	}
	time.AfterFunc(lag, func() {
		select {
		case a.queue <- id:
		case <-a.ctx.Done():
		}
	})
}

func (a *around) act(id ID) error {
	object := a.world.history.get(id)
	switch {
	case object == nil && id.Kind == endpointSlice:
		return a.endpoints(id) // that of an earlier Service, maybe
	case object == nil:
		return a.collectDependents(id)
	}
	if object.GetDeletionTimestamp() != nil {
		return a.finishDeletion(object)
	}
	if err := a.collect(object); err != nil {
		return err
	}
	switch id.Kind {
	case AppService, MCPServer, SecureStorage:
		return a.collectDependents(id)
	case "Deployment":
		return a.rollOut(object)
	case "HorizontalPodAutoscaler":
		return a.scale(object)
	case "PodDisruptionBudget":
		return a.budget(object)
	case "Service", endpointSlice:
		return a.endpoints(id)
	default:
		return nil
	}
}

// as turns what a watch told into a typed object.
func as[T any](object *unstructured.Unstructured, into *T) (*T, error) {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into); err != nil {
		return nil, fmt.Errorf("reading %s: %w", idOf(object), err)
	}
	return into, nil
}

// patch merges fields into an object that is still the one that was looked at.
func (a *around) patch(object client.Object, fields map[string]any, subresource ...string) error {
	metadata, _ := fields["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["uid"], metadata["resourceVersion"] = object.GetUID(), object.GetResourceVersion()
	fields["metadata"] = metadata
	raw, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("serialising a patch: %w", err)
	}
	target, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%T is no object", object)
	}
	patch := client.RawPatch(types.MergePatchType, raw)
	if len(subresource) > 0 {
		return a.world.Bench.around.SubResource(subresource[0]).Patch(a.ctx, target, patch, client.FieldOwner(fieldManager))
	}
	return a.world.Bench.around.Patch(a.ctx, target, patch, client.FieldOwner(fieldManager))
}

// rollOut makes all pods of a Deployment run and be ready, which its status alone tells.
func (a *around) rollOut(object *unstructured.Unstructured) error {
	d, err := as(object, &appsv1.Deployment{})
	if err != nil {
		return err
	}
	if revision := a.revisionOf(d); d.Annotations[revisionAnnotation] != revision {
		return a.patch(d, map[string]any{"metadata": map[string]any{"annotations": map[string]any{revisionAnnotation: revision}}})
	}
	replicas := *d.Spec.Replicas
	if d.Status.ObservedGeneration == d.Generation && d.Status.AvailableReplicas == replicas {
		return a.alsoLook(ID{"Service", d.Name}, ID{"HorizontalPodAutoscaler", d.Name})
	}
	now := metav1.Now()
	return a.patch(d, map[string]any{"status": appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation, Replicas: replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas,
		Conditions: []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable", LastUpdateTime: now, LastTransitionTime: now},
			{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable", LastUpdateTime: now, LastTransitionTime: now},
		},
	}}, "status")
}

const revisionAnnotation = "deployment.kubernetes.io/revision"

// revisionOf counts how often the pods of a Deployment have been made to look otherwise.
func (a *around) revisionOf(d *appsv1.Deployment) string {
	hash := fnv.New64a()
	raw, _ := json.Marshal(d.Spec.Template) // it was read from JSON
	hash.Write(raw)
	known := a.revisions[d.UID]
	if known.template != hash.Sum64() {
		known = rollout{template: hash.Sum64(), revision: known.revision + 1}
		a.revisions[d.UID] = known
	}
	return strconv.Itoa(known.revision)
}

func (a *around) alsoLook(ids ...ID) error {
	for _, id := range ids {
		if a.world.history.get(id) == nil {
			continue
		}
		if err := a.act(id); err != nil {
			return err
		}
	}
	return nil
}

// scale keeps the Deployment within the autoscaler's bounds.
func (a *around) scale(object *unstructured.Unstructured) error {
	h, err := as(object, &autoscalingv2.HorizontalPodAutoscaler{})
	if err != nil {
		return err
	}
	if target := a.world.history.get(ID{"Deployment", h.Spec.ScaleTargetRef.Name}); target != nil && target.GetDeletionTimestamp() == nil {
		if err := a.scaleDeployment(h, target); err != nil {
			return err
		}
	}
	if len(h.Status.Conditions) > 0 {
		return nil
	}
	now := metav1.Now()
	return a.patch(h, map[string]any{"status": map[string]any{
		"currentReplicas": 0, "desiredReplicas": 0,
		"conditions": []autoscalingv2.HorizontalPodAutoscalerCondition{
			{Type: autoscalingv2.AbleToScale, Status: corev1.ConditionTrue, Reason: "SucceededGetScale", LastTransitionTime: now},
		},
	}}, "status")
}

func (a *around) scaleDeployment(h *autoscalingv2.HorizontalPodAutoscaler, target *unstructured.Unstructured) error {
	d, err := as(target, &appsv1.Deployment{})
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
	return a.world.Bench.around.SubResource("scale").Update(a.ctx, d, client.WithSubResourceBody(scale), client.FieldOwner(fieldManager))
}

func (a *around) budget(object *unstructured.Unstructured) error {
	b, err := as(object, &policyv1.PodDisruptionBudget{})
	if err != nil || b.Status.ObservedGeneration == b.Generation {
		return err
	}
	return a.patch(b, map[string]any{"status": map[string]any{
		"observedGeneration": b.Generation, "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0,
	}}, "status")
}
