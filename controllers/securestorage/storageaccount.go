package securestorage

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// storageAccount is the account with its system-assigned identity and tags.
var storageAccount = phases.Step[*scope]{
	Name:    "StorageAccount",
	Observe: observeStorageAccount,
	Ensure:  ensureStorageAccount,
	Planned: planStorageAccount,
	Undo:    undoStorageAccount,
}

func observeStorageAccount(ctx context.Context, s *scope) (phases.Observation, error) {
	if err := s.connectAndRead(ctx); err != nil {
		return s.classifyError(err)
	}
	if s.account == nil {
		return s.decideMissingAccount(), nil
	}
	return s.decideAccount(), nil
}

// decideMissingAccount distinguishes an account that was never created from one that was lost. The cloud
// cannot tell, so status.accountID decides; it can only block the creation, never cause one. It is set
// only for accounts that were provisioned, so a failed creation is not a loss.
func (s *scope) decideMissingAccount() phases.Observation {
	name := accountName(s.storage)
	if s.observes() {
		return phases.Wait(v1beta1.ReasonAccountMissing, fmt.Sprintf(
			"storage account %s does not exist in resource group %s of subscription %s, and is not created, because spec.managementPolicy is Observe; create it in Azure, or set spec.managementPolicy to Manage", name, s.group(), s.storage.Spec.Provider.SubscriptionID), s.pollInterval())
	}
	create := phases.Missing(v1beta1.ReasonCreating, "create storage account "+name)
	if s.storage.Status.AccountID == "" {
		return create
	}
	if s.storage.Spec.AccountLossPolicy == v1beta1.LossRecreate {
		return create.Drifted(ssa.Drift{Path: "storageAccounts/" + name, Desired: "exists", Actual: "deleted"})
	}
	return s.stalledUntilPoll(v1beta1.ReasonAccountLost, fmt.Sprintf(
		"storage account %s is no longer in resource group %s: it was deleted outside of this SecureStorage, possibly with its data, or moved; restore it in Azure or move it back, or, if it was deleted, set spec.accountLossPolicy to Recreate to create an empty account", name, s.group()))
}

func (s *scope) decideAccount() phases.Observation {
	account := s.account
	if verdict, ok := s.decideOwnership(); !ok && !s.observes() {
		return verdict
	}
	switch {
	case account.Failed() && !s.repeatsCreation():
		return s.stalledUntilPoll(v1beta1.ReasonFailed, fmt.Sprintf(
			"Azure reports the provisioning state %s for storage account %s, which is not created again, because it may contain data; find the failed operation in the activity log of the storage account, and repeat it", account.State, account.Name))
	case account.Failed():
		return phases.Missing(v1beta1.ReasonCreating, "create storage account "+account.Name+" again, because its provisioning failed")
	case account.IsDeleting():
		return phases.Wait(v1beta1.ReasonOperationInProgress, "storage account "+account.Name+" is being deleted outside of this SecureStorage; waiting for the deletion to finish", s.jitter(retryInProgress))
	case !account.Provisioned():
		return phases.Wait(v1beta1.ReasonCreating, "waiting for storage account "+account.Name+" to be provisioned", s.jitter(s.backoffSince(account.CreatedOn, minPoll, maxPollCreation)))
	}
	if drifts := accountDrifts(s.storage, account); len(drifts) > 0 {
		return phases.Missing(v1beta1.ReasonUpdating, s.withFields("update storage account "+account.Name, v1beta1.ConditionStorageAccountReady, drifts)).Drifted(drifts...)
	}
	return s.doneUntilPoll("storage account " + account.Name + " is provisioned")
}

// repeatsCreation says whether an account whose provisioning failed is created again. That sets the key source to keys of
// Microsoft, and is only done with an account that has them, and that this SecureStorage created or adopted.
func (s *scope) repeatsCreation() bool {
	return s.isManaged() && s.account.Encryption.KeySource != cloud.CustomerManaged
}

// isManaged says whether the account exists and belongs to this SecureStorage: its owner tag holds the
// UID; or the tag was removed and the account has the principal ID in the status, which is never
// reused for another account. The owner tag of another SecureStorage always wins.
func (s *scope) isManaged() bool {
	if s.account == nil {
		return false
	}
	if owner, owned := tagOf(s.account.Tags, cloud.OwnerTag); owned {
		return owner == string(s.storage.UID)
	}
	recorded := s.storage.Status.PrincipalID
	return recorded != "" && strings.EqualFold(recorded, s.account.PrincipalID)
}

