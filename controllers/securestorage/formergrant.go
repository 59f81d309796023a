package securestorage

import (
	"context"
	"strings"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
)

// A change of the key's vault, of the access type or of the account's identity leaves a grant behind
// that nobody uses any more. The status keeps the one that was there until it is taken back; it serves
// to find what is left, and decides nothing.

// hold is a grant as it was made: whom it lets use the keys of which vault, and how.
type hold struct {
	vault     vaultLocation
	principal string
	access    v1alpha1.SecureStorageAccessType
}

// current is the grant that the spec asks for, for a principal.
func (s *scope) current(principal string) hold {
	return hold{vault: vaultOf(s.storage), principal: principal, access: s.accessType()}
}

func (h hold) is(other hold) bool {
	return strings.EqualFold(h.vault.id(), other.vault.id()) && strings.EqualFold(h.principal, other.principal) && h.access == other.access
}

// noted is the grant of ours that the status has.
func (s *scope) noted() (hold, bool) {
	id, principal := s.storage.Status.GrantID, s.storage.Status.PrincipalID
	if id == "" || principal == "" {
		return hold{}, false
	}
	at := cloud.GrantedAt(id)
	if at == "" {
		return hold{vault: vaultLocation{}.parse(id), principal: principal, access: v1alpha1.AccessPolicy}, true
	}
	return hold{vault: vaultLocation{}.parse(at), principal: principal, access: v1alpha1.AccessRoleAssignment}, cloud.IsOurGrant(id, at, principal)
}

// former is the grant that the status has and the spec asks for no more.
func (s *scope) former() (hold, bool) {
	noted, ok := s.noted()
	if !ok || s.account == nil || s.retired || s.account.PrincipalID == "" {
		return hold{}, false
	}
	return noted, !noted.is(s.current(s.account.PrincipalID))
}

// retire takes back the former grant, now that nothing uses it. What keeps it from going keeps
// nobody from working: it is told, and left.
func (s *scope) retire(ctx context.Context, former hold) error {
	_, err := s.takeBack(ctx, former)
	if cloud.Is(err, cloud.Throttled, cloud.InProgress, cloud.Unreachable) {
		return err
	}
	if err != nil {
		s.door.warn(s.storage, v1alpha1.ReasonAbandoned, "the former grant on key vault "+former.vault.name+" cannot be taken back and is left: "+err.Error())
	}
	s.retired = true
	return nil
}

// takeBack deletes a grant of ours, and says whether there was one.
func (s *scope) takeBack(ctx context.Context, h hold) (there bool, err error) {
	name := accountName(s.storage)
	if h.access == v1alpha1.AccessPolicy {
		there, err = s.takeBackPolicy(ctx, name, h)
	} else {
		there, err = s.vaults.DeleteGrant(ctx, name, h.vault.id(), h.principal)
	}
	if cloud.Is(err, cloud.NotFound, cloud.GroupMissing) {
		return false, nil // with its vault
	}
	return there, err
}

func (s *scope) takeBackPolicy(ctx context.Context, name string, h hold) (bool, error) {
	client, err := s.clientOf(ctx, h.vault.subscription)
	if err != nil {
		return false, err
	}
	vault, err := client.Vault(ctx, name, h.vault.group, h.vault.name)
	if err != nil || !hasAnyPolicy(vault, h.principal) {
		return false, err
	}
	return true, client.RemoveAccessPolicy(ctx, name, h.vault.group, h.vault.name, vault.Tenant, h.principal)
}
