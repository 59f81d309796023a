package ssa

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"unique"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ApplyStatus applies a configuration that holds a status to the status subresource of live, and
// sends nothing if the API server would leave the object as it is. The write is bound to the
// version of live: a status computed from something that has changed since is refused with
// [ReasonStale], so that what is written is true of what it says it observed.
//
// It is meant for custom resources, whose status the API server stores as it is sent.
func (a *Applier) ApplyStatus(ctx context.Context, desired Configuration, live client.Object) (Result, error) {
	id, err := identityOf(desired)
	if err != nil {
		return Result{}, err
	}
	if live == nil {
		return Result{}, fmt.Errorf("applying the status of %s: %w", id, errors.New("there is no live object to apply it to"))
	}
	raw, err := json.Marshal(desired)
	if err != nil {
		return Result{}, fmt.Errorf("serialising the status of %s: %w", id, err)
	}
	hash := digestOf(raw)
	quiet, err := a.statusIsQuiet(id, raw, hash, live)
	if err != nil {
		return Result{}, fmt.Errorf("judging the status of %s: %w", id, err)
	}
	if quiet {
		a.metrics.observeStatus(id.gvk.Kind, ActionNone, nil)
		return Result{Action: ActionNone, Live: live}, nil
	}
	if live, err = a.migrateStatus(ctx, id, live); err != nil {
		return Result{}, err
	}
	request, err := body(desired, "", "", preconditions{uid: live.GetUID(), resourceVersion: live.GetResourceVersion()})
	if err != nil {
		return Result{}, err
	}
	applied, err := a.sendAs(ctx, a.manager, id, request, true, statusSubresource)
	a.metrics.observeStatus(id.gvk.Kind, ActionUpdate, err)
	if err != nil {
		return Result{}, err
	}
	a.rememberStatus(id, hash, applied)
	if !a.dryRun && applied.GetResourceVersion() == live.GetResourceVersion() {
		return Result{Action: ActionNone, Live: applied}, nil
	}
	return Result{Action: ActionUpdate, Live: applied}, nil
}

func (a *Applier) statusIsQuiet(id identity, raw []byte, hash digest, live client.Object) (bool, error) {
	key := memoryKey{identity: id, subresource: statusSubresource}
	known, ok := a.memory.get(key)
	if ok && (known.uid != live.GetUID() || known.config != hash) {
		ok = false
	}
	if ok && known.resourceVersion == live.GetResourceVersion() {
		return true, nil
	}
	entry := appliedEntry(live, a.manager, statusSubresource)
	if entry == nil || entry.FieldsV1 == nil || entry.APIVersion != id.gvk.GroupVersion().String() {
		return false, nil
	}
	expected := known.fields
	if !ok {
		set, err := a.schemas.fieldsOf(raw)
		if err != nil {
			return false, err
		}
		fields, err := set.json()
		if err != nil {
			return false, err
		}
		expected = unique.Make(string(fields))
	}
	if string(entry.FieldsV1.GetRawBytes()) != expected.Value() {
		return false, nil
	}
	same, err := a.schemas.unchangedBy(raw, live)
	if err != nil || !same {
		return false, err
	}
	a.rememberStatus(id, hash, live)
	return true, nil
}

func (a *Applier) rememberStatus(id identity, hash digest, live client.Object) {
	entry := appliedEntry(live, a.manager, statusSubresource)
	if a.dryRun || entry == nil || entry.FieldsV1 == nil {
		return
	}
	a.memory.put(memoryKey{identity: id, subresource: statusSubresource}, remembered{
		uid:             live.GetUID(),
		config:          hash,
		fields:          unique.Make(entry.FieldsV1.GetRawString()),
		resourceVersion: live.GetResourceVersion(),
	})
}
