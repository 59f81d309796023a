package faults

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// StorageEdit changes the spec of a SecureStorage.
type StorageEdit = func(*v1beta1.SecureStorageSpec)

// otherVault is a second vault with a key of the same name; oldVault uses access policies.
const (
	otherVault = "other-vault"
	oldVault   = "old-vault"
)

// NewSecureStorage returns a SecureStorage with deletionPolicy Delete, changed by the edits.
func (env *Environment) NewSecureStorage(name string, edits ...StorageEdit) *v1beta1.SecureStorage {
	storage := &v1beta1.SecureStorage{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1beta1.SecureStorageSpec{
			Provider:       v1beta1.SecureStorageProvider{SubscriptionID: env.Demo.Subscription, ResourceGroup: env.Demo.Group, Location: env.Demo.Location},
			Key:            v1beta1.SecureStorageKey{Vault: &v1beta1.SecureStorageVault{Name: env.Demo.Vault}, Name: env.Demo.Key},
			DeletionPolicy: v1beta1.DeletionDelete,
			PollInterval:   metav1.Duration{Duration: 10 * time.Second},
		},
	}
	for _, edit := range edits {
		edit(&storage.Spec)
	}
	return storage
}

// seedVaults creates the additional vaults of the scenarios.
func seedVaults(env *Environment) error {
	for name, spec := range map[string]fakecloud.VaultSpec{
		otherVault: {PurgeProtection: true},
		oldVault:   {PurgeProtection: true, AccessPolicies: true},
	} {
		env.Cloud.SeedVault(env.Demo.Subscription, env.Demo.Group, name, spec)
		if _, err := env.Cloud.SeedKey(name, env.Demo.Key, fakecloud.KeySpec{}); err != nil {
			return err
		}
	}
	return nil
}

func withVault(name string) StorageEdit {
	return func(s *v1beta1.SecureStorageSpec) { s.Key.Vault = &v1beta1.SecureStorageVault{Name: name} }
}

// withAccessPolicy selects the vault with access policies.
func withAccessPolicy(s *v1beta1.SecureStorageSpec) {
	withVault(oldVault)(s)
	s.Access.Type = v1beta1.AccessPolicy
}

// withExport exports the account and its keys.
func withExport(s *v1beta1.SecureStorageSpec) {
	s.Export = &v1beta1.SecureStorageExport{AccountKeys: true}
}

func withRetain(s *v1beta1.SecureStorageSpec) { s.DeletionPolicy = v1beta1.DeletionRetain }

func createStorage(edits ...StorageEdit) Step {
	return Step{
		Do: func(ctx context.Context, env *Environment) error {
			if err := seedVaults(env); err != nil {
				return err
			}
			return env.Create(ctx, env.NewSecureStorage(objectName, edits...))
		},
		Done: func(env *Environment) bool { return env.ReadyWith(SecureStorage, objectName, 1) },
	}
}

func editStorage(edit StorageEdit) Step {
	return Step{
		Do: func(ctx context.Context, env *Environment) error {
			return Edit(ctx, env, user, objectName, &v1beta1.SecureStorage{}, func(s *v1beta1.SecureStorage) { edit(&s.Spec) })
		},
		Done: func(env *Environment) bool { return env.ReadyWith(SecureStorage, objectName, 2) },
	}
}

func deleteStorage() Step {
	return Step{
		Do: func(ctx context.Context, env *Environment) error {
			return env.Delete(ctx, &v1beta1.SecureStorage{}, objectName)
		},
		Done: func(env *Environment) bool { return env.Deleted(SecureStorage, objectName) },
	}
}

// deleteStorageDuring creates a SecureStorage and deletes it at the first call of the class.
func deleteStorageDuring(class string) Step {
	return Step{
		Do:   createStorage().Do,
		Done: func(env *Environment) bool { return env.Deleted(SecureStorage, objectName) },
		During: injectOnce("deleted", hasClass(class), func(ctx context.Context, env *Environment) error {
			return env.Delete(ctx, &v1beta1.SecureStorage{}, objectName)
		}),
	}
}

