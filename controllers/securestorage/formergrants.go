package securestorage

import (
	"context"
	"slices"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
)

// Changing the key vault, the access type or the identity of the account leaves a former grant. It is
// revoked once it is certain that the account does not use it.

// revokeUnused revokes the former grants that the encryption of the account does not use.
func (s *scope) revokeUnused(ctx context.Context) error {
	return s.revokeFormer(ctx, slices.DeleteFunc(s.formerGrants(), s.usesGrant))
}

// revokeFormer revokes former grants that are unused. A grant that cannot be revoked does not block the
// reconcile: it stays recorded, EncryptionReady reports it, and every poll retries, because the missing
// permission may be assigned later.
func (s *scope) revokeFormer(ctx context.Context, former []keyGrant) error {
	for _, g := range former {
		_, err := s.revoke(ctx, g)
		if isTransient(err) {
			return err
		}
		if err != nil {
			s.unrevoked = append(s.unrevoked, unrevokedGrant{g, err})
			continue
		}
		s.revoked = append(s.revoked, g)
	}
	return nil
}

// unrevokedGrant is a former grant that could not be revoked, and why.
type unrevokedGrant struct {
	keyGrant
	why error
}

// abandonUnrevoked removes grants that cannot be revoked from the record, which has no space for the grant that is needed
// now. They have one Event, because of several that differ only in their notes the recorder emits the first.
func (s *scope) abandonUnrevoked() {
	if len(s.unrevoked) == 0 {
		return
	}
	grants, why := s.unrevokedGrants()
	s.access.warningEvent(s.storage, v1beta1.ReasonAbandoned, "the former grant on key vault "+vaultNames(grants)+" may still exist; delete it manually, because it cannot be revoked: "+why)
	s.revoked, s.unrevoked = append(s.revoked, grants...), nil
}

// unrevokedMessage reports the grants that could not be revoked.
func (s *scope) unrevokedMessage() string {
	grants, why := s.unrevokedGrants()
	return "the unused grant on key vault " + vaultNames(grants) + " cannot be revoked: " + why +
		"; check the credential and its permissions on this key vault, or delete the grant manually; retrying"
}

// unrevokedGrants are the grants that could not be revoked, and why the first could not.
func (s *scope) unrevokedGrants() (grants []keyGrant, why string) {
	for _, u := range s.unrevoked {
		grants = append(grants, u.keyGrant)
	}
	return grants, s.unrevoked[0].why.Error()
}

// isTransient says whether a retry can resolve the error.
func isTransient(err error) bool {
	if _, ok := cloud.AsError(err); err != nil && !ok {
		return true
	}
	return cloud.Is(err, cloud.Throttled, cloud.InProgress, cloud.Unreachable)
}

// revoke deletes a managed grant, and says whether it existed.
func (s *scope) revoke(ctx context.Context, g keyGrant) (existed bool, err error) {
	name := accountName(s.storage)
	if g.access == v1beta1.AccessPolicy {
		existed, err = s.revokePolicy(ctx, name, g)
	} else {
		existed, err = s.vaults.DeleteGrant(ctx, name, g.vault.id(), g.principal)
	}
	if isGone(err) {
		return false, nil // deleted with its key vault
	}
	return existed, err
}

func (s *scope) revokePolicy(ctx context.Context, name string, g keyGrant) (bool, error) {
	client, err := s.clientOf(ctx, g.vault.subscription)
	if err != nil {
		return false, err
	}
	vault, err := client.Vault(ctx, name, g.vault.group, g.vault.name)
	if err != nil || !hasAnyPolicy(vault, g.principal) {
		return false, err
	}
	return true, client.RemoveAccessPolicy(ctx, name, g.vault.group, g.vault.name, vault.Tenant, g.principal)
}