// decideOwnership says whether this SecureStorage manages the account or may adopt it. With the
// credential of the manager, the account has to name its SecureStorage: otherwise a user could adopt an
// account in which the user has no rights.
func (s *scope) decideOwnership() (phases.Verdict, bool) {
	owner, owned := tagOf(s.account.Tags, cloud.OwnerTag)
	switch {
	case s.isManaged():
		return nil, true
	case owned:
		return s.stalledUntilPoll(v1beta1.ReasonAccountNotOwned, fmt.Sprintf(
			"storage account %s is managed by another SecureStorage, with the UID %q (tag "+cloud.OwnerTag+"); to release it, run 'kubectl fixpoint release securestorage/<name>' for that SecureStorage, or, if it does not exist in any cluster, '%s'%s; or create a SecureStorage with another spec.accountName", s.account.Name, owner, s.untagCommand(owner), s.adoptionStep())), false
	case isAmbient(s.storage):
		return s.stalledUntilPoll(v1beta1.ReasonAccountNotOwned, fmt.Sprintf(
			"storage account %s already exists and is not managed by this SecureStorage, and spec.adoptionPolicy does not apply to the credential of the manager; to adopt the account, set its tag "+cloud.OwnerTag+" in Azure to %s, the UID of this SecureStorage; or create a SecureStorage with another spec.accountName", s.account.Name, s.storage.UID)), false
	case s.account.Location != s.storage.Spec.Provider.Location:
		return s.stalledUntilPoll(v1beta1.ReasonAccountNotOwned, fmt.Sprintf(
			"storage account %s cannot be adopted, because it is in location %s and spec.provider.location is %s; create a SecureStorage with another spec.accountName or spec.provider.location", s.account.Name, s.account.Location, s.storage.Spec.Provider.Location)), false
	case s.storage.Spec.AdoptionPolicy != v1beta1.AdoptionIfUnowned:
		return s.stalledUntilPoll(v1beta1.ReasonAccountNotOwned, fmt.Sprintf(
			"storage account %s already exists and is not managed by this SecureStorage; set spec.adoptionPolicy to IfUnowned to adopt it, or create a SecureStorage with another spec.accountName", s.account.Name)), false
	default:
		return nil, true
	}
}

// adoptionStep is what remains to be done to adopt an account after it was released.
func (s *scope) adoptionStep() string {
	if isAmbient(s.storage) {
		return ", and then set the tag to " + string(s.storage.UID) + ", the UID of this SecureStorage"
	}
	if s.storage.Spec.AdoptionPolicy != v1beta1.AdoptionIfUnowned {
		return ", and then set spec.adoptionPolicy to IfUnowned"
	}
	return ""
}

// untagCommand is the command that removes an owner tag. The UID in a tag may be any text: it is quoted for a shell.
func (s *scope) untagCommand(owner string) string {
	id := cloud.AccountID(s.storage.Spec.Provider.SubscriptionID, s.group(), s.account.Name)
	return "az tag update --operation delete --resource-id " + shellQuoted(id) + " --tags " + shellQuoted(cloud.OwnerTag+"="+owner)
}

