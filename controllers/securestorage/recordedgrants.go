package securestorage

import (
	"cmp"
	"slices"
	"strings"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	fixpointac "github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
)

// The cloud cannot list the grants of an identity, so status.grants records each grant from before it is
// created until it is revoked. The record is only used to find grants to revoke.

// keyGrant is access of a principal to the keys of a key vault.
type keyGrant struct {
	vault vaultLocation
	// principal is empty for a grant recorded before the account has an identity.
	principal string
	access    v1beta1.SecureStorageAccessType
}

// desiredGrant returns the grant that the spec asks for, for a principal.
func (s *scope) desiredGrant(principal string) keyGrant {
	return keyGrant{vault: vaultOf(s.storage), principal: principal, access: s.accessType()}
}

func (g keyGrant) is(other keyGrant) bool {
	return g.isAt(other) && strings.EqualFold(g.principal, other.principal)
}

// isAt says whether both grants have the same key vault and access type, for any principal.
func (g keyGrant) isAt(other keyGrant) bool {
	return strings.EqualFold(g.vault.id(), other.vault.id()) && g.access == other.access
}

func has(grants []keyGrant, g keyGrant) bool { return slices.ContainsFunc(grants, g.is) }

// recordedGrants returns the grants in the status.
func (s *scope) recordedGrants() []keyGrant {
	if len(s.storage.Status.Grants) == 0 {
		return s.recordedInGrantID()
	}
	recorded := make([]keyGrant, 0, len(s.storage.Status.Grants))
	for _, g := range s.storage.Status.Grants {
		recorded = append(recorded, keyGrant{vault: vaultLocation{}.parse(g.VaultID), principal: g.PrincipalID, access: g.AccessType})
	}
	return recorded
}

// recordedInGrantID reads the grant from a status that was written before status.grants existed.
func (s *scope) recordedInGrantID() []keyGrant {
	id, principal := s.storage.Status.GrantID, s.storage.Status.PrincipalID
	if id == "" || principal == "" {
		return nil
	}
	at := cloud.GrantedAt(id)
	switch {
	case at == "":
		return []keyGrant{{vault: vaultLocation{}.parse(id), principal: principal, access: v1beta1.AccessPolicy}}
	case cloud.IsManagedGrant(id, at, principal):
		return []keyGrant{{vault: vaultLocation{}.parse(at), principal: principal, access: v1beta1.AccessRoleAssignment}}
	default:
		return nil
	}
}

// isRecorded says whether the status records a grant, so that it may be created. A grant recorded
// without a principal covers the first principal of the account.
func (s *scope) isRecorded(g keyGrant) bool {
	return slices.ContainsFunc(s.recordedGrants(), func(recorded keyGrant) bool {
		return recorded.is(g) || recorded.isAt(g) && recorded.principal == ""
	})
}

// maxRecordedGrants is how many grants are recorded before unused ones have to be revoked. The schema
// allows more.
const maxRecordedGrants = 6

// grantsToRecord returns the desired status.grants: the recorded grants that were not revoked, and the
// desired grant once it exists or is about to be created. If the account could not be read, the record
// stays as it is.
func (s *scope) grantsToRecord() []keyGrant {
	if !s.accountRead || s.observes() || s.account != nil && !s.isManaged() {
		return s.recordedGrants()
	}
	principal := ""
	if s.account != nil {
		principal = s.account.PrincipalID
	}
	grants := make([]keyGrant, 0, maxRecordedGrants)
	for _, g := range s.recordedGrants() {
		g.principal = cmp.Or(g.principal, principal)
		// Without an identity, only the grant for the next identity is kept.
		if g.principal != "" && !has(s.revoked, g) && !has(grants, g) {
			grants = append(grants, g)
		}
	}
	if desired := s.desiredGrant(principal); s.shouldRecord(desired, len(grants)) && !has(grants, desired) {
		grants = append(grants, desired)
	}
	return grants
}

// shouldRecord says whether to record the desired grant: it is about to be created, or it exists and is
// managed. While the account is being created, it is recorded at once, which saves a reconcile later.
func (s *scope) shouldRecord(desired keyGrant, others int) bool {
	switch {
	case s.storage.DeletionTimestamp != nil:
		return false
	case desired.principal == "":
		return others < maxRecordedGrants
	default:
		return s.grantPlanned || s.hasManagedGrant()
	}
}

func (s *scope) hasManagedGrant() bool {
	if s.grant == nil {
		return s.isGranted()
	}
	return cloud.IsManagedGrant(s.grant.ID, vaultOf(s.storage).id(), s.account.PrincipalID)
}

// formerGrants returns the recorded grants that the spec no longer asks for. An assumed identity, which has no principal ID, needs
// a new grant.
func (s *scope) formerGrants() []keyGrant {
	if !s.isManaged() || s.account.PrincipalID == "" && !s.assumed {
		return nil
	}
	return slices.DeleteFunc(s.grantsToRecord(), s.desiredGrant(s.account.PrincipalID).is)
}

// vaultNames lists the names of the grants' key vaults for messages.
func vaultNames(grants []keyGrant) string {
	var names []string
	for _, g := range grants {
		if !slices.Contains(names, g.vault.name) {
			names = append(names, g.vault.name)
		}
	}
	return strings.Join(names, ", ")
}

// setStatusGrants sets status.grants.
func setStatusGrants(status *fixpointac.SecureStorageStatusApplyConfiguration, grants []keyGrant) {
	for _, g := range grants {
		grant := fixpointac.SecureStorageGrant().WithVaultID(g.vault.id()).WithAccessType(g.access)
		if g.principal != "" {
			grant.WithPrincipalID(g.principal)
		}
		status.WithGrants(grant)
	}
}
