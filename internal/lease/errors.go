package lease

import "errors"

// Reason says why a write was refused.
type Reason string

// The reasons.
const (
	// NotElected: this replica has not been the leader yet.
	NotElected Reason = "NotElected"
	// Unproven: the Lease was not renewed in time. It may be another's by now, and may still be ours.
	Unproven Reason = "Unproven"
	// Lost: the Lease is another's.
	Lost Reason = "Lost"
	// GivenUp: this replica has given the Lease up, because it is about to end.
	GivenUp Reason = "GivenUp"
)

var explanations = map[Reason]string{
	NotElected: "this replica is not the leader",
	Unproven:   "the Lease was not renewed in time, so that another replica may be the leader",
	Lost:       "another replica has the Lease",
	GivenUp:    "this replica has given the Lease up",
}

// Error is a write that was refused, or broken off. It says nothing about what was to be written, and
// never differs from try to try. Match it with errors.As.
type Error struct {
	Reason Reason
	// Sent says that the write was broken off while it was under way: it may have been done.
	Sent bool
}

// Error implements error.
func (e *Error) Error() string {
	if e.Sent {
		return "broke the write off: " + explanations[e.Reason]
	}
	return "refused to write: " + explanations[e.Reason]
}

// Refused finds the refusal in an error.
func Refused(err error) (*Error, bool) {
	var refusal *Error
	ok := errors.As(err, &refusal)
	return refusal, ok
}