// Account returns the account name of a SecureStorage.
func (env *Environment) Account(name string) string {
	storage := env.Get(SecureStorage, name)
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

// TriggerReconcile changes an annotation, so that the manager reconciles a SecureStorage before its poll
// interval has passed.
func (env *Environment) TriggerReconcile(ctx context.Context, name string) (revision string, err error) {
	return editAs(ctx, env, user, name, &v1beta1.SecureStorage{}, func(s *v1beta1.SecureStorage) {
		if s.Annotations == nil {
			s.Annotations = map[string]string{}
		}
		pokes, _ := strconv.Atoi(s.Annotations["test.fixpoint.dev/poke"]) // 0 without the annotation
		s.Annotations["test.fixpoint.dev/poke"] = strconv.Itoa(pokes + 1)
	})
}

// changeCloud changes the cloud as another client and triggers a reconcile.
func changeCloud(change func(env *Environment, account string) error, reverted func(env *Environment, account fakecloud.AccountState) bool) Step {
	return externalAction(SecureStorage, func(ctx context.Context, env *Environment) (string, error) {
		if err := change(env, env.Account(objectName)); err != nil {
			return "", fmt.Errorf("changing the cloud: %w", err)
		}
		return env.TriggerReconcile(ctx, objectName)
	}, func(env *Environment) bool {
		account, ok := env.Cloud.Account(env.Account(objectName))
		return ok && account.Key != string(v1beta1.EncryptionPlatformKeys) && reverted(env, account)
	})
}

func anyAccount(*Environment, fakecloud.AccountState) bool { return true }

// pinNextVersion rotates the key and pins the new version.
func pinNextVersion() Step {
	step := editStorage(func(*v1beta1.SecureStorageSpec) {})
	step.Do = func(ctx context.Context, env *Environment) error {
		version, err := env.Cloud.RotateKey(env.Demo.Vault, env.Demo.Key)
		if err != nil {
			return err
		}
		return Edit(ctx, env, user, objectName, &v1beta1.SecureStorage{}, func(s *v1beta1.SecureStorage) { s.Spec.Key.Version = version })
	}
	return step
}

// adoptedAccount exists before its SecureStorage and has no owner.
const adoptedAccount = "seededaccount1"

// cloudCredentials is a Secret with a credential of the user, because that of the manager does not adopt.
const cloudCredentials = "azure"

func withAdoption(account string) StorageEdit {
	return func(s *v1beta1.SecureStorageSpec) {
		s.AccountName, s.AdoptionPolicy = account, v1beta1.AdoptionIfUnowned
		s.Provider.CredentialsSecretRef = &v1beta1.SecureStorageCredentialsSecretRef{Name: cloudCredentials}
	}
}

// seedAdoption creates an account to adopt, and the credential, unless it exists.
func seedAdoption(ctx context.Context, env *Environment, account string) error {
	if err := env.Cloud.SeedAccount(env.Demo.Subscription, env.Demo.Group, account, nil); err != nil {
		return err
	}
	return client.IgnoreAlreadyExists(env.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: cloudCredentials},
		StringData: map[string]string{
			v1beta1.CredentialTenantID: "tenant", v1beta1.CredentialClientID: "client", v1beta1.CredentialClientSecret: fakecloud.Token("manager"),
		},
	}))
}

func adoptAccount() Step {
	step := createStorage()
	step.Do = func(ctx context.Context, env *Environment) error {
		if err := seedAdoption(ctx, env, adoptedAccount); err != nil {
			return err
		}
		return env.Create(ctx, env.NewSecureStorage(objectName, withAdoption(adoptedAccount)))
	}
	return step
}

// deleteStorageAfterCredentials deletes the Secret with the credentials, which the deletion of the account needs, before the
// SecureStorage.
func deleteStorageAfterCredentials() Step {
	return Step{
		Do: func(ctx context.Context, env *Environment) error {
			if err := env.Delete(ctx, &corev1.Secret{}, cloudCredentials); err != nil {
				return err
			}
			return env.Delete(ctx, &v1beta1.SecureStorage{}, objectName)
		},
		Done: func(env *Environment) bool {
			return env.Deleted(SecureStorage, objectName) && env.Deleted("Secret", cloudCredentials)
		},
	}
}

// observedAccount exists before the SecureStorage that observes it.
const observedAccount = "observedaccount1"

// withObserve only observes the account.
func withObserve(s *v1beta1.SecureStorageSpec) {
	withAdoption(observedAccount)(s)
	s.ManagementPolicy = v1beta1.ManagementObserve
}

// differs reports whether an object reports differences for its current generation, which must be at least the given one.
func (env *Environment) differs(name string, generation int64) bool {
	object := env.Get(SecureStorage, name)
	status, reason, observed := condition(object, "Ready")
	return object != nil && status == "False" && reason == v1beta1.ReasonDiffers && observed >= generation && observed == object.GetGeneration()
}

func observeStorage() Step {
	return Step{
		Do: func(ctx context.Context, env *Environment) error {
			if err := seedAdoption(ctx, env, observedAccount); err != nil {
				return err
			}
			return env.Create(ctx, env.NewSecureStorage(objectName, withObserve))
		},
		Done: func(env *Environment) bool { return env.differs(objectName, 1) },
	}
}

// observeDrift changes the account that is observed as another client.
func observeDrift() Step {
	const acted = "revision of the change of the observed account"
	return Step{
		Do: func(ctx context.Context, env *Environment) error {
			if err := env.Cloud.SetTags(observedAccount, map[string]string{"other": "x"}); err != nil {
				return err
			}
			revision, err := env.TriggerReconcile(ctx, objectName)
			env.setValue(acted, revision)
			return err
		},
		Done: func(env *Environment) bool {
			account, _ := env.Cloud.Account(observedAccount)
			return account.Tags["other"] == "x" && env.hasSeen(env.value(acted)) && env.differs(objectName, 1)
		},
	}
}

