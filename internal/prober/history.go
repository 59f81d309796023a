package prober

// failuresToFail is how many probes in a row must fail before a replica is Failing. One is not
// enough: a connection may break for reasons that are gone a moment later. The second comes early
// enough (see nextProbe) that a server which stops answering is Failing within two intervals.
const failuresToFail = 2

// failuresAtFirst is that of a replica that has not been judged yet. It may still be on its way up,
// and is asked more often (see nextProbe): so it does not wait an interval for having been slow, and
// is not Failing sooner than others.
const failuresAtFirst = 4

// history is all that is remembered of the probes of one replica.
type history struct {
	state    State
	failures int
	err      *Error
}

// next is the history after one more probe; err is nil if it was answered.
func (h history) next(err *Error) history {
	switch {
	case err == nil:
		return history{state: Answering}
	case err.closed():
		return history{state: Closed, err: err}
	case h.failures+1 >= h.patience():
		return history{state: Failing, failures: h.failures + 1, err: err}
	case h.state == Closed:
		err = h.err
	}
	return history{state: h.state, failures: h.failures + 1, err: err}
}

func (h history) patience() int {
	if h.state == Unknown {
		return failuresAtFirst
	}
	return failuresToFail
}

func (h history) answered() bool {
	return h.state == Answering && h.failures == 0
}

// aggregate is what the replicas' histories come to for the server. The worst replica decides,
// and of equals the first, so that the message stays while nothing changes.
func aggregate(histories []history) Result {
	result := Result{State: Answering, Replicas: len(histories)}
	worst := -1
	for i, h := range histories {
		result.Failures = max(result.Failures, h.failures)
		if h.answered() {
			result.Answered++
		}
		if h.state != Unknown {
			result.Judged++
		}
		if worst < 0 || rank(h) > rank(histories[worst]) {
			worst = i
		}
	}
	if worst >= 0 {
		result.State, result.Err = histories[worst].state, histories[worst].err
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
