package fakecloud

import (
	"slices"
	"strings"
	"time"
)

// Effect is the effect of a request.
type Effect string

// The effects.
const (
	Created  Effect = "created"
	Updated  Effect = "updated"
	NoChange Effect = "no change"
	Deleted  Effect = "deleted"
	Refused  Effect = "refused"
	// Failed: the creation failed later.
	Failed Effect = "failed"
)

// Callers of changes without a request.
const (
	// WhoCloud makes the changes of the cloud itself: failed creations and new key versions.
	WhoCloud = "cloud"
	// WhoMeddler makes the changes of the admin API, and of the methods of the same names.
	WhoMeddler = "meddler"
)

// Entry is an entry of the ledger.
type Entry struct {
	Sequence        int       `json:"sequence"`
	Time            time.Time `json:"time"`
	Who             string    `json:"who"`
	Method          string    `json:"method,omitempty"`
	Resource        string    `json:"resource"`
	RequestID       string    `json:"requestId,omitempty"`
	ClientRequestID string    `json:"clientRequestId,omitempty"`
	CorrelationID   string    `json:"correlationId,omitempty"`
	// Status is the HTTP status of the response; zero if the response was lost.
	Status int `json:"status,omitempty"`
	// Code is the error code.
	Code   string `json:"code,omitempty"`
	Effect Effect `json:"effect"`
	// Lost is true if the response was lost after the request took effect.
	Lost bool `json:"lost,omitempty"`
	// EarlyRetry is true if the caller had been told to wait longer.
	EarlyRetry bool   `json:"earlyRetry,omitempty"`
	Detail     string `json:"detail,omitempty"`
	// Key is the key source or key of the account after the request.
	Key string `json:"key,omitempty"`
	// Principal is the principal of a grant.
	Principal string `json:"principal,omitempty"`
}

// Count counts the requests of a caller to a resource.
type Count struct {
	Reads  int `json:"reads"`
	Writes int `json:"writes"`
	// Throttled counts the responses with status 429.
	Throttled int `json:"throttled"`
	// EarlyRetries counts the requests that came before the Retry-After of an earlier 429.
	EarlyRetries int `json:"earlyRetries"`
	// Errors counts the error responses other than 404 and 429.
	Errors int `json:"errors"`
}

// Calls returns the number of requests.
func (c Count) Calls() int { return c.Reads + c.Writes }

func (c *Count) add(other Count) {
	c.Reads += other.Reads
	c.Writes += other.Writes
	c.Throttled += other.Throttled
	c.EarlyRetries += other.EarlyRetries
	c.Errors += other.Errors
}

// counts is by resource in lower case, and then by caller.
type counts map[string]map[string]*Count

func newCounts() counts { return counts{} }

func (c counts) of(resource, who string) *Count {
	resource = strings.ToLower(resource)
	if c[resource] == nil {
		c[resource] = map[string]*Count{}
	}
	if c[resource][who] == nil {
		c[resource][who] = &Count{}
	}
	return c[resource][who]
}

func (s *Server) record(entry Entry) {
	entry.Sequence = len(s.state.Ledger) + 1
	entry.Time = s.clock.Now()
	s.state.Ledger = append(s.state.Ledger, entry)
	s.changed()
}

// Ledger returns all write requests, oldest first.
func (s *Server) Ledger() []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle(s.clock.Now())
	return slices.Clone(s.state.Ledger)
}

// Effects returns the entries with an effect, for resources whose ID contains part.
func (s *Server) Effects(effect Effect, part string) []Entry {
	return slices.DeleteFunc(s.Ledger(), func(e Entry) bool {
		return e.Effect != effect || !strings.Contains(strings.ToLower(e.Resource), strings.ToLower(part))
	})
}

// Created returns how often callers created resources whose ID contains part.
func (s *Server) Created(part string) int {
	return len(slices.DeleteFunc(s.Effects(Created, part), func(e Entry) bool { return e.Who == WhoMeddler }))
}

// Counts sums the requests to resources whose ID contains part, by caller.
func (s *Server) Counts(part string) map[string]Count {
	s.mu.Lock()
	defer s.mu.Unlock()
	sums := map[string]Count{}
	for resource, callers := range s.state.Counts {
		if !strings.Contains(resource, strings.ToLower(part)) {
			continue
		}
		for who, count := range callers {
			sum := sums[who]
			sum.add(*count)
			sums[who] = sum
		}
	}
	return sums
}

// Total sums the requests to resources whose ID contains part, of all callers.
func (s *Server) Total(part string) Count {
	var total Count
	for _, count := range s.Counts(part) {
		total.add(count)
	}
	return total
}

// ResetCounts resets the counts; the ledger stays.
func (s *Server) ResetCounts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Counts = newCounts()
	s.changed()
}

// KeyAt returns the key source or key of an account at a time, from the ledger; empty if the account did
// not exist.
func (s *Server) KeyAt(account string, at time.Time) string {
	key := ""
	for _, entry := range s.Ledger() {
		if entry.Time.After(at) {
			break
		}
		if !strings.HasSuffix(strings.ToLower(entry.Resource), "/storageaccounts/"+strings.ToLower(account)) {
			continue
		}
		switch entry.Effect {
		case Created, Updated, NoChange:
			key = entry.Key
		case Deleted, Failed:
			key = ""
		}
	}
	return key
}
