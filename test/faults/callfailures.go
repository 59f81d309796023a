package faults

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// FailureMode is one way in which a call fails.
type FailureMode struct {
	// Name identifies the mode, such as 503.
	Name  string
	fault Fault
	// appliesTo reports whether a call can fail in this way.
	appliesTo func(Call) bool
}

func apiWrites(c Call) bool              { return c.Mutates() && !c.Cloud }
func apiUncachedCalls(c Call) bool       { return !c.Cloud && !c.Cached }
func apiWatches(c Call) bool             { return c.Verb == "watch" }
func cloudCalls(c Call) bool             { return c.Cloud }
func cloudWrites(c Call) bool            { return c.Cloud && c.Mutates() }
func apiCalls(c Call) bool               { return !c.Cloud }
func apiWritesWithoutStatus(c Call) bool { return apiWrites(c) && c.Subresource != "status" }
func cloudWritesWithoutGrants(c Call) bool {
	return cloudWrites(c) && c.Class() != "cloud PUT roleassignments"
}

// FailureModes lists all ways in which calls to the API server and to the cloud fail.
var FailureModes = []FailureMode{
	{"409", Fault{Status: http.StatusConflict, Message: "Operation cannot be fulfilled: the object has been modified"}, apiWrites},
	{"429", Fault{Status: http.StatusTooManyRequests, RetryAfter: time.Second}, apiCalls},
	{"500", Fault{Status: http.StatusInternalServerError}, apiCalls},
	{"503", Fault{Status: http.StatusServiceUnavailable}, apiCalls},
	{"504", Fault{Status: http.StatusGatewayTimeout}, apiUncachedCalls},
	{"504-landed", Fault{Status: http.StatusGatewayTimeout, Landed: true}, apiWrites},
	{"lost", Fault{Lost: true}, apiCalls},
	{"lost-landed", Fault{Lost: true, Landed: true}, apiWrites},
	{"denied", Fault{Status: http.StatusForbidden, Message: `admission webhook "policy.example.com" denied the request: not today`}, apiWritesWithoutStatus},
	{"webhook-timeout", Fault{
		Status: http.StatusInternalServerError, Reason: "InternalError",
		Message: `Internal error occurred: failed calling webhook "policy.example.com": failed to call webhook: Post "https://policy.default.svc:443/?timeout=10s": context deadline exceeded`,
	}, apiWritesWithoutStatus},
	{"410", Fault{Status: http.StatusGone}, apiWatches},

	{"cloud-409", Fault{Status: http.StatusConflict, Reason: "StorageAccountOperationInProgress"}, cloudWritesWithoutGrants},
	{"cloud-429", Fault{Status: http.StatusTooManyRequests, Reason: "TooManyRequests", RetryAfter: time.Second}, cloudCalls},
	{"cloud-401", Fault{Status: http.StatusUnauthorized, Reason: "InvalidAuthenticationToken"}, cloudCalls},
	{"cloud-403", Fault{Status: http.StatusForbidden, Reason: "AuthorizationFailed"}, cloudCalls},
	{"cloud-500", Fault{Status: http.StatusInternalServerError, Reason: "InternalServerError"}, cloudCalls},
	{"cloud-500-landed", Fault{Status: http.StatusInternalServerError, Reason: "InternalServerError", Landed: true}, cloudWrites},
	{"cloud-503", Fault{Status: http.StatusServiceUnavailable, Reason: "ServerTimeout"}, cloudCalls},
	{"cloud-504-landed", Fault{Status: http.StatusGatewayTimeout, Reason: "GatewayTimeout", Landed: true}, cloudWrites},
	{"cloud-lost", Fault{Lost: true}, cloudCalls},
	{"cloud-lost-landed", Fault{Lost: true, Landed: true}, cloudWrites},
}

// CallFailure is a failure of calls of one class in one mode.
type CallFailure struct {
	// Class is a value of [Call.Class].
	Class string
	Mode  FailureMode
	// For is the duration from the first matching call on; 0 means that one call fails.
	For time.Duration
}

// String returns, for example, "apply deployments:503:1s".
func (t CallFailure) String() string {
	lasts := "once"
	if t.For > 0 {
		lasts = t.For.String()
	}
	return fmt.Sprintf("%s:%s:%s", t.Class, t.Mode.Name, lasts)
}

// CallFailures lists, for each class of calls in the baseline and each mode that applies to it, a single
// failure and one that lasts for a second.
func (b *Baseline) CallFailures() []CallFailure {
	var failures []CallFailure
	seen := map[string]bool{}
	calls := slices.Clone(b.Calls)
	for _, resource := range b.Caches {
		calls = append(calls, Call{Verb: "list", Resource: resource, Cached: true}, Call{Verb: "watch", Resource: resource, Cached: true})
	}
	for _, call := range calls {
		class := call.Class()
		if seen[class] {
			continue
		}
		seen[class] = true
		for _, failure := range FailureModes {
			if failure.appliesTo(call) {
				failures = append(failures, CallFailure{class, failure, 0}, CallFailure{class, failure, time.Second})
			}
		}
	}
	return failures
}

// FailingCalls returns the disturbance that injects a call failure, and a function that counts the
// calls that failed.
func FailingCalls(t CallFailure) (Disturbance, func() int) {
	p := &callFailurePlan{failure: t}
	d := Disturbance{Name: t.String(), Plan: p, Over: p.isOver, Crashes: p.hits, KeepEvents: strings.HasSuffix(t.Class, " events")}
	if verb := t.Class; len(verb) > 5 && (verb[:5] == "list " || verb[:6] == "watch ") {
		// Caches are filled when a manager starts.
		d.Begin = func(_ *Environment, m *Manager) error {
			m.Crash()
			return nil
		}
	}
	return d, p.met
}

type callFailurePlan struct {
	failure CallFailure

	mu    sync.Mutex
	count int
	since time.Time
	hit   []Call
}

// Decide implements [Plan].
func (p *callFailurePlan) Decide(call Call) Fault {
	if call.Class() != p.failure.Class || !p.failure.Mode.appliesTo(call) {
		return Fault{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count == 0 {
		p.since = time.Now()
	}
	if p.count > 0 && time.Since(p.since) >= p.failure.For {
		return Fault{}
	}
	p.count++
	p.hit = append(p.hit, call)
	return p.failure.Mode.fault
}

// hits returns the calls that failed.
func (p *callFailurePlan) hits() []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.hit)
}

func (p *callFailurePlan) met() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

// isOver also reports true if no call has failed yet: there may never be one.
func (p *callFailurePlan) isOver() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count == 0 || time.Since(p.since) >= p.failure.For
}

// CutWatches returns the disturbance that repeatedly breaks the manager's watches of a resource for one
// second.
func CutWatches(resource string, expired bool) Disturbance {
	const (
		during = time.Second
		each   = 60 * time.Millisecond
	)
	var manager *Manager
	name := "cut-" + resource
	if expired {
		name = "expired-" + resource
	}
	return Disturbance{
		Name: name,
		Begin: func(_ *Environment, m *Manager) error {
			manager = m
			return nil
		},
		Meanwhile: func(context.Context, *Environment) error {
			ticker := time.NewTicker(each)
			defer ticker.Stop()
			end := time.After(during)
			for {
				select {
				case <-ticker.C:
					manager.CutWatch(resource, expired)
				case <-end:
					return nil
				}
			}
		},
	}
}
