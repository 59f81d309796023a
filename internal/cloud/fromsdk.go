package cloud

import (
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/keyvault/armkeyvault"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/storage/armstorage"
)

// value returns what a pointer of the SDK points to, or the zero value: any field may be missing.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
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
		if p.PrimaryEndpoints != nil {
			account.BlobEndpoint = value(p.PrimaryEndpoints.Blob)
		}
	}
	return account
}

func encryptionOf(e *armstorage.Encryption) Encryption {
	if e == nil {
		return Encryption{}
	}
	encryption := Encryption{KeySource: string(value(e.KeySource))}
	if v := e.KeyVaultProperties; v != nil {
		encryption.VaultURI, encryption.KeyName, encryption.KeyVersion = value(v.KeyVaultURI), value(v.KeyName), value(v.KeyVersion)
		encryption.CurrentKeyID = value(v.CurrentVersionedKeyIdentifier)
		encryption.CurrentVersion = versionOf(encryption.CurrentKeyID)
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
	key.ID, key.VersionID = value(p.KeyURI), value(p.KeyURIWithVersion)
	key.Version = versionOf(key.VersionID)
	key.Type, key.Size = string(value(p.Kty)), value(p.KeySize)
	key.Enabled = p.Attributes == nil || p.Attributes.Enabled == nil || *p.Attributes.Enabled
	for _, operation := range p.KeyOps {
		key.Operations = append(key.Operations, string(value(operation)))
	}
	return key
}
