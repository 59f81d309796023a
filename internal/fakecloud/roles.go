package fakecloud

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// role is a built-in role definition.
type role struct {
	name        string
	actions     []string
	dataActions []string
	// wraps says whether the role permits using a key for encryption.
	wraps bool
}

var builtInRoles = map[string]role{
	CryptoServiceEncryptionUser: {name: "Key Vault Crypto Service Encryption User", wraps: true,
		actions:     []string{"Microsoft.EventGrid/eventSubscriptions/write", "Microsoft.EventGrid/eventSubscriptions/read", "Microsoft.EventGrid/eventSubscriptions/delete"},
		dataActions: []string{"Microsoft.KeyVault/vaults/keys/read", "Microsoft.KeyVault/vaults/keys/wrap/action", "Microsoft.KeyVault/vaults/keys/unwrap/action"}},
	"14b46e9e-c2b7-41b4-b07b-48a6ebf60603": {name: "Key Vault Crypto Officer", wraps: true, dataActions: []string{"Microsoft.KeyVault/vaults/keys/*", "Microsoft.KeyVault/vaults/keyrotationpolicies/*"}},
	"12338af0-0e69-4776-bea7-57ae8d297424": {name: "Key Vault Crypto User", wraps: true, dataActions: []string{"Microsoft.KeyVault/vaults/keys/read", "Microsoft.KeyVault/vaults/keys/update/action", "Microsoft.KeyVault/vaults/keys/wrap/action", "Microsoft.KeyVault/vaults/keys/unwrap/action"}},
	"00482a5a-887f-4fb3-b363-3b7fe8e74483": {name: "Key Vault Administrator", wraps: true, dataActions: []string{"Microsoft.KeyVault/vaults/*"}},
	"21090545-7ca7-4776-b22c-e363652d74d2": {name: "Key Vault Reader", dataActions: []string{"Microsoft.KeyVault/vaults/*/read"}},
	"8e3af657-a8ff-443c-a75c-2fe8c4bcb635": {name: "Owner", actions: []string{"*"}},
	"b24988ac-6180-42a0-ab88-20f7382dd24c": {name: "Contributor", actions: []string{"*"}},
	"acdd72a7-3385-48ef-bd42-f606fba81ae7": {name: "Reader", actions: []string{"*/read"}},
}

var guidForm = regexp.MustCompile(`^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$`)

type assignmentRequest struct {
	Properties *struct {
		RoleDefinitionID *string `json:"roleDefinitionId"`
		PrincipalID      *string `json:"principalId"`
		PrincipalType    *string `json:"principalType"`
		Description      *string `json:"description"`
	} `json:"properties"`
}

// roleOf returns the UUID at the end of a role definition ID.
func roleOf(definition string) string {
	return strings.ToLower(definition[strings.LastIndex(definition, "/")+1:])
}

func (s *Server) liveAssignment(id string) *Assignment {
	a := s.state.Assignments[strings.ToLower(id)]
	if a == nil || a.DeletedAt != nil {
		return nil
	}
	return a
}

func assignmentNotFound(name string) *Error {
	return notFound("RoleAssignmentNotFound", "The role assignment '%s' is not found.", name)
}

func (s *Server) getAssignment(c *call) reply {
	a := s.liveAssignment(c.path.id())
	if a == nil || c.now.Before(a.VisibleAt) {
		return refused(assignmentNotFound(c.path.name(0)))
	}
	return ok(a.render())
}

func (s *Server) putAssignment(c *call) reply {
	var request assignmentRequest
	if err := c.decode(&request); err != nil {
		return refused(err)
	}
	if err := s.validAssignment(c, request); err != nil {
		return refused(err)
	}
	p := request.Properties
	c.principal = *p.PrincipalID
	if existing := s.liveAssignment(c.path.id()); existing != nil {
		return s.repeatAssignment(c, existing, request)
	}
	if twin := s.twin(c.path.scope, *p.PrincipalID, *p.RoleDefinitionID); twin != nil {
		return refused(conflict("RoleAssignmentExists", "The role assignment already exists. The ID of the existing role assignment is %s.", strings.ReplaceAll(twin.Name, "-", "")))
	}
	if err := s.knownPrincipal(c, request); err != nil {
		return refused(err)
	}
	a := &Assignment{
		Name: strings.ToLower(c.path.name(0)), Scope: c.path.scope, RoleDefinitionID: *p.RoleDefinitionID, PrincipalID: *p.PrincipalID,
		PrincipalType: "ServicePrincipal", CreatedBy: c.who.objectID, CreatedAt: c.now,
	}
	if p.PrincipalType != nil {
		a.PrincipalType = *p.PrincipalType
	}
	if p.Description != nil {
		a.Description = *p.Description
	}
	s.grant(a, c.now)
	c.did(Created, "")
	return reply{status: http.StatusCreated, body: a.render()}
}

// grant creates an assignment; the key vault honors it later.
func (s *Server) grant(a *Assignment, now time.Time) {
	luck := a.Scope + " " + a.PrincipalID
	a.VisibleAt = s.later(now, s.knobs.ReadAfterWrite, "read after write", luck)
	a.EffectiveAt = s.later(now, s.knobs.GrantDelay, "grant", luck)
	s.state.Assignments[strings.ToLower(a.ID())] = a
	s.indexGrant(a)
	s.changed()
}

