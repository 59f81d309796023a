package ssa

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Result is what an apply did.
type Result struct {
	Action Action
	// Live is the object after the call, as the API server answered; the Live of the request if
	// nothing was sent. It belongs to the caller.
	Live client.Object
	// Drifts are the managed fields that other managers had changed: reverted, unless Left.
	Drifts []Drift
	// Left is true if the drifts were left as they are, under ReportDrift.
	Left bool
}

// Execute carries out a decision. It sends nothing for ActionNone and ActionReport, and otherwise
// at most one write that brings the managed fields in order and one apply. If the object is not
// the one decided on, it fails with an error for which [IsStale] is true: read the object past the
// cache and decide again.
func (a *Applier) Execute(ctx context.Context, d Decision) (Result, error) {
	result, err := a.execute(ctx, d)
	if !d.Writes() {
		return result, err // Decide has counted it
	}
	a.metrics.observe(d.evidence.target.id.gvk.Kind, mainEndpoint, result.Action, err)
	return result, err
}

func (a *Applier) execute(ctx context.Context, d Decision) (Result, error) {
	result := Result{Action: d.Action, Live: d.Request.Live, Drifts: d.Drifts, Left: d.Left}
	if !d.Writes() || a.dryRun && d.blocked {
		return result, nil
	}
	t := d.evidence.target
	if t.desired == nil {
		return Result{}, errors.New("executing a decision that Decide did not return")
	}
	live, err := a.replaceManagedFields(ctx, t.id, d.Request.Live, d.managedFields)
	if err != nil {
		return Result{}, err
	}
	raw, err := d.body(live)
	if err != nil {
		return Result{}, err
	}
	force := d.Action == ActionCreate || d.Request.Owner != nil
	if result.Live, err = a.send(ctx, t.id, raw, force, ""); err != nil {
		return Result{}, err
	}
	if d.Left { // what was left out must continue to show as missing
		a.remember(t, result.Live, t.fields)
		return result, nil
	}
	a.remember(t, result.Live, a.recordedFields(result.Live, t.fields))
	if live != nil && a.changedNothing(d, result.Live) {
		// The server records other fields than the schema gives: nothing had drifted.
		return Result{Action: ActionNone, Live: result.Live}, nil
	}
	return result, nil
}

func (a *Applier) changedNothing(d Decision, applied client.Object) bool {
	e := d.evidence
	if !a.dryRun {
		return applied.GetResourceVersion() == e.live.GetResourceVersion()
	}
	// A dry run is answered with the existing version, whatever it would have changed.
	entry := appliedEntry(applied, a.manager, "")
	return entry != nil && entry.FieldsV1 != nil && configIsApplied(e) && entryIs(e, entry.FieldsV1.GetRawString())
}

// body is what the apply sends. One that creates carries a resourceVersion that no object has, and
// one that updates the UID of the object that was decided on.
func (d Decision) body(live client.Object) ([]byte, error) {
	t := d.evidence.target
	packed, err := pack(t.fields)
	if err != nil {
		return nil, err
	}
	pre := preconditions{resourceVersion: neverExisting}
	if live != nil {
		pre = preconditions{uid: live.GetUID()}
	}
	raw, err := body(t.desired, t.recordKey, record{config: t.hash, owner: t.owner, packed: packed}.String(), pre)
	if err != nil || len(d.leave) == 0 {
		return raw, err
	}
	tree, err := decode(raw)
	if err != nil {
		return nil, err
	}
	for _, path := range d.leave {
		path.remove(tree)
	}
	return encode(tree)
}

// send is the only place that sends an apply. The configuration is sent as a patch, because
// client.Apply decodes the answer into the configuration, which has no managed fields.
func (a *Applier) send(ctx context.Context, id identity, raw []byte, force bool, subresource string) (client.Object, error) {
	live, err := a.newObject(id)
	if err != nil {
		return nil, err
	}
	patch := client.RawPatch(types.ApplyPatchType, raw)
	options := client.PatchOptions{FieldManager: a.manager}
	if force {
		options.Force = &force
	}
	if a.dryRun {
		options.DryRun = []string{metav1.DryRunAll}
		options.DisableReadYourWritesConsistency = true // there is no write to read
	}
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

// migrationSuffix names the field manager of the patches that change managed fields. To the server
// such a patch is an Update, and where an Update appears to change a field that it only repeats
// (as in the metrics of autoscalers that hold quantities), under the applier's own name the field
// would pass from its Apply entry to an Update entry, and back with every write.
const migrationSuffix = "-migration"

// replaceManagedFields returns live with these managed fields. The patch is bound to the
// resourceVersion of live. Without entries, and in a dry run, it sends nothing.
func (a *Applier) replaceManagedFields(ctx context.Context, id identity, live client.Object, entries []metav1.ManagedFieldsEntry) (client.Object, error) {
	if entries == nil || a.dryRun {
		return live, nil
	}
	patch, err := json.Marshal([]map[string]any{
		{"op": "replace", "path": "/metadata/managedFields", "value": entries},
		{"op": "replace", "path": "/metadata/resourceVersion", "value": live.GetResourceVersion()},
	})
	if err != nil {
		return nil, fmt.Errorf("serializing the managed fields of %s: %w", id, err)
	}
	patched, err := a.newObject(id)
	if err != nil {
		return nil, err
	}
	if err := a.client.Patch(ctx, patched, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(a.manager+migrationSuffix)); err != nil {
		return nil, classify(id, err)
	}
	return patched, nil
}
