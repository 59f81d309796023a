package faults

import (
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// finishDeletion handles foreground deletion and orphaning: it deletes or orphans the dependents, and
// then removes the finalizer.
func (k *kubeControllers) finishDeletion(object *unstructured.Unstructured) error {
	finalizers := object.GetFinalizers()
	switch {
	case slices.Contains(finalizers, metav1.FinalizerDeleteDependents):
		dependents := k.dependentsOf(object)
		if len(dependents) > 0 {
			return errors.Join(k.deleteAll(dependents), errDependentsExist)
		}
		return k.removeFinalizer(object, metav1.FinalizerDeleteDependents)
	case slices.Contains(finalizers, metav1.FinalizerOrphanDependents):
		for _, dependent := range k.dependentsOf(object) {
			if err := k.removeOwner(dependent, object); err != nil {
				return err
			}
		}
		return k.removeFinalizer(object, metav1.FinalizerOrphanDependents)
	default:
		return nil
	}
}

// errDependentsExist requeues an object in foreground deletion.
var errDependentsExist = errors.New("waiting for dependents to be deleted")

// dependentsOf returns the objects with an owner reference to the owner.
func (k *kubeControllers) dependentsOf(owner *unstructured.Unstructured) []*unstructured.Unstructured {
	return k.env.history.filter(func(o *unstructured.Unstructured) bool {
		return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == owner.GetUID() })
	})
}

func (k *kubeControllers) deleteAll(objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		if object.GetDeletionTimestamp() != nil {
			continue
		}
		uid := object.GetUID()
		err := k.env.Cluster.controllers.Delete(k.ctx, object.DeepCopy(), client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

func (k *kubeControllers) removeFinalizer(object *unstructured.Unstructured, finalizer string) error {
	left := slices.DeleteFunc(slices.Clone(object.GetFinalizers()), func(f string) bool { return f == finalizer })
	return k.patch(object, map[string]any{"metadata": map[string]any{"finalizers": left}})
}

func (k *kubeControllers) removeOwner(object, owner *unstructured.Unstructured) error {
	left := slices.DeleteFunc(object.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == owner.GetUID() })
	return k.patch(object, map[string]any{"metadata": map[string]any{"ownerReferences": left}})
}

// collectOrphan deletes an object whose controller no longer exists.
func (k *kubeControllers) collectOrphan(object *unstructured.Unstructured) error {
	controller := controllerOf(object)
	if !isFixpointKind(controller) {
		return nil
	}
	id := ID{Kind: controller.Kind, Name: controller.Name}
	if owner := k.env.history.get(id); owner != nil && owner.GetUID() == controller.UID {
		return nil
	}
	return k.collectOrphansOf(id)
}

// collectOrphansOf deletes the dependents of a deleted or replaced object.
func (k *kubeControllers) collectOrphansOf(id ID) error {
	var uid types.UID
	if live := k.env.history.get(id); live != nil {
		uid = live.GetUID()
	}
	orphans := k.env.history.filter(func(o *unstructured.Unstructured) bool {
		return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool {
			return r.Kind == id.Kind && r.Name == id.Name && r.UID != uid
		})
	})
	// The history can be behind: the API server is authoritative.
	for _, orphan := range orphans {
		for _, r := range orphan.GetOwnerReferences() {
			if r.Kind != id.Kind || r.Name != id.Name {
				continue
			}
			owner := &unstructured.Unstructured{}
			owner.SetAPIVersion(r.APIVersion)
			owner.SetKind(r.Kind)
			err := k.env.Cluster.controllers.Get(k.ctx, k.env.Key(r.Name), owner)
			if client.IgnoreNotFound(err) != nil {
				return err
			}
			if err == nil && owner.GetUID() == r.UID {
				continue
			}
			if err := k.deleteAll([]*unstructured.Unstructured{orphan}); err != nil {
				return err
			}
		}
	}
	return nil
}
