package securestorage

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// storageAccount is the account, with an identity of its own and our tags.
var storageAccount = phases.Step[*scope]{
	Name:    "StorageAccount",
	Observe: observeStorageAccount,
	Ensure:  ensureStorageAccount,
	Undo:    undoStorageAccount,
}

func observeStorageAccount(ctx context.Context, s *scope) (phases.Verdict, error) {
	if err := s.begin(ctx); err != nil {
		return s.trouble(err)
	}
	if s.account == nil {
		return s.judgeAbsence(), nil
	}
	return s.judgeAccount(), nil
}

// judgeAbsence tells an account that has yet to be made from one that is lost. That there was one
// cannot be seen in the cloud any more, so the status is the evidence; it can only keep us from
// acting, and never makes us go on. It has the id of accounts only that were complete: a creation
// that failed has lost nothing.
func (s *scope) judgeAbsence() phases.Verdict {
	name := accountName(s.storage)
	create := phases.Missing(v1alpha1.ReasonCreating, "create storage account "+name)
	if s.storage.Status.AccountID == "" {
		return create
	}
	if s.storage.Spec.OnAccountLoss == v1alpha1.LossRecreate {
		return create.Drifted(ssa.Drift{Path: "storageAccounts/" + name, Desired: "there", Actual: "gone"})
	}
	return s.blocked(v1alpha1.ReasonAccountLost, fmt.Sprintf(
		"storage account %s was there and is gone, and its data may be gone with it; recover it in the cloud, or set spec.onAccountLoss to Recreate to begin anew with an empty one", name))
}

func (s *scope) judgeAccount() phases.Verdict {
	account := s.account
	if verdict, ours := s.judgeOwner(); !ours {
		return verdict
	}
	switch {
	case account.Failed():
		return phases.Missing(v1alpha1.ReasonCreating, "create storage account "+account.Name+" anew, since the cloud failed to")
	case account.GoesAway():
		return phases.Wait(v1alpha1.ReasonOperationInProgress, "somebody is deleting storage account "+account.Name+"; waiting for it to end", jitter(pauseProgress))
	case !account.Provisioned():
		return phases.Wait(v1alpha1.ReasonCreating, "the cloud is making storage account "+account.Name, jitter(s.pauseSince(account.CreatedOn, shortestPause, longestCreation)))
	}
	if drifts := accountDrifts(s.storage, account); len(drifts) > 0 {
		return phases.Missing(v1alpha1.ReasonUpdating, "change storage account "+account.Name+" to what the spec says").Drifted(drifts...)
	}
	return s.settled("storage account " + account.Name + " is there")
}

// isOurs says whether there is an account, and it is ours: it has the tag with our UID; or somebody
// has taken that tag off and it has the identity that we have noted. A principal is of one account
// in one life, so no other account can have it. The tag of another owner counts in any case.
func (s *scope) isOurs() bool {
	if s.account == nil {
		return false
	}
	if owner, owned := tagOf(s.account.Tags, cloud.OwnerTag); owned {
		return owner == string(s.storage.UID)
	}
	noted := s.storage.Status.PrincipalID
	return noted != "" && strings.EqualFold(noted, s.account.PrincipalID)
}

// judgeOwner says whether we may go on with the account: it is ours, or may become ours.
func (s *scope) judgeOwner() (phases.Verdict, bool) {
	_, owned := tagOf(s.account.Tags, cloud.OwnerTag)
	switch {
	case s.isOurs():
		return phases.Verdict{}, true
	case owned:
		return s.blocked(v1alpha1.ReasonAccountNotOwned, fmt.Sprintf(
			"storage account %s belongs to another SecureStorage and is left alone; choose another spec.accountName in a new SecureStorage", s.account.Name)), false
	case s.storage.Spec.AdoptionPolicy != v1alpha1.AdoptionIfUnowned:
		return s.blocked(v1alpha1.ReasonAccountNotOwned, fmt.Sprintf(
			"storage account %s exists, is not ours, and is left alone; set spec.adoptionPolicy to IfUnowned to take it over, or choose another spec.accountName in a new SecureStorage", s.account.Name)), false
	case s.account.Location != s.storage.Spec.Provider.Location:
		return s.blocked(v1alpha1.ReasonAccountNotOwned, fmt.Sprintf(
			"storage account %s exists in %s, and not in spec.provider.location (%s): it cannot be adopted", s.account.Name, s.account.Location, s.storage.Spec.Provider.Location)), false
	default:
		return phases.Verdict{}, true
	}
}

