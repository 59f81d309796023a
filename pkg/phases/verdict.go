package phases

import (
	"time"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// Reasons that the engine itself gives. Kinds add their own.
const (
	// ReasonReady is the reason of a phase that is done and has nothing more to say, and of Ready.
	ReasonReady = "Ready"
	// ReasonNotConfigured is the reason of an optional phase whose option is off.
	ReasonNotConfigured = "NotConfigured"
	// ReasonBlocked is the reason of a phase that has not been looked at, since an earlier one gates it.
	ReasonBlocked = "Blocked"
	// ReasonSuspended is the reason of everything while the object is suspended.
	ReasonSuspended = "Suspended"
	// ReasonTerminating is the reason while the object is torn down.
	ReasonTerminating = "Terminating"
	// ReasonPruning is the reason while something that is no longer wanted is on its way out.
	ReasonPruning = "Pruning"
	// ReasonRecreating is the reason while a child that somebody deleted is on its way out; it is made anew after that.
	ReasonRecreating = "Recreating"
	// ReasonDrifted is the reason of Drifted, which stands while drift is reported and not corrected.
	ReasonDrifted = "Drifted"
	// ReasonFailed is the reason of an error that has no reason of its own.
	ReasonFailed = "Failed"
)

// SafetyNet is how long a wait lasts if it does not say so: what is waited for is watched, and
// this is for the watch that did not deliver.
const SafetyNet = 30 * time.Second

// Verdict is what a phase says about itself. The zero value is no verdict: make one with [Done],
// [NotConfigured], [Wait], [Stalled] or [Missing].
type Verdict struct {
	kind    verdictKind
	reason  string
	message string
	after   time.Duration
	// drifts is for Missing: what was there and is no more as it was.
	drifts []ssa.Drift
	// beside is the condition that a verdict of Done keeps up, or nothing.
	beside string
	// trouble makes the transitions that the verdict leads to warnings.
	trouble bool
}

type verdictKind int

const (
	verdictNone verdictKind = iota
	verdictDone
	verdictMissing
	verdictWait
	verdictStalled
)

// Done lets the next phase begin.
func Done(message string) Verdict {
	return Verdict{kind: verdictDone, reason: ReasonReady, message: message}
}

// DoneBecause is Done with a reason of its own.
func DoneBecause(reason, message string) Verdict {
	return Verdict{kind: verdictDone, reason: reason, message: message}
}

// NotConfigured is the verdict of an optional phase that the object does not ask for.
func NotConfigured(message string) Verdict {
	return Verdict{kind: verdictDone, reason: ReasonNotConfigured, message: message}
}

// Wait gates the phases that follow until something in the world has changed. The object is looked
// at again after the given time, or [SafetyNet] if that is zero, or when something watched changes.
func Wait(reason, message string, after time.Duration) Verdict {
	return Verdict{kind: verdictWait, reason: reason, message: message, after: after}
}

// Stalled gates the phases that follow until a person changes the spec or the world. The object is
// not looked at again before something watched changes.
func Stalled(reason, message string) Verdict {
	return Verdict{kind: verdictStalled, reason: reason, message: message}
}

// Missing is for a step's Observe: there is something to ensure. The message says what, in the
// words of a plan, such as "create the storage account".
func Missing(reason, message string) Verdict {
	return Verdict{kind: verdictMissing, reason: reason, message: message}
}

// Drifted tells with [Missing] what somebody has changed, if it has been there before. It is
// reported if the phase was done for the same generation of the object.
func (v Verdict) Drifted(drifts ...ssa.Drift) Verdict {
	v.drifts = drifts
	return v
}

// LookAgainAfter makes the object be looked at again even though nothing watched changes.
//
// A time that has come already, as one computed from an expiry may have, means soon.
func (v Verdict) LookAgainAfter(after time.Duration) Verdict {
	const soon = time.Second
	if after <= 0 {
		after = soon
	}
	v.after = after
	return v
}

// AndReconciling makes a verdict of Done say that the phase is not at its end though the next one may
// begin, as in a rollout behind which the old pods serve: Reconciling stands beside Ready.
func (v Verdict) AndReconciling() Verdict {
	v.beside = ConditionReconciling
	return v
}

// AndStalled is [Verdict.AndReconciling] for what does not get to its end by itself: Stalled stands
// beside Ready.
func (v Verdict) AndStalled() Verdict {
	v.beside = ConditionStalled
	return v
}

// WithMessage says the same in other words.
func (v Verdict) WithMessage(message string) Verdict {
	v.message = message
	return v
}

// AsTrouble says of a wait that something has gone wrong, and that it is not a matter of time: the
// Events of its transitions are warnings.
func (v Verdict) AsTrouble() Verdict {
	v.trouble = true
	return v
}

// IsDone says whether the next phase may begin.
func (v Verdict) IsDone() bool { return v.kind == verdictDone }

// IsStalled says whether only a person helps.
func (v Verdict) IsStalled() bool { return v.kind == verdictStalled }

// IsWait says whether the phase waits for the world.
func (v Verdict) IsWait() bool { return v.kind == verdictWait }

// Reason is the reason for the phase's condition.
func (v Verdict) Reason() string { return v.reason }

// Message is the message for the phase's condition.
func (v Verdict) Message() string { return v.message }

// After is when to look again; zero is when something watched changes.
func (v Verdict) After() time.Duration {
	if v.kind == verdictWait && v.after <= 0 {
		return SafetyNet
	}
	return v.after
}

// String is for plans and test failures.
func (v Verdict) String() string {
	if v.kind == verdictNone {
		return "not reached"
	}
	names := map[verdictKind]string{
		verdictDone: "done", verdictMissing: "missing", verdictWait: "wait", verdictStalled: "stalled",
	}
	return names[v.kind] + " (" + v.reason + ": " + v.message + ")"
}
