package phases

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// Condition types that every object has. Ready is always present; the others only while they are
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

// ObservedDrift is a drift with the child that it was found on.
type ObservedDrift struct {
	ssa.Drift
	// Child is the kind and name of the object, with its namespace if that is not the owner's.
	Child string
	// Deleted is true if the child as a whole was deleted. The drift then has no path, and no manager:
	// the API server does not record who deletes an object.
	Deleted bool
	// Corrected is true if the desired value was restored, false if the drift was only reported.
	Corrected bool
	// Pending is true if restoring it takes its time.
	Pending bool
}

// String reads like "Deployment web: kubectl-edit changed .spec.replicas from 3 to 5".
func (d ObservedDrift) String() string {
	if d.Deleted {
		return d.Child + " was deleted"
	}
	return d.Child + ": " + d.Drift.String()
}

// outcome is what one walk came to: all that conditions and result are computed from.
type outcome struct {
	phases  []phaseOutcome
	changes []Change
	err     error
	// failure is the verdict on what concerns the object itself, before any phase runs or after all are
	// undone. Optional.
	failure Verdict
	// deleting, suspended: the object is. gone: the teardown is complete.
	deleting, suspended, gone bool
}

type phaseOutcome struct {
	name, condition string
	// verdict is nil if the phase was not reached.
	verdict Verdict
	// configured is false if the object does not ask for the phase and nothing of it is left.
	configured bool
}

// fail keeps what concerns the object itself.
func (o *outcome) fail(doing string, err error) {
	o.err = fmt.Errorf("%s: %w", doing, err)
	verdict := acceptable(verdictOf(err))
	o.failure = verdict.WithMessage(doing + ": " + verdict.Message())
	if o.deleting {
		o.failure = removable(o.failure)
	}
}

// gate is what keeps the object from being ready: the verdict, after the name of its phase and a
// colon; nil if nothing does.
func (o *outcome) gate() (phase string, verdict Verdict) {
	if o.failure != nil {
		return "", o.failure
	}
	return o.first(func(v Verdict) bool { return !v.IsDone() })
}

// unfinished is the first phase that lets others begin and has not finished.
func (o *outcome) unfinished() (phase string, verdict Verdict) {
	return o.first(func(v Verdict) bool { return v.data().beside != "" })
}

func (o *outcome) first(is func(Verdict) bool) (phase string, verdict Verdict) {
	for i := range o.phases {
		if p := &o.phases[i]; p.verdict != nil && is(p.verdict) {
			return p.name, p.verdict
		}
	}
	return "", nil
}

// retryable is the error of the walk if trying again may help.
func (o *outcome) retryable() error {
	if isPermanent(o.err) {
		return nil
	}
	return o.err
}

// result tells controller-runtime when to reconcile again. An error is retried with backoff; a stalled
// object is not retried; otherwise the smallest wait wins, or what is left of the time for which the status was put off.
func (o *outcome) result(putOff time.Duration) (reconcile.Result, error) {
	if err := o.retryable(); err != nil {
		return reconcile.Result{}, err
	}
	smallest := earlier(putOff, o.failure)
	for i := range o.phases {
		smallest = earlier(smallest, o.phases[i].verdict)
	}
	return reconcile.Result{RequeueAfter: smallest}, nil
}

// earlier is the smaller of two times to reconcile again, of which zero is none.
func earlier(after time.Duration, verdict Verdict) time.Duration {
	if verdict == nil || verdict.After() <= 0 || after > 0 && after <= verdict.After() {
		return after
	}
	return verdict.After()
}

// drifts lists what other field managers have changed.
func (o *outcome) drifts() []ObservedDrift {
	var drifts []ObservedDrift
	for _, change := range o.changes {
		for _, drift := range change.Drifts {
			drifts = append(drifts, ObservedDrift{Drift: drift, Child: change.Object, Corrected: !change.Left, Pending: change.Pending})
		}
		if change.Recreated {
			drifts = append(drifts, ObservedDrift{Child: change.Object, Deleted: true, Corrected: true})
		}
	}
	return drifts
}

