package securestorage

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// encryption is the account's encryption with the key.
var encryption = phases.Step[*scope]{
	Name:    "Encryption",
	Observe: observeEncryption,
	Ensure:  ensureEncryption,
	Undo:    undoEncryption,
}

func observeEncryption(_ context.Context, s *scope) (phases.Verdict, error) {
	if drifts := encryptionDrifts(s.desiredEncryption(), s.account.Encryption); len(drifts) > 0 {
		missing := phases.Missing(s.whyNotEncrypted(), "encrypt storage account "+s.account.Name+" with key "+s.storage.Spec.Key.KeyName)
		return missing.Drifted(drifts...), nil
	}
	if former := s.former(); len(former) > 0 {
		return s.judgeFormer(former), nil
	}
	return s.encrypted(), nil
}

// judgeFormer: right after the spec has changed, the account may be encrypted another way already than
// can be seen, by a write of the pass before. So it is looked at twice.
func (s *scope) judgeFormer(former []hold) phases.Verdict {
	at := vaultNames(former)
	c := meta.FindStatusCondition(s.storage.Status.Conditions, v1alpha1.ConditionEncryptionReady)
	if c == nil || c.ObservedGeneration != s.storage.Generation || c.Status == metav1.ConditionUnknown {
		return phases.Wait(v1alpha1.ReasonUpdating, "looking once more whether the grant on key vault "+at+" is not used any more", jitter(pauseProgress))
	}
	return phases.Missing(v1alpha1.ReasonUpdating, "take back the grant on key vault "+at+" that is not used any more")
}

func (s *scope) encrypted() phases.Verdict {
	message := "the account is encrypted with key " + s.storage.Spec.Key.KeyName
	if len(s.left) > 0 {
		return phases.DoneBecause(v1alpha1.ReasonGrantNotRevoked, message+"; "+s.describeLeft()).LookAgainAfter(s.pollInterval())
	}
	return s.settled(message)
}

// whyNotEncrypted is the reason for as long as the account is not encrypted as declared: somebody has
// changed what was there for the same spec, or it has yet to be brought about. It stays until then.
func (s *scope) whyNotEncrypted() string {
	c := meta.FindStatusCondition(s.storage.Status.Conditions, v1alpha1.ConditionEncryptionReady)
	if c == nil || c.ObservedGeneration != s.storage.Generation {
		return v1alpha1.ReasonEncrypting
	}
	if c.Reason == v1alpha1.ReasonReady || c.Reason == v1alpha1.ReasonEncryptionDrifted {
		return v1alpha1.ReasonEncryptionDrifted
	}
	return v1alpha1.ReasonEncrypting
}

// desiredEncryption follows the newest version of the key unless the spec pins one.
func (s *scope) desiredEncryption() cloud.Encryption {
	return cloud.Encryption{
		KeySource:  cloud.CustomerManaged,
		VaultURI:   vaultURI(s.key.ID),
		KeyName:    s.storage.Spec.Key.KeyName,
		KeyVersion: pinnedVersion(s.storage),
	}
}

// vaultURI is the vault's part of a key's identifier: https://VAULT/keys/KEY.
func vaultURI(keyID string) string {
	before, _, _ := strings.Cut(keyID, "/keys/")
	return before
}

// vaultName is the vault's name in its URI: https://NAME.vault.azure.net.
func vaultName(uri string) string {
	host, _, _ := strings.Cut(strings.TrimPrefix(strings.ToLower(uri), "https://"), ".")
	return host
}

// isEncrypted says whether the account is encrypted from the vault that the spec names, by what the
// account alone says.
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
	return drifts
}

func ensureEncryption(ctx context.Context, s *scope) (phases.Verdict, error) {
	if verdict, err := s.encrypt(ctx); err != nil || !verdict.IsDone() {
		return verdict, err
	}
	if err := s.retire(ctx, s.former()); err != nil {
		return s.trouble(err)
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
		// It goes on using the key that it uses now, and no other.
		if err := s.retireUnused(ctx); err != nil {
			return s.trouble(err)
		}
		return s.explainRefusal(ctx)
	}
	if err != nil {
		return s.trouble(err)
	}
	s.account = account
	if len(encryptionDrifts(want, account.Encryption)) > 0 {
		return phases.Wait(s.whyNotEncrypted(), "the cloud is changing the encryption of storage account "+account.Name, jitter(pauseProgress)), nil
	}
	return phases.Done(""), nil
}

// explainRefusal: a vault that has become unfit since it was looked at refuses in the same words as a
// grant that has yet to spread.
func (s *scope) explainRefusal(ctx context.Context) (phases.Verdict, error) {
	verdict := s.judgePropagation()
	if !verdict.IsStalled() || s.vault != nil {
		return verdict, nil
	}
	if unfit, err := s.lookAtVault(ctx); err != nil || !unfit.IsDone() {
		return unfit, err
	}
	return verdict, nil
}

// judgePropagation tells a grant that has yet to spread from one that does not work.
func (s *scope) judgePropagation() phases.Verdict {
	deadline := s.storage.Spec.PropagationDeadline.Duration
	if deadline <= 0 {
		deadline = defaultPropagation
	}
	granted := s.grantedAt()
	if s.clock.Since(granted) > deadline {
		return s.blocked(v1alpha1.ReasonPropagationTimedOut,
			"the cloud still does not let the account use the key, "+deadline.String()+" (spec.propagationDeadline) after it was granted; see whether the vault is disabled, or its firewall or a deny assignment forbids it")
	}
	return phases.Wait(v1alpha1.ReasonPropagating, "the grant has to be known everywhere in the cloud before the account can use the key; that takes up to ten minutes", jitter(s.pauseSince(granted, shortestSpread, longestSpread)))
}

// grantedAt is when the cloud says that the grant was made. Access policies have no such time: for
// them it is since when the phase before is done.
func (s *scope) grantedAt() time.Time {
	if s.grant != nil && !s.grant.CreatedOn.IsZero() {
		return s.grant.CreatedOn
	}
	c := meta.FindStatusCondition(s.storage.Status.Conditions, v1alpha1.ConditionKeyAccessReady)
	if c != nil && c.Status == metav1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return s.clock.Now()
}
