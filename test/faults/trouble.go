package faults

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Failure is a way in which a call fails.
type Failure struct {
	// Name tells it from others, such as 503.
	Name  string
	fault Fault
	// meets says which calls can fail so.
	meets func(Call) bool
}

func writes(c Call) bool      { return c.Mutates() && !c.Cloud }
func anyOfServer(c Call) bool { return !c.Cloud && !c.Cached }
func opensWatch(c Call) bool  { return c.Verb == "watch" }
func anyOfCloud(c Call) bool  { return c.Cloud }
func cloudWrites(c Call) bool { return c.Cloud && c.Mutates() }
func ofServerAll(c Call) bool { return !c.Cloud }
func ofManaged(c Call) bool   { return writes(c) && c.Subresource != "status" }
func ofAccounts(c Call) bool  { return cloudWrites(c) && c.Class() != "cloud PUT roleassignments" }

// Failures are all ways in which calls to the API server and to the cloud fail.
var Failures = []Failure{
	{"409", Fault{Status: http.StatusConflict, Message: "Operation cannot be fulfilled: the object has been modified"}, writes},
	{"429", Fault{Status: http.StatusTooManyRequests, RetryAfter: time.Second}, ofServerAll},
	{"500", Fault{Status: http.StatusInternalServerError}, ofServerAll},
	{"503", Fault{Status: http.StatusServiceUnavailable}, ofServerAll},
	{"504", Fault{Status: http.StatusGatewayTimeout}, anyOfServer},
	{"504-landed", Fault{Status: http.StatusGatewayTimeout, Landed: true}, writes},
	{"lost", Fault{Lost: true}, ofServerAll},
	{"lost-landed", Fault{Lost: true, Landed: true}, writes},
	{"denied", Fault{Status: http.StatusForbidden, Message: `admission webhook "policy.example.com" denied the request: not today`}, ofManaged},
	{"webhook-timeout", Fault{
		Status: http.StatusInternalServerError, Reason: "InternalError",
		Message: `Internal error occurred: failed calling webhook "policy.example.com": failed to call webhook: Post "https://policy.default.svc:443/?timeout=10s": context deadline exceeded`,
	}, ofManaged},
	{"410", Fault{Status: http.StatusGone}, opensWatch},

	{"cloud-409", Fault{Status: http.StatusConflict, Reason: "StorageAccountOperationInProgress"}, ofAccounts},
	{"cloud-429", Fault{Status: http.StatusTooManyRequests, Reason: "TooManyRequests", RetryAfter: time.Second}, anyOfCloud},
	{"cloud-401", Fault{Status: http.StatusUnauthorized, Reason: "InvalidAuthenticationToken"}, anyOfCloud},
	{"cloud-403", Fault{Status: http.StatusForbidden, Reason: "AuthorizationFailed"}, anyOfCloud},
	{"cloud-500", Fault{Status: http.StatusInternalServerError, Reason: "InternalServerError"}, anyOfCloud},
	{"cloud-500-landed", Fault{Status: http.StatusInternalServerError, Reason: "InternalServerError", Landed: true}, cloudWrites},
	{"cloud-503", Fault{Status: http.StatusServiceUnavailable, Reason: "ServerTimeout"}, anyOfCloud},
	{"cloud-504-landed", Fault{Status: http.StatusGatewayTimeout, Reason: "GatewayTimeout", Landed: true}, cloudWrites},
	{"cloud-lost", Fault{Lost: true}, anyOfCloud},
	{"cloud-lost-landed", Fault{Lost: true, Landed: true}, cloudWrites},
}

// Trouble is a sort of call that fails in a way, once or for a while from the first such call on.
type Trouble struct {
	// Class is that of [Call.Class].
	Class   string
	Failure Failure
	// For is how long it lasts; 0 is for one call.
	For time.Duration
}

// String is such as "apply-deployments:503:1s".
func (t Trouble) String() string {
	lasts := "once"
	if t.For > 0 {
		lasts = t.For.String()
	}
	return fmt.Sprintf("%s:%s:%s", t.Class, t.Failure.Name, lasts)
}

// Troubles are all of a baseline: each sort of call that it makes, with each failure that it can meet,
// once and for a while.
func (b *Baseline) Troubles() []Trouble {
	var troubles []Trouble
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
		for _, failure := range Failures {
			if failure.meets(call) {
				troubles = append(troubles, Trouble{class, failure, 0}, Trouble{class, failure, time.Second})
			}
		}
	}
	return troubles
}

// Troubled is the disturbance by a trouble. The second result is how often it was met.
func Troubled(t Trouble) (Disturbance, func() int) {
	p := &troublePlan{trouble: t}
	d := Disturbance{Name: t.String(), Plan: p, Over: p.isOver, Crashes: p.hits}
	if verb := t.Class; len(verb) > 5 && (verb[:5] == "list " || verb[:6] == "watch ") {
		// Caches are filled at the start.
		d.Begin = func(_ *World, m *Manager) error {
			m.Crash()
			return nil
		}
	}
	return d, p.met
}

type troublePlan struct {
	trouble Trouble

	mu    sync.Mutex
	count int
	since time.Time
	hit   []Call
}

// Decide implements [Plan].
func (p *troublePlan) Decide(call Call) Fault {
	if call.Class() != p.trouble.Class || !p.trouble.Failure.meets(call) {
		return Fault{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count == 0 {
		p.since = time.Now()
	}
	if p.count > 0 && time.Since(p.since) >= p.trouble.For {
		return Fault{}
	}
	p.count++
	p.hit = append(p.hit, call)
	return p.trouble.Failure.fault
}

// hits are the calls that failed.
func (p *troublePlan) hits() []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.hit)
}

func (p *troublePlan) met() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

// isOver: what has not begun may never begin.
func (p *troublePlan) isOver() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count == 0 || time.Since(p.since) >= p.trouble.For
}

// CutStreams is the disturbance of a manager whose watches of a resource break again and again, for as
// long as what the user does lasts, but a second at most.
func CutStreams(resource string, expired bool) Disturbance {
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
		Begin: func(_ *World, m *Manager) error {
			manager = m
			return nil
		},
		Meanwhile: func(context.Context, *World) error {
			ticker := time.NewTicker(each)
			defer ticker.Stop()
			end := time.After(during)
			for {
				select {
				case <-ticker.C:
					manager.Cut(resource, expired)
				case <-end:
					return nil
				}
			}
		},
	}
}
