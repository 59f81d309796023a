package securestorage

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// keyAccess is the account's right to use the key, after a look at whether vault and key are fit: a
// key that is lost is data that is lost.
var keyAccess = phases.Step[*scope]{
	Name:    "KeyAccess",
	Observe: observeKeyAccess,
	Ensure:  ensureKeyAccess,
	Undo:    undoKeyAccess,
}

func observeKeyAccess(ctx context.Context, s *scope) (phases.Verdict, error) {
	if err := s.enterVault(); err != nil {
		return s.trouble(err)
	}
	if err := s.findAssignment(ctx); err != nil {
		return s.trouble(err)
	}
	if verdict, err := s.checkVault(ctx); err != nil || !verdict.IsDone() {
		return verdict, err
	}
	if verdict, err := s.checkKey(ctx); err != nil || !verdict.IsDone() {
		return verdict, err
	}
	if !s.isGranted() {
		return s.judgeNoGrant(), nil
	}
	return phases.Done("the account may use the key"), nil
}

// findAssignment looks for the role assignment. In a vault that is not there, there is none.
func (s *scope) findAssignment(ctx context.Context) error {
	if s.accessType() == v1alpha1.AccessPolicy {
		return nil
	}
	grant, err := s.vaults.Grant(ctx, accountName(s.storage), vaultOf(s.storage).id(), s.account.PrincipalID)
	if err != nil && !cloud.Is(err, cloud.NotFound, cloud.GroupMissing) {
		return err
	}
	s.grant = grant
	return nil
}

func (s *scope) isGranted() bool {
	if s.accessType() == v1alpha1.AccessPolicy {
		return s.granted || s.vault != nil && hasPolicy(s.vault, s.account.PrincipalID)
	}
	return s.granted || s.grant != nil
}

// judgeNoGrant calls it drift only if the grant has once been honoured: right after it was made,
// the cloud may not show it yet.
func (s *scope) judgeNoGrant() phases.Verdict {
	at := vaultOf(s.storage)
	missing := phases.Missing(v1alpha1.ReasonGranting, "let the account use the keys of vault "+at.name)
	if !meta.IsStatusConditionTrue(s.storage.Status.Conditions, v1alpha1.ConditionEncryptionReady) {
		return missing
	}
	return missing.Drifted(ssa.Drift{Path: "vaults/" + at.name + "/access", Desired: string(s.accessType()), Actual: "none"})
}

func (s *scope) accessType() v1alpha1.SecureStorageAccessType {
	if s.storage.Spec.Access.Type == v1alpha1.AccessPolicy {
		return v1alpha1.AccessPolicy
	}
	return v1alpha1.AccessRoleAssignment
}

// checkVault looks at the vault where something is still to be done with it.
func (s *scope) checkVault(ctx context.Context) (phases.Verdict, error) {
	if s.accessType() == v1alpha1.AccessRoleAssignment && s.hasPassed() {
		return phases.Done(""), nil
	}
	return s.lookAtVault(ctx)
}

// hasPassed says whether the vault was found fit before: the account is encrypted from it, or has a
// grant of ours on it, and purge protection cannot be switched off.
func (s *scope) hasPassed() bool {
	return s.isEncrypted() || s.grant != nil && cloud.IsOurGrant(s.grant.ID, vaultOf(s.storage).id(), s.account.PrincipalID)
}

func (s *scope) lookAtVault(ctx context.Context) (phases.Verdict, error) {
	at := vaultOf(s.storage)
	vault, err := s.vaults.Vault(ctx, accountName(s.storage), at.group, at.name)
	if cloud.Is(err, cloud.NotFound, cloud.GroupMissing) {
		return s.blocked(v1alpha1.ReasonVaultMissing, fmt.Sprintf(
			"there is no key vault %s in resource group %s of subscription %s; create it, recover it if it was deleted, or correct spec.key", at.name, at.group, at.subscription)), nil
	}
	if err != nil {
		return s.trouble(err)
	}
	s.vault = vault
	return s.judgeVault(vault), nil
}

func (s *scope) judgeVault(vault *cloud.Vault) phases.Verdict {
	name := vaultOf(s.storage).name
	switch {
	case !vault.SoftDelete || !vault.PurgeProtection:
		return s.blocked(v1alpha1.ReasonVaultNotProtected, fmt.Sprintf(
			"key vault %s must have soft delete and purge protection, or its keys, and with them the data, could be lost at once; switch both on (it cannot be undone)", name))
	case s.accessType() == v1alpha1.AccessRoleAssignment && !vault.RBAC:
		return s.blocked(v1alpha1.ReasonAccessTypeMismatch, fmt.Sprintf(
			"key vault %s works with access policies and ignores roles; set spec.access.type to AccessPolicy, or switch the vault to role-based access", name))
	case s.accessType() == v1alpha1.AccessPolicy && vault.RBAC:
		return s.blocked(v1alpha1.ReasonAccessTypeMismatch, fmt.Sprintf(
			"key vault %s works with roles and ignores access policies; set spec.access.type to RoleAssignment, or switch the vault to access policies", name))
	default:
		return phases.Done("")
	}
}

