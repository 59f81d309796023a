package securestorage

import (
	"context"
	"slices"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
)

// A change of the key's vault, of the access type or of the account's identity leaves a grant behind
// that nobody uses any more. It is taken back when it is certain that the account does not use it.

// retireUnused takes back those of the former grants that the account is not encrypted by.
func (s *scope) retireUnused(ctx context.Context) error {
	return s.retire(ctx, slices.DeleteFunc(s.former(), s.uses))
}

// retire takes back former grants, now that nothing uses them. One that may not be taken back keeps
// nobody from working: it stays noted and is told, and it is tried again with every look, since a
// credential or a permission that is refused now may be good the next time.
func (s *scope) retire(ctx context.Context, former []hold) error {
	for _, h := range former {
		_, err := s.takeBack(ctx, h)
		if isPassing(err) {
			return err
		}
		if err != nil {
			s.left = append(s.left, leftGrant{h, err})
			continue
		}
		s.retired = append(s.retired, h)
	}
	return nil
}

// leftGrant is a former grant that may not be taken back, and why.
type leftGrant struct {
	hold
	why error
}

// giveUpLeft has the status forget the grants that may not be taken back, and says so: there is no room
// to note the one that is needed now.
func (s *scope) giveUpLeft() {
	for _, l := range s.left {
		s.door.warn(s.storage, v1alpha1.ReasonAbandoned, "what may have been granted on key vault "+l.vault.name+" cannot be taken back and is left: "+l.why.Error()+"; delete it by hand")
		s.retired = append(s.retired, l.hold)
	}
	s.left = nil
}

// describeLeft says what is left, for people.
func (s *scope) describeLeft() string {
	holds := make([]hold, 0, len(s.left))
	for _, l := range s.left {
		holds = append(holds, l.hold)
	}
	return "the grant on key vault " + vaultNames(holds) + " is not used any more and cannot be taken back: " + s.left[0].why.Error() +
		"; see that the credential is good and has the permission there, or delete the grant by hand; it is tried again at every look"
}

// isPassing says whether an error tells nothing of the grant: it is tried again.
func isPassing(err error) bool {
	if _, ok := cloud.AsError(err); err != nil && !ok {
		return true
	}
	return cloud.Is(err, cloud.Throttled, cloud.InProgress, cloud.Unreachable)
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
