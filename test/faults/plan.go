package faults

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Plan says what happens to the calls of a world's managers.
type Plan interface {
	// Decide is asked before each call is sent. It may be called concurrently.
	Decide(call Call) Fault
}

// PlanFunc is a function as a [Plan].
type PlanFunc func(call Call) Fault

// Decide implements [Plan].
func (f PlanFunc) Decide(call Call) Fault { return f(call) }

// Fault is what happens to one call. The zero value lets it pass.
type Fault struct {
	// Crash ends the manager at this call.
	Crash CrashMode
	// Status, if it is not 0, is what is answered in place of the real answer, with the Reason.
	Status int
	// Reason is that of the API server's Status, or the code of the cloud's error.
	Reason, Message string
	// RetryAfter goes along with the status.
	RetryAfter time.Duration
	// Landed lets the call have its effect before it is answered so.
	Landed bool
	// Lost gives no answer at all: the connection breaks, after the effect if Landed is set.
	Lost bool
	// Before runs before the call goes on: what happens elsewhere just then.
	Before func()
}

// IsNone says whether the call passes as if there were no plan.
func (f Fault) IsNone() bool {
	return f.Crash == NoCrash && f.Status == 0 && !f.Lost && f.Before == nil
}

// CrashMode says when the manager crashes.
type CrashMode string

// A crash is before the call is sent; when it has landed and the answer is under way; or when the
// answer has arrived, of which the manager does nothing more than it can do without a call.
const (
	NoCrash     CrashMode = ""
	CrashBefore CrashMode = "before"
	CrashLost   CrashMode = "lost"
	CrashAfter  CrashMode = "after"
)

// CrashModes are all of them.
var CrashModes = []CrashMode{CrashBefore, CrashLost, CrashAfter}

// CrashAt is a plan that crashes the manager at the mutating calls with the given distances: the first
// is counted from the first call after the plan was made, the next from the crash before.
type CrashAt struct {
	mu    sync.Mutex
	seen  int
	steps []CrashStep
	// Hit are the calls at which the manager was crashed.
	hit []Call
}

// CrashStep is one crash: at the so-manyth mutating call, in a mode.
type CrashStep struct {
	Call int
	Mode CrashMode
}

// String is such as 7/lost.
func (s CrashStep) String() string { return fmt.Sprintf("%d/%s", s.Call, s.Mode) }

// NewCrashAt makes the plan.
func NewCrashAt(steps ...CrashStep) *CrashAt { return &CrashAt{steps: steps} }

// Decide implements [Plan].
func (p *CrashAt) Decide(call Call) Fault {
	if call.Number == 0 {
		return Fault{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.steps) == 0 {
		return Fault{}
	}
	p.seen++
	if p.seen < p.steps[0].Call {
		return Fault{}
	}
	mode := p.steps[0].Mode
	p.steps, p.seen = p.steps[1:], 0
	p.hit = append(p.hit, call)
	return Fault{Crash: mode}
}

// Hits are the calls at which the manager was crashed so far.
func (p *CrashAt) Hits() []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Call(nil), p.hit...)
}

// Left is how many crashes have not come yet.
func (p *CrashAt) Left() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.steps)
}

// reasons of the API server for the statuses that plans use.
var reasons = map[int]string{
	http.StatusConflict:            "Conflict",
	http.StatusForbidden:           "Forbidden",
	http.StatusTooManyRequests:     "TooManyRequests",
	http.StatusInternalServerError: "InternalError",
	http.StatusServiceUnavailable:  "ServiceUnavailable",
	http.StatusGatewayTimeout:      "Timeout",
	http.StatusGone:                "Expired",
}
