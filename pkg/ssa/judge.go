package ssa

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Action is what an apply did, or, planned, would do.
type Action string

const (
	// ActionNone: the API server would leave the object as it is, so nothing was sent.
	ActionNone Action = "None"
	// ActionCreate: the object was not there.
	ActionCreate Action = "Create"
	// ActionUpdate: our configuration has changed.
	ActionUpdate Action = "Update"
	// ActionCorrect: another manager had changed fields of ours, and they were put back.
	ActionCorrect Action = "Correct"
	// ActionAdopt: an object that no controller owned was taken over.
	ActionAdopt Action = "Adopt"
	// ActionReport: fields of ours have drifted, and the policy is to leave them.
	ActionReport Action = "Report"
	// ActionDelete: the object was deleted.
	ActionDelete Action = "Delete"
)

// evidence is all that a judgement rests on. Everything in it is a value: no I/O happens in judge.
type evidence struct {
	config prepared
	live   client.Object
	entry  *metav1.ManagedFieldsEntry
	record record
}

// judgement is what to do about an object that exists, and why.
type judgement struct {
	action Action
	// drifts lists fields of ours that others have changed.
	drifts []Drift
	// leave lists the fields that a write must not touch, under ReportDrift.
	leave []fieldPath
	// reclaim lists fields that we had applied, that others have taken, and that we no longer
	// want: they have to be ours again to go.
	reclaim fieldSet
}

// judge decides about an existing object from the bookkeeping of the API server alone: it has
// what we want if and only if our record names the configuration that we want now, and the
// server still holds for us the fields that this configuration has. Values are not compared, so
// defaults, normalised quantities and rewriting webhooks do not matter.
func judge(e evidence, policy DriftPolicy) (judgement, error) {
	if isQuiet(e) {
		return judgement{action: ActionNone}, nil
	}
	taken, err := takenFields(e)
	if err != nil {
		return judgement{}, err
	}
	lost, drifts, err := driftOf(e, taken.lost)
	if err != nil {
		return judgement{}, err
	}
	j := judgement{action: ActionUpdate, drifts: drifts, reclaim: taken.unwanted}
	if configIsApplied(e) {
		j.action = ActionCorrect
	}
	// A wipe of all managed fields is put right under either policy: without them nobody can tell
	// what drifts.
	if policy == ReportDrift && e.entry != nil {
		j.leaveDrift(e, lost)
	}
	return j, nil
}

// leaveDrift makes the judgement one that takes nothing back from others.
func (j *judgement) leaveDrift(e evidence, lost []fieldPath) {
	j.leave, j.reclaim = lost, emptyFieldSet()
	switch {
	case len(lost) == 0:
	case configIsApplied(e) && ownsRecord(e):
		j.action = ActionReport
	default:
		j.action = ActionUpdate
	}
}

func isQuiet(e evidence) bool {
	return configIsApplied(e) && entryIs(e, e.config.fields)
}

// configIsApplied: the configuration that we want is the one that was applied last.
func configIsApplied(e evidence) bool {
	return e.record.config == e.config.hash && e.record.owner == e.config.owner
}

func entryIs(e evidence, fields string) bool {
	return e.entry != nil && e.entry.FieldsV1 != nil &&
		e.entry.APIVersion == e.config.id.gvk.GroupVersion().String() &&
		string(e.entry.FieldsV1.GetRawBytes()) == fields
}

func ownsRecord(e evidence) bool {
	set, err := entryFields(e.entry)
	return err == nil && set.has(e.config.recordPath())
}

// taken is what we had applied and no longer hold.
type taken struct {
	// lost is what we still want: the drift.
	lost []fieldPath
	// unwanted is what we want no more.
	unwanted fieldSet
}

// takenFields compares what the record says we applied with what the server still holds for us.
// A field that is new in our configuration is not among them: it was never ours.
func takenFields(e evidence) (taken, error) {
	expected, err := parseFields([]byte(e.config.fields))
	if err != nil {
		return taken{}, err
	}
	held, err := entryFields(e.entry)
	if err != nil {
		return taken{}, err
	}
	applied, known := appliedFields(e, expected)
	switch {
	case !known && e.entry == nil:
		return taken{unwanted: emptyFieldSet()}, nil // it was never ours
	case !known:
		lost, err := heldByOthers(e, expected.minus(held))
		return taken{lost: lost.minus(pathSet(e.config.recordPath())).tops(), unwanted: emptyFieldSet()}, err
	case e.entry == nil:
		// All managed fields were wiped. Nobody can say any more who changed what.
		return taken{lost: []fieldPath{managedFieldsPath}, unwanted: applied}, nil
	}
	gone := applied.minus(held).minus(pathSet(e.config.recordPath()))
	return taken{lost: gone.intersect(expected).tops(), unwanted: gone.minus(expected)}, nil
}

// appliedFields is what we applied last, if that is known. A record that the server does not hold
// for us was written by somebody else, such as one copied from another object together with a
// manifest: what it says we applied may never have been ours.
func appliedFields(e evidence, expected fieldSet) (fieldSet, bool) {
	switch {
	case configIsApplied(e):
		return expected, true
	case e.entry == nil || ownsRecord(e):
		return e.record.fields()
	default:
		return fieldSet{}, false
	}
}

// heldByOthers keeps those of the fields that some other manager holds. It stands in for the
// record where that was edited or removed, as `kubectl replace` does: what others hold otherwise
// than we want it is drift, and a field that nobody holds is new in our configuration.
func heldByOthers(e evidence, fields fieldSet) (fieldSet, error) {
	holders, err := holdersOf(e.live, e.config.manager)
	if err != nil {
		return fieldSet{}, err
	}
	held := emptyFieldSet()
	for _, h := range holders {
		held = held.union(h.fields.intersect(fields))
	}
	return held, nil
}

// driftOf narrows what we lost to what differs from what we want, and describes that.
func driftOf(e evidence, taken []fieldPath) ([]fieldPath, []Drift, error) {
	desired, err := decode(e.config.raw)
	if err != nil {
		return nil, nil, err
	}
	lost, err := stillDiffer(taken, desired, e.live)
	if err != nil {
		return nil, nil, err
	}
	drifts, err := describe(lost, desired, e.live, e.config.manager)
	return lost, drifts, err
}
