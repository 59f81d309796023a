package securestorage

import (
	"cmp"
	"slices"
	"strings"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	fixpointac "github.com/fixpoint-dev/fixpoint/apis/v1alpha1/applyconfiguration/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
)

// The cloud does not tell where an identity has grants, so the status notes each before it is made, and
// until it is taken back. What it has noted serves to find what is left, and decides nothing else.

// hold is a grant as it is made: whom it lets use the keys of which vault, and how.
type hold struct {
	vault vaultLocation
	// principal is empty for a grant that waits for an account to have one.
	principal string
	access    v1alpha1.SecureStorageAccessType
}

// current is the grant that the spec asks for, for a principal.
func (s *scope) current(principal string) hold {
	return hold{vault: vaultOf(s.storage), principal: principal, access: s.accessType()}
}

func (h hold) is(other hold) bool {
	return h.isAt(other) && strings.EqualFold(h.principal, other.principal)
}

// isAt says whether both are made in the same place, for whomever.
func (h hold) isAt(other hold) bool {
	return strings.EqualFold(h.vault.id(), other.vault.id()) && h.access == other.access
}

func has(holds []hold, h hold) bool { return slices.ContainsFunc(holds, h.is) }

// noted are the grants that the status has, as it was read.
func (s *scope) noted() []hold {
	if len(s.storage.Status.Grants) == 0 {
		return s.notedAlone()
	}
	noted := make([]hold, 0, len(s.storage.Status.Grants))
	for _, g := range s.storage.Status.Grants {
		noted = append(noted, hold{vault: vaultLocation{}.parse(g.VaultID), principal: g.PrincipalID, access: g.AccessType})
	}
	return noted
}

// notedAlone is the one grant of ours that statuses knew of before they had a list.
func (s *scope) notedAlone() []hold {
	id, principal := s.storage.Status.GrantID, s.storage.Status.PrincipalID
	if id == "" || principal == "" {
		return nil
	}
	at := cloud.GrantedAt(id)
	switch {
	case at == "":
		return []hold{{vault: vaultLocation{}.parse(id), principal: principal, access: v1alpha1.AccessPolicy}}
	case cloud.IsOurGrant(id, at, principal):
		return []hold{{vault: vaultLocation{}.parse(at), principal: principal, access: v1alpha1.AccessRoleAssignment}}
	default:
		return nil
	}
}

// isNoted says whether a grant may be made: should nobody come to say so, it is found again. One that is
// noted for an account without an identity is for the first that the account has.
func (s *scope) isNoted(h hold) bool {
	return slices.ContainsFunc(s.noted(), func(noted hold) bool {
		return noted.is(h) || noted.isAt(h) && noted.principal == ""
	})
}

// mostNoted is how many grants are noted before others have to go first. The schema has room for more.
const mostNoted = 6

// notes are the grants that the status is to have: those that it has and that were not taken back, and
// the one that the spec asks for, as soon as it may be made. Where nobody knows how things stand, they
// stay as they are.
func (s *scope) notes() []hold {
	if !s.looked || s.account != nil && !s.isOurs() {
		return s.noted()
	}
	principal := ""
	if s.account != nil {
		principal = s.account.PrincipalID
	}
	notes := make([]hold, 0, mostNoted)
	for _, h := range s.noted() {
		h.principal = cmp.Or(h.principal, principal)
		// Without an identity nothing was granted, but where the next one is to be.
		if h.principal != "" && !has(s.retired, h) && !has(notes, h) {
			notes = append(notes, h)
		}
	}
	if current := s.current(principal); s.isDue(current, len(notes)) && !has(notes, current) {
		notes = append(notes, current)
	}
	return notes
}

// isDue says whether the grant that the spec asks for is to be noted: it is about to be made, or it is
// there and ours. For an account that is being made it is noted at once, so that it need not wait later.
func (s *scope) isDue(current hold, others int) bool {
	switch {
	case s.storage.DeletionTimestamp != nil:
		return false
	case current.principal == "":
		return others < mostNoted
	default:
		return s.intended || s.isGrantedByUs()
	}
}

func (s *scope) isGrantedByUs() bool {
	if !s.isGranted() || s.grant == nil {
		return s.isGranted()
	}
	return cloud.IsOurGrant(s.grant.ID, vaultOf(s.storage).id(), s.account.PrincipalID)
}

// former are the grants that may be there and that the spec asks for no more.
func (s *scope) former() []hold {
	if !s.isOurs() || s.account.PrincipalID == "" {
		return nil
	}
	return slices.DeleteFunc(s.notes(), s.current(s.account.PrincipalID).is)
}

// vaultNames are the names of the vaults of some grants, for people.
func vaultNames(holds []hold) string {
	var names []string
	for _, h := range holds {
		if !slices.Contains(names, h.vault.name) {
			names = append(names, h.vault.name)
		}
	}
	return strings.Join(names, ", ")
}

// describeNotes puts them into the status.
func describeNotes(status *fixpointac.SecureStorageStatusApplyConfiguration, notes []hold) {
	for _, h := range notes {
		grant := fixpointac.SecureStorageGrant().WithVaultID(h.vault.id()).WithAccessType(h.access)
		if h.principal != "" {
			grant.WithPrincipalID(h.principal)
		}
		status.WithGrants(grant)
	}
}
