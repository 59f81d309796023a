package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// standIn does what the controllers of Kubernetes do with the children, as far as the manager sees it,
// and without pods: the manager caches none, and thousands of them would need far more machine than it
// does. A Deployment is complete at once, a PodDisruptionBudget is seen, and a Service has endpoints.
type standIn struct {
	api  client.Client
	done map[types.UID]int64
}

// follow works until ctx is done.
func (s *standIn) follow(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		s.pass(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (s *standIn) pass(ctx context.Context) {
	var deployments appsv1.DeploymentList
	var budgets policyv1.PodDisruptionBudgetList
	var services corev1.ServiceList
	work := make(chan func())
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for do := range work {
				do()
			}
		})
	}
	in := client.InNamespace("default")
	if s.api.List(ctx, &deployments, in) == nil {
		for i := range deployments.Items {
			if d := &deployments.Items[i]; s.isNew(d) {
				work <- func() { s.patchStatus(ctx, d, completed(d)) }
			}
		}
	}
	if s.api.List(ctx, &budgets, in) == nil {
		for i := range budgets.Items {
			if b := &budgets.Items[i]; s.isNew(b) {
				work <- func() {
					s.patchStatus(ctx, b, policyv1.PodDisruptionBudgetStatus{ObservedGeneration: b.Generation})
				}
			}
		}
	}
	if s.api.List(ctx, &services, in) == nil {
		for i := range services.Items {
			if service := &services.Items[i]; len(service.Spec.Selector) > 0 && s.isNew(service) {
				work <- func() { _ = s.api.Create(ctx, endpoints(service)) }
			}
		}
	}
	close(work)
	group.Wait()
}

// isNew tells each generation of an object once.
func (s *standIn) isNew(object client.Object) bool {
	generation, known := s.done[object.GetUID()]
	s.done[object.GetUID()] = object.GetGeneration()
	return !known || generation != object.GetGeneration()
}

func (s *standIn) patchStatus(ctx context.Context, object client.Object, status any) {
	text, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return
	}
	// What fails is seen by the manager, which then never comes to rest, and so does this.
	_ = s.api.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, text))
}

func completed(d *appsv1.Deployment) appsv1.DeploymentStatus {
	replicas := ptr.Deref(d.Spec.Replicas, 1)
	now := metav1.Now()
	return appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation,
		Replicas:           replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas,
		Conditions: []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable", Message: "Deployment has minimum availability.", LastUpdateTime: now, LastTransitionTime: now},
			{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable", Message: "ReplicaSet has successfully progressed.", LastUpdateTime: now, LastTransitionTime: now},
		},
	}
}

// endpoints has two addresses, and the labels of its Service, as the real one.
func endpoints(service *corev1.Service) *discoveryv1.EndpointSlice {
	labels := map[string]string{discoveryv1.LabelServiceName: service.Name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}
	for name, value := range service.Labels {
		labels[name] = value
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: service.Namespace, Name: service.Name + "-abcde", Labels: labels,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: service.Name, UID: service.UID, Controller: ptr.To(true)}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for i := range 2 {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.244.0.%d", i+1)},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: service.Namespace, Name: fmt.Sprintf("%s-5b949cfb66-%05d", service.Name, i), UID: types.UID(fmt.Sprintf("%s-%d", service.UID, i))},
		})
	}
	for _, port := range service.Spec.Ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: ptr.To(port.Name), Port: ptr.To(port.Port), Protocol: ptr.To(corev1.ProtocolTCP)})
	}
	return slice
}
