package faults

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// endpoints keeps the EndpointSlice of a Service, whose pods are those of the Deployment of its name.
func (a *around) endpoints(id ID) error {
	service := a.world.history.get(ID{"Service", id.Name})
	if service == nil || service.GetDeletionTimestamp() != nil {
		return nil
	}
	s, err := as(service, &corev1.Service{})
	if err != nil {
		return err
	}
	desired, err := a.sliceOf(s)
	if err != nil {
		return err
	}
	found := a.world.history.get(ID{endpointSlice, s.Name})
	if found == nil {
		if len(desired.Endpoints) == 0 {
			return nil
		}
		return a.world.Bench.around.Create(a.ctx, desired, client.FieldOwner(fieldManager))
	}
	if controller := controllerOf(found); controller != nil && controller.UID != s.UID {
		return a.collectDependents(ID{"Service", s.Name}) // that of an earlier Service
	}
	live, err := as(found, &discoveryv1.EndpointSlice{})
	if err != nil || live.DeletionTimestamp != nil {
		return err
	}
	if equality.Semantic.DeepEqual(live.Endpoints, desired.Endpoints) && equality.Semantic.DeepEqual(live.Ports, desired.Ports) && maps.Equal(live.Labels, desired.Labels) {
		return nil
	}
	live.Endpoints, live.Ports, live.Labels = desired.Endpoints, desired.Ports, desired.Labels
	return a.world.Bench.around.Update(a.ctx, live, client.FieldOwner(fieldManager))
}

func (a *around) sliceOf(s *corev1.Service) (*discoveryv1.EndpointSlice, error) {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.Name, Namespace: s.Namespace, Labels: maps.Clone(s.Labels),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Service", Name: s.Name, UID: s.UID, Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	if slice.Labels == nil {
		slice.Labels = map[string]string{}
	}
	slice.Labels[discoveryv1.LabelServiceName] = s.Name
	for _, port := range s.Spec.Ports {
		number := port.Port
		if port.TargetPort.Type == intstr.Int && port.TargetPort.IntVal > 0 {
			number = port.TargetPort.IntVal
		}
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: ptr.To(port.Name), Port: ptr.To(number), Protocol: ptr.To(corev1.ProtocolTCP)})
	}
	found := a.world.history.get(ID{"Deployment", s.Name})
	if found == nil {
		return slice, nil
	}
	d, err := as(found, &appsv1.Deployment{})
	if err != nil {
		return nil, err
	}
	for i := range d.Status.ReadyReplicas {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.0.0.%d", i+1)}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
		})
	}
	return slice, nil
}

// finishDeletion is the garbage collector's part in a deletion: the dependents that block it go
// first, or are orphaned.
func (a *around) finishDeletion(object *unstructured.Unstructured) error {
	finalizers := object.GetFinalizers()
	switch {
	case slices.Contains(finalizers, metav1.FinalizerDeleteDependents):
		dependents := a.dependentsOf(object)
		if len(dependents) > 0 {
			return errors.Join(a.deleteAll(dependents), errDependents)
		}
		return a.removeFinalizer(object, metav1.FinalizerDeleteDependents)
	case slices.Contains(finalizers, metav1.FinalizerOrphanDependents):
		for _, dependent := range a.dependentsOf(object) {
			if err := a.orphan(dependent, object); err != nil {
				return err
			}
		}
		return a.removeFinalizer(object, metav1.FinalizerOrphanDependents)
	default:
		return nil
	}
}

// errDependents is why the garbage collector comes back.
var errDependents = errors.New("waiting for dependents to be gone")

// dependentsOf are the objects that a deletion of the object has to wait for.
func (a *around) dependentsOf(owner *unstructured.Unstructured) []*unstructured.Unstructured {
	return a.world.history.filter(func(o *unstructured.Unstructured) bool {
		return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == owner.GetUID() })
	})
}

func (a *around) deleteAll(objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		if object.GetDeletionTimestamp() != nil {
			continue
		}
		uid := object.GetUID()
		err := a.world.Bench.around.Delete(a.ctx, object.DeepCopy(), client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

func (a *around) removeFinalizer(object *unstructured.Unstructured, finalizer string) error {
	left := slices.DeleteFunc(slices.Clone(object.GetFinalizers()), func(f string) bool { return f == finalizer })
	return a.patch(object, map[string]any{"metadata": map[string]any{"finalizers": left}})
}

func (a *around) orphan(object, owner *unstructured.Unstructured) error {
	left := slices.DeleteFunc(object.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == owner.GetUID() })
	return a.patch(object, map[string]any{"metadata": map[string]any{"ownerReferences": left}})
}

// collect deletes an object that came when the one that controls it was gone already.
func (a *around) collect(object *unstructured.Unstructured) error {
	controller := controllerOf(object)
	if !isOurs(controller) {
		return nil
	}
	id := ID{Kind: controller.Kind, Name: controller.Name}
	if owner := a.world.history.get(id); owner != nil && owner.GetUID() == controller.UID {
		return nil
	}
	return a.collectDependents(id)
}

// collectDependents deletes what an object has left behind that is gone, or has another one in its place.
func (a *around) collectDependents(id ID) error {
	var uid types.UID
	if live := a.world.history.get(id); live != nil {
		uid = live.GetUID()
	}
	orphans := a.world.history.filter(func(o *unstructured.Unstructured) bool {
		return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool {
			return r.Kind == id.Kind && r.Name == id.Name && r.UID != uid
		})
	})
	// What the events tell may be old: the API server has the last word.
	for _, orphan := range orphans {
		for _, r := range orphan.GetOwnerReferences() {
			if r.Kind != id.Kind || r.Name != id.Name {
				continue
			}
			owner := &unstructured.Unstructured{}
			owner.SetAPIVersion(r.APIVersion)
			owner.SetKind(r.Kind)
			err := a.world.Bench.around.Get(a.ctx, a.world.Key(r.Name), owner)
			if client.IgnoreNotFound(err) != nil {
				return err
			}
			if err == nil && owner.GetUID() == r.UID {
				continue
			}
			if err := a.deleteAll([]*unstructured.Unstructured{orphan}); err != nil {
				return err
			}
		}
	}
	return nil
}
