package fakecloud

import (
	"net/http"
	"slices"
	"strings"
)

// unlocked rejects requests that a lock on the resource or a parent forbids.
func (s *Server) unlocked(c *call) *Error {
	// A lock against writes also forbids to list the keys of an account, with which its data can be written.
	isListOfKeys := c.method == http.MethodPost && c.path.kind() == "microsoft.storage/storageaccounts/listkeys"
	if c.method != http.MethodDelete && c.method != http.MethodPut && c.method != http.MethodPatch && !isListOfKeys {
		return nil
	}
	if c.path.kind() == strings.ToLower(lockKind) {
		return nil
	}
	operation := "write"
	if c.method == http.MethodDelete {
		operation = "delete"
	}
	var scopes []string
	for _, id := range sortedKeys(s.state.Locks) {
		if lock := s.state.Locks[id]; within(c.path.id(), lock.Scope) && (operation == "delete" || lock.Level == "ReadOnly") {
			scopes = append(scopes, lock.Scope)
		}
	}
	if len(scopes) == 0 {
		return nil
	}
	return conflict("ScopeLocked", "The scope '%s' cannot perform %s operation because following scope(s) are locked: '%s'. Please remove the lock and try again.", c.path.id(), operation, strings.Join(slices.Compact(scopes), ","))
}

func (s *Server) lockAt(c *call) *Lock { return s.state.Locks[strings.ToLower(c.path.id())] }

func (s *Server) getLock(c *call) reply {
	lock := s.lockAt(c)
	if lock == nil {
		return refused(notFound("LockNotFound", "The lock '%s' could not be found.", c.path.name(0)))
	}
	return ok(lock.render())
}

func (s *Server) listLocks(c *call) reply {
	var items []any
	for _, id := range sortedKeys(s.state.Locks) {
		if lock := s.state.Locks[id]; within(lock.Scope, c.path.scope) || within(c.path.scope, lock.Scope) {
			items = append(items, lock.render())
		}
	}
	return s.list(c, items)
}

func (s *Server) putLock(c *call) reply {
	var request struct {
		Properties *struct {
			Level *string `json:"level"`
			Notes *string `json:"notes"`
		} `json:"properties"`
	}
	if err := c.decode(&request); err != nil {
		return refused(err)
	}
	if request.Properties == nil || request.Properties.Level == nil || !slices.Contains([]string{"CanNotDelete", "ReadOnly"}, *request.Properties.Level) {
		return refused(badRequest("InvalidLockLevel", "The lock level is not one of CanNotDelete and ReadOnly."))
	}
	if err := s.scopeExists(c); err != nil {
		return refused(err)
	}
	status, effect := http.StatusCreated, Created
	if s.lockAt(c) != nil {
		status, effect = http.StatusOK, Updated
	}
	lock := s.addLock(c.path.scope, c.path.name(0), *request.Properties.Level)
	if request.Properties.Notes != nil {
		lock.Notes = *request.Properties.Notes
	}
	c.did(effect, "")
	return reply{status: status, body: lock.render()}
}

func (s *Server) addLock(scope, name, level string) *Lock {
	lock := &Lock{Name: name, Scope: scope, Level: level}
	s.state.Locks[strings.ToLower(lock.ID())] = lock
	s.changed()
	return lock
}

func (s *Server) deleteLock(c *call) reply {
	if s.lockAt(c) == nil {
		c.did(NoChange, "it was not there")
		return reply{status: http.StatusNoContent}
	}
	delete(s.state.Locks, strings.ToLower(c.path.id()))
	s.changed()
	c.did(Deleted, "")
	return reply{status: http.StatusOK}
}

func (l *Lock) render() map[string]any {
	return map[string]any{
		"id": l.ID(), "name": l.Name, "type": lockKind,
		"properties": map[string]any{"level": l.Level, "notes": l.Notes},
	}
}
