package azure

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/storage/armstorage"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
)

// life is that of one SecureStorage.
type life struct {
	*surroundings
	api       client.Client
	namespace string
	log       func(format string, args ...any)

	account   string
	principal string
}

// run goes through the life, and removes everything again, also after a failure.
func (l *life) run(ctx context.Context) (err error) {
	defer func() {
		// An interrupted life is removed, too.
		ending := context.WithoutCancel(ctx)
		err = errors.Join(err, l.end(ending), l.remove(ending))
	}()
	for _, step := range []struct {
		doing string
		do    func(context.Context) error
	}{
		{"creating the resource group, the key vault and the key", l.create},
		{"creating the SecureStorage", l.begin},
		{"waiting for the account that is encrypted with the key", l.expectEncrypted},
		{"changing the tags", l.changeTags},
		{"reverting the encryption that another user changed", l.revert},
		{"deleting the SecureStorage", l.end},
		{"looking for what is left", l.expectNothing},
	} {
		l.log("%s %s", time.Now().Format(time.TimeOnly), step.doing)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.doing, err)
		}
	}
	return nil
}

func (l *life) storage() *v1beta1.SecureStorage {
	return &v1beta1.SecureStorage{ObjectMeta: metav1.ObjectMeta{Name: "life", Namespace: l.namespace}}
}

func (l *life) begin(ctx context.Context) error {
	storage := l.storage()
	storage.Spec = v1beta1.SecureStorageSpec{
		Provider:       v1beta1.SecureStorageProvider{SubscriptionID: l.subscription, ResourceGroup: l.group, Location: l.location},
		Key:            v1beta1.SecureStorageKey{Vault: &v1beta1.SecureStorageVault{Name: l.vault}, Name: keyName},
		Tags:           map[string]string{"stage": "first"},
		DeletionPolicy: v1beta1.DeletionDelete,
		PollInterval:   metav1.Duration{Duration: 10 * time.Second},
	}
	return l.api.Create(ctx, storage)
}

// check says what is wrong with a SecureStorage that is Ready, and its account.
type check func(storage *v1beta1.SecureStorage, account armstorage.Account) error

// eventually waits until nothing is wrong any more. Its error says what was wrong at last.
func (l *life) eventually(ctx context.Context, check check) error {
	var wrong error
	err := wait.PollUntilContextTimeout(ctx, l.interval, l.patience, true, func(ctx context.Context) (bool, error) {
		wrong = l.read(ctx, check)
		return wrong == nil, nil
	})
	if err != nil && wrong != nil {
		return wrong
	}
	return err
}

func (l *life) read(ctx context.Context, check check) error {
	storage := l.storage()
	if err := l.api.Get(ctx, client.ObjectKeyFromObject(storage), storage); err != nil {
		return err
	}
	if err := expectReady(storage); err != nil {
		return err
	}
	account, err := l.accounts.GetProperties(ctx, l.group, storage.Status.AccountName, nil)
	if err != nil {
		return err
	}
	return check(storage, account.Account)
}

func expectReady(storage *v1beta1.SecureStorage) error {
	ready := meta.FindStatusCondition(storage.Status.Conditions, v1beta1.ConditionReady)
	switch {
	case ready == nil || storage.Status.ObservedGeneration != storage.Generation:
		return errors.New("the manager has not reconciled the SecureStorage")
	case ready.Status != metav1.ConditionTrue:
		return fmt.Errorf("the SecureStorage is not Ready: %s: %s", ready.Reason, ready.Message)
	}
	return nil
}

func (l *life) expectEncrypted(ctx context.Context) error {
	return l.eventually(ctx, func(storage *v1beta1.SecureStorage, account armstorage.Account) error {
		l.account, l.principal = storage.Status.AccountName, *account.Identity.PrincipalID
		return errors.Join(l.expectKey(account), expectTag(account, "stage", "first"), expectTag(account, cloud.OwnerTag, string(storage.UID)))
	})
}

