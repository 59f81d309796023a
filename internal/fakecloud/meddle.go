package fakecloud

import (
	"cmp"
	"fmt"
	"maps"
	"strings"
	"time"
)

// The methods in this file change resources outside of Azure Resource Manager: without throttling,
// permissions and locks. The ledger shows them as changes of [WhoMeddler].

func (s *Server) meddle(what string, change func(now time.Time) (Entry, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry, err := change(s.clock.Now())
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	entry.Who = WhoMeddler
	entry.Effect = cmp.Or(entry.Effect, Updated)
	entry.Detail = cmp.Or(entry.Detail, what)
	s.record(entry)
	return nil
}

func (s *Server) meddleAccount(what, name string, change func(*Account, time.Time)) error {
	return s.meddle(what, func(now time.Time) (Entry, error) {
		a := s.accountNamed(name, now)
		if a == nil {
			return Entry{}, fmt.Errorf("account %s does not exist", name)
		}
		change(a, now)
		a.Version++
		return Entry{Resource: a.ID(), Key: a.Encryption.inWords(), Principal: a.Identity.PrincipalID}, nil
	})
}

func (s *Server) meddleVault(what, name string, change func(*Vault, time.Time) error) error {
	return s.meddle(what, func(now time.Time) (Entry, error) {
		v := s.anyVault(name, now)
		if v == nil {
			return Entry{}, fmt.Errorf("key vault %s does not exist", name)
		}
		if err := change(v, now); err != nil {
			return Entry{}, err
		}
		v.Version++
		return Entry{Resource: v.ID()}, nil
	})
}

func (s *Server) meddleKey(what, vault, name string, change func(*Vault, *Key, time.Time) error) error {
	return s.meddleVault(what+" "+name, vault, func(v *Vault, now time.Time) error {
		key := v.Keys[strings.ToLower(name)]
		if key == nil {
			return fmt.Errorf("key %s does not exist in key vault %s", name, vault)
		}
		return change(v, key, now)
	})
}

// UsePlatformKeys encrypts an account with platform-managed keys.
func (s *Server) UsePlatformKeys(account string) error {
	return s.meddleAccount("encryption switched to platform keys", account, func(a *Account, now time.Time) {
		a.Encryption = Encryption{KeySource: keySourcePlatform, RotatedAt: now}
	})
}

// UseKey encrypts an account with a key, without the checks.
func (s *Server) UseKey(account, vault, key, version string) error {
	return s.meddleAccount("encryption switched to another key", account, func(a *Account, now time.Time) {
		a.Encryption = Encryption{
			KeySource: keySourceVault, VaultURI: "https://" + vault + ".vault.azure.net", KeyName: key,
			Pinned: version, Current: version, RotatedAt: now, LookAt: now,
		}
	})
}

// UseIdentity lets an account use its key with a user-assigned identity.
func (s *Server) UseIdentity(account, id string) error {
	return s.meddleAccount("encryption switched to a user-assigned identity", account, func(a *Account, _ time.Time) { a.Encryption.UserIdentity = id })
}

// SetTags replaces the tags of an account; nil removes all.
func (s *Server) SetTags(account string, tags map[string]string) error {
	return s.meddleAccount("tags replaced", account, func(a *Account, _ time.Time) { a.Tags = maps.Clone(tags) })
}

// DropIdentity removes the identity of an account.
func (s *Server) DropIdentity(account string) error {
	return s.meddleAccount("identity removed", account, func(a *Account, now time.Time) { s.identify(a, "None", now) })
}

// DeleteAccount deletes an account immediately. Its grants stay.
func (s *Server) DeleteAccount(account string) error {
	return s.meddle("account deleted", func(now time.Time) (Entry, error) {
		a := s.accountNamed(account, now)
		if a == nil {
			return Entry{}, fmt.Errorf("account %s does not exist", account)
		}
		if p := s.state.Principals[a.Identity.PrincipalID]; p != nil {
			p.DeletedAt = &now
		}
		delete(s.state.Accounts, strings.ToLower(a.Name))
		return Entry{Resource: a.ID(), Effect: Deleted}, nil
	})
}

// MoveAccount moves an account to another resource group of its subscription. Its identity, its encryption and its grants stay.
func (s *Server) MoveAccount(account, group string) error {
	return s.meddleAccount("account moved to resource group "+group, account, func(a *Account, _ time.Time) { a.Group = group })
}

// SeedAccount creates a provisioned account that no SecureStorage manages.
func (s *Server) SeedAccount(subscription, group, name string, tags map[string]string) error {
	return s.meddle("account created outside of Azure Resource Manager", func(now time.Time) (Entry, error) {
		g := s.group(subscription, group)
		if g == nil {
			return Entry{}, fmt.Errorf("resource group %s does not exist", group)
		}
		if s.accountNamed(name, now) != nil {
			return Entry{}, fmt.Errorf("account %s already exists", name)
		}
		a := &Account{
			Subscription: subscription, Group: group, Name: name, Location: g.Location, Kind: "StorageV2", SKU: "Standard_LRS",
			Tags: maps.Clone(tags), Encryption: Encryption{KeySource: keySourcePlatform}, Generation: s.generation("account", name), Version: 1,
			CreatedAt: now, VisibleAt: now, ReadyAt: now, ResolvingAt: now,
		}
		s.state.Accounts[strings.ToLower(name)] = a
		return Entry{Resource: a.ID(), Effect: Created, Key: a.Encryption.inWords()}, nil
	})
}

// RemoveGrants deletes the role assignments and access policies of a principal. They stay effective for
// RevokeDelay.
func (s *Server) RemoveGrants(principal string) error {
	return s.meddle("grants removed", func(now time.Time) (Entry, error) {
		entry := Entry{Effect: Deleted, Principal: principal, Resource: principal}
		for _, a := range s.grants[strings.ToLower(principal)] {
			if a.DeletedAt == nil {
				s.revoke(a, now)
				entry.Resource = a.ID()
			}
		}
		for _, v := range s.state.Vaults {
			if policy := v.policyOf(principal); policy != nil {
				s.revokePolicy(v, policy, now)
				entry.Resource = v.ID()
			}
		}
		if entry.Resource == principal {
			return entry, fmt.Errorf("principal %s has no grants", principal)
		}
		return entry, nil
	})
}

// Principal returns the principal ID of an account, also if the account does not show it yet; empty if the
// account has none.
func (s *Server) Principal(account string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.accountNamed(account, s.clock.Now()); a != nil {
		return a.Identity.PrincipalID
	}
	return ""
}

// Lock forbids deletions (CanNotDelete) or all writes (ReadOnly) on a scope and below.
func (s *Server) Lock(scope, name, level string) error {
	return s.meddle("locked "+level, func(time.Time) (Entry, error) {
		return Entry{Resource: s.addLock(scope, name, level).ID(), Effect: Created}, nil
	})
}

// Unlock removes all locks on a scope.
func (s *Server) Unlock(scope string) error {
	return s.meddle("unlocked", func(time.Time) (Entry, error) {
		found := false
		for id, lock := range s.state.Locks {
			if same(lock.Scope, scope) {
				found = true
				delete(s.state.Locks, id)
			}
		}
		if !found {
			return Entry{}, fmt.Errorf("scope %s has no lock", scope)
		}
		return Entry{Resource: scope, Effect: Deleted}, nil
	})
}

// RotateKey creates a new version of a key and returns it.
func (s *Server) RotateKey(vault, key string) (string, error) {
	id := ""
	err := s.meddleKey("new version of key", vault, key, func(v *Vault, k *Key, now time.Time) error {
		id = s.addVersion(v, k, now).ID
		return nil
	})
	return id, err
}

// EnableKey enables or disables a version of a key, or all if version is empty.
func (s *Server) EnableKey(vault, key, version string, enabled bool) error {
	return s.meddleKey(fmt.Sprintf("enabled=%t of key", enabled), vault, key, func(_ *Vault, k *Key, now time.Time) error {
		if version != "" && k.version(version) == nil {
			return fmt.Errorf("the key has no version %s", version)
		}
		for _, v := range k.Versions {
			if version == "" || same(v.ID, version) {
				v.Enabled, v.UpdatedAt = enabled, now
			}
		}
		return nil
	})
}

// DeleteKeyVersion removes a version of a key permanently. Azure cannot do this; it simulates a lost
// version.
func (s *Server) DeleteKeyVersion(vault, key, version string) error {
	return s.meddleKey("version "+version+" removed of key", vault, key, func(_ *Vault, k *Key, _ time.Time) error {
		for i, v := range k.Versions {
			if same(v.ID, version) && len(k.Versions) > 1 {
				k.Versions = append(k.Versions[:i:i], k.Versions[i+1:]...)
				return nil
			}
		}
		return fmt.Errorf("%s is not one of several versions of the key", version)
	})
}

// DeleteKey soft-deletes a key.
func (s *Server) DeleteKey(vault, key string) error {
	return s.meddleKey("deleted key", vault, key, func(_ *Vault, k *Key, now time.Time) error {
		k.DeletedAt = &now
		return nil
	})
}

// RecoverKey recovers a soft-deleted key.
func (s *Server) RecoverKey(vault, key string) error {
	return s.meddleKey("recovered key", vault, key, func(_ *Vault, k *Key, _ time.Time) error {
		k.DeletedAt = nil
		return nil
	})
}

// EnableVault opens or closes a key vault for everyone.
func (s *Server) EnableVault(vault string, enabled bool) error {
	return s.meddleVault(fmt.Sprintf("enabled=%t", enabled), vault, func(v *Vault, _ time.Time) error {
		v.Disabled = !enabled
		return nil
	})
}

// SetPurgeProtection enables purge protection or, which Azure cannot do, disables it.
func (s *Server) SetPurgeProtection(vault string, on bool) error {
	return s.meddleVault(fmt.Sprintf("purge protection %t", on), vault, func(v *Vault, _ time.Time) error {
		v.PurgeProtection = on
		return nil
	})
}

// DeleteVault soft-deletes a key vault, and deletes its role assignments permanently.
func (s *Server) DeleteVault(vault string) error {
	return s.meddleVault("vault deleted", vault, func(v *Vault, now time.Time) error {
		if v.DeletedAt != nil {
			return fmt.Errorf("key vault %s is already deleted", vault)
		}
		s.removeVault(v, now)
		return nil
	})
}

// RecoverVault recovers a soft-deleted key vault, without its role assignments.
func (s *Server) RecoverVault(vault string) error {
	return s.meddleVault("vault recovered", vault, func(v *Vault, now time.Time) error {
		if v.DeletedAt == nil {
			return fmt.Errorf("key vault %s is not deleted", vault)
		}
		s.restoreVault(v, now)
		return nil
	})
}
