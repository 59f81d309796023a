package ssa

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// EnsureFinalizer adds the finalizer to live, by an apply that holds the finalizers of the field manager and nothing
// else, and returns the object as it is then. It sends nothing if the finalizer exists, whoever added it. It is for
// objects of which the Applier applies nothing but finalizers and status.
func (a *Applier) EnsureFinalizer(ctx context.Context, live client.Object, finalizer string) (client.Object, error) {
	if slices.Contains(live.GetFinalizers(), finalizer) {
		return live, nil
	}
	id, err := a.identify(live)
	if err != nil {
		return nil, err
	}
	return a.applyFinalizers(ctx, id, live, func(held []string) []string { return append(held, finalizer) })
}

// RemoveFinalizer removes the finalizer from live, whoever added it: another manager holds the finalizers of a restored
// backup or a copied manifest, which would keep the object forever.
func (a *Applier) RemoveFinalizer(ctx context.Context, live client.Object, finalizer string) error {
	if !slices.Contains(live.GetFinalizers(), finalizer) {
		return nil
	}
	id, err := a.identify(live)
	if err != nil {
		return err
	}
	m := parseManagedFields(live)
	m.seize(applyEntry(a.manager, id.apiVersion(), ""), pathSet(finalizerPath(finalizer)))
	if live, err = a.replaceManagedFields(ctx, id, live, m); err != nil {
		return fmt.Errorf("removing the finalizer %s of %s from its other managers: %w", finalizer, id, err)
	}
	_, err = a.applyFinalizers(ctx, id, live, func(held []string) []string {
		return slices.DeleteFunc(held, func(f string) bool { return f == finalizer })
	})
	return err
}

// applyFinalizers applies nothing but the finalizers that the Applier has added to live, as edited.
func (a *Applier) applyFinalizers(ctx context.Context, id identity, live client.Object, edit func(held []string) []string) (client.Object, error) {
	managed := entryFields(appliedEntry(live, a.manager, ""))
	isOthers := func(finalizer string) bool { return !managed.Has(finalizerPath(finalizer)) }
	body := &unstructured.Unstructured{}
	body.SetGroupVersionKind(id.gvk)
	body.SetNamespace(id.key.Namespace)
	body.SetName(id.key.Name)
	body.SetUID(live.GetUID())
	if finalizers := edit(slices.DeleteFunc(slices.Clone(live.GetFinalizers()), isOthers)); len(finalizers) > 0 { // an empty list would be a claim of its own
		body.SetFinalizers(finalizers)
	}
	return a.send(ctx, id, body, true, "")
}
