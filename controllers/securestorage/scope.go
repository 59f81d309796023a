package securestorage

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// scope holds the data of one reconcile. Phases add what they read.
type scope struct {
	// storage is the SecureStorage as it was read from the API server.
	storage *v1beta1.SecureStorage
	access  *cloudAccess
	clock   clock.PassiveClock

	// credential is the credential that the spec selects; nil until it is read.
	credential *cloud.Credential
	// accounts and vaults are the clients for the subscription of the account and of the key vault.
	// Set by connect.
	accounts, vaults *cloud.Client
	// seen is what these clients have read.
	seen cloud.Seen

	// accountRead is true once the account was read; account is nil if it does not exist.
	accountRead bool
	account     *cloud.Account
	// assumed is true once a plan or an observation assumes that the account was changed.
	assumed bool
	// observed is what each phase observed, if the account is only observed. drifts are the fields that differ, once all
	// are known.
	observed    map[string]observation
	drifts      []ssa.Drift
	driftsKnown bool
	// vault is nil if this reconcile did not have to read the key vault.
	vault *cloud.Vault
	key   *cloud.Key
	// grant is the role assignment of the account, or nil; always nil with access policies. granted
	// is true once this reconcile has created the grant.
	grant   *cloud.Grant
	granted bool

	// keys are the access keys of the account; nil until they are read. exported are the versions of the exported objects.
	keys     *cloud.AccountKeys
	exported exportedVersions

	// grantPlanned is true if the status has to record the grant before it can be created. revoked are
	// the former grants that this reconcile revoked; unrevoked are those it failed to revoke.
	grantPlanned bool
	revoked      []keyGrant
	unrevoked    []unrevokedGrant
	// abandoned names what a teardown has given up.
	abandoned []string
}

// connectAndRead connects and reads the account. Every reconcile and teardown begins with it.
func (s *scope) connectAndRead(ctx context.Context) error {
	if err := s.connect(ctx); err != nil {
		return err
	}
	return s.readAccount(ctx)
}

// Number of reads of a reconcile: one read shows that the account does not exist. For an existing
// account, the grant and the key are read too, and the key vault until the grant exists.
const (
	readsOfAccount = 1
	readsOfVault   = 3
)

// reads estimates from the status how many reads the reconcile needs.
func (s *scope) reads() int {
	if s.observes() || meta.IsStatusConditionTrue(s.storage.Status.Conditions, v1beta1.ConditionStorageAccountReady) {
		return readsOfAccount + readsOfVault
	}
	return readsOfAccount
}

// reserveVaultReads reserves the reads of the key vault if connect has not. If it fails, the next
// reconcile reserves all reads at once.
func (s *scope) reserveVaultReads() error {
	if s.reads() > readsOfAccount {
		return nil
	}
	return s.accounts.ReserveReads(accountName(s.storage), readsOfAccount+readsOfVault)
}

// connect creates the clients with the credential that the spec selects, and reserves the reads.
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
	if err := accounts.ReserveReads(accountName(s.storage), s.reads()); err != nil {
		return err
	}
	s.accounts, s.vaults = accounts, vaults
	return nil
}

// clientOf returns the client of a subscription.
func (s *scope) clientOf(ctx context.Context, subscription string) (*cloud.Client, error) {
	if err := s.readCredential(ctx); err != nil {
		return nil, err
	}
	client, err := s.access.cloud.Client(subscription, *s.credential)
	if err != nil {
		return nil, err
	}
	return client.Observing(&s.seen), nil
}

// readCredential reads the credential once per reconcile.
func (s *scope) readCredential(ctx context.Context) error {
	if s.credential != nil {
		return nil
	}
	credential, err := s.access.credential(ctx, s.storage)
	if err != nil {
		return err
	}
	s.credential = &credential
	return nil
}

// readAccount reads the account once per reconcile.
func (s *scope) readAccount(ctx context.Context) error {
	if s.accountRead {
		return nil
	}
	account, err := s.accounts.Account(ctx, s.group(), accountName(s.storage))
	if err != nil && !cloud.Is(err, cloud.NotFound) {
		return err
	}
	s.accountRead, s.account = true, account
	return nil
}

