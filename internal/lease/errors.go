package lease

import "errors"

// Reason is why a write was refused.
type Reason string

// The reasons.
const (
	// NotElected: this replica has not been the leader yet.
	NotElected Reason = "NotElected"
	// Unproven: the Lease was not renewed in time. Another replica may hold it.
	Unproven Reason = "Unproven"
	// Lost: another replica holds the Lease.
	Lost Reason = "Lost"
	// GivenUp: this replica is shutting down and releases the Lease.
	GivenUp Reason = "GivenUp"
	// NotClaimed: this release has not claimed the namespace. Another release may reconcile it.
	NotClaimed Reason = "NotClaimed"
)

var explanations = map[Reason]string{
	NotElected: "this replica is not the leader",
	Unproven:   "the Lease was not renewed in time, so another replica may be the leader",
	Lost:       "another replica holds the Lease",
	GivenUp:    "this replica is releasing the Lease",
	NotClaimed: "this release has not claimed the namespace, so another release may reconcile it",
}

// Error is the error of a refused or aborted write. Its message does not depend on the write. Match it with
// errors.As.
type Error struct {
	Reason Reason
	// Sent is true if the write was aborted after it was sent: it may have taken effect.
	Sent bool
}

func (e *Error) Error() string {
	if e.Sent {
		return "write aborted: " + explanations[e.Reason]
	}
	return "write refused: " + explanations[e.Reason]
}

// Refused finds an [Error] in the chain of err.
func Refused(err error) (*Error, bool) {
	var refusal *Error
	ok := errors.As(err, &refusal)
	return refusal, ok
}
