package securestorage

import (
	"context"
	"path"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

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
		reason := v1alpha1.ReasonEncrypting
		if meta.IsStatusConditionTrue(s.storage.Status.Conditions, v1alpha1.ConditionEncryptionReady) {
			reason = v1alpha1.ReasonEncryptionDrifted
		}
		return phases.Missing(reason, "encrypt storage account "+s.account.Name+" with key "+s.storage.Spec.Key.KeyName).Drifted(drifts...), nil
	}
	return s.encrypted(), nil
}

func (s *scope) encrypted() phases.Verdict {
	return s.settled("the account is encrypted with key " + s.storage.Spec.Key.KeyName)
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

// isEncrypted says whether the account is encrypted from the vault that the spec names, by what the
// account alone says.
func (s *scope) isEncrypted() bool {
	e := s.account.Encryption
	host, _, _ := strings.Cut(strings.TrimPrefix(strings.ToLower(e.VaultURI), "https://"), ".")
	return e.KeySource == cloud.CustomerManaged && host == strings.ToLower(vaultOf(s.storage).name)
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
	want := s.desiredEncryption()
	account, err := s.accounts.UpdateAccount(ctx, s.group(), s.account.Name, cloud.Change{Encryption: &want})
	switch {
	case cloud.Is(err, cloud.Propagating):
		return s.judgePropagation(), nil
	case err != nil:
		return s.trouble(err)
	}
	s.account = account
	if len(encryptionDrifts(want, account.Encryption)) > 0 {
		return phases.Wait(v1alpha1.ReasonEncrypting, "the cloud is changing the encryption of storage account "+account.Name, jitter(pauseProgress)), nil
	}
	return s.encrypted(), nil
}

// Bounds of the pause while a grant spreads: at first it is looked at often, and less often the
// longer it takes.
const (
	shortestSpread = 2 * time.Second
	longestSpread  = 30 * time.Second
)

// judgePropagation tells a grant that has yet to spread from one that does not work.
func (s *scope) judgePropagation() phases.Verdict {
	deadline := s.storage.Spec.PropagationDeadline.Duration
	if deadline <= 0 {
		deadline = defaultPropagation
	}
	age := s.clock.Since(s.grantedAt())
	if age > deadline {
		return s.blocked(v1alpha1.ReasonPropagationTimedOut,
			"the cloud still does not let the account use the key, "+deadline.String()+" (spec.propagationDeadline) after it was granted; see whether a firewall of the vault or a deny assignment forbids it")
	}
	const share = 4
	pause := min(max(age/share, shortestSpread), longestSpread)
	return phases.Wait(v1alpha1.ReasonPropagating, "the grant has to be known everywhere in the cloud before the account can use the key; that takes up to ten minutes", jitter(pause))
}

// grantedAt is when the cloud says that the grant was made. Access policies have no such time: for
// them it is since when the phase before is done.
func (s *scope) grantedAt() time.Time {
	if s.grant != nil && !s.grant.CreatedOn.IsZero() {
		return s.grant.CreatedOn
	}
	if c := meta.FindStatusCondition(s.storage.Status.Conditions, v1alpha1.ConditionKeyAccessReady); c != nil {
		return c.LastTransitionTime.Time
	}
	return s.clock.Now()
}

// keyVersionOf is the last part of a versioned key identifier.
func keyVersionOf(keyID string) string {
	if strings.Count(keyID, "/") < len([]string{"https:", "", "vault", "keys", "name", "version"})-1 {
		return ""
	}
	return path.Base(keyID)
}
