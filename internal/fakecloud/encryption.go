package fakecloud

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

type encryptionRequest struct {
	KeySource *string `json:"keySource"`
	Services  map[string]struct {
		KeyType *string `json:"keyType"`
	} `json:"services"`
	Properties *struct {
		KeyName    *string `json:"keyname"`
		VaultURI   *string `json:"keyvaulturi"`
		KeyVersion *string `json:"keyversion"`
	} `json:"keyvaultproperties"`
	Identity struct {
		User *string `json:"userAssignedIdentity"`
	} `json:"identity"`
}

// applyEncryption sets the key of an account, after the checks that Azure does: it uses the key on behalf
// of the account.
func (s *Server) applyEncryption(c *call, a *Account, raw json.RawMessage) *Error {
	var request encryptionRequest
	if err := json.Unmarshal(raw, &request); err != nil {
		return invalidContent(err)
	}
	source := keySourcePlatform
	if request.KeySource != nil {
		source = *request.KeySource
	}
	switch {
	case same(source, keySourcePlatform):
		if a.Encryption.KeySource != keySourcePlatform {
			a.Encryption = Encryption{KeySource: keySourcePlatform, RotatedAt: c.now}
		}
		return nil
	case !same(source, keySourceVault):
		return badRequest("InvalidRequestPropertyValue", "The value '%s' is not allowed for property encryption.keySource.", source)
	case request.Properties == nil || empty(request.Properties.KeyName) || empty(request.Properties.VaultURI):
		return badRequest("MissingKeyvaultProperties", "The encryption keyvault properties are missing from the request.")
	}
	wanted := Encryption{KeySource: keySourceVault, VaultURI: *request.Properties.VaultURI, KeyName: *request.Properties.KeyName}
	if request.Properties.KeyVersion != nil {
		wanted.Pinned = *request.Properties.KeyVersion
	}
	wanted.UserIdentity = a.Encryption.UserIdentity
	if request.Identity.User != nil {
		wanted.UserIdentity = *request.Identity.User
	}
	version, err := s.wrapKey(a, wanted, c.now)
	if err != nil {
		return err
	}
	wanted.Current = version
	if wanted.asked() == a.Encryption.asked() && wanted.Current == a.Encryption.Current {
		return nil
	}
	wanted.RotatedAt, wanted.LookAt = c.now, c.now.Add(time.Duration(s.knobs.KeyLookup))
	a.Encryption = wanted
	return nil
}

// accountKeyed are the services that a creation gives the key of the account.
func accountKeyed(encryption json.RawMessage) ([]string, *Error) {
	var request encryptionRequest
	if len(encryption) > 0 {
		if err := json.Unmarshal(encryption, &request); err != nil {
			return nil, invalidContent(err)
		}
	}
	var keyed []string
	for _, service := range []string{"queue", "table"} {
		switch kind := request.Services[service].KeyType; {
		case kind == nil || same(*kind, "Service"):
		case same(*kind, "Account"):
			keyed = append(keyed, service)
		default:
			return nil, badRequest("InvalidRequestPropertyValue", "The value '%s' is not allowed for property encryption.services.%s.keyType.", *kind, service)
		}
	}
	return keyed, nil
}

// wrapKey uses the key on behalf of the account, and returns the version that it used.
func (s *Server) wrapKey(a *Account, e Encryption, now time.Time) (string, *Error) {
	if e.UserIdentity == "" && a.Identity.Type != systemAssigned {
		return "", badRequest("MissingMsiHeaders", "Missing pre-requisites to enable EncryptionAtRest/Customer Managed Key for this storage account. For more information, see - https://aka.ms/storagecmkconfiguration")
	}
	vault := s.vaultAt(e.VaultURI, now)
	if vault == nil {
		return "", badRequest("KeyVaultNotFound", "The key vault at '%s' was not found.", e.VaultURI)
	}
	if !s.mayUse(a, e, vault, now) {
		return "", keyVaultAuthentication()
	}
	if vault.Disabled || same(vault.PublicNetwork, "Disabled") {
		return "", refuse(http.StatusForbidden, "KeyVaultAccessForbidden", "Access to the key vault '%s' was refused: it is disabled or closed to the storage service.", vault.Name)
	}
	if !vault.PurgeProtection || !vault.SoftDelete {
		return "", badRequest("KeyVaultPolicyError", "Keyvault policy recoverable is not set")
	}
	return vault.usable(e.KeyName, e.Pinned, now)
}

// mayUse says whether the identity that an encryption names may use the key. A user-assigned one, which is not modeled,
// always may.
func (s *Server) mayUse(a *Account, e Encryption, vault *Vault, now time.Time) bool {
	return e.UserIdentity != "" || !now.Before(a.Identity.VisibleAt) && s.granted(a.Identity.PrincipalID, vault, e.KeyName, now)
}

