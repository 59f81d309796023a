package securestorage

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// encryption encrypts the account with the key.
var encryption = phases.Step[*scope]{
	Name:    "Encryption",
	Observe: observeEncryption,
	Ensure:  ensureEncryption,
	Planned: planEncryption,
	Undo:    undoEncryption,
}

func observeEncryption(_ context.Context, s *scope) (phases.Observation, error) {
	former := s.formerGrants()
	if drifts := encryptionDrifts(s.desiredEncryption(), s.account.Encryption); len(drifts) > 0 {
		what := s.withFields("encrypt storage account "+s.account.Name+" with key "+s.storage.Spec.Key.Name, v1beta1.ConditionEncryptionReady, drifts)
		if len(former) > 0 {
			what += ", and then " + revocationOf(former)
		}
		return phases.Missing(s.notEncryptedReason(), what).Drifted(drifts...), nil
	}
	if len(former) > 0 {
		return s.decideFormerGrants(former), nil
	}
	return s.encrypted(), nil
}

// decideFormerGrants waits for a second read after the spec changed: the first read may not show yet
// that the previous reconcile switched the account to a former key vault.
func (s *scope) decideFormerGrants(former []keyGrant) phases.Observation {
	c := meta.FindStatusCondition(s.storage.Status.Conditions, v1beta1.ConditionEncryptionReady)
	if !s.observes() && (c == nil || c.ObservedGeneration != s.storage.Generation || c.Status == metav1.ConditionUnknown) {
		return phases.Wait(v1beta1.ReasonUpdating, "checking again that the grant on key vault "+vaultNames(former)+" is unused before revoking it", s.jitter(retryInProgress))
	}
	return phases.Missing(v1beta1.ReasonUpdating, revocationOf(former))
}

func revocationOf(former []keyGrant) string {
	return "revoke the unused grant on key vault " + vaultNames(former)
}

func (s *scope) encrypted() phases.Verdict {
	message := "storage account is encrypted with key " + s.storage.Spec.Key.Name
	if s.account.HasServiceKeys {
		message += ", except its queues and tables, whose keys Azure manages since it was created; to encrypt them with the key too, create a new SecureStorage"
	}
	if len(s.unrevoked) > 0 {
		return phases.DoneBecause(v1beta1.ReasonGrantNotRevoked, message+"; "+s.unrevokedMessage()).RecheckAfter(s.pollInterval())
	}
	return s.doneUntilPoll(message)
}

// notEncryptedReason distinguishes drift from an encryption that was never complete for this spec. The
// reason stays until the account is encrypted.
func (s *scope) notEncryptedReason() string {
	c := meta.FindStatusCondition(s.storage.Status.Conditions, v1beta1.ConditionEncryptionReady)
	if c == nil || c.ObservedGeneration != s.storage.Generation {
		return v1beta1.ReasonEncrypting
	}
	switch c.Reason {
	case v1beta1.ReasonReady, v1beta1.ReasonGrantNotRevoked, v1beta1.ReasonEncryptionDrifted:
		return v1beta1.ReasonEncryptionDrifted
	default:
		return v1beta1.ReasonEncrypting
	}
}

// desiredEncryption returns the encryption that the spec asks for: no version means the latest one, and no user-assigned
// identity the one of the account, which has the grant.
func (s *scope) desiredEncryption() cloud.Encryption {
	return cloud.Encryption{
		KeySource:  cloud.CustomerManaged,
		VaultURI:   vaultURI(s.key.ID),
		KeyName:    s.storage.Spec.Key.Name,
		KeyVersion: pinnedVersion(s.storage),
	}
}

// vaultURI returns the URI of the key vault from a key identifier: https://VAULT/keys/KEY.
func vaultURI(keyID string) string {
	before, _, _ := strings.Cut(keyID, "/keys/")
	return before
}

// vaultName returns the name of a key vault from its URI: https://NAME.vault.azure.net.
func vaultName(uri string) string {
	host, _, _ := strings.Cut(strings.TrimPrefix(strings.ToLower(uri), "https://"), ".")
	return host
}

// isEncrypted says whether the account is encrypted with a key of the key vault that the spec names.
func (s *scope) isEncrypted() bool {
	e := s.account.Encryption
	return e.KeySource == cloud.CustomerManaged && vaultName(e.VaultURI) == strings.ToLower(vaultOf(s.storage).name)
}

