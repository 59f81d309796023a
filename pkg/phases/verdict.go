package phases

import (
	"time"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// Reasons that the engine itself gives. Kinds add their own.
const (
	// ReasonReady is the reason of Ready, and of a phase that is done and gives no reason of its own.
	ReasonReady = "Ready"
	// ReasonBlocked is the reason of a phase that waits for an earlier one.
	ReasonBlocked = "Blocked"
	// ReasonSuspended is the reason of every condition while reconciliation is suspended.
	ReasonSuspended = "Suspended"
	// ReasonTerminating is the reason while the object is torn down.
	ReasonTerminating = "Terminating"
	// ReasonPruning is the reason while a child that is no longer desired is being deleted.
	ReasonPruning = "Pruning"
	// ReasonRecreating is the reason while a child that was deleted terminates; it is recreated after that.
	ReasonRecreating = "Recreating"
	// ReasonDrifted is the reason of Drifted, which is True while drift is reported and not corrected.
	ReasonDrifted = "Drifted"
	// ReasonFailed is the reason of an error that has no reason of its own.
	ReasonFailed = "Failed"
)

// SafetyNet is the RequeueAfter of a wait that gives none: what is waited for is watched, and this
// covers the watch that did not deliver.
const SafetyNet = 30 * time.Second

// Next is what a phase answers when it is asked what is next: a [Verdict], or one action that has to
// be performed first: [Apply], [Delete] or [Do].
type Next interface{ next() }

// Observation is what a step's Observe answers: a [Verdict], or [Missing].
type Observation interface {
	// Reason and Message are those of the phase's condition.
	Reason() string
	Message() string

	observation()
}

// Verdict is what a phase says about itself. Make one with [Done], [DoneBecause], [NotConfigured],
// [Wait] or [Stalled].
type Verdict interface {
	Next
	Observation
	// IsDone says whether the next phase may begin.
	IsDone() bool
	// IsWait says whether the phase waits for something outside, and IsStalled whether only a person helps.
	IsWait() bool
	IsStalled() bool
	// After is when to reconcile again, even if nothing watched changes; zero is not before something does.
	After() time.Duration
	// WithMessage is the same verdict with another message.
	WithMessage(message string) Verdict
	// String is for plans and test failures.
	String() string

	data() verdict
}

// verdictKind is one word for people, and the outcome in metrics.
type verdictKind string

const (
	kindDone          verdictKind = "done"
	kindNotConfigured verdictKind = "not configured"
	kindWait          verdictKind = "wait"
	kindStalled       verdictKind = "stalled"
	// kindError is that of an error, of which no verdict has been made yet.
	kindError verdictKind = "error"
)

// verdict is what all verdicts have in common. The exported types around it have the modifiers that
// make sense for each, so that a contradiction does not compile.
type verdict struct {
	kind            verdictKind
	reason, message string
	after           time.Duration
	// beside is the condition that is True beside a phase that is done, or nothing.
	beside string
	// warning makes the Events of the verdict's transitions warnings.
	warning bool
	// brief puts off the status, see [WaitVerdict.Briefly].
	brief bool
}

func (verdict) next()           {}
func (verdict) observation()    {}
func (v verdict) data() verdict { return v }

// IsDone implements [Verdict].
func (v verdict) IsDone() bool { return v.kind == kindDone || v.kind == kindNotConfigured }

// IsWait implements [Verdict].
func (v verdict) IsWait() bool { return v.kind == kindWait }

// IsStalled implements [Verdict].
func (v verdict) IsStalled() bool { return v.kind == kindStalled }

// Reason implements [Observation].
func (v verdict) Reason() string { return v.reason }

// Message implements [Observation].
func (v verdict) Message() string { return v.message }

// After implements [Verdict].
func (v verdict) After() time.Duration {
	if v.kind == kindWait && v.after <= 0 {
		return SafetyNet
	}
	return v.after
}

// WithMessage implements [Verdict].
func (v verdict) WithMessage(message string) Verdict {
	v.message = message
	return v
}

func (v verdict) String() string {
	if v.kind == kindNotConfigured {
		return string(v.kind)
	}
	return string(v.kind) + " (" + v.reason + ": " + v.message + ")"
}

// recheckAfter reads a time that has passed already, as one computed from an expiry may have, as soon.
func (v verdict) recheckAfter(after time.Duration) verdict {
	const soon = time.Second
	if after <= 0 {
		after = soon
	}
	v.after = after
	return v
}

// DoneVerdict lets the next phase begin.
type DoneVerdict struct{ verdict }

// Done lets the next phase begin.
func Done(message string) DoneVerdict { return DoneBecause(ReasonReady, message) }

// DoneBecause is [Done] with a reason of its own.
func DoneBecause(reason, message string) DoneVerdict {
	return DoneVerdict{verdict{kind: kindDone, reason: reason, message: message}}
}

// RecheckAfter reconciles the object again after a time, even if nothing watched changes.
func (d DoneVerdict) RecheckAfter(after time.Duration) DoneVerdict {
	return DoneVerdict{d.recheckAfter(after)}
}

// WhileReconciling says that the phase has not finished though the next one may begin, as in a rollout
// during which the old pods serve: Reconciling is True beside Ready.
func (d DoneVerdict) WhileReconciling() DoneVerdict {
	d.beside = ConditionReconciling
	return d
}

// WhileStalled is [DoneVerdict.WhileReconciling] for what does not finish by itself: Stalled is True
// beside Ready.
func (d DoneVerdict) WhileStalled() DoneVerdict {
	d.beside = ConditionStalled
	return d
}

// NotConfigured is the verdict of an optional phase that the object does not ask for. The next phase
// begins, and the phase has no condition.
func NotConfigured() Verdict { return verdict{kind: kindNotConfigured, reason: ReasonReady} }

// WaitVerdict gates the phases that follow.
type WaitVerdict struct{ verdict }

// Wait gates the phases that follow until something outside changes. The object is reconciled
// again when something watched changes, or after the given time, or after [SafetyNet] if that is zero.
func Wait(reason, message string, after time.Duration) WaitVerdict {
	return WaitVerdict{verdict{kind: kindWait, reason: reason, message: message, after: after}}
}

// AsWarning says that something is wrong, and that it is not a matter of time: the Events of the
// verdict's transitions are warnings.
func (w WaitVerdict) AsWarning() WaitVerdict {
	w.warning = true
	return w
}

// Briefly says that the wait usually ends within a second, as for a controller to observe a change of its object. The
// status may be put off for [Definition.ReportInterval], and for [BriefInterval] if it is about the generation of the
// object already: a change of nothing but metadata then does not make the object unready.
func (w WaitVerdict) Briefly() WaitVerdict {
	w.brief = true
	return w
}

// StalledVerdict gates the phases that follow until a person acts.
type StalledVerdict struct{ verdict }

// Stalled gates the phases that follow until a person changes the spec or the environment. The object is not
// reconciled again before something watched changes.
func Stalled(reason, message string) StalledVerdict {
	return StalledVerdict{verdict{kind: kindStalled, reason: reason, message: message}}
}

// RecheckAfter reconciles the object again after a time: what a person changes may not be watched.
func (s StalledVerdict) RecheckAfter(after time.Duration) StalledVerdict {
	return StalledVerdict{s.recheckAfter(after)}
}

// MissingObservation says that a step's Ensure has something to do.
type MissingObservation struct {
	reason, message string
	drifts          []ssa.Drift
}

func (MissingObservation) observation() {}

// Missing is for a step's Observe: Ensure has something to do. The message says what, in the words of
// a plan, such as "create storage account web".
func Missing(reason, message string) MissingObservation {
	return MissingObservation{reason: reason, message: message}
}

// Drifted adds what was changed outside of the controller, if the step had been done before. It is reported if
// the phase was done for the same generation of the object.
func (m MissingObservation) Drifted(drifts ...ssa.Drift) MissingObservation {
	m.drifts = drifts
	return m
}

// Drifts are what was changed outside of the controller.
func (m MissingObservation) Drifts() []ssa.Drift { return m.drifts }

// Reason implements [Observation].
func (m MissingObservation) Reason() string { return m.reason }

// Message implements [Observation]: it says what Ensure has to do.
func (m MissingObservation) Message() string { return m.message }
