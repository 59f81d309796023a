package securestorage

import (
	"context"
	"fmt"
	"maps"

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
	if err := s.connect(ctx); err != nil {
		return s.trouble(err)
	}
	if err := s.readAccount(ctx); err != nil {
		return s.trouble(err)
	}
	if s.account == nil {
		return s.judgeAbsence(), nil
	}
	return s.judgeAccount(), nil
}

// judgeAbsence tells an account that has yet to be made from one that is lost. That there was one
// cannot be seen in the cloud any more, so the status is the evidence; it can only keep us from
// acting, and never makes us go on.
func (s *scope) judgeAbsence() phases.Verdict {
	name := accountName(s.storage)
	create := phases.Missing(v1alpha1.ReasonCreating, "create storage account "+name)
	if s.storage.Status.AccountID == "" {
		return create
	}
	if s.storage.Spec.OnAccountLoss == v1alpha1.LossRecreate {
		return create.Drifted(ssa.Drift{Path: "storageAccounts/" + name, Desired: "there"})
	}
	return s.blocked(v1alpha1.ReasonAccountLost, fmt.Sprintf(
		"storage account %s was there and is gone, and its data may be gone with it; recover it in the cloud, or set spec.onAccountLoss to Recreate to begin anew with an empty one", name))
}

func (s *scope) judgeAccount() phases.Verdict {
	account := s.account
	if verdict, ours := s.judgeOwner(); !ours {
		return verdict
	}
	if !account.Provisioned() {
		return phases.Wait(v1alpha1.ReasonCreating, "the cloud is making storage account "+account.Name, jitter(pauseProgress))
	}
	if drifts := accountDrifts(s.storage, account); len(drifts) > 0 {
		return phases.Missing(v1alpha1.ReasonUpdating, "change storage account "+account.Name+" to what the spec says").Drifted(drifts...)
	}
	return s.settled("storage account " + account.Name + " is there")
}

// judgeOwner decides by the tag with the owner's UID whose account it is.
func (s *scope) judgeOwner() (phases.Verdict, bool) {
	owner, owned := s.account.Tags[cloud.OwnerTag]
	switch {
	case owner == string(s.storage.UID):
		return phases.Verdict{}, true
	case owned:
		return s.blocked(v1alpha1.ReasonAccountNotOurs, fmt.Sprintf(
			"storage account %s belongs to another SecureStorage and is left alone; choose another spec.accountName in a new SecureStorage", s.account.Name)), false
	case s.storage.Spec.AdoptionPolicy != v1alpha1.AdoptionIfUnowned:
		return s.blocked(v1alpha1.ReasonAccountNotOurs, fmt.Sprintf(
			"storage account %s exists, is not ours, and is left alone; set spec.adoptionPolicy to IfUnowned to take it over, or choose another spec.accountName in a new SecureStorage", s.account.Name)), false
	case s.account.Location != s.storage.Spec.Provider.Location:
		return s.blocked(v1alpha1.ReasonAccountNotOurs, fmt.Sprintf(
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
	for key, want := range desiredTags(storage) {
		if have := account.Tags[key]; have != want {
			drifts = append(drifts, ssa.Drift{Path: "tags." + key, Desired: want, Actual: have})
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

func ensureStorageAccount(ctx context.Context, s *scope) (phases.Verdict, error) {
	if s.account != nil {
		return s.changeAccount(ctx)
	}
	accepted, err := s.accounts.CreateAccount(ctx, cloud.NewAccount{
		Group:    s.group(),
		Name:     accountName(s.storage),
		Location: s.storage.Spec.Provider.Location,
		SKU:      string(s.storage.Spec.SKU),
		Tags:     desiredTags(s.storage),
	})
	if err != nil {
		return s.trouble(err)
	}
	return phases.Wait(v1alpha1.ReasonCreating, "the cloud is making storage account "+accountName(s.storage), pauseOr(accepted.RetryAfter, pauseProgress)), nil
}

func (s *scope) changeAccount(ctx context.Context) (phases.Verdict, error) {
	sku := string(s.storage.Spec.SKU)
	change := cloud.Change{Identity: !s.account.HasIdentity}
	if sku != "" && s.account.SKU != sku {
		change.SKU = &sku
	}
	// The cloud replaces all tags, so those of others go along.
	change.Tags = maps.Clone(s.account.Tags)
	maps.Copy(change.Tags, desiredTags(s.storage))
	account, err := s.accounts.UpdateAccount(ctx, s.group(), s.account.Name, change)
	if err != nil {
		return s.trouble(err)
	}
	s.account = account
	if len(accountDrifts(s.storage, account)) > 0 {
		return phases.Wait(v1alpha1.ReasonUpdating, "the cloud is changing storage account "+account.Name, jitter(pauseProgress)), nil
	}
	return s.settled("storage account " + account.Name + " is there"), nil
}
