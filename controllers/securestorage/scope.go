package securestorage

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// scope is what one reconcile knows. Phases add what they find.
type scope struct {
	// storage is the SecureStorage, as it was read.
	storage *v1alpha1.SecureStorage
	door    *door
	clock   clock.PassiveClock

	// accounts and vaults are the clients of the subscriptions of the account and of the vault:
	// made by connect, which every phase begins with.
	accounts, vaults *cloud.Client

	// account is the account as the cloud has it; nil before it was read or if there is none.
	account *cloud.Account
	// vault is nil if this pass had no need to read it.
	vault *cloud.Vault
	key   *cloud.Key
	// grant is the role assignment, or nil under access policies.
	grant *cloud.Grant
}

// connect makes the clients, with the credential that the object asks for.
func (s *scope) connect(ctx context.Context) error {
	if s.accounts != nil {
		return nil
	}
	credential, err := s.door.credential(ctx, s.storage)
	if err != nil {
		return err
	}
	accounts, err := s.door.cloud.Client(s.storage.Spec.Provider.SubscriptionID, credential)
	if err != nil {
		return err
	}
	vaults, err := s.door.cloud.Client(vaultOf(s.storage).subscription, credential)
	if err != nil {
		return err
	}
	s.accounts, s.vaults = accounts, vaults
	return nil
}

// readAccount reads the account once in a pass; nil means that there is none.
func (s *scope) readAccount(ctx context.Context) error {
	if s.account != nil {
		return nil
	}
	account, err := s.accounts.Account(ctx, s.group(), accountName(s.storage))
	if cloud.Is(err, cloud.NotFound) {
		return nil
	}
	s.account = account
	return err
}

func (s *scope) group() string { return s.storage.Spec.Provider.ResourceGroup }

// accountName is the name that is given, or derived from the UID, so that asking for the account
// again is asking for the same one.
func accountName(storage *v1alpha1.SecureStorage) string {
	if storage.Spec.AccountName != "" {
		return storage.Spec.AccountName
	}
	return cloud.AccountName(string(storage.UID))
}

// vaultLocation is where the key vault is.
type vaultLocation struct{ subscription, group, name string }

// vaultOf reads spec.key.vault, or the parts of spec.key.vaultID:
// /subscriptions/S/resourceGroups/G/providers/Microsoft.KeyVault/vaults/V.
func vaultOf(storage *v1alpha1.SecureStorage) vaultLocation {
	at := vaultLocation{subscription: storage.Spec.Provider.SubscriptionID, group: storage.Spec.Provider.ResourceGroup}
	if vault := storage.Spec.Key.Vault; vault != nil {
		at.name = vault.Name
		if vault.ResourceGroup != "" {
			at.group = vault.ResourceGroup
		}
		return at
	}
	parts := strings.Split(strings.Trim(storage.Spec.Key.VaultID, "/"), "/")
	for i := 0; i+1 < len(parts); i += 2 {
		switch strings.ToLower(parts[i]) {
		case "subscriptions":
			at.subscription = parts[i+1]
		case "resourcegroups":
			at.group = parts[i+1]
		case "vaults":
			at.name = parts[i+1]
		}
	}
	return at
}

// pinnedVersion is the version of the key that the spec insists on, or empty if it follows the vault.
func pinnedVersion(storage *v1alpha1.SecureStorage) string {
	if version := storage.Spec.Key.Version; version != v1alpha1.KeyVersionLatest {
		return version
	}
	return ""
}

// Defaults for objects that were stored before the schema had them.
const (
	defaultPoll        = 5 * time.Minute
	defaultPropagation = 30 * time.Minute
)

func (s *scope) pollInterval() time.Duration {
	if poll := s.storage.Spec.PollInterval.Duration; poll > 0 {
		return jitter(poll)
	}
	return jitter(defaultPoll)
}

// jitter varies a duration by up to a tenth, so that objects that were made together do not come
// back together.
func jitter(d time.Duration) time.Duration {
	const share = 10
	spread := int64(d / share)
	if spread == 0 {
		return d
	}
	return d - time.Duration(spread) + time.Duration(rand.Int64N(2*spread)) //nolint:gosec // spreads load, and secures nothing
}

// settled is Done for something in the cloud, which does not tell of changes: it is looked at again.
func (s *scope) settled(message string) phases.Verdict {
	return phases.Done(message).LookAgainAfter(s.pollInterval())
}

// blocked is Stalled for something in the cloud: it is looked at again, at the pace of the poll,
// since nobody tells when the cloud has been mended.
func (s *scope) blocked(reason, message string) phases.Verdict {
	return phases.Stalled(reason, message).LookAgainAfter(s.pollInterval())
}