func (s *Server) validAssignment(c *call, request assignmentRequest) *Error {
	p := request.Properties
	switch {
	case !guidForm.MatchString(c.path.name(0)):
		return badRequest("InvalidRoleAssignmentId", "The role assignment ID '%s' is not valid. The role assignment ID must be a GUID.", c.path.name(0))
	case p == nil || empty(p.RoleDefinitionID) || empty(p.PrincipalID):
		return badRequest("InvalidRequestContent", "The request content was invalid and could not be deserialized: 'principalId and roleDefinitionId are required'.")
	case !guidForm.MatchString(*p.PrincipalID):
		return badRequest("InvalidPrincipalId", "A valid principal ID must be provided for role assignment, '%s' is not one.", *p.PrincipalID)
	}
	if _, known := builtInRoles[roleOf(*p.RoleDefinitionID)]; !known {
		return badRequest("RoleDefinitionDoesNotExist", "The specified role definition with ID '%s' does not exist.", roleOf(*p.RoleDefinitionID))
	}
	return s.scopeExists(c)
}

// repeatAssignment serves a PUT of an existing assignment: the same content succeeds, other content is
// rejected.
func (s *Server) repeatAssignment(c *call, existing *Assignment, request assignmentRequest) reply {
	p := request.Properties
	if !same(existing.PrincipalID, *p.PrincipalID) || roleOf(existing.RoleDefinitionID) != roleOf(*p.RoleDefinitionID) {
		return refused(badRequest("RoleAssignmentUpdateNotPermitted", "Tenant ID, application ID, principal ID, and scope are not allowed to be updated."))
	}
	c.did(NoChange, "the same assignment")
	return ok(existing.render())
}

// knownPrincipal rejects a principal that has not replicated in the directory, unless the request states
// the type of the principal.
func (s *Server) knownPrincipal(c *call, request assignmentRequest) *Error {
	p := request.Properties
	principal := s.state.Principals[strings.ToLower(*p.PrincipalID)]
	if !empty(p.PrincipalType) {
		if principal != nil && !same(principal.Type, *p.PrincipalType) {
			return badRequest("UnmatchedPrincipalType", "The PrincipalId '%s' has type '%s', which is different from specified PrincipalType '%s'.", *p.PrincipalID, principal.Type, *p.PrincipalType)
		}
		return nil
	}
	if principal == nil || principal.gone(c.now) || c.now.Before(principal.KnownAt) {
		return badRequest("PrincipalNotFound", "Principal %s does not exist in the directory %s. Check that you have the correct principal ID. If you are creating this principal and then immediately assigning a role, this error might be related to a replication delay. In this case, set the role assignment principalType property to a value, such as ServicePrincipal, User, or Group. See https://aka.ms/docs-principaltype", strings.ReplaceAll(*p.PrincipalID, "-", ""), Tenant)
	}
	return nil
}

func (s *Server) deleteAssignment(c *call) reply {
	a := s.liveAssignment(c.path.id())
	if a == nil {
		c.did(NoChange, "it was not there")
		return reply{status: http.StatusNoContent}
	}
	c.principal = a.PrincipalID
	s.revoke(a, c.now)
	c.did(Deleted, "")
	return ok(a.render())
}

// revoke deletes an assignment; the key vault honors it for a while.
func (s *Server) revoke(a *Assignment, now time.Time) {
	end := now
	if !now.Before(a.EffectiveAt) {
		end = s.later(now, s.knobs.RevokeDelay, "revoke", a.Scope+" "+a.PrincipalID)
	}
	a.DeletedAt, a.EffectiveEnd = &now, &end
	s.changed()
}

// listAssignments supports the filters atScope(), principalId eq '...' and assignedTo('...').
func (s *Server) listAssignments(c *call) reply {
	filter := ""
	if values := c.query["$filter"]; len(values) > 0 {
		filter = values[0]
	}
	match, err := parseFilter(filter)
	if err != nil {
		return refused(err)
	}
	if err := s.scopeExists(c); err != nil {
		return refused(err)
	}
	assignments := s.state.Assignments
	if match.principal != "" {
		assignments = s.grants[strings.ToLower(match.principal)]
	}
	shown := map[string]*Assignment{}
	for id, a := range assignments {
		if a.DeletedAt != nil || c.now.Before(a.VisibleAt) {
			continue
		}
		if within(c.path.scope, a.Scope) || !match.atScope && within(a.Scope, c.path.scope) {
			shown[id] = a
		}
	}
	return s.list(c, values(shown, func(a *Assignment) any { return a.render() }))
}

type assignmentFilter struct {
	atScope   bool
	principal string
}

var (
	principalEquals = regexp.MustCompile(`(?i)^principalId\s+eq\s+'([^']*)'$`)
	assignedTo      = regexp.MustCompile(`(?i)^assignedTo\('([^']*)'\)$`)
)