// corrected are the drifts that the walk has reverted.
func (o *outcome) corrected() []ObservedDrift {
	return slices.DeleteFunc(o.drifts(), func(d ObservedDrift) bool { return !d.Corrected })
}

// conditions computes all conditions, without times and generation: a function of the outcome.
func (o *outcome) conditions() []metav1.Condition {
	const besidesPhases = 3 // Ready, one of Stalled and Reconciling, Drifted
	conditions := make([]metav1.Condition, 0, len(o.phases)+besidesPhases)
	conditions = append(conditions, o.readyCondition())
	for i := range o.phases {
		if p := &o.phases[i]; p.configured {
			conditions = append(conditions, o.phaseCondition(p))
		}
	}
	if o.suspended {
		return append(conditions, condition(ConditionSuspended, metav1.ConditionTrue, ReasonSuspended, suspendedMessage))
	}
	return append(append(conditions, o.progressCondition()...), o.driftedCondition()...)
}

const suspendedMessage = "reconciliation is suspended"

func condition(conditionType string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: status, Reason: reason, Message: message}
}

func (o *outcome) readyCondition() metav1.Condition {
	if o.suspended {
		return condition(ConditionReady, metav1.ConditionUnknown, ReasonSuspended, suspendedMessage)
	}
	if phase, gate := o.gate(); gate != nil {
		return condition(ConditionReady, metav1.ConditionFalse, gate.Reason(), prefixed(phase, gate.Message()))
	}
	message := "all phases are ready"
	if phase, verdict := o.unfinished(); verdict != nil {
		message = prefixed(phase, verdict.Message())
	}
	return condition(ConditionReady, metav1.ConditionTrue, ReasonReady, message)
}

func prefixed(phase, message string) string {
	if phase == "" {
		return message
	}
	return phase + ": " + message
}

func (o *outcome) phaseCondition(p *phaseOutcome) metav1.Condition {
	switch {
	case o.suspended:
		return condition(p.condition, metav1.ConditionUnknown, ReasonSuspended, suspendedMessage)
	case p.verdict == nil:
		return condition(p.condition, metav1.ConditionUnknown, ReasonBlocked, o.blockedMessage())
	case p.verdict.IsDone() && !o.deleting:
		return condition(p.condition, metav1.ConditionTrue, p.verdict.Reason(), p.verdict.Message())
	default:
		return condition(p.condition, metav1.ConditionFalse, p.verdict.Reason(), p.verdict.Message())
	}
}

func (o *outcome) blockedMessage() string {
	phase, gate := o.gate()
	switch {
	case phase == "":
		return gate.Message()
	case o.deleting:
		return "kept until phase " + phase + " is deleted"
	default:
		return "waiting for phase " + phase
	}
}

// progressCondition is Reconciling or Stalled, or nothing where the object is ready and at rest.
func (o *outcome) progressCondition() []metav1.Condition {
	_, gate := o.gate()
	_, unfinished := o.unfinished()
	switch {
	case gate != nil && gate.IsStalled():
		return []metav1.Condition{condition(ConditionStalled, metav1.ConditionTrue, gate.Reason(), gate.Message())}
	case unfinished != nil && (gate == nil || unfinished.data().beside == ConditionStalled):
		return []metav1.Condition{condition(unfinished.data().beside, metav1.ConditionTrue, unfinished.Reason(), unfinished.Message())}
	case gate != nil:
		return []metav1.Condition{condition(ConditionReconciling, metav1.ConditionTrue, gate.Reason(), gate.Message())}
	default:
		return nil
	}
}

func (o *outcome) driftedCondition() []metav1.Condition {
	left := slices.DeleteFunc(o.drifts(), func(d ObservedDrift) bool { return d.Corrected })
	if len(left) == 0 {
		return nil
	}
	message := left[0].String()
	if len(left) > 1 {
		message += fmt.Sprintf(", and %d more fields", len(left)-1)
	}
	return []metav1.Condition{condition(ConditionDrifted, metav1.ConditionTrue, ReasonDrifted, message+"; not reverted because the drift policy is Report")}
}