func (s *scope) group() string { return s.storage.Spec.Provider.ResourceGroup }

// accountName returns spec.accountName, or a name derived from the UID, so that a retried creation
// creates the same account.
func accountName(storage *v1beta1.SecureStorage) string {
	if storage.Spec.AccountName != "" {
		return storage.Spec.AccountName
	}
	return cloud.AccountName(string(storage.UID))
}

// vaultLocation identifies a key vault.
type vaultLocation struct{ subscription, group, name string }

// id returns the resource ID of the key vault.
func (v vaultLocation) id() string {
	return cloud.VaultID(v.subscription, v.group, v.name)
}

// vaultOf returns the key vault that the spec names.
func vaultOf(storage *v1beta1.SecureStorage) vaultLocation {
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

// parse reads the parts of a resource ID:
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

// pinnedVersion returns the key version that the spec pins, or "" for the latest version.
func pinnedVersion(storage *v1beta1.SecureStorage) string {
	if version := storage.Spec.Key.Version; version != v1beta1.KeyVersionLatest {
		return version
	}
	return ""
}

// Defaults for objects that were stored before the schema defaulted these fields.
const (
	defaultPoll        = 5 * time.Minute
	defaultPropagation = 15 * time.Minute
)

// pollInterval returns the time until the next poll: spec.pollInterval plus up to a tenth, so that
// objects created together are not polled together.
func (s *scope) pollInterval() time.Duration {
	poll := s.specifiedPoll()
	return poll + s.upTo(poll/jitterShare)
}

func (s *scope) specifiedPoll() time.Duration {
	if poll := s.storage.Spec.PollInterval.Duration; poll > 0 {
		return poll
	}
	return defaultPoll
}

// jitterShare is the divisor of a delay that gives its jitter.
const jitterShare = 10

// jitter varies a duration by up to a tenth in both directions, so that objects created together are
// not reconciled together.
func (s *scope) jitter(d time.Duration) time.Duration {
	spread := d / jitterShare
	return d - spread + s.upTo(2*spread)
}

// upTo returns a part of a duration that only depends on the object and the time: reconciles of the same state at the same
// time decide the same.
func (s *scope) upTo(d time.Duration) time.Duration {
	return partOf(d, s.storage.UID, s.clock.Now().UnixNano())
}

// partOf returns a part of a duration, which is another one for most other values.
func partOf(d time.Duration, values ...any) time.Duration {
	hash := fnv.New32a()
	_, _ = fmt.Fprint(hash, values...) // never fails
	return time.Duration(float64(d) * float64(hash.Sum32()) / (1 << 32))
}

// Bounds of the poll delay for operations of the cloud that take seconds or minutes, if the cloud does
// not suggest a delay.
const (
	minPoll            = 500 * time.Millisecond
	maxPollCreation    = 17 * time.Second
	minPollPropagation = 1500 * time.Millisecond
	maxPollPropagation = 30 * time.Second
)

// backoffSince returns half the time since an operation began, within bounds: the end is noticed at
// most half as late again, with few reads.
func (s *scope) backoffSince(began time.Time, shortest, longest time.Duration) time.Duration {
	if began.IsZero() {
		return retryInProgress
	}
	const share = 2
	return min(max(s.clock.Since(began)/share, shortest), longest)
}

// backoffOf returns the delay for a phase that waits, from the transition time of its condition.
func (s *scope) backoffOf(condition string) time.Duration {
	began := metav1.NewTime(s.clock.Now())
	if c := meta.FindStatusCondition(s.storage.Status.Conditions, condition); c != nil && c.Status == metav1.ConditionFalse {
		began = c.LastTransitionTime
	}
	return s.backoffSince(began.Time, minPoll, maxPollCreation)
}

// doneUntilPoll is Done, with a poll after the poll interval: the cloud does not notify of changes.
func (s *scope) doneUntilPoll(message string) phases.Verdict {
	return phases.Done(message).RecheckAfter(s.pollInterval())
}

// stalledUntilPoll is Stalled, with a poll after the poll interval: the cloud does not notify when the
// cause is fixed.
func (s *scope) stalledUntilPoll(reason, message string) phases.Verdict {
	return phases.Stalled(reason, message).RecheckAfter(s.pollInterval())
}