func (l *life) expectKey(account armstorage.Account) error {
	encryption := account.Properties.Encryption
	if *encryption.KeySource != armstorage.KeySourceMicrosoftKeyvault {
		return fmt.Errorf("the account is encrypted with %s", *encryption.KeySource)
	}
	used := *encryption.KeyVaultProperties.CurrentVersionedKeyIdentifier
	if want := "https://" + l.vault + ".vault.azure.net/keys/" + keyName + "/"; !strings.HasPrefix(used, want) {
		return fmt.Errorf("the account is encrypted with %s instead of %s", used, want)
	}
	return nil
}

func expectTag(account armstorage.Account, name, value string) error {
	if tag := account.Tags[name]; tag == nil || *tag != value {
		return fmt.Errorf("the account has no tag %s=%s", name, value)
	}
	return nil
}

func (l *life) changeTags(ctx context.Context) error {
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"tags":{"stage":"second"}}}`))
	if err := l.api.Patch(ctx, l.storage(), patch); err != nil {
		return err
	}
	return l.eventually(ctx, func(_ *v1beta1.SecureStorage, account armstorage.Account) error {
		return errors.Join(l.expectKey(account), expectTag(account, "stage", "second"))
	})
}

// revert changes the encryption as another user of the subscription would, and waits until it is reverted.
func (l *life) revert(ctx context.Context) error {
	platform := armstorage.AccountUpdateParameters{Properties: &armstorage.AccountPropertiesUpdateParameters{Encryption: &armstorage.Encryption{
		KeySource: to.Ptr(armstorage.KeySourceMicrosoftStorage),
		Services:  &armstorage.EncryptionServices{Blob: &armstorage.EncryptionService{Enabled: to.Ptr(true)}, File: &armstorage.EncryptionService{Enabled: to.Ptr(true)}},
	}}}
	err := l.repeat(ctx, func(ctx context.Context) error {
		_, err := l.accounts.Update(ctx, l.group, l.account, platform, nil)
		return err
	})
	if err != nil {
		return err
	}
	return l.eventually(ctx, func(_ *v1beta1.SecureStorage, account armstorage.Account) error {
		return errors.Join(l.expectKey(account), l.expectDriftEvent(ctx))
	})
}

func (l *life) expectDriftEvent(ctx context.Context) error {
	var events eventsv1.EventList
	if err := l.api.List(ctx, &events, client.InNamespace(l.namespace)); err != nil {
		return err
	}
	for _, event := range events.Items {
		if event.Reason == "DriftCorrected" && strings.Contains(event.Note, "encryption.keySource") {
			return nil
		}
	}
	return errors.New("no Event says that the encryption was corrected")
}

// end deletes the SecureStorage, and waits until it is gone. One that cannot be deleted is abandoned, since the
// resource group is removed next.
func (l *life) end(ctx context.Context) error {
	storage := l.storage()
	if err := l.api.Delete(ctx, storage); err != nil {
		return client.IgnoreNotFound(err)
	}
	err := wait.PollUntilContextTimeout(ctx, l.interval, l.endPatience, true, func(ctx context.Context) (bool, error) {
		err := l.api.Get(ctx, client.ObjectKeyFromObject(storage), storage)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if err == nil {
		return nil
	}
	ready := meta.FindStatusCondition(storage.Status.Conditions, v1beta1.ConditionReady)
	abandon := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, v1beta1.AnnotationAbandon)
	return errors.Join(fmt.Errorf("the SecureStorage was not deleted: %w: %+v", err, ready),
		client.IgnoreNotFound(l.api.Patch(context.WithoutCancel(ctx), storage, client.RawPatch("application/merge-patch+json", abandon))))
}

func (l *life) expectNothing(ctx context.Context) error {
	names, err := l.accountNames(ctx)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		return fmt.Errorf("accounts are left: %s", strings.Join(names, ", "))
	}
	filter := "principalId%20eq%20'" + l.principal + "'"
	pages := l.roles.NewListForScopePager(l.vaultID(), &armauthorization.RoleAssignmentsClientListForScopeOptions{Filter: &filter})
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, grant := range page.Value {
			return fmt.Errorf("the role assignment %s is left", *grant.ID)
		}
	}
	return nil
}
