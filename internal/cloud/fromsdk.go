package cloud

import (
	"errors"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/keyvault/armkeyvault"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/storage/armstorage"
)

// value returns what a pointer of the SDK points to, or the zero value: any field may be missing.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func accountOf(a armstorage.Account) *Account {
	account := &Account{
		ID:       value(a.ID),
		Name:     value(a.Name),
		Location: strings.ToLower(strings.ReplaceAll(value(a.Location), " ", "")),
		Tags:     map[string]string{},
	}
	if a.SKU != nil {
		account.SKU = string(value(a.SKU.Name))
	}
	for key, v := range a.Tags {
		account.Tags[key] = value(v)
	}
	if a.Identity != nil {
		account.HasIdentity = strings.Contains(string(value(a.Identity.Type)), string(armstorage.IdentityTypeSystemAssigned))
		account.hasUserIdentity = strings.Contains(string(value(a.Identity.Type)), string(armstorage.IdentityTypeUserAssigned))
		account.PrincipalID = value(a.Identity.PrincipalID)
	}
	if p := a.Properties; p != nil {
		account.State = string(value(p.ProvisioningState))
		account.CreatedOn = value(p.CreationTime)
		account.Encryption = encryptionOf(p.Encryption)
		if e := p.PrimaryEndpoints; e != nil {
			account.Endpoints = Endpoints{
				Blob: value(e.Blob), DFS: value(e.Dfs), File: value(e.File), Queue: value(e.Queue), Table: value(e.Table), Web: value(e.Web),
			}
		}
		account.HasServiceKeys = hasServiceKeys(account.SKU, p.Encryption)
		if created := p.KeyCreationTime; created != nil {
			account.KeysCreated = [2]time.Time{value(created.Key1), value(created.Key2)}
		}
	}
	return account
}

// accountKeysOf fails if a key is missing: without this, an unexpected response would look like removed keys.
func accountKeysOf(answer armstorage.AccountListKeysResult) (keys AccountKeys, err error) {
	for _, key := range answer.Keys {
		switch found := value(key); value(found.KeyName) {
		case "key1":
			keys.Key1 = value(found.Value)
		case "key2":
			keys.Key2 = value(found.Value)
		}
	}
	if keys.Key1 == "" || keys.Key2 == "" {
		return AccountKeys{}, errors.New("listing the keys of the storage account: the response does not have key1 and key2")
	}
	return keys, nil
}

func hasServiceKeys(sku string, e *armstorage.Encryption) bool {
	services := value(value(e).Services)
	isOwn := func(s *armstorage.EncryptionService) bool {
		return value(value(s).KeyType) != armstorage.KeyTypeAccount
	}
	return !isPremium(sku) && (isOwn(services.Queue) || isOwn(services.Table))
}

func encryptionOf(e *armstorage.Encryption) Encryption {
	if e == nil {
		return Encryption{}
	}
	encryption := Encryption{KeySource: string(value(e.KeySource))}
	if v := e.KeyVaultProperties; v != nil {
		encryption.VaultURI, encryption.KeyName, encryption.KeyVersion = withoutPort(v.KeyVaultURI), value(v.KeyName), value(v.KeyVersion)
		encryption.CurrentKeyID = withoutPort(v.CurrentVersionedKeyIdentifier)
		encryption.CurrentVersion = versionOf(encryption.CurrentKeyID)
		encryption.UserIdentity = value(value(e.EncryptionIdentity).EncryptionUserAssignedIdentity)
	}
	return encryption
}

func vaultOf(v armkeyvault.Vault) *Vault {
	vault := &Vault{ID: value(v.ID), Policies: map[string][]string{}}
	p := v.Properties
	if p == nil {
		return vault
	}
	vault.URI, vault.Tenant = value(p.VaultURI), value(p.TenantID)
	// Soft delete cannot be disabled any more, and old vaults omit the field.
	vault.SoftDelete = p.EnableSoftDelete == nil || *p.EnableSoftDelete
	vault.PurgeProtection = value(p.EnablePurgeProtection)
	vault.RBAC = value(p.EnableRbacAuthorization)
	for _, policy := range p.AccessPolicies {
		if policy == nil || policy.Permissions == nil {
			continue
		}
		principal := strings.ToLower(value(policy.ObjectID))
		for _, permission := range policy.Permissions.Keys {
			vault.Policies[principal] = append(vault.Policies[principal], strings.ToLower(string(value(permission))))
		}
	}
	return vault
}

// withoutPort returns the URI of a key vault or of a key without the port of HTTPS: Azure returns it in some responses only.
func withoutPort(uri *string) string {
	host, path, found := strings.Cut(value(uri), ":443")
	if !found || path != "" && path[0] != '/' {
		return value(uri)
	}
	return host + path
}

// versionOf returns the last part of a versioned key identifier: https://VAULT/keys/KEY/VERSION.
func versionOf(keyID string) string {
	_, key, _ := strings.Cut(keyID, "/keys/")
	_, version, _ := strings.Cut(key, "/")
	return version
}

func keyOf(k armkeyvault.Key) *Key {
	key := &Key{}
	p := k.Properties
	if p == nil {
		return key
	}
	key.ID, key.VersionID = withoutPort(p.KeyURI), withoutPort(p.KeyURIWithVersion)
	key.Version = versionOf(key.VersionID)
	key.Type, key.Size = string(value(p.Kty)), value(p.KeySize)
	key.Enabled = p.Attributes == nil || p.Attributes.Enabled == nil || *p.Attributes.Enabled
	for _, operation := range p.KeyOps {
		key.Operations = append(key.Operations, string(value(operation)))
	}
	return key
}
