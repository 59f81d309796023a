package phases

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// Condition types that every object has. Ready is always there; the others only while they are
// True, as kstatus wants it (sigs.k8s.io/cli-utils/pkg/kstatus).
const (
	ConditionReady       = "Ready"
	ConditionReconciling = "Reconciling"
	ConditionStalled     = "Stalled"
	ConditionDrifted     = "Drifted"
	ConditionSuspended   = "Suspended"
)

// ConditionOf is the condition type of a phase.
func ConditionOf(phase string) string { return phase + "Ready" }

// Summary is what a pass found out, for the kind's status.
type Summary struct {
	// ObservedGeneration is the generation of the spec that the pass worked on.
	ObservedGeneration int64
	// Conditions are all conditions, complete with transition times that carry over.
	Conditions []metav1.Condition
	// Drifts are the fields that others had changed, in this pass.
	Drifts []ObservedDrift
	// Now is the time of the pass.
	Now metav1.Time
	// Ready is true if all phases are done, and ReadyReason is the reason of the condition.
	Ready       bool
	ReadyReason string
	// Stalled is true if only a person helps.
	Stalled bool
	// Deleting is true while the object is torn down.
	Deleting bool
	// Suspended is true while the object is left alone.
	Suspended bool
}

// Phase returns the condition of a phase, or nil.
func (s Summary) Phase(name string) *metav1.Condition {
	return meta.FindStatusCondition(s.Conditions, ConditionOf(name))
}

// ObservedDrift is a drift with the child that it was found on.
type ObservedDrift struct {
	ssa.Drift
	// Child is the kind and name of the object.
	Child string
	// Deleted is true if the child as a whole had been deleted. The drift then has no path, and no
	// manager: the API server keeps no account of who deleted something.
	Deleted bool
	// Corrected is true if our value was put back, false if the drift was only reported.
	Corrected bool
	// Pending is true if putting it back takes its time.
	Pending bool
}

// String reads like "Deployment web: kubectl-edit changed .spec.replicas from 3 to 5".
func (d ObservedDrift) String() string {
	if d.Deleted {
		return d.Child + ": somebody deleted it"
	}
	return d.Child + ": " + d.Drift.String()
}

// ConditionConfigurations turns conditions into apply configurations.
func ConditionConfigurations(conditions []metav1.Condition) []*metav1ac.ConditionApplyConfiguration {
	configurations := make([]*metav1ac.ConditionApplyConfiguration, 0, len(conditions))
	for _, c := range conditions {
		configurations = append(configurations, metav1ac.Condition().
			WithType(c.Type).
			WithStatus(c.Status).
			WithObservedGeneration(c.ObservedGeneration).
			WithLastTransitionTime(c.LastTransitionTime).
			WithReason(c.Reason).
			WithMessage(c.Message))
	}
	return configurations
}

// report writes the status if it differs, and then makes the transitions seen. If the object has
// vanished meanwhile, there is nothing left to report on.
func (e *Engine[O, S]) report(ctx context.Context, live O, o *outcome[S]) error {
	before := o.pass.before
	summary := e.summarize(live, o, before)
	desired := e.def.Status(o.pass.scope, summary)
	result, err := o.pass.applier.ApplyStatus(ctx, desired, live)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if result.Action != ssa.ActionNone && result.Live != nil {
		e.seen.add(result.Live)
	}
	e.announce(live, o, before, summary)
	return nil
}

