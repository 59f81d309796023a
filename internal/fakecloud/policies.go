package fakecloud

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// putPolicies adds, replaces or removes access policies.
func (s *Server) putPolicies(c *call) reply {
	var request struct {
		Properties *struct {
			AccessPolicies []policyRequest `json:"accessPolicies"`
		} `json:"properties"`
	}
	if err := c.decode(&request); err != nil {
		return refused(err)
	}
	v := s.liveVault(c)
	if v == nil {
		return refused(resourceNotFound(vaultKind, c.path.name(0), c.path.group))
	}
	if request.Properties == nil {
		return refused(badRequest("BadRequest", "The parameter accessPolicies is not specified."))
	}
	if err := v.busy(c.now); err != nil {
		return refused(err)
	}
	before := len(v.Policies)
	switch strings.ToLower(c.path.name(1)) {
	case "add":
		s.addPolicies(c, v, request.Properties.AccessPolicies)
	case "replace":
		s.replacePolicies(c, v, request.Properties.AccessPolicies)
	case "remove":
		s.removePolicies(c, v, request.Properties.AccessPolicies)
	default:
		return refused(badRequest("BadRequest", "The operation '%s' is not one of add, replace and remove.", c.path.name(1)))
	}
	s.touchVault(c, v)
	status := http.StatusOK
	if len(v.Policies) > before {
		status = http.StatusCreated
	}
	c.did(Updated, c.path.name(1)+" access policies")
	return reply{status: status, body: map[string]any{
		"id": v.ID() + "/accessPolicies/", "type": vaultKind + "/accessPolicies",
		"properties": map[string]any{"accessPolicies": v.renderPolicies()},
	}}
}

// addPolicies merges permissions into those of a principal.
func (s *Server) addPolicies(c *call, v *Vault, requests []policyRequest) {
	for _, request := range requests {
		c.principal = request.ObjectID
		policy := v.policyOf(request.ObjectID)
		if policy == nil {
			v.Policies = append(v.Policies, s.newPolicy(c, v, request))
			continue
		}
		if policy.merge(request.Permissions) {
			policy.EffectiveAt = s.later(c.now, s.knobs.PolicyDelay, "policy", request.ObjectID)
		}
	}
}

func (s *Server) newPolicy(c *call, v *Vault, request policyRequest) *AccessPolicy {
	policy := &AccessPolicy{
		TenantID: request.TenantID, ObjectID: request.ObjectID, Permissions: map[string][]string{},
		EffectiveAt: s.later(c.now, s.knobs.PolicyDelay, "policy", v.Name+" "+request.ObjectID),
	}
	policy.merge(request.Permissions)
	return policy
}

// merge says whether it added a permission.
func (p *AccessPolicy) merge(permissions map[string][]string) bool {
	added := false
	for kind, names := range permissions {
		for _, name := range names {
			if !slices.ContainsFunc(p.Permissions[kind], func(have string) bool { return same(have, name) }) {
				p.Permissions[kind] = append(p.Permissions[kind], name)
				added = true
			}
		}
	}
	return added
}

func (s *Server) replacePolicies(c *call, v *Vault, requests []policyRequest) {
	kept := map[string]bool{}
	for _, request := range requests {
		kept[strings.ToLower(request.ObjectID)] = true
	}
	for _, policy := range slices.Clone(v.Policies) {
		if !kept[strings.ToLower(policy.ObjectID)] {
			s.revokePolicy(v, policy, c.now)
		}
	}
	for _, request := range requests {
		c.principal = request.ObjectID
		fresh := s.newPolicy(c, v, request)
		if old := v.policyOf(request.ObjectID); old != nil {
			fresh.EffectiveAt = old.EffectiveAt
			v.drop(old)
		}
		v.Policies = append(v.Policies, fresh)
	}
}

func (s *Server) removePolicies(c *call, v *Vault, requests []policyRequest) {
	for _, request := range requests {
		c.principal = request.ObjectID
		policy := v.policyOf(request.ObjectID)
		if policy == nil {
			continue
		}
		// Removed permissions stay effective for a while: the old policy is revoked as a whole, and the
		// remaining permissions stay effective.
		rest := *policy
		rest.Permissions = policy.without(request.Permissions)
		s.revokePolicy(v, policy, c.now)
		if len(rest.Permissions) > 0 {
			v.Policies = append(v.Policies, &rest)
		}
	}
}

func (p *AccessPolicy) without(taken map[string][]string) map[string][]string {
	left := map[string][]string{}
	for kind, names := range p.Permissions {
		for _, have := range names {
			if !slices.ContainsFunc(taken[kind], func(gone string) bool { return same(gone, have) }) {
				left[kind] = append(left[kind], have)
			}
		}
	}
	return left
}

// revokePolicy removes a policy; the key vault honors it for a while.
func (s *Server) revokePolicy(v *Vault, policy *AccessPolicy, now time.Time) {
	v.drop(policy)
	end := s.later(now, s.knobs.RevokeDelay, "revoke policy", policy.ObjectID)
	policy.EffectiveEnd = &end
	v.RevokedPolicies = append(v.RevokedPolicies, policy)
}

func (v *Vault) drop(policy *AccessPolicy) {
	v.Policies = slices.DeleteFunc(v.Policies, func(p *AccessPolicy) bool { return p == policy })
}

func (v *Vault) policyOf(objectID string) *AccessPolicy {
	for _, policy := range v.Policies {
		if same(policy.ObjectID, objectID) {
			return policy
		}
	}
	return nil
}

// admits says whether a policy permits the principal to use a key for encryption.
func (v *Vault) admits(objectID string, now time.Time) bool {
	for _, policy := range v.RevokedPolicies {
		if same(policy.ObjectID, objectID) && now.Before(*policy.EffectiveEnd) && policy.wraps() {
			return true
		}
	}
	policy := v.policyOf(objectID)
	return policy != nil && !now.Before(policy.EffectiveAt) && policy.wraps()
}

func (p *AccessPolicy) wraps() bool {
	for _, needed := range []string{"get", "wrapKey", "unwrapKey"} {
		if !slices.ContainsFunc(p.Permissions["keys"], func(have string) bool { return same(have, needed) || same(have, "all") }) {
			return false
		}
	}
	return true
}

func (v *Vault) renderPolicies() []any {
	policies := []any{}
	for _, policy := range v.Policies {
		policies = append(policies, map[string]any{"tenantId": policy.TenantID, "objectId": policy.ObjectID, "permissions": policy.Permissions})
	}
	return policies
}
