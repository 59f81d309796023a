package fakecloud

import (
	"fmt"
	"strings"
)

// VaultSpec describes a vault to seed. The zero value has what the real cloud gives to
// a new vault, and no purge protection.
type VaultSpec struct {
	Location        string `json:"location,omitempty"`
	PurgeProtection bool   `json:"purgeProtection,omitempty"`
	// AccessPolicies makes it a vault of the old kind, without roles.
	AccessPolicies bool `json:"accessPolicies,omitempty"`
	// NoSoftDelete makes it as vaults were before soft delete was forced on them.
	NoSoftDelete bool `json:"noSoftDelete,omitempty"`
}

// KeySpec describes a key to seed; the zero value is RSA 2048 for everything.
type KeySpec struct {
	Type string   `json:"kty,omitempty"`
	Size int      `json:"keySize,omitempty"`
	Ops  []string `json:"keyOps,omitempty"`
}

// Demo names what SeedDemo has made.
type Demo struct {
	Subscription string `json:"subscription"`
	Group        string `json:"group"`
	Location     string `json:"location"`
	Vault        string `json:"vault"`
	VaultID      string `json:"vaultId"`
	Key          string `json:"key"`
}

// DemoSubscription is the id of the subscription that SeedDemo makes.
const DemoSubscription = "00000000-0000-4000-8000-00000000f1c5"

// SeedSubscription makes a subscription, or leaves the one that is there.
func (s *Server) SeedSubscription(id, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seedSubscription(id, name)
}

func (s *Server) seedSubscription(id, name string) {
	key := strings.ToLower(id)
	if s.state.Subscriptions[key] == nil {
		s.state.Subscriptions[key] = &Subscription{ID: id, Name: name}
		s.changed()
	}
}

// SeedGroup makes a resource group, and its subscription, or leaves the one that is there.
func (s *Server) SeedGroup(subscription, name, location string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seedSubscription(subscription, subscription)
	if s.group(subscription, name) == nil {
		s.addGroup(subscription, name, location)
	}
}

// SeedVault makes a vault that is ready, or leaves the one that is there. It returns
// the vault's resource id.
func (s *Server) SeedVault(subscription, group, name string, spec VaultSpec) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	if v := s.vaultNamed(name, now); v != nil {
		return v.ID()
	}
	if spec.Location == "" {
		spec.Location = "westeurope"
	}
	v := &Vault{
		Subscription: subscription, Group: group, Name: name, Location: normalLocation(spec.Location), SKU: "standard",
		RBAC: !spec.AccessPolicies, PurgeProtection: spec.PurgeProtection, SoftDelete: !spec.NoSoftDelete, RetentionDays: 90,
		PublicNetwork: "Enabled", Keys: map[string]*Key{}, Version: 1, CreatedAt: now, ReadyAt: now, VisibleAt: now,
	}
	s.state.Vaults[strings.ToLower(name)] = v
	s.changed()
	return v.ID()
}

// SeedKey makes a key, or leaves the one that is there. It returns the newest version.
func (s *Server) SeedKey(vault, name string, spec KeySpec) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	v := s.vaultNamed(vault, now)
	if v == nil {
		return "", fmt.Errorf("seeding key %s: there is no vault %s", name, vault)
	}
	key := v.Keys[strings.ToLower(name)]
	if key == nil {
		key = s.addKey(v, name, spec, now)
	}
	return key.newest().ID, nil
}

// SeedDemo makes a subscription with a resource group and a vault with a key, all that
// a storage account with a key of one's own needs. It can be repeated.
func (s *Server) SeedDemo() Demo {
	demo := Demo{Subscription: DemoSubscription, Group: "fixpoint-demo", Location: "westeurope", Vault: "fixpoint-demo", Key: "storage"}
	s.SeedSubscription(demo.Subscription, "Fixpoint demo")
	s.SeedGroup(demo.Subscription, demo.Group, demo.Location)
	demo.VaultID = s.SeedVault(demo.Subscription, demo.Group, demo.Vault, VaultSpec{PurgeProtection: true})
	// The vault is there: it was made above.
	_, _ = s.SeedKey(demo.Vault, demo.Key, KeySpec{})
	return demo
}
