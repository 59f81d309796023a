package fakecloud

import (
	"cmp"
	"net/http"
	"strings"
	"time"
)

// armed is a scripted failure and how many requests it has matched.
type armed struct {
	fault Fault
	seen  int
}

func (a *armed) left() Fault {
	left := a.fault
	passed := min(a.seen, a.fault.Skip)
	left.Skip -= passed
	left.Times -= a.seen - passed
	return left
}

func (a *armed) spent() bool { return a.seen >= a.fault.Skip+a.fault.Times }

func (a *armed) matches(c *call) bool {
	if a.fault.Method == "" && !c.mutates() || a.fault.Method != "" && !same(a.fault.Method, c.method) {
		return false
	}
	if a.fault.Who != "" && a.fault.Who != c.who.name {
		return false
	}
	return strings.Contains(strings.ToLower(c.path.id()), strings.ToLower(a.fault.Resource))
}

// Inject adds a scripted failure.
func (s *Server) Inject(fault Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arm(fault)
}

func (s *Server) arm(fault Fault) {
	fault.Times = cmp.Or(fault.Times, 1)
	s.faults = append(s.faults, &armed{fault: fault})
}

// faulted applies scripted failures.
func (s *Server) faulted(c *call) *Error {
	for i, a := range s.faults {
		if !a.matches(c) {
			continue
		}
		a.seen++
		if a.seen <= a.fault.Skip {
			return nil
		}
		if a.spent() {
			s.faults = append(s.faults[:i:i], s.faults[i+1:]...)
		}
		c.fault = &a.fault
		break
	}
	if c.fault == nil || c.fault.AfterEffect || c.fault.Lost || c.fault.FailLate {
		return nil
	}
	return c.fault.error()
}

func (f *Fault) error() *Error {
	e := refuse(f.Status, f.Code, "%s", f.Message)
	e.Status = cmp.Or(e.Status, http.StatusInternalServerError)
	e.Code = cmp.Or(e.Code, "InternalServerError")
	e.Message = cmp.Or(e.Message, "This failure was asked for.")
	e.RetryAfter = time.Duration(f.RetryAfter)
	return e
}

// stumbled returns random server errors before the request takes effect.
func (s *Server) stumbled(c *call) *Error {
	key := c.method + " " + c.path.id()
	if !s.chance.happens("server error", key, s.knobs.ServerErrors) {
		return nil
	}
	if s.chance.next("which server error", key) < 0.5 {
		return serverError()
	}
	return refuse(http.StatusServiceUnavailable, "ServerTimeout", "The request timed out. Please retry after a while.")
}

func serverError() *Error {
	return refuse(http.StatusInternalServerError, "InternalServerError", "The server encountered an internal error. Please retry the request.")
}

// mishap applies failures after the request took effect.
func (s *Server) mishap(c *call, r reply) reply {
	if c.fault != nil && c.fault.Lost {
		r.lost = true
	}
	if c.fault != nil && c.fault.AfterEffect && r.err == nil {
		return refused(c.fault.error())
	}
	if !c.mutates() || r.err != nil {
		return r
	}
	key := c.method + " " + c.path.id()
	if s.chance.happens("lost response", key, s.knobs.LostResponses) {
		r.lost = true
	}
	if s.chance.happens("error after effect", key, s.knobs.ErrorsAfterEffect) {
		lost := r.lost
		r = refused(serverError())
		r.lost = lost
	}
	return r
}
