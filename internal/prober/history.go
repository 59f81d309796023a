package prober

import "slices"

// failureThreshold is the number of failures in a row after which a replica is Failing. One failure can
// be transient. The second probe is early enough (see nextProbe) that a server that stops responding is
// Failing within two intervals.
const failureThreshold = 2

// initialFailureThreshold applies to replicas without a result. They may still be starting, and are
// probed more often (see nextProbe).
const initialFailureThreshold = 4

// history summarizes the probes of one replica.
type history struct {
	state    State
	failures int
	err      *Error
}

// next is the history after one more probe; err is nil if it succeeded.
func (h history) next(err *Error) history {
	switch {
	case err == nil:
		return history{state: Answering}
	case err.closed():
		return history{state: Closed, err: err}
	case h.failures+1 >= h.threshold():
		return history{state: Failing, failures: h.failures + 1, err: err}
	case h.state == Closed:
		err = h.err
	}
	return history{state: h.state, failures: h.failures + 1, err: err}
}

func (h history) threshold() int {
	if h.state == Unknown {
		return initialFailureThreshold
	}
	return failureThreshold
}

func (h history) answered() bool {
	return h.state == Answering && h.failures == 0
}

// aggregate combines the histories of all replicas. The first one of the worst replicas decides, so that
// the message is stable.
func aggregate(histories []history) Result {
	if len(histories) == 0 {
		return Result{State: Unknown}
	}
	worst := slices.MaxFunc(histories, func(a, b history) int { return rank(a) - rank(b) })
	result := Result{State: worst.state, Err: worst.err, Replicas: len(histories)}
	for _, h := range histories {
		if h.answered() {
			result.Answered++
		}
		if h.state != Unknown {
			result.Decided++
		}
	}
	return result
}

// rank orders histories from the best to the worst.
func rank(h history) int {
	order := map[State]int{Answering: 0, Closed: 2, Unknown: 4, Failing: 6}[h.state]
	if h.err != nil {
		order++
	}
	return order
}
