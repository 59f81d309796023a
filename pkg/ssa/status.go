package ssa

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ApplyStatus applies a configuration that holds a status to the status subresource of live, and sends nothing if the
// API server would leave the object unchanged. The write is bound to the version of live, and otherwise refused with
// [ReasonStale]. It is for custom resources, whose status the API server stores as it is sent.
func (a *Applier) ApplyStatus(ctx context.Context, desired Configuration, live client.Object) (Result, error) {
	t, err := a.prepare(desired, nil, statusSubresource)
	if err != nil {
		return Result{}, err
	}
	if live == nil {
		return Result{}, fmt.Errorf("applying the status of %s: the live object is nil", t.id)
	}
	quiet, err := a.statusIsQuiet(&t, live)
	if err != nil {
		return Result{}, fmt.Errorf("comparing the status of %s: %w", t.id, err)
	}
	result := Result{Action: ActionNone, Live: live}
	if !quiet {
		result, err = a.sendStatus(ctx, t, live)
	}
	a.count(t, result.Action, err)
	return result, err
}

// statusIsQuiet compares the entry, as for the object itself, and then the values: a status changes
// too often to keep a record of it in the object. If it is not quiet, the target is complete.
func (a *Applier) statusIsQuiet(t *target, live client.Object) (bool, error) {
	if t.version == versionOf(live) {
		return true, nil
	}
	if err := a.complete(t); err != nil {
		return false, err
	}
	if !t.isRecordedIn(appliedEntry(live, a.manager, t.subresource)) {
		return false, nil
	}
	expected, err := parseFields([]byte(t.fields))
	if err != nil {
		return false, err
	}
	stored, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return false, err
	}
	if !sameValues(expected, t.tree, stored) {
		return false, nil
	}
	a.remember(*t, live)
	return true, nil
}

func (a *Applier) sendStatus(ctx context.Context, t target, live client.Object) (Result, error) {
	m := parseManagedFields(live)
	m.inherit(t.entry(), a.former)
	live, err := a.replaceManagedFields(ctx, t.id, live, m)
	if err != nil {
		return Result{}, err
	}
	body := t.body("")
	body.SetUID(live.GetUID())
	body.SetResourceVersion(live.GetResourceVersion())
	applied, err := a.send(ctx, t.id, body, true, t.subresource)
	if err != nil {
		return Result{}, err
	}
	if entry := appliedEntry(applied, a.manager, t.subresource); entry != nil {
		t.expect(entry.FieldsV1.GetRawString())
		a.remember(t, applied)
	}
	if !a.dryRun && applied.GetResourceVersion() == live.GetResourceVersion() {
		return Result{Action: ActionNone, Live: applied}, nil
	}
	return Result{Action: ActionUpdate, Live: applied}, nil
}