// hasExportedKeys reports whether the exported Secret has the keys of the account.
func (env *Environment) hasExportedKeys(account string) bool {
	keys, err := env.Cloud.AccountKeys(account)
	live := env.Get("Secret", objectName)
	return err == nil && live != nil && field(live, "data", "key1") == encoded(keys[0]) && field(live, "data", "key2") == encoded(keys[1])
}

func encoded(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// driftExport changes both exported objects as another client.
func driftExport() Step {
	return externalAction(SecureStorage, func(ctx context.Context, env *Environment) (string, error) {
		if _, err := editAs(ctx, env, externalManager, objectName, &corev1.ConfigMap{}, func(c *corev1.ConfigMap) { c.Data["blobEndpoint"] = "https://other.test" }); err != nil {
			return "", err
		}
		return editAs(ctx, env, externalManager, objectName, &corev1.Secret{}, func(s *corev1.Secret) { s.Data["key1"] = []byte("other") })
	}, func(env *Environment) bool {
		live := env.Get("ConfigMap", objectName)
		return live != nil && field(live, "data", "blobEndpoint") != "https://other.test" && env.hasExportedKeys(env.Account(objectName))
	})
}

func secureStorageScenarios() []Scenario {
	storage := func(name string, when Step, given ...Step) Scenario {
		return Scenario{Name: name, Kinds: []string{SecureStorage}, Given: given, When: when}
	}
	created, exports := createStorage(), createStorage(withExport)
	recreates := createStorage(func(s *v1beta1.SecureStorageSpec) { s.AccountLossPolicy = v1beta1.LossRecreate })
	const put = "cloud PUT "
	return []Scenario{
		storage("create", createStorage(withExport)),
		storage("create-policy", createStorage(withAccessPolicy)),
		storage("adopt", adoptAccount()),
		storage("account", editStorage(func(s *v1beta1.SecureStorageSpec) {
			s.SKU, s.Tags = v1beta1.SKUStandardGRS, map[string]string{"team": "storage"}
		}), created),
		storage("vault", editStorage(withVault(otherVault)), created),
		storage("access", editStorage(withAccessPolicy), created),
		storage("rotation", pinNextVersion(), created),
		storage("drift-key", changeCloud(func(env *Environment, account string) error { return env.Cloud.UsePlatformKeys(account) }, anyAccount), created),
		storage("drift-tags", changeCloud(func(env *Environment, account string) error { return env.Cloud.SetTags(account, nil) },
			func(_ *Environment, account fakecloud.AccountState) bool { return len(account.Tags) > 0 }), created),
		storage("drift-grant", changeCloud(func(env *Environment, account string) error {
			return env.Cloud.RemoveGrants(env.Cloud.Principal(account))
		},
			func(env *Environment, _ fakecloud.AccountState) bool { return len(env.Cloud.State().Assignments) == 1 }), created),
		storage("drift-identity", changeCloud(func(env *Environment, account string) error { return env.Cloud.DropIdentity(account) },
			func(env *Environment, _ fakecloud.AccountState) bool {
				return env.Cloud.Principal(env.Account(objectName)) != ""
			}), created),
		storage("lost", changeCloud(func(env *Environment, account string) error { return env.Cloud.DeleteAccount(account) }, anyAccount), recreates),
		storage("observe", observeStorage()),
		storage("observe-drift", observeDrift(), observeStorage()),
		storage("observe-delete", deleteStorage(), observeStorage()),
		storage("observe-manage", editStorage(func(s *v1beta1.SecureStorageSpec) { s.ManagementPolicy = v1beta1.ManagementManage }), observeStorage()),
		storage("manage-observe", editStorage(func(s *v1beta1.SecureStorageSpec) { s.ManagementPolicy = v1beta1.ManagementObserve }), created),
		storage("export", editStorage(withExport), created),
		storage("export-removed", editStorage(func(s *v1beta1.SecureStorageSpec) { s.Export = nil }), exports),
		storage("export-drift", driftExport(), exports),
		storage("export-regenerated", changeCloud(func(env *Environment, account string) error { return env.Cloud.RegenerateKey(account, "key1") },
			func(env *Environment, account fakecloud.AccountState) bool { return env.hasExportedKeys(account.Name) }), exports),
		storage("export-observed", editStorage(func(s *v1beta1.SecureStorageSpec) {
			s.ManagementPolicy, s.Export = v1beta1.ManagementObserve, &v1beta1.SecureStorageExport{}
		}), exports),
		storage("export-delete", deleteStorage(), exports),
		storage("delete", deleteStorage(), created),
		storage("delete-credentials", deleteStorageAfterCredentials(), adoptAccount()),
		storage("delete-policy", deleteStorage(), createStorage(withAccessPolicy)),
		storage("delete-retain", deleteStorage(), createStorage(withRetain)),
		raceScenario(storage("delete-at-finalizer", deleteStorageDuring("apply securestorages"))),
		raceScenario(storage("delete-at-account", deleteStorageDuring(put+"storageaccounts"))),
		raceScenario(storage("delete-at-grant", deleteStorageDuring(put+"roleassignments"))),
		raceScenario(storage("delete-at-key", deleteStorageDuring("cloud PATCH storageaccounts"))),
	}
}
