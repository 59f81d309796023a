package faults

import (
	"context"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// StorageEdit changes the spec of a SecureStorage.
type StorageEdit = func(*v1alpha1.SecureStorageSpec)

// otherVault is a second vault, with a key of the same name; oldVault is one with access policies.
const (
	otherVault = "other-vault"
	oldVault   = "old-vault"
)

// NewSecureStorage has an account that goes with it, and what the edits give it.
func (w *World) NewSecureStorage(name string, edits ...StorageEdit) *v1alpha1.SecureStorage {
	storage := &v1alpha1.SecureStorage{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.SecureStorageSpec{
			Provider:       v1alpha1.SecureStorageProvider{SubscriptionID: w.Demo.Subscription, ResourceGroup: w.Demo.Group, Location: w.Demo.Location},
			Key:            v1alpha1.SecureStorageKey{Vault: &v1alpha1.SecureStorageVault{Name: w.Demo.Vault}, KeyName: w.Demo.Key},
			DeletionPolicy: v1alpha1.DeletionDelete,
			PollInterval:   metav1.Duration{Duration: 10 * time.Second},
		},
	}
	for _, edit := range edits {
		edit(&storage.Spec)
	}
	return storage
}

// furnished makes the vaults that a scenario needs beside the one that every cloud has.
func furnished(w *World) error {
	for name, spec := range map[string]fakecloud.VaultSpec{
		otherVault: {PurgeProtection: true},
		oldVault:   {PurgeProtection: true, AccessPolicies: true},
	} {
		w.Cloud.SeedVault(w.Demo.Subscription, w.Demo.Group, name, spec)
		if _, err := w.Cloud.SeedKey(name, w.Demo.Key, fakecloud.KeySpec{}); err != nil {
			return err
		}
	}
	return nil
}

func inVault(name string) StorageEdit {
	return func(s *v1alpha1.SecureStorageSpec) { s.Key.Vault = &v1alpha1.SecureStorageVault{Name: name} }
}

// byPolicy uses the vault with access policies.
func byPolicy(s *v1alpha1.SecureStorageSpec) {
	inVault(oldVault)(s)
	s.Access.Type = v1alpha1.AccessPolicy
}

func retained(s *v1alpha1.SecureStorageSpec) { s.DeletionPolicy = v1alpha1.DeletionRetain }

func createStorage(edits ...StorageEdit) Step {
	return Step{
		Do: func(ctx context.Context, w *World) error {
			if err := furnished(w); err != nil {
				return err
			}
			return w.Create(ctx, w.NewSecureStorage(objectName, edits...))
		},
		Done: func(w *World) bool { return w.ReadyWith(SecureStorage, objectName, 1) },
	}
}

func editStorage(edit StorageEdit) Step {
	return Step{
		Do: func(ctx context.Context, w *World) error {
			return Edit(ctx, w, user, objectName, &v1alpha1.SecureStorage{}, func(s *v1alpha1.SecureStorage) { edit(&s.Spec) })
		},
		Done: func(w *World) bool { return w.ReadyWith(SecureStorage, objectName, 2) },
	}
}

func deleteStorage() Step {
	return Step{
		Do:   func(ctx context.Context, w *World) error { return w.Delete(ctx, &v1alpha1.SecureStorage{}, objectName) },
		Done: func(w *World) bool { return w.Gone(SecureStorage, objectName) },
	}
}

// storageDeletedDuring creates a SecureStorage, and deletes it at the first call of the class.
func storageDeletedDuring(class string) Step {
	return Step{
		Do:   createStorage().Do,
		Done: func(w *World) bool { return w.Gone(SecureStorage, objectName) },
		During: during("deleted", callOf(class), func(ctx context.Context, w *World) error {
			return w.Delete(ctx, &v1alpha1.SecureStorage{}, objectName)
		}),
	}
}

// Account is the name of the account of a SecureStorage of the world.
func (w *World) Account(name string) string {
	storage := w.Get(SecureStorage, name)
	if storage == nil {
		return ""
	}
	return accountOf(storage)
}

func accountOf(storage *unstructured.Unstructured) string {
	if given, ok, _ := unstructured.NestedString(storage.Object, "spec", "accountName"); ok {
		return given
	}
	return cloud.AccountName(string(storage.GetUID()))
}

// Poke makes the manager look at a SecureStorage at once, and not when the poll interval has passed.
func (w *World) Poke(ctx context.Context, name string) (revision string, err error) {
	return others(ctx, w, user, name, &v1alpha1.SecureStorage{}, func(s *v1alpha1.SecureStorage) {
		if s.Annotations == nil {
			s.Annotations = map[string]string{}
		}
		pokes, _ := strconv.Atoi(s.Annotations["test.fixpoint.dev/poke"]) // none is 0
		s.Annotations["test.fixpoint.dev/poke"] = strconv.Itoa(pokes + 1)
	})
}

// cloudDrift lets somebody meddle in the cloud, which the manager is then made to look at.
func cloudDrift(meddle func(w *World, account string) error, mended func(w *World, account fakecloud.AccountState) bool) Step {
	return act(SecureStorage, func(ctx context.Context, w *World) (string, error) {
		if err := meddle(w, w.Account(objectName)); err != nil {
			return "", fmt.Errorf("meddling: %w", err)
		}
		return w.Poke(ctx, objectName)
	}, func(w *World) bool {
		account, ok := w.Cloud.Account(w.Account(objectName))
		return ok && account.Key != string(v1alpha1.EncryptionPlatformKeys) && mended(w, account)
	})
}

func anyAccount(*World, fakecloud.AccountState) bool { return true }

// pinNextVersion rotates the key, and pins the version that it has now.
func pinNextVersion() Step {
	step := editStorage(func(*v1alpha1.SecureStorageSpec) {})
	step.Do = func(ctx context.Context, w *World) error {
		version, err := w.Cloud.RotateKey(w.Demo.Vault, w.Demo.Key)
		if err != nil {
			return err
		}
		return Edit(ctx, w, user, objectName, &v1alpha1.SecureStorage{}, func(s *v1alpha1.SecureStorage) { s.Spec.Key.Version = version })
	}
	return step
}

// adoptedAccount is there before, and nobody's.
const adoptedAccount = "seededaccount1"

func adopts() Step {
	step := createStorage()
	step.Do = func(ctx context.Context, w *World) error {
		if err := w.Cloud.SeedAccount(w.Demo.Subscription, w.Demo.Group, adoptedAccount, nil); err != nil {
			return err
		}
		return w.Create(ctx, w.NewSecureStorage(objectName, func(s *v1alpha1.SecureStorageSpec) {
			s.AccountName, s.AdoptionPolicy = adoptedAccount, v1alpha1.AdoptionIfUnowned
		}))
	}
	return step
}

func secureStorageScenarios() []Scenario {
	storage := func(name string, when Step, given ...Step) Scenario {
		return Scenario{Name: name, Kinds: []string{SecureStorage}, Given: given, When: when}
	}
	created := createStorage()
	recreates := createStorage(func(s *v1alpha1.SecureStorageSpec) { s.OnAccountLoss = v1alpha1.LossRecreate })
	const put = "cloud PUT "
	return []Scenario{
		storage("create", created),
		storage("create-policy", createStorage(byPolicy)),
		storage("adopt", adopts()),
		storage("account", editStorage(func(s *v1alpha1.SecureStorageSpec) {
			s.SKU, s.Tags = v1alpha1.SKUStandardGRS, map[string]string{"team": "storage"}
		}), created),
		storage("vault", editStorage(inVault(otherVault)), created),
		storage("access", editStorage(byPolicy), created),
		storage("rotation", pinNextVersion(), created),
		storage("drift-key", cloudDrift(func(w *World, account string) error { return w.Cloud.UsePlatformKeys(account) }, anyAccount), created),
		storage("drift-tags", cloudDrift(func(w *World, account string) error { return w.Cloud.SetTags(account, nil) },
			func(_ *World, account fakecloud.AccountState) bool { return len(account.Tags) > 0 }), created),
		storage("drift-grant", cloudDrift(func(w *World, account string) error { return w.Cloud.RemoveGrants(w.Cloud.Principal(account)) },
			func(w *World, _ fakecloud.AccountState) bool { return len(w.Cloud.State().Assignments) == 1 }), created),
		storage("drift-identity", cloudDrift(func(w *World, account string) error { return w.Cloud.DropIdentity(account) },
			func(w *World, _ fakecloud.AccountState) bool { return w.Cloud.Principal(w.Account(objectName)) != "" }), created),
		storage("lost", cloudDrift(func(w *World, account string) error { return w.Cloud.DeleteAccount(account) }, anyAccount), recreates),
		storage("delete", deleteStorage(), created),
		storage("delete-policy", deleteStorage(), createStorage(byPolicy)),
		storage("delete-retain", deleteStorage(), createStorage(retained)),
		racing(storage("delete-at-finalizer", storageDeletedDuring("apply securestorages"))),
		racing(storage("delete-at-account", storageDeletedDuring(put+"storageaccounts"))),
		racing(storage("delete-at-grant", storageDeletedDuring(put+"roleassignments"))),
		racing(storage("delete-at-key", storageDeletedDuring("cloud PATCH storageaccounts"))),
	}
}
