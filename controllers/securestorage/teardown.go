package securestorage

import (
	"context"
	"fmt"
	"time"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// Teardown goes in the order in which nothing is orphaned: first the account lets go of the key,
// then the grant goes while the identity still exists, then the account.

// deletes says whether the cloud's resources go with the object.
func (s *scope) deletes() bool { return s.storage.Spec.DeletionPolicy == v1alpha1.DeletionDelete }

// abandons says whether a person has given up what cannot be reached.
func (s *scope) abandons() bool { return s.storage.Annotations[v1alpha1.AnnotationAbandon] == "true" }

// surrender lets the teardown go on past what it cannot undo, if it may.
func (s *scope) surrender(verdict phases.Verdict, err error, what string) (phases.Verdict, error) {
	if (err == nil && verdict.IsDone()) || !s.abandons() {
		return verdict, err
	}
	s.door.tell(s.storage, v1alpha1.ReasonAbandoned, "gave up on "+what+": it may still be in the cloud")
	return phases.Done("abandoned"), nil
}

// begin reads the account, for the phase of the teardown that comes first.
func (s *scope) begin(ctx context.Context) error {
	if err := s.connect(ctx); err != nil {
		return err
	}
	return s.readAccount(ctx)
}

// isOurs says whether there is an account, and it is ours.
func (s *scope) isOurs() bool {
	return s.account != nil && s.account.Tags[cloud.OwnerTag] == string(s.storage.UID)
}

func undoEncryption(ctx context.Context, s *scope) (phases.Verdict, error) {
	if !s.deletes() {
		return phases.Done(""), nil
	}
	verdict, err := s.decrypt(ctx)
	return s.surrender(verdict, err, "the encryption of storage account "+accountName(s.storage))
}

// decrypt returns the account to the platform's keys. Where that fails because the key is out of
// reach, it does not matter: the account is about to go.
func (s *scope) decrypt(ctx context.Context) (phases.Verdict, error) {
	if err := s.begin(ctx); err != nil {
		return s.trouble(err)
	}
	if !s.isOurs() || s.account.Encryption.KeySource != cloud.CustomerManaged {
		return phases.Done(""), nil
	}
	account, err := s.accounts.UpdateAccount(ctx, s.group(), s.account.Name, cloud.Change{Encryption: &cloud.Encryption{KeySource: cloud.PlatformKeys}})
	switch {
	case cloud.Is(err, cloud.Propagating, cloud.Invalid, cloud.Locked, cloud.NotFound):
		return phases.Done(""), nil
	case err != nil:
		return s.trouble(err)
	}
	s.account = account
	return phases.Done(""), nil
}

func undoKeyAccess(ctx context.Context, s *scope) (phases.Verdict, error) {
	if !s.deletes() {
		return phases.Done(""), nil
	}
	verdict, err := s.revoke(ctx)
	return s.surrender(verdict, err, "the grant on key vault "+vaultOf(s.storage).name)
}

func (s *scope) revoke(ctx context.Context) (phases.Verdict, error) {
	if err := s.begin(ctx); err != nil {
		return s.trouble(err)
	}
	principal := s.principal()
	if principal == "" {
		return phases.Done(""), nil
	}
	at := vaultOf(s.storage)
	if s.accessType() == v1alpha1.AccessPolicy {
		return s.revokePolicy(ctx, at, principal)
	}
	vaultID := s.vaults.VaultID(at.group, at.name)
	grant, err := s.vaults.Grant(ctx, vaultID, principal)
	if cloud.Is(err, cloud.NotFound, cloud.GroupMissing) || (err == nil && (grant == nil || !s.vaults.IsOurGrant(*grant, vaultID, principal))) {
		return phases.Done(""), nil
	}
	if err == nil {
		err = s.vaults.DeleteGrant(ctx, accountName(s.storage), vaultID, principal)
	}
	if err != nil {
		return s.trouble(err)
	}
	return phases.Wait(v1alpha1.ReasonTerminating, "waiting for the grant on key vault "+at.name+" to be gone", jitter(time.Second)), nil
}

func (s *scope) revokePolicy(ctx context.Context, at vaultLocation, principal string) (phases.Verdict, error) {
	vault, err := s.vaults.Vault(ctx, at.group, at.name)
	if cloud.Is(err, cloud.NotFound, cloud.GroupMissing) {
		return phases.Done(""), nil
	}
	if err == nil && !hasPolicy(vault, principal) {
		return phases.Done(""), nil
	}
	if err == nil {
		err = s.vaults.RemoveAccessPolicy(ctx, accountName(s.storage), at.group, at.name, vault.Tenant, principal)
	}
	if err != nil {
		return s.trouble(err)
	}
	return phases.Wait(v1alpha1.ReasonTerminating, "waiting for the access policy of key vault "+at.name+" to be gone", jitter(time.Second)), nil
}

// principal is whom the grant is for. If the account has gone before its grant, only the status still
// knows; it serves to find what is left, and decides nothing.
func (s *scope) principal() string {
	if s.isOurs() {
		return s.account.PrincipalID
	}
	if s.account == nil {
		return s.storage.Status.PrincipalID
	}
	return ""
}

func undoStorageAccount(ctx context.Context, s *scope) (phases.Verdict, error) {
	if !s.deletes() {
		if s.storage.Status.AccountID != "" {
			s.door.tell(s.storage, v1alpha1.ReasonRetained, fmt.Sprintf(
				"storage account %s, its data and its grant stay in the cloud, as spec.deletionPolicy says", accountName(s.storage)))
		}
		return phases.Done(""), nil
	}
	verdict, err := s.deleteAccount(ctx)
	return s.surrender(verdict, err, "storage account "+accountName(s.storage))
}

func (s *scope) deleteAccount(ctx context.Context) (phases.Verdict, error) {
	if err := s.begin(ctx); err != nil {
		return s.trouble(err)
	}
	if s.account == nil {
		return s.confirmAbsence(ctx)
	}
	if !s.isOurs() {
		return phases.Done(""), nil
	}
	if err := s.accounts.DeleteAccount(ctx, s.group(), s.account.Name); err != nil {
		return s.trouble(err)
	}
	return phases.Wait(v1alpha1.ReasonTerminating, "waiting for storage account "+s.account.Name+" to be gone", jitter(time.Second)), nil
}

// appearance is how long an account that was asked for may stay invisible.
const appearance = 2 * time.Minute

// confirmAbsence: an account that was asked for just before may not be seen yet, and would be left
// behind. Its name being taken tells; that it stays invisible tells that it is somebody else's.
func (s *scope) confirmAbsence(ctx context.Context) (phases.Verdict, error) {
	free, err := s.accounts.NameIsFree(ctx, accountName(s.storage))
	if err != nil {
		return s.trouble(err)
	}
	if free || s.clock.Since(s.storage.DeletionTimestamp.Time) > appearance {
		return phases.Done(""), nil
	}
	return phases.Wait(v1alpha1.ReasonTerminating, "the name "+accountName(s.storage)+" is taken; waiting whether an account that was just asked for appears", jitter(pauseProgress)), nil
}