func (e *Engine[O, S]) summarize(live O, o *outcome[S], before []metav1.Condition) Summary {
	summary := Summary{
		ObservedGeneration: live.GetGeneration(),
		Now:                metav1.NewTime(e.deps.Clock.Now()),
		Drifts:             append(slices.Clip(o.putBack), o.drifts()...),
		Deleting:           o.deleting,
		Suspended:          o.suspended,
	}
	conditions := o.conditions()
	for i := range conditions {
		c := &conditions[i]
		c.ObservedGeneration = summary.ObservedGeneration
		c.LastTransitionTime = summary.Now
		c.Message = bound(c.Message, maxConditionMessage)
		if old := meta.FindStatusCondition(before, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	summary.Conditions = conditions
	if ready := meta.FindStatusCondition(conditions, ConditionReady); ready != nil {
		summary.Ready, summary.ReadyReason = ready.Status == metav1.ConditionTrue, ready.Reason
	}
	summary.Stalled = meta.IsStatusConditionTrue(conditions, ConditionStalled)
	return summary
}

// maxConditionMessage is the limit that the API server sets on a condition's message.
const maxConditionMessage = 32768

// drifts lists what the pass found changed by others.
func (o *outcome[S]) drifts() []ObservedDrift {
	var drifts []ObservedDrift
	for _, change := range o.pass.changes {
		for _, drift := range change.Drifts {
			drifts = append(drifts, ObservedDrift{Drift: drift, Child: change.Object, Corrected: !change.Left, Pending: change.Pending})
		}
		if change.Recreated {
			drifts = append(drifts, ObservedDrift{Child: change.Object, Deleted: true, Corrected: true})
		}
	}
	return drifts
}

// conditions computes all conditions of the pass, without times: a function of the verdicts.
func (o *outcome[S]) conditions() []metav1.Condition {
	if o.suspended {
		return o.suspendedConditions()
	}
	gate := o.gate()
	const besidesPhases = 3 // Ready, one of Stalled and Reconciling, Drifted
	conditions := make([]metav1.Condition, 0, len(o.pass.slots)+besidesPhases)
	conditions = append(conditions, o.readyCondition(gate))
	for i := range o.pass.slots {
		conditions = append(conditions, o.phaseCondition(i, gate))
	}
	if gate >= 0 && o.verdicts[gate].IsStalled() {
		conditions = append(conditions, metav1.Condition{
			Type: ConditionStalled, Status: metav1.ConditionTrue,
			Reason: o.verdicts[gate].reason, Message: o.verdicts[gate].message,
		})
	} else if i := o.unfinished(); i >= 0 && (gate < 0 || o.verdicts[i].beside == ConditionStalled) {
		conditions = append(conditions, metav1.Condition{
			Type: o.verdicts[i].beside, Status: metav1.ConditionTrue,
			Reason: o.verdicts[i].reason, Message: o.verdicts[i].message,
		})
	} else if gate >= 0 {
		conditions = append(conditions, metav1.Condition{
			Type: ConditionReconciling, Status: metav1.ConditionTrue,
			Reason: o.verdicts[gate].reason, Message: o.verdicts[gate].message,
		})
	}
	if drifted := o.driftedCondition(); drifted != nil {
		conditions = append(conditions, *drifted)
	}
	return conditions
}

// gate is the index of the phase that is not done, or -1.
func (o *outcome[S]) gate() int {
	return slices.IndexFunc(o.verdicts, func(v Verdict) bool {
		return v.kind == verdictWait || v.kind == verdictStalled
	})
}

// unfinished is the index of the first phase that lets others begin and is not at its end, or -1.
func (o *outcome[S]) unfinished() int {
	return slices.IndexFunc(o.verdicts, func(v Verdict) bool { return v.IsDone() && v.beside != "" })
}

func (o *outcome[S]) readyCondition(gate int) metav1.Condition {
	if gate < 0 {
		message := "all phases are done"
		if i := o.unfinished(); i >= 0 {
			message = o.pass.slots[i].name + ": " + o.verdicts[i].message
		}
		return metav1.Condition{Type: ConditionReady, Status: metav1.ConditionTrue, Reason: ReasonReady, Message: message}
	}
	verdict := o.verdicts[gate]
	return metav1.Condition{
		Type: ConditionReady, Status: metav1.ConditionFalse, Reason: verdict.reason,
		Message: o.pass.slots[gate].name + ": " + verdict.message,
	}
}

func (o *outcome[S]) phaseCondition(i, gate int) metav1.Condition {
	c := metav1.Condition{Type: o.pass.slots[i].condition}
	if i >= len(o.verdicts) || o.verdicts[i].kind == verdictNone {
		c.Status, c.Reason = metav1.ConditionUnknown, ReasonBlocked
		c.Message = "not looked at before " + o.pass.slots[gate].name + " is done"
		if o.deleting {
			c.Message = "kept until " + o.pass.slots[gate].name + " is gone"
		}
		return c
	}
	verdict := o.verdicts[i]
	c.Status, c.Reason, c.Message = metav1.ConditionFalse, verdict.reason, verdict.message
	if verdict.IsDone() && !o.deleting {
		c.Status = metav1.ConditionTrue
	}
	return c
}

func (o *outcome[S]) driftedCondition() *metav1.Condition {
	var first *ObservedDrift
	count := 0
	for _, drift := range o.drifts() {
		if drift.Corrected {
			continue
		}
		if first == nil {
			first = &drift
		}
		count++
	}
	if first == nil {
		return nil
	}
	message := first.String()
	if count > 1 {
		message += fmt.Sprintf(", and %d more fields", count-1)
	}
	return &metav1.Condition{
		Type: ConditionDrifted, Status: metav1.ConditionTrue, Reason: ReasonDrifted,
		Message: message + "; it is left as it is, since the drift policy is Report",
	}
}

func (o *outcome[S]) suspendedConditions() []metav1.Condition {
	const message = "the object is suspended: nothing is judged or changed"
	conditions := []metav1.Condition{{Type: ConditionReady, Status: metav1.ConditionUnknown, Reason: ReasonSuspended, Message: message}}
	for _, slot := range o.pass.slots {
		conditions = append(conditions, metav1.Condition{
			Type: slot.condition, Status: metav1.ConditionUnknown, Reason: ReasonSuspended, Message: message,
		})
	}
	return append(conditions, metav1.Condition{Type: ConditionSuspended, Status: metav1.ConditionTrue, Reason: ReasonSuspended, Message: message})
}

// announce emits one Event for each condition whose status or reason has changed.
func (e *Engine[O, S]) announce(live O, o *outcome[S], before []metav1.Condition, summary Summary) {
	for _, c := range summary.Conditions {
		if !isTransition(meta.FindStatusCondition(before, c.Type), c) {
			continue
		}
		e.deps.Metrics.observeTransition(e.def.Controller, c)
		e.event(live, o.eventType(c), c.Reason, c.Type, c.Type+" is "+string(c.Status)+": "+c.Message)
	}
	for _, old := range before {
		if old.Status == metav1.ConditionTrue && o.isOver(old.Type) && meta.FindStatusCondition(summary.Conditions, old.Type) == nil {
			e.event(live, corev1.EventTypeNormal, old.Type+"Over", old.Type, old.Type+" is over")
		}
	}
}

// announceCorrections emits one Event for each drift that was put back.
func (e *Engine[O, S]) announceCorrections(live O, o *outcome[S]) {
	for _, drift := range o.drifts() {
		if !drift.Corrected {
			continue
		}
		e.deps.Metrics.observeDrift(e.def.Controller)
		e.eventAbout(live, driftedField(live, drift), corev1.EventTypeWarning, "DriftCorrected", "Correct", drift.String()+outcomeOf(drift))
	}
}

func outcomeOf(drift ObservedDrift) string {
	if drift.Pending {
		return "; being put back"
	}
	return "; put back"
}

// isOver says whether the pass may claim that a condition is over which is there only while it is
// True, and which it did not find. Drift is looked for in every pass but those that only stand by.
// Reconciling is not among them: its end is that Ready becomes True.
func (o *outcome[S]) isOver(conditionType string) bool {
	switch conditionType {
	case ConditionSuspended:
		return true
	case ConditionStalled:
		return !o.suspended
	case ConditionDrifted:
		return !o.suspended && !o.deleting
	default:
		return false
	}
}

// isTransition says whether a condition tells of something that has happened. From one state that
// tells of nothing to another it does not: an option that is off is looked at or not, and nothing of
// it has ever been there.
func isTransition(old *metav1.Condition, c metav1.Condition) bool {
	if c.Type == ConditionReconciling {
		return false // it repeats what Ready says
	}
	if tellsNothing(old) && tellsNothing(&c) {
		return false
	}
	return old == nil || old.Status != c.Status || old.Reason != c.Reason
}

// tellsNothing: the condition is not there, its phase is not looked at, or nothing is asked for.
func tellsNothing(c *metav1.Condition) bool {
	return c == nil || c.Status == metav1.ConditionUnknown || c.Reason == ReasonNotConfigured
}

// eventType: what only waits is normal; what failed, stalled or drifted is not.
func (o *outcome[S]) eventType(c metav1.Condition) string {
	if c.Type == ConditionDrifted || c.Type == ConditionStalled || (c.Status == metav1.ConditionFalse && o.isInTrouble()) {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

func (o *outcome[S]) isInTrouble() bool {
	return o.err != nil || slices.ContainsFunc(o.verdicts, func(v Verdict) bool { return v.IsStalled() || v.trouble })
}

// driftedField is what the Event about a drift relates to. Events about one version of an object
// that differ in nothing but their note are one to the recorder, which keeps the first note.
func driftedField(live client.Object, drift ObservedDrift) *corev1.ObjectReference {
	kind, name, _ := strings.Cut(drift.Child, " ")
	return &corev1.ObjectReference{Kind: kind, Namespace: live.GetNamespace(), Name: name, FieldPath: drift.Path}
}

func (e *Engine[O, S]) event(live O, kind, reason, action, note string) {
	e.eventAbout(live, nil, kind, reason, action, note)
}

func (e *Engine[O, S]) eventAbout(live O, related runtime.Object, kind, reason, action, note string) {
	if e.deps.Recorder == nil {
		return
	}
	// The API server refuses notes of more than 1024 bytes.
	const maxNote = 1024
	e.deps.Recorder.Eventf(live, related, kind, reason, action, "%s", bound(note, maxNote))
}
