package ssa

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Result is what an apply did.
type Result struct {
	Action Action
	// Live is the object as the API server answered, or the Live of the request if nothing was sent.
	Live client.Object
	// Drifts are the managed fields that other managers had changed: reverted, unless Left.
	Drifts []Drift
	// Left is true if the drifts were left as they are, under ReportDrift.
	Left bool
}

// Execute carries out a decision: nothing for ActionNone and ActionReport, and otherwise at most one write that brings
// the managed fields in order and one apply. If the object is not the one decided on, it fails with an error for which
// [IsStale] is true: read the object past the cache and decide again.
func (a *Applier) Execute(ctx context.Context, d Decision) (result Result, err error) {
	t := d.evidence.target
	result = Result{Action: d.Action, Live: d.Request.Live, Drifts: d.Drifts, Left: d.Left}
	if !d.Writes() { // Decide has counted it
		return result, nil
	}
	if t.tree == nil {
		return Result{}, errors.New("executing a decision that Decide did not return")
	}
	defer func() { a.count(t, result.Action, err) }()
	if a.dryRun && d.blocked {
		return result, nil
	}
	live, err := a.replaceManagedFields(ctx, t.id, d.Request.Live, d.managedFields)
	if err != nil {
		return Result{}, err
	}
	force := d.Action == ActionCreate || d.Request.Owner != nil
	if result.Live, err = a.send(ctx, t.id, d.body(live), force, ""); err != nil {
		return Result{}, err
	}
	if entry := appliedEntry(result.Live, a.manager, ""); entry != nil && !d.Left { // what was left out must continue to show as missing
		t.expect(entry.FieldsV1.GetRawString())
	}
	a.remember(t, result.Live)
	if live != nil && a.changedNothing(d.evidence, t, result.Live) {
		// The server records other fields than the schema gives: nothing had drifted.
		return Result{Action: ActionNone, Live: result.Live}, nil
	}
	return result, nil
}

// Writes is what Execute sends for a decision that writes: the managed fields that it replaces first, or nil, and the
// document that it applies. A dry run applies the document without the managed fields.
func (a *Applier) Writes(d Decision) ([]metav1.ManagedFieldsEntry, *unstructured.Unstructured, error) {
	entries, err := d.managedFields.encode()
	if err != nil {
		return nil, nil, err
	}
	return entries, d.body(d.Request.Live), nil
}

func (a *Applier) changedNothing(e evidence, recorded target, applied client.Object) bool {
	if a.dryRun { // it is answered with the existing version, whatever it would have changed
		e.target = recorded
		return isQuiet(e)
	}
	return applied.GetResourceVersion() == e.live.GetResourceVersion()
}

// neverExisting is a resourceVersion that no object has: etcd's first revision is spent before the first object is
// written. The API server ignores it on create, so an apply that carries it creates or fails, and never updates.
const neverExisting = "1"

// body is what the apply sends.
func (d Decision) body(live client.Object) *unstructured.Unstructured {
	t := d.evidence.target
	packed := d.evidence.record.packed
	if recorded, _ := d.evidence.record.rawFields(); recorded != t.fields {
		packed = pack(t.fields)
	}
	body := t.body(record{config: t.config, owner: t.owner, packed: packed}.String())
	if live == nil {
		body.SetResourceVersion(neverExisting)
	} else {
		body.SetUID(live.GetUID())
	}
	for _, path := range d.leave {
		without(body.Object, path)
	}
	return body
}

// send is the only place that sends an apply. It sends a patch, because client.Apply decodes the answer into the
// configuration, which has no managed fields.
func (a *Applier) send(ctx context.Context, id identity, body *unstructured.Unstructured, force bool, subresource string) (client.Object, error) {
	raw, err := body.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("serializing the apply configuration of %s: %w", id, err)
	}
	options := client.PatchOptions{FieldManager: a.manager}
	if force {
		options.Force = &force
	}
	return a.patch(ctx, id, client.RawPatch(types.ApplyPatchType, raw), options, subresource)
}

// patch returns what the API server answered.
func (a *Applier) patch(ctx context.Context, id identity, patch client.Patch, options client.PatchOptions, subresource string) (client.Object, error) {
	live, err := a.newObject(id)
	if err != nil {
		return nil, err
	}
	options.DisableReadYourWritesConsistency = a.dryRun // there is no write to read
	// An apply with unknown fields is refused in any case. Validation only adds a warning about duplicate fields, which an
	// encoder does not write, and parses each apply once more for it.
	options.FieldValidation = metav1.FieldValidationIgnore
	if subresource == "" {
		err = a.client.Patch(ctx, live, patch, &options)
	} else {
		err = a.client.SubResource(subresource).Patch(ctx, live, patch, &client.SubResourcePatchOptions{PatchOptions: options})
	}
	if err != nil {
		return nil, classify(id, err)
	}
	return live, nil
}

// migrationSuffix names the field manager of the patches that change managed fields. To the server such a patch is an
// Update, which may appear to change a field that it only repeats (quantities in the metrics of autoscalers). Under the
// applier's own name, the field would pass from its Apply entry to an Update entry, and back with every write.
const migrationSuffix = "-migration"

// replaceManagedFields returns live with these managed fields. If they are unchanged, and in a dry run, it sends nothing.
func (a *Applier) replaceManagedFields(ctx context.Context, id identity, live client.Object, m managedFields) (client.Object, error) {
	entries, err := m.encode()
	if entries == nil || a.dryRun { // nil beside an error
		return live, err
	}
	patch, _ := json.Marshal([]map[string]any{ // encode has serialized the entries
		{"op": "replace", "path": "/metadata/managedFields", "value": entries},
		{"op": "replace", "path": "/metadata/resourceVersion", "value": live.GetResourceVersion()},
	})
	return a.patch(ctx, id, client.RawPatch(types.JSONPatchType, patch), client.PatchOptions{FieldManager: a.manager + migrationSuffix}, "")
}
