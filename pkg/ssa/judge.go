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
	config     prepared
	live       client.Object
	entry      *metav1.ManagedFieldsEntry
	record     record
	remembered *remembered
}

// judgement is what to do about an object that exists, and why.
type judgement struct {
	action Action
	// drifts lists fields of ours that others have changed.
	drifts []Drift
	// leave lists the fields that a write must not touch, under ReportDrift.
	leave []fieldPath
}

// judge decides about an existing object from the bookkeeping of the API server alone: it has
// what we want if and only if our record names the configuration that we want now, and the
// server still holds for us the fields that this configuration has. Values are not compared, so
// defaults, normalised quantities and rewriting webhooks do not matter.
func judge(e evidence, policy DriftPolicy) (judgement, error) {
	if isQuiet(e) {
		return judgement{action: ActionNone}, nil
	}
	lost, err := lostFields(e)
	if err != nil {
		return judgement{}, err
	}
	desired, err := decode(e.config.raw)
	if err != nil {
		return judgement{}, err
	}
	if lost, err = stillDiffer(lost, desired, e.live); err != nil {
		return judgement{}, err
	}
	drifts, err := describe(lost, desired, e.live, e.live, e.config.manager)
	if err != nil {
		return judgement{}, err
	}
	j := judgement{action: ActionUpdate, drifts: drifts}
	switch {
	case len(lost) > 0 && policy == ReportDrift:
		j.leave = lost
		if configIsApplied(e) && ownsRecord(e) {
			j.action = ActionReport
		}
	case configIsApplied(e):
		j.action = ActionCorrect
	}
	return j, nil
}

func isQuiet(e evidence) bool {
	return configIsApplied(e) && entryIs(e, e.config.fields)
}

// configIsApplied: the configuration that we want is the one that was applied last.
func configIsApplied(e evidence) bool {
	if e.record.config == "" && e.remembered != nil {
		return e.remembered.config == e.config.hash
	}
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

// lostFields lists what we had applied and no longer hold: the drift. A field that is new in our
// configuration is not among them.
func lostFields(e evidence) ([]fieldPath, error) {
	if e.entry == nil {
		if e.record.config == "" && e.remembered == nil {
			return nil, nil // never applied by us: nothing was taken from us
		}
		return []fieldPath{managedFieldsPath}, nil
	}
	held, err := entryFields(e.entry)
	if err != nil {
		return nil, err
	}
	expected, err := parseFields([]byte(e.config.fields))
	if err != nil {
		return nil, err
	}
	record := pathSet(e.config.recordPath())
	if configIsApplied(e) {
		return expected.minus(held).minus(record).tops(), nil
	}
	// Our configuration has changed too. What was ours before is known exactly if this process
	// applied it, and otherwise by this: the record says that our entry is not what it was, and
	// somebody else holds the field now.
	if e.remembered != nil {
		before, err := parseFields([]byte(e.remembered.fields.Value()))
		if err != nil {
			return nil, err
		}
		return before.minus(held).minus(record).tops(), nil
	}
	if e.entry != nil && e.entry.FieldsV1 != nil && e.record.fields == digestOf(e.entry.FieldsV1.GetRawBytes()) {
		return nil, nil
	}
	return heldByOthers(expected.minus(held).minus(record).tops(), e)
}

func heldByOthers(paths []fieldPath, e evidence) ([]fieldPath, error) {
	holders, err := holdersOf(e.live, e.config.manager)
	if err != nil {
		return nil, err
	}
	var held []fieldPath
	for _, path := range paths {
		if latestHolder(holders, path) != nil {
			held = append(held, path)
		}
	}
	return held, nil
}