func (s *scope) checkKey(ctx context.Context) (phases.Verdict, error) {
	at, spec := vaultOf(s.storage), s.storage.Spec.Key
	key, err := s.vaults.Key(ctx, accountName(s.storage), at.group, at.name, spec.KeyName, pinnedVersion(s.storage))
	if cloud.Is(err, cloud.NotFound, cloud.GroupMissing) {
		return s.judgeNoKey(ctx)
	}
	if err != nil {
		return s.trouble(err)
	}
	s.key = key
	return s.judgeKey(key), nil
}

// judgeNoKey finds out what of it is missing: the vault, the key, or only the version.
func (s *scope) judgeNoKey(ctx context.Context) (phases.Verdict, error) {
	if s.vault == nil {
		if verdict, err := s.lookAtVault(ctx); err != nil || !verdict.IsDone() {
			return verdict, err
		}
	}
	at, name, pinned := vaultOf(s.storage), s.storage.Spec.Key.KeyName, pinnedVersion(s.storage)
	missing := s.blocked(v1alpha1.ReasonKeyMissing, fmt.Sprintf(
		"vault %s has no key %s, or it was deleted: what is encrypted with it is out of reach; create or recover it, or correct spec.key.keyName", at.name, name))
	if pinned == "" {
		return missing, nil
	}
	_, err := s.vaults.Key(ctx, accountName(s.storage), at.group, at.name, name, "")
	if cloud.Is(err, cloud.NotFound) {
		return missing, nil
	}
	if err != nil {
		return s.trouble(err)
	}
	return s.blocked(v1alpha1.ReasonKeyVersionMissing, fmt.Sprintf(
		"key %s of vault %s has no version %s; data that is encrypted with it is out of reach until it is recovered. If it never was, correct spec.key.version", name, at.name, pinned)), nil
}

// fitSizes are the sizes of RSA keys that storage accounts take.
var fitSizes = []int32{2048, 3072, 4096}

func (s *scope) judgeKey(key *cloud.Key) phases.Verdict {
	name := s.storage.Spec.Key.KeyName
	if !key.Enabled {
		return s.blocked(v1alpha1.ReasonKeyDisabled, fmt.Sprintf(
			"key %s is disabled: what is encrypted with it is out of reach; enable it", name))
	}
	if key.Type != "RSA" && key.Type != "RSA-HSM" || key.Size != 0 && !slices.Contains(fitSizes, key.Size) {
		return s.blocked(v1alpha1.ReasonKeyUnsuitable, fmt.Sprintf(
			"key %s is %s, and storage accounts take RSA with 2048, 3072 or 4096 bits; name another key in spec.key.keyName", name, describeKey(key)))
	}
	for _, operation := range []string{"wrapKey", "unwrapKey"} {
		if len(key.Operations) > 0 && !slices.Contains(key.Operations, operation) {
			return s.blocked(v1alpha1.ReasonKeyUnsuitable, fmt.Sprintf(
				"key %s does not allow %s; allow it, or name another key in spec.key.keyName", name, operation))
		}
	}
	return phases.Done("")
}

// describeKey reads like "EC" or "RSA with 1024 bits".
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

// hasAnyPolicy says whether there is something of ours to take back.
func hasAnyPolicy(vault *cloud.Vault, principalID string) bool {
	return slices.ContainsFunc(vault.Policies[strings.ToLower(principalID)], func(permission string) bool {
		return slices.Contains(cloud.KeyPermissions, permission)
	})
}

func ensureKeyAccess(ctx context.Context, s *scope) (phases.Verdict, error) {
	if !s.isNoted(s.current(s.account.PrincipalID)) {
		return s.noteFirst(ctx)
	}
	if err := s.makeGrant(ctx); err != nil {
		return s.trouble(err)
	}
	s.granted = true
	return phases.Done("the account may use the key"), nil
}

// noteFirst has the status note the grant: the next pass makes it. While the list is full, others go first.
func (s *scope) noteFirst(ctx context.Context) (phases.Verdict, error) {
	if len(s.notes()) >= mostNoted {
		if err := s.retireUnused(ctx); err != nil {
			return s.trouble(err)
		}
		s.giveUpLeft()
	}
	s.intended = true
	return phases.Wait(v1alpha1.ReasonGranting, "noting the grant on key vault "+vaultOf(s.storage).name+" before it is made", jitter(shortestPause)), nil
}

func (s *scope) makeGrant(ctx context.Context) (err error) {
	at := vaultOf(s.storage)
	if s.accessType() == v1alpha1.AccessPolicy {
		return s.vaults.SetAccessPolicy(ctx, s.account.Name, at.group, at.name, s.vault.Tenant, s.account.PrincipalID)
	}
	s.grant, err = s.vaults.CreateGrant(ctx, s.account.Name, at.id(), s.account.PrincipalID)
	return err
}
