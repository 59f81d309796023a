package securestorage

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// keyAccess grants the account access to the key. It checks the key vault and the key first, because
// losing the key means losing the data.
var keyAccess = phases.Step[*scope]{
	Name:    "KeyAccess",
	Observe: observeKeyAccess,
	Ensure:  ensureKeyAccess,
	Planned: func(s *scope) phases.Verdict {
		s.granted = true
		return phases.Done("")
	},
	Undo: undoKeyAccess,
}

func observeKeyAccess(ctx context.Context, s *scope) (phases.Observation, error) {
	if err := s.reserveVaultReads(); err != nil {
		return s.classifyError(err)
	}
	if err := s.findRoleAssignment(ctx); err != nil {
		return s.classifyError(err)
	}
	if verdict, err := s.checkVault(ctx); err != nil || !verdict.IsDone() {
		return verdict, err
	}
	if verdict, err := s.checkKey(ctx); err != nil || !verdict.IsDone() {
		return verdict, err
	}
	if !s.isGranted() {
		return s.decideMissingGrant(), nil
	}
	return phases.Done("storage account has access to key vault " + vaultOf(s.storage).name), nil
}

// findRoleAssignment reads the role assignment of the account. A missing key vault, or an assumed identity, has none.
func (s *scope) findRoleAssignment(ctx context.Context) error {
	if s.accessType() == v1beta1.AccessPolicy || s.account.PrincipalID == "" {
		return nil
	}
	grant, err := s.vaults.Grant(ctx, accountName(s.storage), vaultOf(s.storage).id(), s.account.PrincipalID)
	if err != nil && !isGone(err) {
		return err
	}
	s.grant = grant
	return nil
}

func (s *scope) isGranted() bool {
	if s.accessType() == v1beta1.AccessPolicy {
		return s.granted || s.vault != nil && hasPolicy(s.vault, s.account.PrincipalID)
	}
	return s.granted || s.grant != nil
}

// decideMissingGrant reports drift only if the encryption has been ready with the grant: a grant that
// was just created may not be visible yet.
func (s *scope) decideMissingGrant() phases.Observation {
	at := vaultOf(s.storage)
	missing := phases.Missing(v1beta1.ReasonGranting, "grant the storage account access to the keys of key vault "+at.name)
	if !s.observes() && !meta.IsStatusConditionTrue(s.storage.Status.Conditions, v1beta1.ConditionEncryptionReady) {
		return missing
	}
	return missing.Drifted(ssa.Drift{Path: "vaults/" + at.name + "/access", Desired: string(s.accessType()), Actual: "none"})
}

func (s *scope) accessType() v1beta1.SecureStorageAccessType {
	if s.storage.Spec.Access.Type == v1beta1.AccessPolicy {
		return v1beta1.AccessPolicy
	}
	return v1beta1.AccessRoleAssignment
}

// checkVault reads the key vault unless it was accepted before.
func (s *scope) checkVault(ctx context.Context) (phases.Verdict, error) {
	if s.accessType() == v1beta1.AccessRoleAssignment && s.wasVaultAccepted() {
		return phases.Done(""), nil
	}
	return s.readVault(ctx)
}

// wasVaultAccepted says whether the key vault passed the checks before: the account has the role assignment, and is encrypted
// with one of its keys, or this controller created the grant. Purge protection cannot be disabled later. A grant that a user
// created proves nothing. Neither does the encryption without the role assignment, or with a recorded access policy: the account
// may use the key by an access policy, which a switch to role assignments revokes.
func (s *scope) wasVaultAccepted() bool {
	policy := keyGrant{vault: vaultOf(s.storage), principal: s.account.PrincipalID, access: v1beta1.AccessPolicy}
	if s.grant == nil || has(s.recordedGrants(), policy) {
		return false
	}
	return s.isEncrypted() || s.hasManagedGrant()
}

func (s *scope) readVault(ctx context.Context) (phases.Verdict, error) {
	at := vaultOf(s.storage)
	vault, err := s.vaults.Vault(ctx, accountName(s.storage), at.group, at.name)
	if isGone(err) {
		return s.stalledUntilPoll(v1beta1.ReasonVaultMissing, fmt.Sprintf(
			"key vault %s does not exist in resource group %s of subscription %s; create it, recover it if it was deleted, or correct spec.key", at.name, at.group, at.subscription)), nil
	}
	if err != nil {
		return s.classifyError(err)
	}
	s.vault = vault
	return s.decideVault(vault), nil
}

func (s *scope) decideVault(vault *cloud.Vault) phases.Verdict {
	name := vaultOf(s.storage).name
	switch {
	case !vault.SoftDelete || !vault.PurgeProtection:
		return s.stalledUntilPoll(v1beta1.ReasonVaultNotProtected, fmt.Sprintf(
			"key vault %s does not have soft delete and purge protection, without which deleting a key makes the data unreadable; enable both (they cannot be disabled later)", name))
	case s.accessType() == v1beta1.AccessRoleAssignment && !vault.RBAC:
		return s.stalledUntilPoll(v1beta1.ReasonAccessTypeMismatch, fmt.Sprintf(
			"key vault %s uses access policies and ignores role assignments; set spec.access.type to AccessPolicy, or enable Azure RBAC on the key vault", name))
	case s.accessType() == v1beta1.AccessPolicy && vault.RBAC:
		return s.stalledUntilPoll(v1beta1.ReasonAccessTypeMismatch, fmt.Sprintf(
			"key vault %s uses Azure RBAC and ignores access policies; set spec.access.type to RoleAssignment, or disable Azure RBAC on the key vault", name))
	default:
		return phases.Done("")
	}
}

