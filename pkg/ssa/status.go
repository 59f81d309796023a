package ssa

import (
	"context"
	"encoding/json"
	"fmt"
	"unique"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ApplyStatus applies a configuration that holds a status to the status subresource of live, and
// sends nothing if the API server would leave the object unchanged. The write is bound to the
// version of live: a status computed from an object that has changed since is refused with
// [ReasonStale].
//
// It is for custom resources, whose status the API server stores as it is sent.
func (a *Applier) ApplyStatus(ctx context.Context, desired Configuration, live client.Object) (Result, error) {
	id, _, err := identityOf(desired)
	if err != nil {
		return Result{}, err
	}
	if live == nil {
		return Result{}, fmt.Errorf("applying the status of %s: the live object is nil", id)
	}
	raw, err := json.Marshal(desired)
	if err != nil {
		return Result{}, fmt.Errorf("serializing the status of %s: %w", id, err)
	}
	hash := digestOf(raw)
	quiet, err := a.statusIsQuiet(id, raw, hash, live)
	if err != nil {
		return Result{}, fmt.Errorf("comparing the status of %s: %w", id, err)
	}
	if quiet {
		a.metrics.observe(id.gvk.Kind, statusSubresource, ActionNone, nil)
		return Result{Action: ActionNone, Live: live}, nil
	}
	result, err := a.sendStatus(ctx, id, desired, live)
	a.metrics.observe(id.gvk.Kind, statusSubresource, ActionUpdate, err)
	if err == nil {
		a.rememberStatus(id, hash, result.Live)
	}
	return result, err
}

func (a *Applier) sendStatus(ctx context.Context, id identity, desired Configuration, live client.Object) (Result, error) {
	m, err := parseManagedFields(live)
	if err != nil {
		return Result{}, err
	}
	migration{to: applyEntry(a.manager, id.gvk.GroupVersion().String(), statusSubresource), former: a.former}.run(&m)
	entries, err := m.encode()
	if err != nil {
		return Result{}, err
	}
	if live, err = a.replaceManagedFields(ctx, id, live, entries); err != nil {
		return Result{}, err
	}
	raw, err := body(desired, "", "", preconditions{uid: live.GetUID(), resourceVersion: live.GetResourceVersion()})
	if err != nil {
		return Result{}, err
	}
	applied, err := a.send(ctx, id, raw, true, statusSubresource)
	if err != nil {
		return Result{}, err
	}
	if !a.dryRun && applied.GetResourceVersion() == live.GetResourceVersion() {
		return Result{Action: ActionNone, Live: applied}, nil
	}
	return Result{Action: ActionUpdate, Live: applied}, nil
}

// statusIsQuiet compares the entry, as for the object itself, and then the values: a status changes
// too often to keep a record of it in the object.
func (a *Applier) statusIsQuiet(id identity, raw []byte, hash digest, live client.Object) (bool, error) {
	known, ok := a.cache.get(cacheKey{identity: id, subresource: statusSubresource})
	ok = ok && known.uid == live.GetUID() && known.config == hash
	if ok && known.resourceVersion == live.GetResourceVersion() {
		return true, nil
	}
	entry := appliedEntry(live, a.manager, statusSubresource)
	if entry == nil || entry.FieldsV1 == nil || entry.APIVersion != id.gvk.GroupVersion().String() {
		return false, nil
	}
	tree, err := decode(raw)
	if err != nil {
		return false, err
	}
	expected := known.fields
	if !ok {
		fields, err := a.schemas.fieldsV1Of(tree)
		if err != nil {
			return false, err
		}
		expected = unique.Make(fields)
	}
	if string(entry.FieldsV1.GetRawBytes()) != expected.Value() {
		return false, nil
	}
	same, err := a.schemas.leavesUnchanged(tree, live)
	if err == nil && same {
		a.rememberStatus(id, hash, live)
	}
	return same, err
}

func (a *Applier) rememberStatus(id identity, hash digest, live client.Object) {
	entry := appliedEntry(live, a.manager, statusSubresource)
	if a.dryRun || entry == nil || entry.FieldsV1 == nil {
		return
	}
	a.cache.put(cacheKey{identity: id, subresource: statusSubresource}, cached{
		uid:             live.GetUID(),
		config:          hash,
		fields:          unique.Make(entry.FieldsV1.GetRawString()),
		resourceVersion: live.GetResourceVersion(),
	})
}
