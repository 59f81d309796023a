package ssa

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Action is what an apply did, or would do.
type Action string

// The actions of applies and deletes.
const (
	ActionNone    Action = "None"    // the API server would leave the object unchanged, so nothing is sent
	ActionCreate  Action = "Create"  // the object does not exist
	ActionUpdate  Action = "Update"  // the configuration has changed
	ActionCorrect Action = "Correct" // another manager has changed managed fields, and they are reverted
	ActionAdopt   Action = "Adopt"   // an object that no controller owned is adopted
	ActionReport  Action = "Report"  // managed fields have drifted, and the policy is to leave them
	ActionDelete  Action = "Delete"  // the object is deleted
)

// Request describes one object to apply.
type Request struct {
	// Desired is what the object should be, without a status (see [Applier.ApplyStatus]). With an Owner, its owner
	// references are completed in place; nothing else is changed.
	Desired Configuration
	// Live is the object as the caller's cache shows it, or nil if it shows none. It is only read.
	Live client.Object
	// Owner is the controller of the object, and [metav1.NewControllerRef] returns it: the object is written with force, and
	// never if another controller owns it. A reference without BlockOwnerDeletion is written without it. Nil is for shared
	// objects: those are written without force, and a field that another manager holds is a conflict.
	Owner *metav1.OwnerReference
	// Adoption says what to do with an existing object that no controller owns.
	Adoption AdoptionPolicy
	// Drift says what to do about managed fields that another manager has changed.
	Drift DriftPolicy
	// Redact edits what a drift quotes, before it is reported. Optional; values of a Secret are never quoted.
	Redact func(*Drift)
	// HandOver lists fields, such as spec.replicas, that keep their live value when Desired no longer has them. The API
	// server resets others when their last manager drops them.
	HandOver []string
	// RemoveFields lists fields that the API server refuses beside Desired, such as spec.strategy.rollingUpdate beside
	// Recreate. Those that Desired does not have are removed with the next write, whoever set them. Fields that exclude
	// each other are one entry, such as spec.minAvailable|maxUnavailable: if Desired has one of them, the others are
	// removed, also in items of lists, as in spec.template.spec.containers.env.value|valueFrom.
	RemoveFields []string
	// UniqueFields lists fields of list items that no two items may share, such as spec.ports.name. An item that shares
	// it with a desired one, such as a port whose number was edited, is removed with the next write.
	UniqueFields []string
}

// Decision is what to do about a [Request], and why. [Applier.Execute] carries it out.
type Decision struct {
	Request Request
	Action  Action
	// Drifts are the managed fields that other managers have changed.
	Drifts []Drift
	// Left is true if the drifts are left as they are, under ReportDrift.
	Left bool

	evidence evidence
	// leave lists the fields that the apply must not contain, under ReportDrift.
	leave []fieldPath
	// reclaim are applied fields that others have taken and that are no longer desired: managed again, they are removed.
	reclaim *fieldSet
	// managedFields are those that the object needs before the apply.
	managedFields managedFields
	// blocked is true if the API server would refuse the apply without managedFields.
	blocked bool
}

// Writes is true if Execute sends a request.
func (d Decision) Writes() bool {
	return d.Action != ActionNone && d.Action != ActionReport
}

// Decide finds what to do about a request, and neither reads nor sends: the decision follows from the request and the
// API server's last answer. It fails with an [*Error] if the object must not be written, and with another error if the
// request is malformed. For a compact object that is not as desired, it fails with an error for which [IsStale] is
// true: read the object past the cache and decide again.
func (a *Applier) Decide(req Request) (Decision, error) {
	if live := reflect.ValueOf(req.Live); live.Kind() == reflect.Pointer && live.IsNil() {
		req.Live = nil // a nil *appsv1.Deployment is no nil interface
	}
	t, err := a.prepare(req.Desired, req.Owner, "")
	if err != nil {
		return Decision{}, err
	}
	e := evidenceOf(t, req.Live)
	if !isQuiet(e) {
		e.recall()
		if err := a.complete(&e.target); err != nil {
			return Decision{}, err
		}
	}
	d, err := decide(e, req)
	if err == nil && d.Writes() && req.Live != nil {
		err = a.planManagedFields(&d)
	}
	if err != nil {
		if !IsStale(err) { // the caller decides again
			a.count(t, "", err)
		}
		return Decision{}, err
	}
	if !d.Writes() {
		a.count(t, d.Action, nil)
	}
	if d.Action == ActionNone && t.tree != nil { // no answer was known
		a.remember(t, req.Live)
	}
	return d, nil
}

