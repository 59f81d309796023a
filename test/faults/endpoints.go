package faults

import (
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// updateEndpoints reconciles the EndpointSlice of a Service with the ready pods of the Deployment of the
// same name.
func (k *kubeControllers) updateEndpoints(id ID) error {
	service := k.env.history.get(ID{"Service", id.Name})
	if service == nil {
		// An EndpointSlice may be observed after the deletion of its Service.
		return k.collectOrphansOf(ID{"Service", id.Name})
	}
	if service.GetDeletionTimestamp() != nil {
		return nil
	}
	s, err := toTyped(service, &corev1.Service{})
	if err != nil {
		return err
	}
	desired, err := k.endpointSliceOf(s)
	if err != nil {
		return err
	}
	found := k.env.history.get(ID{endpointSlice, s.Name})
	if found == nil {
		if len(desired.Endpoints) == 0 {
			return nil
		}
		return k.env.Cluster.controllers.Create(k.ctx, desired, client.FieldOwner(fieldManager))
	}
	if controller := controllerOf(found); controller != nil && controller.UID != s.UID {
		return k.collectOrphansOf(ID{"Service", s.Name}) // it belongs to an earlier Service
	}
	live, err := toTyped(found, &discoveryv1.EndpointSlice{})
	if err != nil || live.DeletionTimestamp != nil {
		return err
	}
	if equality.Semantic.DeepEqual(live.Endpoints, desired.Endpoints) && equality.Semantic.DeepEqual(live.Ports, desired.Ports) && maps.Equal(live.Labels, desired.Labels) {
		return nil
	}
	live.Endpoints, live.Ports, live.Labels = desired.Endpoints, desired.Ports, desired.Labels
	return k.env.Cluster.controllers.Update(k.ctx, live, client.FieldOwner(fieldManager))
}

func (k *kubeControllers) endpointSliceOf(s *corev1.Service) (*discoveryv1.EndpointSlice, error) {
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
	found := k.env.history.get(ID{"Deployment", s.Name})
	if found == nil {
		return slice, nil
	}
	d, err := toTyped(found, &appsv1.Deployment{})
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