// accountDrifts lists what of the account is not as the spec says. Tags of others are theirs.
func accountDrifts(storage *v1alpha1.SecureStorage, account *cloud.Account) []ssa.Drift {
	var drifts []ssa.Drift
	if want := string(storage.Spec.SKU); want != "" && account.SKU != want {
		drifts = append(drifts, ssa.Drift{Path: "sku.name", Desired: want, Actual: account.SKU})
	}
	desired := desiredTags(storage)
	for _, key := range slices.Sorted(maps.Keys(desired)) {
		if have, ok := tagOf(account.Tags, key); !ok || have != desired[key] {
			drifts = append(drifts, ssa.Drift{Path: "tags." + key, Desired: desired[key], Actual: have})
		}
	}
	if !account.HasIdentity {
		drifts = append(drifts, ssa.Drift{Path: "identity.type", Desired: "SystemAssigned", Actual: "None"})
	}
	return drifts
}

func desiredTags(storage *v1alpha1.SecureStorage) map[string]string {
	tags := map[string]string{}
	maps.Copy(tags, storage.Spec.Tags)
	tags[cloud.OwnerTag] = string(storage.UID)
	return tags
}

// tagOf finds a tag as the cloud does, which does not tell upper from lower case in its name.
func tagOf(tags map[string]string, name string) (string, bool) {
	for key, value := range tags {
		if strings.EqualFold(key, name) {
			return value, true
		}
	}
	return "", false
}

// withOurTags are the tags that an account is to have: ours, and those of others.
func withOurTags(storage *v1alpha1.SecureStorage, tags map[string]string) map[string]string {
	all := desiredTags(storage)
	for key, value := range tags {
		if _, ours := tagOf(all, key); !ours {
			all[key] = value
		}
	}
	return all
}

func ensureStorageAccount(ctx context.Context, s *scope) (phases.Verdict, error) {
	name := accountName(s.storage)
	if s.account != nil && !s.account.Failed() {
		return s.changeAccount(ctx)
	}
	if s.account == nil && meta.IsStatusConditionTrue(s.storage.Status.Conditions, v1alpha1.ConditionEncryptionReady) {
		// An empty account is not encrypted with the key. Let the status say so before there is one.
		return phases.Wait(v1alpha1.ReasonCreating, "storage account "+name+" is gone; making an empty one", jitter(shortestPause)), nil
	}
	accepted, err := s.accounts.CreateAccount(ctx, cloud.NewAccount{
		Group:    s.group(),
		Name:     name,
		Location: s.storage.Spec.Provider.Location,
		SKU:      string(s.storage.Spec.SKU),
		Tags:     desiredTags(s.storage),
	}, s.account)
	if err != nil {
		return s.trouble(err)
	}
	return phases.Wait(v1alpha1.ReasonCreating, "the cloud is making storage account "+name, pauseOr(accepted.RetryAfter, shortestPause)), nil
}

func (s *scope) changeAccount(ctx context.Context) (phases.Verdict, error) {
	sku := string(s.storage.Spec.SKU)
	// The cloud replaces all tags, so those of others go along.
	change := cloud.Change{Identity: !s.account.HasIdentity, Tags: withOurTags(s.storage, s.account.Tags)}
	if sku != "" && s.account.SKU != sku {
		change.SKU = &sku
	}
	account, err := s.accounts.UpdateAccount(ctx, s.group(), s.account, change)
	if err != nil {
		return s.trouble(err)
	}
	s.account = account
	if len(accountDrifts(s.storage, account)) > 0 {
		return phases.Wait(v1alpha1.ReasonUpdating, "the cloud is changing storage account "+account.Name, jitter(pauseProgress)), nil
	}
	return s.settled("storage account " + account.Name + " is there"), nil
}