// evidence is what a decision rests on.
type evidence struct {
	target target
	live   client.Object
	entry  *metav1.ManagedFieldsEntry
	record record

	// What follows is parsed only if the object exists and is not as desired: the fields that the server records for
	// the target and those that it holds, all managed fields, and the object as decoded JSON.
	expected, held *fieldSet
	managed        managedFields
	liveTree       map[string]any
}

func evidenceOf(t target, live client.Object) evidence {
	e := evidence{target: t, live: live}
	if live != nil {
		e.entry = appliedEntry(live, t.manager, "")
		e.record = parseRecord(live.GetAnnotations()[RecordAnnotationPrefix+t.manager])
	}
	return e
}

// recall takes the fields of a target that was applied before from the object. The schema gives them too, or else the
// last answer would hold them, but it takes ten times as long.
func (e *evidence) recall() {
	t := &e.target
	if t.fields != "" {
		return
	}
	if recorded, ok := e.record.rawFields(); ok && digestOf([]byte(recorded)) == t.fieldsDigest {
		t.fields, t.schemaFields = recorded, recorded
	}
}

func (e *evidence) parse() (err error) {
	if e.expected, err = parseFields([]byte(e.target.fields)); err != nil {
		return err
	}
	e.managed = parseManagedFields(e.live)
	e.held = e.managed.entryOf(e.target.entry()).set
	e.liveTree, err = treeOf(e.live)
	return err
}

// treeOf decodes an object to JSON, without the managed fields, which would take most of the time.
func treeOf(live client.Object) (map[string]any, error) {
	if _, isTree := live.(runtime.Unstructured); isTree {
		return runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	}
	bare := reflect.New(reflect.TypeOf(live).Elem())
	bare.Elem().Set(reflect.ValueOf(live).Elem())
	object, _ := bare.Interface().(client.Object)
	object.SetManagedFields(nil) // of the copy alone: they are a field of the struct
	return runtime.DefaultUnstructuredConverter.ToUnstructured(object)
}

// decide rests on the bookkeeping of the API server alone: an object is as desired if and only if its record names the
// desired configuration, and the server still holds the fields of that configuration for the applier.
func decide(e evidence, req Request) (Decision, error) {
	d := Decision{Request: req, evidence: e, reclaim: &fieldSet{}}
	if err := checkPolicies(e.target.id, req); err != nil {
		return Decision{}, err
	}
	if e.live == nil {
		d.Action = ActionCreate
		return d, nil
	}
	if isQuiet(e) {
		d.Action = ActionNone
		return d, nil
	}
	if IsCompact(e.live) {
		return Decision{}, &Error{Reason: ReasonStale, Object: e.target.id.String(), Transient: true,
			Message: "the cache holds only a digest of the object, which is not as desired; read it from the API server"}
	}
	if err := d.evidence.parse(); err != nil {
		return Decision{}, fmt.Errorf("reading %s: %w", e.target.id, err)
	}
	if e.live.GetDeletionTimestamp() != nil {
		return Decision{}, &Error{Reason: ReasonTerminating, Object: e.target.id.String(), Transient: true,
			Message: "it is being deleted; it will be recreated"}
	}
	adopts, err := checkOwnership(d.evidence, req)
	if err != nil {
		return Decision{}, err
	}
	if adopts {
		// Until now the object was unmanaged: nothing has drifted, and what is not desired stays.
		d.Action = ActionAdopt
		return d, nil
	}
	if e.target.deduced && e.entry != nil && req.Drift == ReportDrift {
		return Decision{}, &Error{Reason: ReasonInvalid, Object: e.target.id.String(), Message: "drift cannot be reported without the schema of " + e.target.id.gvk.Kind +
			": give it in Options.TypeConverters, or correct drift"}
	}
	d.decideDrift()
	return d, nil
}

