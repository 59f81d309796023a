package securestorage

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	fixpointac "github.com/fixpoint-dev/fixpoint/apis/v1alpha1/applyconfiguration/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// desiredStatus is the whole status, from what the pass found out. Where the cloud could not be
// asked, what was found before still stands. Of an account that is gone, the names stay, by which
// its loss is known and its grant is found.
func desiredStatus(s *scope, summary phases.Summary) *fixpointac.SecureStorageApplyConfiguration {
	old := s.storage.Status
	status := fixpointac.SecureStorageStatus().
		WithObservedGeneration(summary.ObservedGeneration).
		WithPhase(phaseOf(s, summary)).
		WithConditions(phases.ConditionConfigurations(summary.Conditions)...).
		WithAccountName(accountName(s.storage))
	if since := waitingSince(summary); since != nil {
		status.WithWaitingSince(*since)
	}
	put(status.WithAccountID, old.AccountID)
	put(status.WithPrincipalID, old.PrincipalID)
	put(status.WithGrantID, old.GrantID)
	describeNotes(status, s.notes())
	switch {
	case s.isOurs():
		s.describe(status)
	case !s.looked:
		put(status.WithEndpoint, old.Endpoint)
		put(status.WithEncryption, old.Encryption)
		put(status.WithKeyURI, old.KeyURI)
		put(status.WithKeyVersion, old.KeyVersion)
	}
	return fixpointac.SecureStorage(s.storage.Name, s.storage.Namespace).WithStatus(status)
}

// describe says what the cloud says of the account.
func (s *scope) describe(status *fixpointac.SecureStorageStatusApplyConfiguration) {
	e := s.account.Encryption
	if s.account.Provisioned() {
		status.WithAccountID(s.account.ID)
	}
	put(status.WithEndpoint, s.account.BlobEndpoint)
	put(status.WithEncryption, v1alpha1.SecureStorageEncryption(e.KeySource))
	if e.KeySource == cloud.CustomerManaged {
		put(status.WithKeyURI, e.CurrentKeyID)
		put(status.WithKeyVersion, e.CurrentVersion)
	}
	s.describeGrant(status)
}

func (s *scope) describeGrant(status *fixpointac.SecureStorageStatusApplyConfiguration) {
	put(status.WithPrincipalID, s.account.PrincipalID)
	switch {
	case s.grant != nil:
		put(status.WithGrantID, s.grant.ID)
	case s.vault != nil && s.isGranted():
		put(status.WithGrantID, s.vault.ID)
	}
}

// put sets a field that has something to say: the schema has no use for empty ones.
func put[T ~string](with func(T) *fixpointac.SecureStorageStatusApplyConfiguration, value T) {
	if value != "" {
		with(value)
	}
}

// waitingSince is since when the phase that gates has not been done.
func waitingSince(summary phases.Summary) *metav1.Time {
	for _, c := range summary.Conditions {
		if c.Type != v1alpha1.ConditionReady && c.Status == metav1.ConditionFalse {
			return &c.LastTransitionTime
		}
	}
	return nil
}

// phaseOf sums up in one word, for people.
func phaseOf(s *scope, summary phases.Summary) v1alpha1.SecureStoragePhase {
	switch {
	case summary.Deleting:
		return v1alpha1.SecureStorageDeleting
	case summary.Suspended:
		return v1alpha1.SecureStorageSuspended
	case summary.Ready:
		return v1alpha1.SecureStorageReady
	case s.holdsData():
		return v1alpha1.SecureStorageDegraded
	case summary.Stalled:
		return v1alpha1.SecureStorageFailed
	default:
		return v1alpha1.SecureStorageProvisioning
	}
}

// holdsData says whether there is an account that is encrypted with a key of the customer: by what
// was seen, or, where the cloud could not be asked, by what was seen last.
func (s *scope) holdsData() bool {
	if !s.looked {
		return s.storage.Status.Encryption == v1alpha1.EncryptionCustomerKey
	}
	return s.isOurs() && s.account.Encryption.KeySource == cloud.CustomerManaged
}

var _ ssa.Configuration = (*fixpointac.SecureStorageApplyConfiguration)(nil)