// shellQuoted quotes a text for a POSIX shell, if it needs quotes.
func shellQuoted(text string) string {
	isPlain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./=", r)
	}
	if strings.IndexFunc(text, func(r rune) bool { return !isPlain(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// accountDrifts lists the fields of the account that differ from the spec. Unmanaged tags are ignored.
func accountDrifts(storage *v1beta1.SecureStorage, account *cloud.Account) []ssa.Drift {
	var drifts []ssa.Drift
	if want := storage.Spec.Provider.Location; observes(storage) && account.Location != want {
		drifts = append(drifts, ssa.Drift{Path: "location", Desired: want, Actual: account.Location})
	}
	if want := string(storage.Spec.SKU); want != "" && account.SKU != want {
		drifts = append(drifts, ssa.Drift{Path: "sku.name", Desired: want, Actual: account.SKU})
	}
	drifts = append(drifts, tagDrifts(storage, account)...)
	if !account.HasIdentity {
		drifts = append(drifts, ssa.Drift{Path: "identity.type", Desired: "SystemAssigned", Actual: "None"})
	}
	return drifts
}

func tagDrifts(storage *v1beta1.SecureStorage, account *cloud.Account) []ssa.Drift {
	var drifts []ssa.Drift
	desired := desiredTags(storage)
	for _, key := range slices.Sorted(maps.Keys(desired)) {
		if have, ok := tagOf(account.Tags, key); !ok || have != desired[key] {
			drifts = append(drifts, ssa.Drift{Path: "tags." + key, Desired: desired[key], Actual: have})
		}
	}
	return drifts
}

// desiredTags are the tags of the spec and the owner tag, which an account that is only observed does not have.
func desiredTags(storage *v1beta1.SecureStorage) map[string]string {
	tags := map[string]string{}
	maps.Copy(tags, storage.Spec.Tags)
	if !observes(storage) {
		tags[cloud.OwnerTag] = string(storage.UID)
	}
	return tags
}

// tagOf finds a tag by name, ignoring case as Azure does.
func tagOf(tags map[string]string, name string) (string, bool) {
	for key, value := range tags {
		if strings.EqualFold(key, name) {
			return value, true
		}
	}
	return "", false
}

// mergedTags returns the desired tags and the unmanaged tags of the account.
func mergedTags(storage *v1beta1.SecureStorage, tags map[string]string) map[string]string {
	all := desiredTags(storage)
	for key, value := range tags {
		if _, desired := tagOf(all, key); !desired {
			all[key] = value
		}
	}
	return all
}

func ensureStorageAccount(ctx context.Context, s *scope) (phases.Verdict, error) {
	if err := s.access.protection.protect(ctx, s.storage); err != nil {
		return s.classifyError(err)
	}
	name := accountName(s.storage)
	if s.account != nil && !s.account.Failed() {
		return s.changeAccount(ctx)
	}
	if s.account == nil && meta.IsStatusConditionTrue(s.storage.Status.Conditions, v1beta1.ConditionEncryptionReady) {
		// The new account is not encrypted with the key, so EncryptionReady must stop being True first.
		return phases.Wait(v1beta1.ReasonCreating, "storage account "+name+" was deleted; creating an empty account", s.jitter(minPoll)), nil
	}
	desired := cloud.NewAccount{
		Group:    s.group(),
		Name:     name,
		Location: s.storage.Spec.Provider.Location,
		SKU:      string(s.storage.Spec.SKU),
		Tags:     desiredTags(s.storage),
	}
	if s.account != nil {
		desired.Tags = mergedTags(s.storage, s.account.Tags)
	}
	accepted, err := s.accounts.CreateAccount(ctx, desired, s.account)
	if err != nil {
		return s.classifyError(err)
	}
	return phases.Wait(v1beta1.ReasonCreating, "waiting for storage account "+name+" to be provisioned", s.retryAfterOr(accepted.RetryAfter, minPoll)), nil
}

func (s *scope) changeAccount(ctx context.Context) (phases.Verdict, error) {
	sku := string(s.storage.Spec.SKU)
	change := cloud.Change{Identity: !s.account.HasIdentity}
	if len(tagDrifts(s.storage, s.account)) > 0 {
		// The update replaces all tags, so it includes the unmanaged ones.
		change.Tags = mergedTags(s.storage, s.account.Tags)
	}
	if sku != "" && s.account.SKU != sku {
		change.SKU = &sku
	}
	account, err := s.accounts.UpdateAccount(ctx, s.group(), s.account, change)
	if err != nil {
		return s.classifyError(err)
	}
	s.account = account
	if len(accountDrifts(s.storage, account)) > 0 {
		return phases.Wait(v1beta1.ReasonUpdating, "waiting for the update of storage account "+account.Name+" to finish", s.jitter(retryInProgress)), nil
	}
	return s.doneUntilPoll("storage account " + account.Name + " is provisioned"), nil
}

// planStorageAccount assumes that the account was created or updated.
func planStorageAccount(s *scope) phases.Verdict {
	account := cloud.Account{Name: accountName(s.storage), Location: s.storage.Spec.Provider.Location}
	if s.account != nil {
		account = *s.account
	}
	account.Tags, account.HasIdentity = mergedTags(s.storage, account.Tags), true
	if sku := string(s.storage.Spec.SKU); sku != "" {
		account.SKU = sku
	}
	s.account, s.assumed = &account, true
	return phases.Done("")
}