func encryptionDrifts(want, have cloud.Encryption) []ssa.Drift {
	var drifts []ssa.Drift
	differ := func(field, want, have string) {
		if !strings.EqualFold(strings.TrimSuffix(want, "/"), strings.TrimSuffix(have, "/")) {
			drifts = append(drifts, ssa.Drift{Path: "encryption." + field, Desired: want, Actual: have})
		}
	}
	differ("keySource", want.KeySource, have.KeySource)
	differ("keyVaultUri", want.VaultURI, have.VaultURI)
	differ("keyName", want.KeyName, have.KeyName)
	differ("keyVersion", want.KeyVersion, have.KeyVersion)
	differ("identity.userAssignedIdentity", want.UserIdentity, have.UserIdentity)
	return drifts
}

func ensureEncryption(ctx context.Context, s *scope) (phases.Verdict, error) {
	if verdict, err := s.encrypt(ctx); err != nil || !verdict.IsDone() {
		return verdict, err
	}
	if err := s.revokeFormer(ctx, s.formerGrants()); err != nil {
		return s.classifyError(err)
	}
	return s.encrypted(), nil
}

func (s *scope) encrypt(ctx context.Context) (phases.Verdict, error) {
	want := s.desiredEncryption()
	if len(encryptionDrifts(want, s.account.Encryption)) == 0 {
		return phases.Done(""), nil
	}
	account, err := s.accounts.UpdateAccount(ctx, s.group(), s.account, cloud.Change{Encryption: &want})
	if cloud.Is(err, cloud.Propagating) {
		// The account keeps using the key that it uses now, so all other grants are unused.
		if err := s.revokeUnused(ctx); err != nil {
			return s.classifyError(err)
		}
		return s.decideRefusal(ctx)
	}
	if err != nil {
		return s.classifyError(err)
	}
	s.account = account
	if len(encryptionDrifts(want, account.Encryption)) > 0 {
		return phases.Wait(s.notEncryptedReason(), "waiting for the encryption change of storage account "+account.Name+" to finish", s.jitter(retryInProgress)), nil
	}
	return phases.Done(""), nil
}

// planEncryption assumes that the account is encrypted with the key.
func planEncryption(s *scope) phases.Verdict {
	account := *s.account
	account.Encryption = s.desiredEncryption()
	account.Encryption.CurrentKeyID, account.Encryption.CurrentVersion = s.key.VersionID, s.key.Version
	s.account, s.assumed = &account, true
	return phases.Done("")
}

// decideRefusal reads the key vault again once the propagation deadline has passed: Azure returns the
// same error for an unusable key vault as for a grant that has not propagated.
func (s *scope) decideRefusal(ctx context.Context) (phases.Verdict, error) {
	verdict := s.decidePropagation()
	if !verdict.IsStalled() || s.vault != nil {
		return verdict, nil
	}
	if unfit, err := s.readVault(ctx); err != nil || !unfit.IsDone() {
		return unfit, err
	}
	return verdict, nil
}

// decidePropagation distinguishes a grant that has not propagated yet from one that does not work.
func (s *scope) decidePropagation() phases.Verdict {
	deadline := s.storage.Spec.PropagationDeadline.Duration
	if deadline <= 0 {
		deadline = defaultPropagation
	}
	granted := s.grantedAt()
	if s.clock.Since(granted) > deadline {
		return s.stalledUntilPoll(v1beta1.ReasonPropagationTimedOut,
			"Azure still denies the storage account access to the key "+deadline.String()+" (spec.propagationDeadline) after it was granted; check that the key vault is enabled and that no firewall rule or deny assignment blocks the access")
	}
	return phases.Wait(v1beta1.ReasonPropagating, "waiting for the grant on key vault "+vaultOf(s.storage).name+" to propagate in Azure, which takes up to ten minutes", s.jitter(s.backoffSince(granted, minPollPropagation, maxPollPropagation)))
}

// grantedAt returns when the role assignment was created. Access policies have no creation time, so the
// transition time of KeyAccessReady is used for them.
func (s *scope) grantedAt() time.Time {
	if s.grant != nil && !s.grant.CreatedOn.IsZero() {
		return s.grant.CreatedOn
	}
	c := meta.FindStatusCondition(s.storage.Status.Conditions, v1beta1.ConditionKeyAccessReady)
	if c != nil && c.Status == metav1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return s.clock.Now()
}