// usable returns a key version that can wrap: the pinned one or the newest.
func (v *Vault) usable(name, pinned string, now time.Time) (string, *Error) {
	key := v.Keys[strings.ToLower(name)]
	if key == nil || key.DeletedAt != nil {
		return "", badRequest("KeyVaultKeyNotFound", "The key '%s' was not found in the key vault '%s'.", name, v.Name)
	}
	version := key.newest()
	if pinned != "" {
		version = key.version(pinned)
	}
	switch {
	case version == nil:
		return "", badRequest("KeyVaultKeyNotFound", "The version '%s' of the key '%s' was not found in the key vault '%s'.", pinned, name, v.Name)
	case !slices.Contains([]string{"RSA", "RSA-HSM"}, key.Type) || !slices.Contains([]int{2048, 3072, 4096}, key.Size):
		return "", badRequest("KeyVaultKeyTypeNotSupported", "The key '%s' is of type %s %d. Only RSA keys of 2048, 3072 and 4096 bits are supported.", name, key.Type, key.Size)
	case !slices.Contains(key.Ops, "wrapKey") || !slices.Contains(key.Ops, "unwrapKey"):
		return "", badRequest("KeyVaultKeyOperationNotAllowed", "The key '%s' does not allow the operations wrapKey and unwrapKey.", name)
	case !version.Enabled:
		return "", badRequest("KeyVaultKeyDisabled", "The key '%s' is disabled.", name)
	case version.ExpiresAt != nil && !now.Before(*version.ExpiresAt):
		return "", badRequest("KeyVaultKeyExpired", "The key '%s' has expired.", name)
	}
	return version.ID, nil
}

// followKey switches to a new version at intervals, unless a version is pinned.
func (s *Server) followKey(a *Account, now time.Time) {
	e := &a.Encryption
	period := time.Duration(s.knobs.KeyLookup)
	if e.KeySource != keySourceVault || e.Pinned != "" || period <= 0 || now.Before(e.LookAt) {
		return
	}
	for !now.Before(e.LookAt) {
		e.LookAt = e.LookAt.Add(period)
	}
	version, err := s.wrapKey(a, *e, now)
	if err != nil || version == e.Current {
		return
	}
	before := e.inWords()
	e.Current, e.RotatedAt = version, now
	a.Version++
	s.record(Entry{Who: WhoCloud, Resource: a.ID(), Effect: Updated, Detail: "encryption " + before + " -> " + e.inWords(), Key: e.inWords()})
}

// readable returns nil if data can be read and written, or the error of the data plane.
func (s *Server) readable(a *Account, now time.Time) *Error {
	e := a.Encryption
	if e.KeySource != keySourceVault {
		return nil
	}
	vault := s.vaultAt(e.VaultURI, now)
	if vault == nil {
		return refuse(http.StatusForbidden, "KeyVaultVaultNotFound", "The key vault was not found.")
	}
	if vault.Disabled || !s.mayUse(a, e, vault, now) {
		return refuse(http.StatusForbidden, "KeyVaultAccessTokenCannotBeAcquired", "The key vault refuses the account's identity.")
	}
	if _, err := vault.usable(e.KeyName, e.Current, now); err != nil {
		return refuse(http.StatusForbidden, "KeyVaultEncryptionKeyNotFound", "The encryption key cannot be used: %s", err.Message)
	}
	return nil
}

func (s *Server) vaultAt(uri string, now time.Time) *Vault {
	parsed, err := url.Parse(uri)
	if err != nil || parsed.Scheme != "https" {
		return nil
	}
	name, suffix, _ := strings.Cut(parsed.Hostname(), ".")
	if suffix != "vault.azure.net" {
		return nil
	}
	return s.vaultNamed(name, now)
}

// asked returns the requested part of the encryption, for comparison.
func (e Encryption) asked() string {
	return strings.ToLower(strings.Join([]string{e.KeySource, strings.TrimSuffix(e.VaultURI, "/"), e.KeyName, e.Pinned, e.UserIdentity}, " "))
}

// inWords returns the key source or the key.
func (e Encryption) inWords() string {
	if e.KeySource != keySourceVault {
		return e.KeySource
	}
	return e.identifier()
}

func (e Encryption) identifier() string {
	return strings.TrimSuffix(e.VaultURI, "/") + "/keys/" + e.KeyName + "/" + e.Current
}

func (a *Account) renderEncryption() map[string]any {
	e, services := a.Encryption, map[string]any{}
	for _, service := range append([]string{"blob", "file"}, a.AccountKeyed...) {
		services[service] = map[string]any{"enabled": true, "keyType": "Account", "lastEnabledTime": instant(a.CreatedAt)}
	}
	body := map[string]any{"keySource": e.KeySource, "services": services}
	if e.KeySource == keySourceVault {
		body["keyvaultproperties"] = map[string]any{
			"keyvaulturi": e.VaultURI, "keyname": e.KeyName, "keyversion": e.Pinned,
			"currentVersionedKeyIdentifier": e.identifier(),
			"lastKeyRotationTimestamp":      instant(e.RotatedAt),
		}
	}
	if e.UserIdentity != "" {
		body["identity"] = map[string]any{"userAssignedIdentity": e.UserIdentity}
	}
	return body
}
