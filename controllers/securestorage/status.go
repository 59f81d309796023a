package securestorage

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	fixpointac "github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// desiredStatus returns the whole status. If the cloud could not be read, the last known values stay.
// The IDs of a deleted account stay, because they are needed to detect the loss and to revoke its
// grants.
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
	setIfNotEmpty(status.WithLastHandledReconcileAt, workload.HandledReconcile(s.storage))
	setIfNotEmpty(status.WithAccountID, old.AccountID)
	setIfNotEmpty(status.WithPrincipalID, old.PrincipalID)
	setIfNotEmpty(status.WithGrantID, old.GrantID)
	setStatusGrants(status, s.grantsToRecord())
	for _, drift := range s.reportedDrifts(summary) {
		status.WithDrifts(workload.DriftConfiguration(drift))
	}
	switch {
	case s.isManaged():
		s.setAccountStatus(status)
	case s.observes() && s.account != nil:
		// The IDs would make this SecureStorage the owner: see isManaged.
		s.setEncryptionStatus(status)
	case !s.accountRead:
		setIfNotEmpty(status.WithEndpoint, old.Endpoint)
		setIfNotEmpty(status.WithEncryption, old.Encryption)
		setIfNotEmpty(status.WithKeyURI, old.KeyURI)
		setIfNotEmpty(status.WithKeyVersion, old.KeyVersion)
	}
	return fixpointac.SecureStorage(s.storage.Name, s.storage.Namespace).WithStatus(status)
}

// setAccountStatus sets the fields that are read from the account.
func (s *scope) setAccountStatus(status *fixpointac.SecureStorageStatusApplyConfiguration) {
	if s.account.Provisioned() {
		status.WithAccountID(s.account.ID)
	}
	s.setEncryptionStatus(status)
	s.setGrantStatus(status)
}

func (s *scope) setEncryptionStatus(status *fixpointac.SecureStorageStatusApplyConfiguration) {
	e := s.account.Encryption
	setIfNotEmpty(status.WithEndpoint, s.account.Endpoints.Blob)
	setIfNotEmpty(status.WithEncryption, v1beta1.SecureStorageEncryption(e.KeySource))
	if e.KeySource == cloud.CustomerManaged {
		setIfNotEmpty(status.WithKeyURI, e.CurrentKeyID)
		setIfNotEmpty(status.WithKeyVersion, e.CurrentVersion)
	}
}

func (s *scope) setGrantStatus(status *fixpointac.SecureStorageStatusApplyConfiguration) {
	setIfNotEmpty(status.WithPrincipalID, s.account.PrincipalID)
	switch {
	case s.grant != nil:
		setIfNotEmpty(status.WithGrantID, s.grant.ID)
	case s.vault != nil && s.isGranted():
		setIfNotEmpty(status.WithGrantID, s.vault.ID)
	}
}

// setIfNotEmpty sets a field unless the value is empty: the schema rejects empty strings.
func setIfNotEmpty[T ~string](with func(T) *fixpointac.SecureStorageStatusApplyConfiguration, value T) {
	if value != "" {
		with(value)
	}
}

// waitingSince is the transition time of the phase that blocks, or nil.
func waitingSince(summary phases.Summary) *metav1.Time {
	for _, c := range summary.Conditions {
		if c.Type != v1beta1.ConditionReady && c.Status == metav1.ConditionFalse {
			return &c.LastTransitionTime
		}
	}
	return nil
}

// phaseOf returns status.phase.
func phaseOf(s *scope, summary phases.Summary) v1beta1.Phase {
	switch {
	case summary.Deleting:
		return v1beta1.PhaseDeleting
	case summary.Suspended:
		return v1beta1.PhaseSuspended
	case summary.Ready:
		return v1beta1.PhaseReady
	case s.hasEncryptedAccount():
		return v1beta1.PhaseDegraded
	case summary.Stalled:
		return v1beta1.PhaseFailed
	case s.observes() && s.accountRead && s.account == nil:
		return v1beta1.PhasePending
	default:
		return v1beta1.PhaseProvisioning
	}
}

// hasEncryptedAccount says whether an account encrypted with a customer-managed key exists, from the
// account or, if the account could not be read, from the last status.
func (s *scope) hasEncryptedAccount() bool {
	if !s.accountRead {
		return s.storage.Status.Encryption == v1beta1.EncryptionCustomerKey
	}
	return (s.isManaged() || s.observes() && s.account != nil) && s.account.Encryption.KeySource == cloud.CustomerManaged
}
