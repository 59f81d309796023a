package ssa

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ControllerIndex is the cache index under which objects are found by the UID of their
// controller. Register it with [IndexController] for every kind that is pruned.
const ControllerIndex = "metadata.controller.uid"

// IndexController adds the [ControllerIndex] for the object's kind to a cache.
func IndexController(ctx context.Context, indexer client.FieldIndexer, object client.Object) error {
	return indexer.IndexField(ctx, object, ControllerIndex, func(o client.Object) []string {
		controller := metav1.GetControllerOfNoCopy(o)
		if controller == nil {
			return nil
		}
		return []string{string(controller.UID)}
	})
}

// Delete deletes live, if it is still the object that the caller looked at and still controlled
// by owner: the request carries its UID and resourceVersion. What it leads to is observed, not
// awaited: with propagation Foreground the object goes when all that it owns has gone. That
// something is gone already is no error.
func (a *Applier) Delete(ctx context.Context, live client.Object, owner metav1.OwnerReference, propagation metav1.DeletionPropagation) error {
	id, err := a.identify(live)
	if err != nil {
		return err
	}
	target := live
	for range attempts {
		if target == nil || target.GetUID() != live.GetUID() || !metav1.IsControlledBy(target, &metav1.ObjectMeta{UID: owner.UID}) {
			return nil
		}
		if target.GetDeletionTimestamp() != nil {
			return nil
		}
		err = a.deleteExactly(ctx, id, target, propagation)
		if !IsStale(err) {
			break
		}
		fresh, readErr := a.readAfresh(ctx, id)
		if readErr != nil {
			return readErr
		}
		target = fresh
	}
	a.metrics.observe(id.gvk.Kind, ActionDelete, err)
	if err == nil && !a.dryRun {
		a.memory.forget(id)
	}
	return err
}

func (a *Applier) deleteExactly(ctx context.Context, id identity, live client.Object, propagation metav1.DeletionPropagation) error {
	uid, version := live.GetUID(), live.GetResourceVersion()
	options := &client.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
		PropagationPolicy: &propagation,
	}
	if a.dryRun {
		options.DryRun = []string{metav1.DryRunAll}
		options.DisableReadYourWritesConsistency = true
	}
	// The client writes into what it is given; live is the cache's.
	target, err := a.newObject(id)
	if err != nil {
		return err
	}
	if err := a.client.Delete(ctx, target, options); err != nil && !apierrors.IsNotFound(err) {
		return classify(id, err)
	}
	return nil
}

// Owned lists the objects of a kind that owner controls, from the cache. The list is filled in;
// its kind must have the [ControllerIndex]. The objects are the cache's own: only read them.
func Owned(ctx context.Context, reader client.Reader, owner metav1.Object, list client.ObjectList) ([]client.Object, error) {
	err := reader.List(ctx, list,
		client.InNamespace(owner.GetNamespace()),
		client.MatchingFields{ControllerIndex: string(owner.GetUID())},
		client.DisableReadYourWritesConsistency,
		client.UnsafeDisableDeepCopy,
	)
	if err != nil {
		return nil, fmt.Errorf("listing what %s controls: %w", owner.GetName(), err)
	}
	objects := make([]client.Object, 0, meta.LenList(list))
	err = meta.EachListItem(list, func(item runtime.Object) error {
		if object, ok := item.(client.Object); ok {
			objects = append(objects, object)
		}
		return nil
	})
	return objects, err
}

// Prune deletes what owner controls of a kind and keep does not name, and returns what it deleted
// or found on its way out. It finds objects by owner and kind alone, never by a label.
func (a *Applier) Prune(ctx context.Context, reader client.Reader, owner metav1.Object, reference metav1.OwnerReference, list client.ObjectList, keep func(name string) bool) ([]client.Object, error) {
	owned, err := Owned(ctx, reader, owner, list)
	if err != nil {
		return nil, err
	}
	var pruned []client.Object
	for _, object := range owned {
		if keep(object.GetName()) {
			continue
		}
		if err := a.Delete(ctx, object, reference, metav1.DeletePropagationForeground); err != nil {
			return pruned, err
		}
		pruned = append(pruned, object)
	}
	return pruned, nil
}
