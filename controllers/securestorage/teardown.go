package securestorage

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// The order of the teardown orphans nothing and keeps the data readable if it gets stuck: it deletes
// the account first, and revokes the grant once the account no longer exists. It never switches the
// account back to platform-managed keys, because a lock may keep the account, or a user may restore
// it. See docs/adr/0017.

// deletes says whether the policies delete the resources in the cloud.
func deletes(storage *v1beta1.SecureStorage) bool {
	return storage.Spec.DeletionPolicy == v1beta1.DeletionDelete && !observes(storage)
}

func (s *scope) deletes() bool { return deletes(s.storage) }

// abandonRequested says whether the annotation asks to leave behind what cannot be deleted.
func (s *scope) abandonRequested() bool {
	return s.storage.Annotations[v1beta1.AnnotationAbandon] == "true"
}

// visibilityTimeout is how long a new account may stay invisible to reads, and how long a teardown that
// progresses is waited for although it may be abandoned.
const visibilityTimeout = 2 * time.Minute

// pollTeardown is the delay between reads of resources that are being deleted.
const pollTeardown = time.Second

// progressReasons are the reasons of a teardown that progresses.
var progressReasons = []string{v1beta1.ReasonTerminating, v1beta1.ReasonOperationInProgress, v1beta1.ReasonThrottled}

// abandonOnRequest lets the teardown continue past a resource that cannot be deleted, if the annotation
// asks for it. A teardown that progresses is waited for; one that does not names the annotation.
func (s *scope) abandonOnRequest(verdict phases.Verdict, err error, what string) (phases.Verdict, error) {
	switch {
	case s.abandonRequested() && (err != nil || !verdict.IsDone()):
	case err == nil && verdict.IsStalled():
		return verdict.WithMessage(verdict.Message() + "; to leave the resources in Azure, set spec.deletionPolicy to Retain, or the annotation " + v1beta1.AnnotationAbandon + "=true"), nil
	default:
		return verdict, err
	}
	if err == nil && slices.Contains(progressReasons, verdict.Reason()) && s.sinceDeletion() < visibilityTimeout {
		return verdict, nil
	}
	s.abandoned = append(s.abandoned, what)
	return phases.Done("abandoned"), nil
}

func (s *scope) sinceDeletion() time.Duration {
	return s.clock.Since(s.storage.DeletionTimestamp.Time)
}

// undoEncryption deletes the account, and is done once it no longer exists.
func undoEncryption(ctx context.Context, s *scope) (phases.Verdict, error) {
	if !s.deletes() {
		return phases.Done(""), nil
	}
	verdict, err := s.deleteAccount(ctx)
	return s.abandonOnRequest(verdict, err, "storage account "+accountName(s.storage))
}

func (s *scope) deleteAccount(ctx context.Context) (phases.Verdict, error) {
	err := s.connectAndRead(ctx)
	switch {
	case isResourceGroupDeleted(err) && s.hadAccount():
		return s.confirmAbsence(ctx) // it was deleted with the group, or moved
	case isResourceGroupDeleted(err), s.hasNothingInCloud(err):
		return phases.Done(""), nil
	case err != nil:
		return s.classifyError(err)
	case s.account == nil:
		return s.confirmAbsence(ctx)
	case !s.isManaged():
		return phases.Done(""), nil
	}
	terminating := phases.Wait(v1beta1.ReasonTerminating, "waiting for storage account "+s.account.Name+" to be deleted", s.jitter(pollTeardown))
	if s.account.IsDeleting() {
		return terminating, nil
	}
	if verdict := s.recordPrincipal(); !verdict.IsDone() {
		return verdict, nil
	}
	if err := s.accounts.DeleteAccount(ctx, s.group(), s.account); err != nil {
		return s.classifyError(err)
	}
	return terminating, nil
}

// isResourceGroupDeleted says whether the resource group does not exist. A missing subscription is
// different: it may only be invisible to the credential.
func isResourceGroupDeleted(err error) bool {
	failure, ok := cloud.AsError(err)
	return ok && failure.Kind == cloud.GroupMissing && failure.Code == "ResourceGroupNotFound"
}

// isGone says whether a resource does not exist, or was deleted with its resource group.
func isGone(err error) bool {
	return cloud.Is(err, cloud.NotFound) || isResourceGroupDeleted(err)
}

// recordPrincipal waits until the status has the principal ID before the account is deleted: only the
// account knows it, and the grants cannot be found without it.
func (s *scope) recordPrincipal() phases.Verdict {
	principal := s.account.PrincipalID
	if principal != "" && !strings.EqualFold(principal, s.storage.Status.PrincipalID) {
		return phases.Wait(v1beta1.ReasonTerminating, "recording the principal ID of storage account "+s.account.Name+" in the status before deleting the account", s.jitter(minPoll))
	}
	return phases.Done("")
}

