package securestorage

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// Teardown goes in the order in which nothing is orphaned and no data is put out of reach, should it
// get stuck half-way: first the account goes, and its encryption with it; when it is gone, its grant
// goes. The account is never switched back to the platform's keys: whoever restores it must find it
// as it was, and a lock may keep it after all. See docs/adr/0017.

// deletes says whether the cloud's resources go with the object.
func (s *scope) deletes() bool { return s.storage.Spec.DeletionPolicy == v1alpha1.DeletionDelete }

// abandons says whether a person has given up what cannot be reached.
func (s *scope) abandons() bool { return s.storage.Annotations[v1alpha1.AnnotationAbandon] == "true" }

// appearance is how long an account that was asked for may stay invisible, and how long a deletion
// that goes well may take before it counts as one that does not.
const appearance = 2 * time.Minute

// pauseTeardown is between two looks at what is on its way out.
const pauseTeardown = time.Second

// goingWell are the reasons of a teardown that needs nothing but time.
var goingWell = []string{v1alpha1.ReasonTerminating, v1alpha1.ReasonOperationInProgress, v1alpha1.ReasonThrottled}

// surrender lets the teardown go on past what cannot be undone, if it may. What is under way and goes
// well is waited for.
func (s *scope) surrender(verdict phases.Verdict, err error, what string) (phases.Verdict, error) {
	if (err == nil && verdict.IsDone()) || !s.abandons() {
		return verdict, err
	}
	if err == nil && slices.Contains(goingWell, verdict.Reason()) && s.sinceDeletion() < appearance {
		return verdict, nil
	}
	s.abandoned = append(s.abandoned, what)
	return phases.Done("abandoned"), nil
}

func (s *scope) sinceDeletion() time.Duration {
	return s.clock.Since(s.storage.DeletionTimestamp.Time)
}

// undoEncryption deletes the account, and is done when it is gone.
func undoEncryption(ctx context.Context, s *scope) (phases.Verdict, error) {
	if !s.deletes() {
		return phases.Done(""), nil
	}
	verdict, err := s.deleteAccount(ctx)
	return s.surrender(verdict, err, "storage account "+accountName(s.storage))
}

func (s *scope) deleteAccount(ctx context.Context) (phases.Verdict, error) {
	err := s.begin(ctx)
	switch {
	case isGroupGone(err):
		return phases.Done(""), nil // and the account with it
	case err != nil:
		return s.trouble(err)
	case s.account == nil:
		return s.confirmAbsence(ctx)
	case !s.isOurs():
		return phases.Done(""), nil
	}
	terminating := phases.Wait(v1alpha1.ReasonTerminating, "waiting for storage account "+s.account.Name+" to be gone", jitter(pauseTeardown))
	if s.account.GoesAway() {
		return terminating, nil
	}
	if verdict := s.notePrincipal(); !verdict.IsDone() {
		return verdict, nil
	}
	if err := s.accounts.DeleteAccount(ctx, s.group(), s.account); err != nil {
		return s.trouble(err)
	}
	return terminating, nil
}

// isGroupGone says whether the resource group was deleted. A subscription that is not found may only
// be out of the credential's sight.
func isGroupGone(err error) bool {
	failure, ok := cloud.AsError(err)
	return ok && failure.Kind == cloud.GroupMissing && failure.Code == "ResourceGroupNotFound"
}

// notePrincipal sees to it that the status has the principal before the account goes, which alone knows
// it: without it, the grants could not be found any more.
func (s *scope) notePrincipal() phases.Verdict {
	principal := s.account.PrincipalID
	if principal != "" && !strings.EqualFold(principal, s.storage.Status.PrincipalID) {
		return phases.Wait(v1alpha1.ReasonTerminating, "noting whose grant is to be taken back when storage account "+s.account.Name+" is gone", jitter(shortestPause))
	}
	return phases.Done("")
}

// uses says whether the account is encrypted by way of a grant.
func (s *scope) uses(h hold) bool {
	return s.account.Encryption.KeySource == cloud.CustomerManaged &&
		vaultName(s.account.Encryption.VaultURI) == strings.ToLower(h.vault.name) &&
		strings.EqualFold(s.account.PrincipalID, h.principal)
}

