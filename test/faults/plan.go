package faults

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Plan decides which faults to inject into the calls of an environment's managers.
type Plan interface {
	// Decide is called before each call is sent. It can be called concurrently.
	Decide(call Call) Fault
}

// PlanFunc adapts a function to a [Plan].
type PlanFunc func(call Call) Fault

// Decide implements [Plan].
func (f PlanFunc) Decide(call Call) Fault { return f(call) }

// Fault is what happens to one call. The zero value changes nothing.
type Fault struct {
	// Crash crashes the manager at this call.
	Crash CrashMode
	// Status, if not 0, replaces the status of the response.
	Status int
	// Reason is the reason of the API server's Status, or the error code of the cloud.
	Reason, Message string
	// RetryAfter is the Retry-After header of the response.
	RetryAfter time.Duration
	// Landed sends the call before its response is replaced or dropped.
	Landed bool
	// Lost drops the response: the connection is reset, after the call took effect if Landed is set.
	Lost bool
	// Before runs before the call is sent.
	Before func()
}

// IsNone reports whether the call proceeds without a fault.
func (f Fault) IsNone() bool {
	return f.Crash == NoCrash && f.Status == 0 && !f.Lost && f.Before == nil
}

// CrashMode says when the manager crashes.
type CrashMode string

// The manager crashes before it sends the call, after the call took effect but before the response
// arrives, or right after the response.
const (
	NoCrash     CrashMode = ""
	CrashBefore CrashMode = "before"
	CrashLost   CrashMode = "lost"
	CrashAfter  CrashMode = "after"
)

// CrashModes lists all modes.
var CrashModes = []CrashMode{CrashBefore, CrashLost, CrashAfter}

// CrashAt is a plan that crashes managers at mutating calls. The first step counts from the first call,
// each further step from the previous crash.
type CrashAt struct {
	mu    sync.Mutex
	seen  int
	steps []CrashStep
	// hit holds the calls at which managers crashed.
	hit []Call
}

// CrashStep crashes the manager at the Call-th mutating call.
type CrashStep struct {
	Call int
	Mode CrashMode
}

// String returns, for example, "7/lost".
func (s CrashStep) String() string { return fmt.Sprintf("%d/%s", s.Call, s.Mode) }

// NewCrashAt returns the plan.
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

// Hits returns the calls at which managers have crashed so far.
func (p *CrashAt) Hits() []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Call(nil), p.hit...)
}

// Left returns the number of crashes that have not occurred yet.
func (p *CrashAt) Left() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.steps)
}

// reasons maps the statuses that plans use to the reasons of the API server.
var reasons = map[int]string{
	http.StatusConflict:            "Conflict",
	http.StatusForbidden:           "Forbidden",
	http.StatusTooManyRequests:     "TooManyRequests",
	http.StatusInternalServerError: "InternalError",
	http.StatusServiceUnavailable:  "ServiceUnavailable",
	http.StatusGatewayTimeout:      "Timeout",
	http.StatusGone:                "Expired",
}
