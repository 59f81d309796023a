package fakecloud

import (
	"slices"
	"strings"
	"time"
)

// Effect is what a call did to the world.
type Effect string

// The effects.
const (
	Created  Effect = "created"
	Updated  Effect = "updated"
	NoChange Effect = "no change"
	Deleted  Effect = "deleted"
	Refused  Effect = "refused"
	// Failed is what happened to something that was created and did not succeed.
	Failed Effect = "failed"
)

// Who changes things without a call.
const (
	// WhoCloud does what takes its time: it fails creations late and follows new key versions.
	WhoCloud = "cloud"
	// WhoMeddler is whoever used the admin API, or the methods of the same names.
	WhoMeddler = "meddler"
)

// Entry is a line of the ledger.
type Entry struct {
	Sequence        int       `json:"sequence"`
	Time            time.Time `json:"time"`
	Who             string    `json:"who"`
	Method          string    `json:"method,omitempty"`
	Resource        string    `json:"resource"`
	RequestID       string    `json:"requestId,omitempty"`
	ClientRequestID string    `json:"clientRequestId,omitempty"`
	CorrelationID   string    `json:"correlationId,omitempty"`
	// Status is what the caller was told, and zero if the answer was lost.
	Status int `json:"status,omitempty"`
	// Code is the error's.
	Code   string `json:"code,omitempty"`
	Effect Effect `json:"effect"`
	// Lost says that the caller did not hear of the effect.
	Lost bool `json:"lost,omitempty"`
	// EarlyRetry says that the caller had been told to wait longer.
	EarlyRetry bool   `json:"earlyRetry,omitempty"`
	Detail     string `json:"detail,omitempty"`
	// Key is the key source or key that the account is encrypted with afterwards.
	Key string `json:"key,omitempty"`
	// Principal is whom a grant is for.
	Principal string `json:"principal,omitempty"`
}

// Count is how often a caller did what to a resource.
type Count struct {
	Reads  int `json:"reads"`
	Writes int `json:"writes"`
	// Throttled is how many of them were answered 429.
	Throttled int `json:"throttled"`
	// EarlyRetries is how many came before the time that an earlier 429 had told.
	EarlyRetries int `json:"earlyRetries"`
	// Errors is how many were answered by another error than 404 and 429.
	Errors int `json:"errors"`
}

// Calls is how many there were in all.
func (c Count) Calls() int { return c.Reads + c.Writes }

func (c *Count) add(other Count) {
	c.Reads += other.Reads
	c.Writes += other.Writes
	c.Throttled += other.Throttled
	c.EarlyRetries += other.EarlyRetries
	c.Errors += other.Errors
}

// counts is by resource, in lower case, and then by who.
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

// Ledger returns every call that could have changed something, oldest first.
func (s *Server) Ledger() []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle(s.clock.Now())
	return slices.Clone(s.state.Ledger)
}

// Effects returns the entries of an effect on resources whose id contains part.
func (s *Server) Effects(effect Effect, part string) []Entry {
	return slices.DeleteFunc(s.Ledger(), func(e Entry) bool {
		return e.Effect != effect || !strings.Contains(strings.ToLower(e.Resource), strings.ToLower(part))
	})
}

// Created says how often resources whose id contains part were created by a caller.
func (s *Server) Created(part string) int {
	return len(slices.DeleteFunc(s.Effects(Created, part), func(e Entry) bool { return e.Who == WhoMeddler }))
}

// Counts sums the calls to resources whose id contains part, by who made them.
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

// Total sums the calls to resources whose id contains part, whoever made them.
func (s *Server) Total(part string) Count {
	var total Count
	for _, count := range s.Counts(part) {
		total.add(count)
	}
	return total
}

// ResetCounts starts counting anew; the ledger stays.
func (s *Server) ResetCounts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Counts = newCounts()
	s.changed()
}

// KeyAt says which key source or key an account was encrypted with at an instant, as
// the ledger has it; empty means that the account was not there.
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