// decideDrift tells drift from a change of the configuration.
func (d *Decision) decideDrift() {
	e := d.evidence
	lost, dropped := lostFields(e)
	lost, d.Drifts = describeDrift(e, lost)
	for i := range d.Drifts {
		if d.Request.Redact != nil {
			d.Request.Redact(&d.Drifts[i])
		}
	}
	d.Action = ActionUpdate
	if configIsApplied(e) {
		d.Action = ActionCorrect
	}
	switch {
	case d.Request.Drift != ReportDrift || e.entry == nil:
		// Wiped managed fields are restored under either policy: without them drift cannot be detected.
		// Fields of shared objects, and those handed over, stay with who took them.
		if d.Request.Owner != nil {
			d.reclaim = dropped.RecursiveDifference(pathSet(parseFieldPaths(d.Request.HandOver)...))
		}
	default:
		d.report(lost)
	}
}

// report leaves lost fields to who took them, but not the reference to the owner: nothing would delete the object with it.
func (d *Decision) report(lost []fieldPath) {
	e, owner := d.evidence, makeFieldPath("metadata", "ownerReferences").String()
	isOwner := func(path string) bool { return strings.HasPrefix(path, owner) }
	d.leave = slices.DeleteFunc(slices.Clone(lost), func(path fieldPath) bool { return isOwner(path.String()) })
	if len(d.leave) == 0 {
		return
	}
	isWhole := len(d.leave) == len(lost) && configIsApplied(e) && ownsRecord(e)
	d.Left, d.Action = true, ActionUpdate
	d.Drifts = slices.DeleteFunc(d.Drifts, func(drift Drift) bool { return isOwner(drift.Path) })
	if isWhole {
		d.Action = ActionReport
	}
}

func isQuiet(e evidence) bool {
	if e.live != nil && IsCompact(e.live) {
		desired := compactDigest(e.target.id.apiVersion(), e.target.fieldsDigest, e.target.config, e.target.owner)
		return e.live.GetManagedFields()[0].FieldsV1.GetRawString() == desired
	}
	return configIsApplied(e) && e.target.isRecordedIn(e.entry)
}

// configIsApplied: the desired configuration is the one that was applied last.
func configIsApplied(e evidence) bool {
	return e.record.config == e.target.config && e.record.owner == e.target.owner
}

// ownsRecord: the applier wrote the record, and not another client that copied it from another object.
func ownsRecord(e evidence) bool { return e.held.Has(e.target.recordPath()) }

// lostFields compares what was applied last with what the server still holds for the applier. Lost fields are still
// desired; dropped ones are not. A field that is new in the configuration is neither.
func lostFields(e evidence) (lost []fieldPath, dropped *fieldSet) {
	applied, known := appliedFields(e)
	record := pathSet(e.target.recordPath())
	switch {
	case !known && e.entry == nil: // it was never applied
		return nil, &fieldSet{}
	case e.target.deduced && e.entry != nil: // what the server records is not known yet, so neither is what is missing
		return nil, &fieldSet{}
	case !known: // a desired field that another manager holds is drift, and one that none holds is new
		taken := e.expected.Difference(e.held).Intersection(e.managed.except(e.target.entry()).fields())
		return tops(taken.Difference(record)), &fieldSet{}
	case e.entry == nil: // all managed fields were wiped, and with them who changed what
		return []fieldPath{managedFieldsPath}, applied
	}
	gone := applied.Difference(e.held).Difference(record)
	return tops(gone.Intersection(e.expected)), gone.Difference(e.expected)
}

// appliedFields is what was applied last. It is unknown if the record was edited, or removed as by `kubectl replace`.
func appliedFields(e evidence) (*fieldSet, bool) {
	switch {
	case configIsApplied(e):
		return e.expected, true
	case e.entry == nil || ownsRecord(e):
		return e.record.fields()
	default:
		return nil, false
	}
}