// usesGrant says whether the encryption of the account uses a grant.
func (s *scope) usesGrant(g keyGrant) bool {
	return s.account.Encryption.KeySource == cloud.CustomerManaged &&
		vaultName(s.account.Encryption.VaultURI) == strings.ToLower(g.vault.name) &&
		strings.EqualFold(s.account.PrincipalID, g.principal)
}

// confirmAbsence waits for an account that was just requested and is not visible yet; deleting nothing
// would orphan it. A name that is available shows that no account exists. A name that stays taken without a
// visible account belongs to another owner, or to the account of this SecureStorage in another resource group.
func (s *scope) confirmAbsence(ctx context.Context) (phases.Verdict, error) {
	mayBeInvisible := s.sinceDeletion() <= visibilityTimeout
	if !mayBeInvisible && !s.hadAccount() {
		return phases.Done(""), nil
	}
	name := accountName(s.storage)
	available, err := s.accounts.IsNameAvailable(ctx, s.group(), name)
	isUnknown := cloud.Is(err, cloud.Denied, cloud.Locked)
	switch {
	case err != nil && !isUnknown:
		return s.classifyError(err)
	case available:
		return phases.Done(""), nil
	case mayBeInvisible:
		return phases.Wait(v1beta1.ReasonTerminating, "storage account name "+name+" is still in use; waiting in case the account was just created and is not visible yet", s.jitter(s.backoffSince(s.storage.DeletionTimestamp.Time, pollTeardown, maxPollCreation))), nil
	case isUnknown:
		return phases.Done(""), nil
	default:
		return s.decideMoved(), nil
	}
}

// hadAccount says whether the account was seen, so that it may have been moved.
func (s *scope) hadAccount() bool { return s.storage.Status.AccountID != "" }

// decideMoved blocks the deletion: an account that was moved has the same identity, and loses its key if the grant is revoked.
func (s *scope) decideMoved() phases.Verdict {
	return phases.Stalled(v1beta1.ReasonDeletionBlocked, "storage account "+accountName(s.storage)+" is not in resource group "+s.group()+", but its name is in use; if the account was moved, move it back").RecheckAfter(s.jitter(retryCredentials))
}

func undoKeyAccess(ctx context.Context, s *scope) (phases.Verdict, error) {
	if !s.deletes() {
		return phases.Done(""), nil
	}
	remaining, verdict, err := s.revokeGrants(ctx)
	return s.abandonOnRequest(verdict, err, "the grant on key vault "+vaultNames(remaining))
}

// revokeGrants revokes the grants of a deleted account, and returns those that may remain. An account
// that still exists, abandoned or handed over, still needs its key. Grants are recorded before they are created.
func (s *scope) revokeGrants(ctx context.Context) ([]keyGrant, phases.Verdict, error) {
	grants := s.grantsToRevoke()
	err := s.connectAndRead(ctx)
	if s.hasNothingInCloud(err) || err != nil && len(grants) == 0 {
		return nil, phases.Done(""), nil
	}
	if err != nil && !isResourceGroupDeleted(err) {
		verdict, err := s.classifyError(err)
		return grants, verdict, err
	}
	if s.account != nil || len(s.abandoned) > 0 {
		s.reportKeptGrants(grants)
		return nil, phases.Done(""), nil
	}
	return s.revokeAll(ctx, grants)
}

// revokeAll tries to revoke every grant, even if one of them fails.
func (s *scope) revokeAll(ctx context.Context, grants []keyGrant) (remaining []keyGrant, verdict phases.Verdict, err error) {
	var failed, deleting []keyGrant
	var failure error
	for _, g := range grants {
		existed, err := s.revoke(ctx, g)
		switch {
		case err != nil:
			failed, failure = append(failed, g), cmp.Or(failure, err)
		case existed:
			deleting = append(deleting, g)
		}
	}
	switch {
	case failure != nil:
		verdict, err = s.classifyError(failure)
		return failed, verdict, err
	case len(deleting) > 0:
		return deleting, phases.Wait(v1beta1.ReasonTerminating, "waiting for the grant on key vault "+vaultNames(deleting)+" to be deleted", s.jitter(pollTeardown)), nil
	default:
		return nil, phases.Done(""), nil
	}
}

// reportKeptGrants reports the grants of an account that was abandoned.
func (s *scope) reportKeptGrants(grants []keyGrant) {
	if s.isManaged() && s.account.PrincipalID != "" {
		grants = append(grants, s.desiredGrant(s.account.PrincipalID))
	}
	if len(s.abandoned) > 0 && len(grants) > 0 {
		s.abandoned = append(s.abandoned, "its grant on key vault "+vaultNames(grants))
	}
}

