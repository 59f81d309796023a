package bridge

import (
	"fmt"
	"time"
)

// evictAfter is the time without messages after which a session may be ended to make room for another one.
const evictAfter = 30 * time.Second

// resident is what admission considers of a session that counts towards the limits.
type resident struct {
	caller string
	// stopping is true once the session has ended, while its process exits.
	stopping bool
	// used is true after a message that followed initialize.
	used    bool
	pending bool
	idle    time.Duration
}

// admission decides which session ends, or has ended, so that a client gets a new one. Callers have a limit of
// their own, so that one of them cannot take all sessions.
type admission struct {
	maxSessions  int
	maxPerCaller int
	// counts are the sessions per caller, including those that are being stopped.
	counts map[string]int
	total  int
}

// full returns the error of a caller that gets no session unless another one ends; nil if there is room.
func (a *admission) full(caller string) *failure {
	switch {
	case a.total >= a.maxSessions:
		return refused(reasonTooManySessions, fmt.Sprintf("the limit of %d sessions is reached; try again later", a.maxSessions), 5)
	case a.counts[caller] >= a.maxPerCaller:
		return refused(reasonTooManySessions, fmt.Sprintf(
			"the limit of %d sessions per caller is reached; end sessions that are not in use, or try again later", a.maxPerCaller), 5)
	}
	return nil
}

// evictable reports whether the caller may get the place of a session: one that has ended, or one
// that is idle and of the same caller or of one with more sessions.
func (a *admission) evictable(r resident, caller string) bool {
	switch {
	case a.counts[caller] >= a.maxPerCaller && r.caller != caller:
		return false
	case r.stopping:
		return true
	case r.pending || r.used && r.idle < evictAfter:
		return false
	default:
		return r.caller == caller || a.counts[r.caller] > a.counts[caller]
	}
}

// victim is the index of the session whose place the caller gets, or -1. Those that have ended come
// first, then those that were never used, and those that are idle for the longest time.
func (a *admission) victim(residents []resident, caller string) int {
	best := -1
	for i, r := range residents {
		if a.evictable(r, caller) && (best < 0 || residents[best].endsAfter(r)) {
			best = i
		}
	}
	return best
}

func (r resident) endsAfter(other resident) bool {
	if r.stopping != other.stopping {
		return other.stopping
	}
	if r.used != other.used {
		return r.used
	}
	return r.idle < other.idle
}

func (a *admission) add(caller string) {
	a.counts[caller]++
	a.total++
}

func (a *admission) remove(caller string) {
	a.total--
	a.counts[caller]--
	if a.counts[caller] == 0 {
		delete(a.counts, caller)
	}
}
