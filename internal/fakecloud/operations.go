package fakecloud

import (
	"net/http"
	"strings"
)

// accepted is the response to a request that starts a long-running operation.
func (s *Server) accepted(c *call, op *Operation) reply {
	address := c.base + "/subscriptions/" + c.path.subscription + "/providers/" + c.path.provider + "/locations/" + op.Location + "/asyncoperations/" + op.ID + "?api-version=" + c.version
	r := reply{status: http.StatusAccepted}.with("Location", address+"&monitor=true")
	if s.knobs.AsyncOperation {
		r = r.with("Azure-AsyncOperation", address)
	}
	return s.askLater(c, r)
}

func (s *Server) askLater(c *call, r reply) reply {
	wait := s.wait(s.knobs.PollInterval, "poll interval", c.path.id())
	if wait <= 0 {
		return r
	}
	header := http.Header{}
	header.Set("Retry-After", seconds(wait))
	if s.knobs.MillisecondHints {
		header.Set("x-ms-retry-after-ms", milliseconds(wait))
	}
	for key := range header {
		r = r.with(key, header.Get(key))
	}
	return r
}

// getOperation serves both polling URLs: with monitor=true (Location) it returns the result of the operation,
// without it the status.
func (s *Server) getOperation(c *call) reply {
	op := s.state.Operations[c.path.name(1)]
	if op == nil {
		return refused(notFound("ResourceNotFound", "The operation '%s' was not found.", c.path.name(1)))
	}
	c.subject = op.Resource
	status := op.Status(c.now)
	if len(c.query["monitor"]) == 0 {
		return s.operationStatus(c, op, status)
	}
	switch status {
	case "InProgress":
		return s.askLater(c, reply{status: http.StatusAccepted}.with("Location", c.base+c.path.id()+"?api-version="+c.version+"&monitor=true"))
	case "Failed":
		return refused(conflict(op.Code, "%s", op.Message))
	}
	return s.operationResult(c, op)
}

func (s *Server) operationStatus(c *call, op *Operation, status string) reply {
	body := map[string]any{"id": c.path.id(), "name": op.ID, "status": status, "startTime": instant(op.StartedAt)}
	if status == "InProgress" {
		return s.askLater(c, ok(body))
	}
	body["endTime"] = instant(op.EndsAt)
	if status == "Failed" {
		body["error"] = map[string]any{"code": op.Code, "message": op.Message}
	}
	return ok(body)
}

func (s *Server) operationResult(c *call, op *Operation) reply {
	if op.Kind != "create" {
		return reply{status: http.StatusOK}
	}
	p := parsePath(op.Resource)
	a := s.accountNamed(p.name(0), c.now)
	if a == nil || !strings.EqualFold(a.ID(), op.Resource) {
		return refused(resourceNotFound(accountKind, p.name(0), p.group))
	}
	return ok(s.renderAccount(c, a))
}