// grantsToRevoke returns the recorded grants and the desired one. An account that never had an identity
// has no grants.
func (s *scope) grantsToRevoke() []keyGrant {
	var grants []keyGrant
	for _, g := range append(s.recordedGrants(), s.desiredGrant(s.storage.Status.PrincipalID)) {
		if g.principal != "" && !has(grants, g) {
			grants = append(grants, g)
		}
	}
	return grants
}

// undoStorageAccount releases an account that is retained, and emits an Event about the resources that remain. The other
// phases have deleted the rest.
func undoStorageAccount(ctx context.Context, s *scope) (phases.Verdict, error) {
	name := accountName(s.storage)
	switch {
	case s.observes() && s.mayHaveCreated():
		s.access.normalEvent(s.storage, v1beta1.ReasonRetained, "storage account "+name+", its data, its tags and its grant remain in Azure, because spec.managementPolicy is Observe")
	case !s.deletes() && s.mayHaveCreated():
		return s.retain(ctx)
	case len(s.abandoned) > 0:
		s.access.warningEvent(s.storage, v1beta1.ReasonAbandoned, strings.Join(s.abandoned, " and ")+" may still exist in Azure, because "+v1beta1.AnnotationAbandon+" is set; delete them manually if they are not needed")
	}
	return phases.Done(""), nil
}

// retain releases the account: it removes the owner tag, so that another SecureStorage can adopt the account. The deletion
// does not depend on it: nothing is lost if the tag remains.
func (s *scope) retain(ctx context.Context) (phases.Verdict, error) {
	verdict, err := s.release(ctx)
	if isWaiting := err != nil || verdict.IsWait(); isWaiting && s.sinceDeletion() < visibilityTimeout {
		return verdict, err
	}
	if err == nil && !verdict.IsDone() {
		err = errors.New(verdict.Message())
	}
	if note := s.retainedNote(err); note != "" {
		s.access.normalEvent(s.storage, v1beta1.ReasonRetained, note)
	}
	return phases.Done(""), nil
}

// retainedNote says what remains in Azure after the account was released, or could not be. It is empty if nothing does.
func (s *scope) retainedNote(failure error) string {
	const policy = ", because spec.deletionPolicy is Retain"
	account := "storage account " + accountName(s.storage)
	isGone := failure == nil && (s.account == nil || s.account.IsDeleting())
	switch grants := s.grantsToRevoke(); {
	case isGone && len(grants) == 0:
		return ""
	case isGone && s.account == nil:
		return account + " does not exist in resource group " + s.group() + "; its grant on key vault " + vaultNames(grants) + " may remain" + policy
	case isGone:
		return account + " is being deleted in Azure; its grant on key vault " + vaultNames(grants) + " may remain" + policy
	case failure == nil:
		return account + ", its data and its grant remain in Azure" + policy
	}
	remain := "remain"
	if s.account == nil && !s.hadAccount() {
		remain = "may remain"
	}
	return account + ", its data and its grant " + remain + " in Azure" + policy + "; its tag " + cloud.OwnerTag + " may remain too, because it could not be removed: " + failure.Error()
}

// release removes the owner tag from the account, if it is that of this SecureStorage.
func (s *scope) release(ctx context.Context) (phases.Verdict, error) {
	err := s.connectAndRead(ctx)
	if isResourceGroupDeleted(err) {
		return phases.Done(""), nil
	}
	if err != nil {
		return s.classifyError(err)
	}
	if s.account == nil {
		return s.confirmAbsence(ctx)
	}
	if owner, _ := tagOf(s.account.Tags, cloud.OwnerTag); owner != string(s.storage.UID) || s.account.IsDeleting() {
		return phases.Done(""), nil
	}
	tags := maps.Clone(s.account.Tags)
	maps.DeleteFunc(tags, func(key, _ string) bool { return strings.EqualFold(key, cloud.OwnerTag) })
	if _, err := s.accounts.UpdateAccount(ctx, s.group(), s.account, cloud.Change{Tags: tags}); err != nil {
		return s.classifyError(err)
	}
	return phases.Done(""), nil
}

// mayHaveCreated says whether this SecureStorage may have created an account.
func (s *scope) mayHaveCreated() bool {
	if s.hadAccount() || s.observes() {
		return s.hadAccount()
	}
	c := meta.FindStatusCondition(s.storage.Status.Conditions, v1beta1.ConditionStorageAccountReady)
	switch {
	case c == nil, c.Reason == v1beta1.ReasonAccountNotOwned, c.Reason == v1beta1.ReasonNameTaken:
		return false
	case c.Reason == v1beta1.ReasonCredentialsNotAllowed:
		return !hasNoRecord(s.storage)
	default:
		return true
	}
}
