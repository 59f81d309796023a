package ssa

import (
	"context"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ControllerIndex finds objects by the UID of their controller. See [IndexController].
const ControllerIndex = "metadata.controller.uid"

// IndexController adds the [ControllerIndex] to a cache, for a kind that [OwnedIn] lists. An object with the name of
// its controller is found without it, because an index takes more memory than most objects.
func IndexController(ctx context.Context, indexer client.FieldIndexer, object client.Object) error {
	return indexer.IndexField(ctx, object, ControllerIndex, func(o client.Object) []string {
		controller := metav1.GetControllerOfNoCopy(o)
		if controller == nil || controller.Name == o.GetName() {
			return nil
		}
		return []string{string(controller.UID)}
	})
}

// OwnedIn lists the objects of a kind that owner controls in a namespace, which is empty for a cluster-scoped kind,
// from a cache that has the [ControllerIndex]. The list is filled in, except with the object that has the owner's name.
// The objects are the cache's own: only read them.
func OwnedIn(ctx context.Context, reader client.Reader, owner metav1.Object, namespace string, list client.ObjectList) ([]client.Object, error) {
	err := reader.List(ctx, list,
		client.InNamespace(namespace),
		client.MatchingFields{ControllerIndex: string(owner.GetUID())},
		client.DisableReadYourWritesConsistency,
		client.UnsafeDisableDeepCopy,
	)
	if err != nil {
		return nil, fmt.Errorf("listing what %s controls: %w", owner.GetName(), err)
	}
	namesake, err := itemOf(list)
	if err != nil {
		return nil, err
	}
	objects := make([]client.Object, 0, meta.LenList(list)+1)
	_ = meta.EachListItem(list, func(item runtime.Object) error { // itemOf has found them
		if object, ok := item.(client.Object); ok && object.GetName() != owner.GetName() {
			objects = append(objects, object)
		}
		return nil
	})
	err = reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: owner.GetName()}, namesake,
		client.DisableReadYourWritesConsistency, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return nil, fmt.Errorf("reading what %s controls: %w", owner.GetName(), err)
	case metav1.IsControlledBy(namesake, owner):
		objects = append(objects, namesake)
	}
	return objects, nil
}

// itemOf is an empty item of a list.
func itemOf(list client.ObjectList) (client.Object, error) {
	items, err := meta.GetItemsPtr(list)
	if err != nil {
		return nil, fmt.Errorf("finding the items of %T: %w", list, err)
	}
	at := reflect.TypeOf(items).Elem().Elem()
	if at.Kind() == reflect.Pointer {
		at = at.Elem()
	}
	object, ok := reflect.New(at).Interface().(client.Object)
	if !ok {
		return nil, fmt.Errorf("the items of %T are no objects", list)
	}
	return object, nil
}

// Delete deletes live, if it is still the object that the caller read and still controlled by owner: the request
// carries its UID and resourceVersion. It says whether the object is gone by now, and does not wait for that: its
// finalizers, or its dependents under another propagation than Background, may keep it. It is no error if the object is
// gone or being deleted already.
func (a *Applier) Delete(ctx context.Context, live client.Object, owner metav1.OwnerReference, propagation metav1.DeletionPropagation) (gone bool, err error) {
	id, err := a.identify(live)
	if err != nil {
		return false, err
	}
	found := live
	for range attempts {
		if found == nil || found.GetUID() != live.GetUID() || found.GetDeletionTimestamp() != nil ||
			!metav1.IsControlledBy(found, &metav1.ObjectMeta{UID: owner.UID}) {
			return false, nil
		}
		if err = a.deleteExactly(ctx, id, found, propagation); !IsStale(err) {
			break
		}
		var readErr error
		if found, readErr = a.readUncached(ctx, id); readErr != nil {
			return false, readErr
		}
	}
	a.count(target{id: id}, ActionDelete, err)
	return err == nil && propagation == metav1.DeletePropagationBackground && len(found.GetFinalizers()) == 0 && !isSlow(found), err
}

// isSlow says whether a deletion takes time without finalizers in the metadata: pods are deleted gracefully, and a
// Namespace has finalizers of its own until it is empty. No other kind of Kubernetes is.
func isSlow(object client.Object) bool {
	switch object.(type) {
	case *corev1.Pod, *corev1.Namespace:
		return true
	default:
		return false
	}
}

func (a *Applier) deleteExactly(ctx context.Context, id identity, live client.Object, propagation metav1.DeletionPropagation) error {
	uid, version := live.GetUID(), live.GetResourceVersion()
	options := &client.DeleteOptions{
		Preconditions:                    &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
		PropagationPolicy:                &propagation,
		DisableReadYourWritesConsistency: a.dryRun,
	}
	// The client writes into what it is given, and live belongs to the cache.
	target, err := a.newObject(id)
	if err != nil {
		return err
	}
	return classify(id, client.IgnoreNotFound(a.client.Delete(ctx, target, options)))
}
