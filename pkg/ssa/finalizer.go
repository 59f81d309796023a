package ssa

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// EnsureFinalizer makes live carry the finalizer, by an apply that holds our finalizers and nothing
// else, and returns the object as it is then. Nothing is sent if it is there already, whoever put
// it there. It is for objects of which the Applier applies nothing but finalizers and status.
func (a *Applier) EnsureFinalizer(ctx context.Context, live client.Object, finalizer string) (client.Object, error) {
	if slices.Contains(live.GetFinalizers(), finalizer) {
		return live, nil
	}
	ours, err := a.ourFinalizers(live)
	if err != nil {
		return nil, err
	}
	return a.applyFinalizers(ctx, live, append(ours, finalizer))
}

// RemoveFinalizer takes the finalizer off live, whoever put it there: a restored backup or a copied
// manifest brings finalizers that another manager holds, and dropping our own claim would leave
// them, and the object, for ever.
func (a *Applier) RemoveFinalizer(ctx context.Context, live client.Object, finalizer string) error {
	if !slices.Contains(live.GetFinalizers(), finalizer) {
		return nil
	}
	id, err := a.identify(live)
	if err != nil {
		return err
	}
	path := makeListValuePath(finalizer, "metadata", "finalizers")
	if live, err = a.seize(ctx, id, live, pathSet(path)); err != nil {
		return fmt.Errorf("seizing the finalizer %s of %s: %w", finalizer, id, err)
	}
	ours, err := a.ourFinalizers(live)
	if err != nil {
		return err
	}
	_, err = a.applyFinalizers(ctx, live, slices.DeleteFunc(ours, func(f string) bool { return f == finalizer }))
	return err
}

// ourFinalizers are those that we have put on live: an apply without them would take them off.
func (a *Applier) ourFinalizers(live client.Object) ([]string, error) {
	held, err := entryFields(appliedEntry(live, a.manager, ""))
	if err != nil {
		return nil, err
	}
	var ours []string
	for _, finalizer := range live.GetFinalizers() {
		if held.has(makeListValuePath(finalizer, "metadata", "finalizers")) {
			ours = append(ours, finalizer)
		}
	}
	return ours, nil
}

// applyFinalizers applies a configuration that holds these finalizers and nothing else.
func (a *Applier) applyFinalizers(ctx context.Context, live client.Object, finalizers []string) (client.Object, error) {
	id, err := a.identify(live)
	if err != nil {
		return nil, err
	}
	metadata := map[string]any{"name": id.key.Name, "uid": string(live.GetUID())}
	if id.key.Namespace != "" {
		metadata["namespace"] = id.key.Namespace
	}
	if len(finalizers) > 0 {
		metadata["finalizers"] = finalizers
	}
	raw, err := json.Marshal(map[string]any{
		"apiVersion": id.gvk.GroupVersion().String(),
		"kind":       id.gvk.Kind,
		"metadata":   metadata,
	})
	if err != nil {
		return nil, fmt.Errorf("serialising the finalizers of %s: %w", id, err)
	}
	return a.send(ctx, id, raw, true)
}

func (a *Applier) identify(live client.Object) (identity, error) {
	gvk, err := apiutil.GVKForObject(live, a.client.Scheme())
	if err != nil {
		return identity{}, fmt.Errorf("finding the kind of %T: %w", live, err)
	}
	return identity{gvk: gvk, key: client.ObjectKeyFromObject(live)}, nil
}