// confirmAbsence: an account that was asked for just before may not be seen yet, and would be left
// behind. Its name being taken tells; that it stays invisible tells that it is somebody else's.
func (s *scope) confirmAbsence(ctx context.Context) (phases.Verdict, error) {
	if s.sinceDeletion() > appearance {
		return phases.Done(""), nil
	}
	free, err := s.accounts.NameIsFree(ctx, accountName(s.storage))
	if err != nil && !cloud.Is(err, cloud.Denied, cloud.Locked) {
		return s.trouble(err)
	}
	if free {
		return phases.Done(""), nil
	}
	return phases.Wait(v1alpha1.ReasonTerminating, "the name "+accountName(s.storage)+" is still taken; waiting whether an account that was just asked for appears", jitter(pauseTeardown)), nil
}

func undoKeyAccess(ctx context.Context, s *scope) (phases.Verdict, error) {
	if !s.deletes() {
		return phases.Done(""), nil
	}
	left, verdict, err := s.revoke(ctx)
	return s.surrender(verdict, err, "the grant on key vault "+vaultNames(left))
}

// revoke takes the grants back, of an account that is gone: one that was abandoned, or that has
// become somebody else's, still needs its key. It says which may be left.
func (s *scope) revoke(ctx context.Context) ([]hold, phases.Verdict, error) {
	holds := s.holds()
	if err := s.begin(ctx); err != nil && !isGroupGone(err) {
		verdict, err := s.trouble(err)
		return holds, verdict, err
	}
	if s.account != nil {
		s.keepGrants(holds)
		return nil, phases.Done(""), nil
	}
	return s.takeBackAll(ctx, holds)
}

// takeBackAll tries all, so that one that cannot be taken back keeps no other.
func (s *scope) takeBackAll(ctx context.Context, holds []hold) (left []hold, verdict phases.Verdict, err error) {
	var failed, going []hold
	var failure error
	for _, h := range holds {
		there, err := s.takeBack(ctx, h)
		switch {
		case err != nil:
			failed, failure = append(failed, h), cmp.Or(failure, err)
		case there:
			going = append(going, h)
		}
	}
	switch {
	case failure != nil:
		verdict, err = s.trouble(failure)
		return failed, verdict, err
	case len(going) > 0:
		return going, phases.Wait(v1alpha1.ReasonTerminating, "waiting for the grant on key vault "+vaultNames(going)+" to be gone", jitter(pauseTeardown)), nil
	default:
		return nil, phases.Done(""), nil
	}
}

// keepGrants tells of the grants of an account that was abandoned.
func (s *scope) keepGrants(holds []hold) {
	if s.isOurs() && s.account.PrincipalID != "" {
		s.abandoned = append(s.abandoned, "its grant on key vault "+vaultNames(append(holds, s.current(s.account.PrincipalID))))
	}
}

// holds are the grants that may be left of an account: those that are noted, and the one that the spec
// asks for. To an account that never had an identity, nothing was granted.
func (s *scope) holds() []hold {
	var holds []hold
	for _, h := range append(s.noted(), s.current(s.storage.Status.PrincipalID)) {
		if h.principal != "" && !has(holds, h) {
			holds = append(holds, h)
		}
	}
	return holds
}

// undoStorageAccount says what stays. The account itself is gone by now, if it was to go.
func undoStorageAccount(_ context.Context, s *scope) (phases.Verdict, error) {
	name := accountName(s.storage)
	switch {
	case !s.deletes() && s.mayExist():
		s.door.note(s.storage, v1alpha1.ReasonRetained, "storage account "+name+", its data and its grant stay in the cloud, as spec.deletionPolicy says")
	case len(s.abandoned) > 0:
		s.door.warn(s.storage, v1alpha1.ReasonAbandoned, "gave up on "+strings.Join(s.abandoned, ", and ")+": it may still be in the cloud")
	}
	return phases.Done(""), nil
}

// mayExist says whether we may have made an account: we have seen it, or were about to.
func (s *scope) mayExist() bool {
	if s.storage.Status.AccountID != "" {
		return true
	}
	c := meta.FindStatusCondition(s.storage.Status.Conditions, v1alpha1.ConditionStorageAccountReady)
	return c != nil && c.Reason != v1alpha1.ReasonAccountNotOwned && c.Reason != v1alpha1.ReasonNameTaken
}