// parseFilter refuses other filters, and principalId together with atScope(), as Azure does.
func parseFilter(text string) (assignmentFilter, *Error) {
	var filter assignmentFilter
	if text == "" {
		return filter, nil
	}
	unsupported := badRequest("UnsupportedQuery", "The filter '%s' is not supported. Supported filters are either 'atScope()' or 'principalId eq '{value}'' or 'assignedTo('{value}')'.", text)
	byPrincipal := false
	for _, clause := range regexp.MustCompile(`(?i)\s+and\s+`).Split(strings.TrimSpace(text), -1) {
		switch {
		case same(clause, "atScope()"):
			filter.atScope = true
		case principalEquals.MatchString(clause):
			filter.principal, byPrincipal = principalEquals.FindStringSubmatch(clause)[1], true
		case assignedTo.MatchString(clause):
			filter.principal = assignedTo.FindStringSubmatch(clause)[1]
		default:
			return filter, unsupported
		}
	}
	if filter.atScope && byPrincipal {
		return filter, unsupported
	}
	return filter, nil
}

// twin returns another assignment of the same role to the same principal on the same scope.
func (s *Server) twin(scope, principal, definition string) *Assignment {
	for _, a := range s.grants[strings.ToLower(principal)] {
		if a.DeletedAt == nil && same(a.Scope, scope) && roleOf(a.RoleDefinitionID) == roleOf(definition) {
			return a
		}
	}
	return nil
}

// granted says whether the key vault permits the principal to use the key.
func (s *Server) granted(principal string, v *Vault, key string, now time.Time) bool {
	if p := s.state.Principals[strings.ToLower(principal)]; p == nil || p.gone(now) {
		return false
	}
	if !v.RBAC {
		return v.admits(principal, now)
	}
	for _, a := range s.grants[strings.ToLower(principal)] {
		if a.effective(now) && within(v.ID()+"/keys/"+key, a.Scope) && builtInRoles[roleOf(a.RoleDefinitionID)].wraps {
			return true
		}
	}
	return false
}

func (a *Assignment) effective(now time.Time) bool {
	return !now.Before(a.EffectiveAt) && (a.EffectiveEnd == nil || now.Before(*a.EffectiveEnd))
}

// indexGrant adds an assignment to the index by principal.
func (s *Server) indexGrant(a *Assignment) {
	key := strings.ToLower(a.PrincipalID)
	if s.grants[key] == nil {
		s.grants[key] = map[string]*Assignment{}
	}
	s.grants[key][strings.ToLower(a.ID())] = a
}

func (a *Assignment) render() map[string]any {
	properties := map[string]any{
		"roleDefinitionId": a.RoleDefinitionID, "principalId": a.PrincipalID, "principalType": a.PrincipalType,
		"scope": a.Scope, "createdOn": instant(a.CreatedAt), "updatedOn": instant(a.CreatedAt),
		"createdBy": a.CreatedBy, "updatedBy": a.CreatedBy,
	}
	if a.Description != "" {
		properties["description"] = a.Description
	}
	return map[string]any{"id": a.ID(), "name": a.Name, "type": assignmentKind, "properties": properties}
}

func (s *Server) getRole(c *call) reply {
	definition, known := builtInRoles[strings.ToLower(c.path.name(0))]
	if !known {
		return refused(notFound("RoleDefinitionDoesNotExist", "The specified role definition with ID '%s' does not exist.", c.path.name(0)))
	}
	return ok(definition.render(c, c.path.name(0)))
}

var roleNameEquals = regexp.MustCompile(`(?i)^roleName\s+eq\s+'([^']*)'$`)

// listRoles supports the filters atScopeAndBelow() and roleName eq '...'.
func (s *Server) listRoles(c *call) reply {
	wanted, filter := "", url.Values(c.query).Get("$filter")
	switch match := roleNameEquals.FindStringSubmatch(filter); {
	case match != nil:
		wanted = match[1]
	case filter != "" && !same(filter, "atScopeAndBelow()"):
		return refused(badRequest("UnsupportedQuery", "The filter '%s' is not supported. Supported filters are either 'atScopeAndBelow()' or 'roleName eq '{value}''.", filter))
	}
	var items []any
	for _, id := range sortedKeys(builtInRoles) {
		if wanted != "" && !same(builtInRoles[id].name, wanted) {
			continue
		}
		items = append(items, builtInRoles[id].render(c, id))
	}
	return s.list(c, items)
}

func (r role) render(c *call, id string) map[string]any {
	return map[string]any{
		"id": "/subscriptions/" + c.path.subscription + "/providers/Microsoft.Authorization/roleDefinitions/" + id, "name": id, "type": "Microsoft.Authorization/roleDefinitions",
		"properties": map[string]any{
			"roleName": r.name, "type": "BuiltInRole", "description": r.name, "assignableScopes": []string{"/"},
			"permissions": []any{map[string]any{"actions": orNone(r.actions), "notActions": []string{}, "dataActions": orNone(r.dataActions), "notDataActions": []string{}}},
		},
	}
}

func orNone(names []string) []string {
	if names == nil {
		return []string{}
	}
	return names
}
