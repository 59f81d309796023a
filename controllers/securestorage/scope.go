package securestorage

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

	// credential is the one that the object asks for; nil before it was read.
	credential *cloud.Credential
	// accounts and vaults are the clients of the subscriptions of the account and of the vault:
	// made by connect.
	accounts, vaults *cloud.Client

	// looked is true once the account was read, and account is what the cloud has; nil if there is none.
	looked  bool
	account *cloud.Account
	// vault is nil if this pass had no need to read it.
	vault *cloud.Vault
	key   *cloud.Key
	// grant is the role assignment that gives the account access, or nil; there is none under access
	// policies. granted is true once this pass has given it access.
	grant   *cloud.Grant
	granted bool

	// intended is true if this pass would have made the grant, had the status noted it before; retired are
	// former grants that this pass has taken back, and left those that it may not.
	intended bool
	retired  []hold
	left     []leftGrant
	// abandoned names what a teardown has given up.
	abandoned []string
}

// begin connects and reads the account: the way into every pass, also of a teardown.
func (s *scope) begin(ctx context.Context) error {
	if err := s.connect(ctx); err != nil {
		return err
	}
	return s.readAccount(ctx)
}

// Reads of a pass: as long as there is no account, one shows that; then there are the grant and the
// key besides, and the vault as long as nothing is granted.
const (
	readsOfAccount = 1
	readsOfVault   = 3
)

// reads is how many reads the pass is about to make, as far as the status tells.
func (s *scope) reads() int {
	if meta.IsStatusConditionTrue(s.storage.Status.Conditions, v1alpha1.ConditionStorageAccountReady) {
		return readsOfAccount + readsOfVault
	}
	return readsOfAccount
}

// enterVault waits its turn for what a pass reads of the vault, if that was not foreseen: then the next
// one begins with the account again.
func (s *scope) enterVault() error {
	if s.reads() > readsOfAccount {
		return nil
	}
	return s.accounts.Enter(accountName(s.storage), readsOfAccount+readsOfVault)
}

// connect makes the clients, with the credential that the object asks for, and waits its turn.
func (s *scope) connect(ctx context.Context) error {
	if s.accounts != nil {
		return nil
	}
	accounts, err := s.clientOf(ctx, s.storage.Spec.Provider.SubscriptionID)
	if err != nil {
		return err
	}
	vaults, err := s.clientOf(ctx, vaultOf(s.storage).subscription)
	if err != nil {
		return err
	}
	if err := accounts.Enter(accountName(s.storage), s.reads()); err != nil {
		return err
	}
	s.accounts, s.vaults = accounts, vaults
	return nil
}

// clientOf is the client of a subscription, with the object's credential, which is read once in a pass.
func (s *scope) clientOf(ctx context.Context, subscription string) (*cloud.Client, error) {
	if s.credential == nil {
		credential, err := s.door.credential(ctx, s.storage)
		if err != nil {
			return nil, err
		}
		s.credential = &credential
	}
	return s.door.cloud.Client(subscription, *s.credential)
}

// readAccount reads the account once in a pass; nil means that there is none.
func (s *scope) readAccount(ctx context.Context) error {
	if s.looked {
		return nil
	}
	account, err := s.accounts.Account(ctx, s.group(), accountName(s.storage))
	if err != nil && !cloud.Is(err, cloud.NotFound) {
		return err
	}
	s.looked, s.account = true, account
	return nil
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

// id is the vault's resource id.
func (v vaultLocation) id() string {
	return "/subscriptions/" + v.subscription + "/resourceGroups/" + v.group + "/providers/Microsoft.KeyVault/vaults/" + v.name
}

// vaultOf is where the vault is that the spec names.
func vaultOf(storage *v1alpha1.SecureStorage) vaultLocation {
	at := vaultLocation{subscription: storage.Spec.Provider.SubscriptionID, group: storage.Spec.Provider.ResourceGroup}
	vault := storage.Spec.Key.Vault
	if vault == nil {
		return at.parse(storage.Spec.Key.VaultID)
	}
	at.name = vault.Name
	if vault.ResourceGroup != "" {
		at.group = vault.ResourceGroup
	}
	return at
}

// parse reads the parts of a resource id:
// /subscriptions/S/resourceGroups/G/providers/Microsoft.KeyVault/vaults/V.
func (v vaultLocation) parse(id string) vaultLocation {
	parts := strings.Split(strings.Trim(id, "/"), "/")
	for i := 0; i+1 < len(parts); i += 2 {
		switch strings.ToLower(parts[i]) {
		case "subscriptions":
			v.subscription = parts[i+1]
		case "resourcegroups":
			v.group = parts[i+1]
		case "vaults":
			v.name = parts[i+1]
		}
	}
	return v
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
	defaultPropagation = 15 * time.Minute
)

// pollInterval is when to look again at something that is as it should be: never earlier than the
// spec says, and up to a tenth later, so that objects that were made together drift apart.
func (s *scope) pollInterval() time.Duration {
	poll := s.storage.Spec.PollInterval.Duration
	if poll <= 0 {
		poll = defaultPoll
	}
	return poll + upTo(poll/jitterShare)
}

// jitterShare is the part of a pause by which it is varied.
const jitterShare = 10

// jitter varies a duration by up to a tenth, so that objects that were made together do not come
// back together.
func jitter(d time.Duration) time.Duration {
	spread := d / jitterShare
	return d - spread + upTo(2*spread)
}

func upTo(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(rand.Int64N(int64(d))) //nolint:gosec // spreads load, and secures nothing
}

// Bounds of the pauses for what takes seconds or minutes, where the cloud does not suggest one:
// it is looked at often at first, and less often the longer it takes already.
const (
	shortestPause   = 500 * time.Millisecond
	longestCreation = 17 * time.Second
	shortestSpread  = 1500 * time.Millisecond
	longestSpread   = 30 * time.Second
)

// pauseSince is half the time that something takes already, within bounds: it ends up to half as late
// again as it might, and takes few looks.
func (s *scope) pauseSince(began time.Time, shortest, longest time.Duration) time.Duration {
	if began.IsZero() {
		return pauseProgress
	}
	const share = 2
	return min(max(s.clock.Since(began)/share, shortest), longest)
}

// pauseOf grows with the time that a phase has not been done, by the condition that says so.
func (s *scope) pauseOf(condition string) time.Duration {
	began := metav1.NewTime(s.clock.Now())
	if c := meta.FindStatusCondition(s.storage.Status.Conditions, condition); c != nil && c.Status == metav1.ConditionFalse {
		began = c.LastTransitionTime
	}
	return s.pauseSince(began.Time, shortestPause, longestCreation)
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
