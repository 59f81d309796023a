package prober

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestHistoryNext(t *testing.T) {
	refused := &Error{Kind: Refused}
	timeout := &Error{Kind: Timeout}
	closed := &Error{Kind: Unauthorized, Status: 401}
	for name, test := range map[string]struct {
		outcomes []*Error
		then     history
	}{
		"no probe yet":                 {nil, history{state: Unknown}},
		"success":                      {[]*Error{nil}, history{state: Answering}},
		"one failure, no success":      {[]*Error{refused}, history{state: Unknown, failures: 1, err: refused}},
		"three failures, no success":   {[]*Error{refused, refused, timeout}, history{state: Unknown, failures: 3, err: timeout}},
		"four failures, no success":    {[]*Error{refused, refused, refused, timeout}, history{state: Failing, failures: 4, err: timeout}},
		"one failure after a success":  {[]*Error{nil, timeout}, history{state: Answering, failures: 1, err: timeout}},
		"two failures after a success": {[]*Error{nil, timeout, refused}, history{state: Failing, failures: 2, err: refused}},
		"failure, success, failure":    {[]*Error{nil, timeout, nil, timeout}, history{state: Answering, failures: 1, err: timeout}},
		"success after failures":       {[]*Error{refused, refused, refused, nil}, history{state: Answering}},
		"closed":                       {[]*Error{closed}, history{state: Closed, err: closed}},
		"closed after a success":       {[]*Error{nil, closed}, history{state: Closed, err: closed}},
		"closed, then failed once":     {[]*Error{closed, timeout}, history{state: Closed, failures: 1, err: closed}},
		"closed, then failed twice":    {[]*Error{closed, timeout, timeout}, history{state: Failing, failures: 2, err: timeout}},
		"failed twice, then closed":    {[]*Error{timeout, timeout, closed}, history{state: Closed, err: closed}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := history{state: Unknown}
			for _, outcome := range test.outcomes {
				h = h.next(outcome)
			}
			g.Expect(h).To(Equal(test.then))
		})
	}
}

func TestAggregateTakesTheWorstReplica(t *testing.T) {
	refused, forbidden := &Error{Kind: Refused}, &Error{Kind: Forbidden, Status: 403}
	pending := history{state: Unknown}
	good := history{state: Answering}
	failedOnce := history{state: Answering, failures: 1, err: refused}
	closed := history{state: Closed, err: forbidden}
	failing := history{state: Failing, failures: 4, err: refused}
	startFailed := history{state: Unknown, failures: 1, err: refused}
	for name, test := range map[string]struct {
		replicas []history
		then     Result
	}{
		"all succeed":        {[]history{good, good}, Result{State: Answering, Replicas: 2, Answered: 2, Decided: 2}},
		"one is Unknown":     {[]history{good, pending}, Result{State: Unknown, Replicas: 2, Answered: 1, Decided: 1}},
		"one failed once":    {[]history{failedOnce, good}, Result{State: Answering, Replicas: 2, Answered: 1, Decided: 2, Err: refused}},
		"one is closed":      {[]history{good, closed}, Result{State: Closed, Replicas: 2, Answered: 1, Decided: 2, Err: forbidden}},
		"closed and pending": {[]history{closed, pending}, Result{State: Unknown, Replicas: 2, Decided: 1}},
		"closed and failed":  {[]history{failedOnce, closed}, Result{State: Closed, Replicas: 2, Decided: 2, Err: forbidden}},
		"pending and failed": {[]history{pending, startFailed}, Result{State: Unknown, Replicas: 2, Err: refused}},
		"pending and fails":  {[]history{pending, failing}, Result{State: Failing, Replicas: 2, Decided: 1, Err: refused}},
		"one fails":          {[]history{good, failing, pending}, Result{State: Failing, Replicas: 3, Answered: 1, Decided: 2, Err: refused}},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(aggregate(test.replicas)).To(Equal(test.then))
		})
	}
}