func (s *scope) checkKey(ctx context.Context) (phases.Verdict, error) {
	at, spec := vaultOf(s.storage), s.storage.Spec.Key
	key, err := s.vaults.Key(ctx, accountName(s.storage), at.group, at.name, spec.Name, pinnedVersion(s.storage))
	if isGone(err) {
		return s.decideMissingKey(ctx)
	}
	if err != nil {
		return s.classifyError(err)
	}
	s.key = key
	return s.decideKey(key), nil
}

// decideMissingKey finds out what is missing: the key vault, the key, or only the version.
func (s *scope) decideMissingKey(ctx context.Context) (phases.Verdict, error) {
	if s.vault == nil {
		if verdict, err := s.readVault(ctx); err != nil || !verdict.IsDone() {
			return verdict, err
		}
	}
	at, name, pinned := vaultOf(s.storage), s.storage.Spec.Key.Name, pinnedVersion(s.storage)
	missing := s.stalledUntilPoll(v1beta1.ReasonKeyMissing, fmt.Sprintf(
		"key %s does not exist in key vault %s, or was deleted; data that is encrypted with it is unreadable; create or recover the key, or correct spec.key.name", name, at.name))
	if pinned == "" {
		return missing, nil
	}
	_, err := s.vaults.Key(ctx, accountName(s.storage), at.group, at.name, name, "")
	if cloud.Is(err, cloud.NotFound) {
		return missing, nil
	}
	if err != nil {
		return s.classifyError(err)
	}
	return s.stalledUntilPoll(v1beta1.ReasonKeyVersionMissing, fmt.Sprintf(
		"version %s of key %s does not exist in key vault %s; data that is encrypted with it is unreadable; recover the version, or correct spec.key.version", pinned, name, at.name)), nil
}

// supportedKeySizes are the RSA key sizes that storage accounts support.
var supportedKeySizes = []int32{2048, 3072, 4096}

func (s *scope) decideKey(key *cloud.Key) phases.Verdict {
	name := s.storage.Spec.Key.Name
	if !key.Enabled {
		return s.stalledUntilPoll(v1beta1.ReasonKeyDisabled, fmt.Sprintf(
			"key %s is disabled; data that is encrypted with it is unreadable; enable the key", name))
	}
	if key.Type != "RSA" && key.Type != "RSA-HSM" || key.Size != 0 && !slices.Contains(supportedKeySizes, key.Size) {
		return s.stalledUntilPoll(v1beta1.ReasonKeyUnsuitable, fmt.Sprintf(
			"key %s is %s, but storage accounts support only RSA keys with 2048, 3072 or 4096 bits; set spec.key.name to another key", name, describeKey(key)))
	}
	for _, operation := range []string{"wrapKey", "unwrapKey"} {
		if len(key.Operations) > 0 && !slices.Contains(key.Operations, operation) {
			return s.stalledUntilPoll(v1beta1.ReasonKeyUnsuitable, fmt.Sprintf(
				"key %s does not permit the operation %s; permit it, or set spec.key.name to another key", name, operation))
		}
	}
	return phases.Done("")
}

// describeKey returns, for example, "EC" or "RSA with 1024 bits".
func describeKey(key *cloud.Key) string {
	if key.Size == 0 {
		return key.Type
	}
	return fmt.Sprintf("%s with %d bits", key.Type, key.Size)
}

func hasPolicy(vault *cloud.Vault, principalID string) bool {
	permissions := vault.Policies[strings.ToLower(principalID)]
	for _, needed := range cloud.KeyPermissions {
		if !slices.Contains(permissions, needed) && !slices.Contains(permissions, "all") {
			return false
		}
	}
	return true
}

// hasAnyPolicy says whether the principal has any permission that this controller grants.
func hasAnyPolicy(vault *cloud.Vault, principalID string) bool {
	return slices.ContainsFunc(vault.Policies[strings.ToLower(principalID)], func(permission string) bool {
		return slices.Contains(cloud.KeyPermissions, permission)
	})
}

func ensureKeyAccess(ctx context.Context, s *scope) (phases.Verdict, error) {
	if !s.isRecorded(s.desiredGrant(s.account.PrincipalID)) {
		return s.recordFirst(ctx)
	}
	if err := s.createGrant(ctx); err != nil {
		return s.classifyError(err)
	}
	s.granted = true
	return phases.Done("storage account has access to key vault " + vaultOf(s.storage).name), nil
}

// recordFirst records the grant in the status; the next reconcile creates it. If the list is full,
// unused grants are revoked first.
func (s *scope) recordFirst(ctx context.Context) (phases.Verdict, error) {
	if len(s.grantsToRecord()) >= maxRecordedGrants {
		if err := s.revokeUnused(ctx); err != nil {
			return s.classifyError(err)
		}
		s.abandonUnrevoked()
	}
	s.grantPlanned = true
	return phases.Wait(v1beta1.ReasonGranting, "recording the grant on key vault "+vaultOf(s.storage).name+" in status.grants before creating it", s.jitter(minPoll)), nil
}

func (s *scope) createGrant(ctx context.Context) (err error) {
	at := vaultOf(s.storage)
	if s.accessType() == v1beta1.AccessPolicy {
		return s.vaults.SetAccessPolicy(ctx, s.account.Name, at.group, at.name, s.vault.Tenant, s.account.PrincipalID)
	}
	s.grant, err = s.vaults.CreateGrant(ctx, s.account.Name, at.id(), s.account.PrincipalID)
	return err
}
