package fakecloud

import (
	"fmt"
	"strings"
)

// VaultSpec describes a key vault to seed. The zero value has the defaults of Azure, and no purge
// protection.
type VaultSpec struct {
	Location        string `json:"location,omitempty"`
	PurgeProtection bool   `json:"purgeProtection,omitempty"`
	// AccessPolicies creates a key vault without Azure RBAC.
	AccessPolicies bool `json:"accessPolicies,omitempty"`
	// NoSoftDelete creates a key vault without soft delete, as was possible before it became mandatory.
	NoSoftDelete bool `json:"noSoftDelete,omitempty"`
}

// KeySpec describes a key to seed. The zero value is an RSA key with 2048 bits and all operations.
type KeySpec struct {
	Type string   `json:"kty,omitempty"`
	Size int      `json:"keySize,omitempty"`
	Ops  []string `json:"keyOps,omitempty"`
}

// Demo names the resources of SeedDemo.
type Demo struct {
	Subscription string `json:"subscription"`
	Group        string `json:"group"`
	Location     string `json:"location"`
	Vault        string `json:"vault"`
	VaultID      string `json:"vaultId"`
	Key          string `json:"key"`
}

// DemoSubscription is the ID of the subscription of SeedDemo.
const DemoSubscription = "00000000-0000-4000-8000-00000000f1c5"

// SeedSubscription creates a subscription, unless it exists.
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

// SeedGroup creates a resource group and its subscription, unless they exist.
func (s *Server) SeedGroup(subscription, name, location string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seedSubscription(subscription, subscription)
	if s.group(subscription, name) == nil {
		s.addGroup(subscription, name, location)
	}
}

// SeedVault creates a key vault, unless it exists, and returns its resource ID.
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
		RBAC: !spec.AccessPolicies, PurgeProtection: spec.PurgeProtection, SoftDelete: !spec.NoSoftDelete, RetentionDays: longestRetention,
		PublicNetwork: "Enabled", Keys: map[string]*Key{}, Version: 1, CreatedAt: now, ReadyAt: now, VisibleAt: now,
	}
	s.state.Vaults[strings.ToLower(name)] = v
	s.changed()
	return v.ID()
}

// SeedKey creates a key, unless it exists, and returns its newest version.
func (s *Server) SeedKey(vault, name string, spec KeySpec) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	v := s.vaultNamed(vault, now)
	if v == nil {
		return "", fmt.Errorf("seeding key %s: key vault %s does not exist", name, vault)
	}
	key := v.Keys[strings.ToLower(name)]
	if key == nil {
		key = s.addKey(v, name, spec, now)
	}
	return key.newest().ID, nil
}

// GroupID returns the resource ID of the resource group, which contains the key vault.
func (d Demo) GroupID() string {
	return "/subscriptions/" + d.Subscription + "/resourceGroups/" + d.Group
}

// SeedDemo creates a subscription, a resource group, and a key vault with a key. It is idempotent.
func (s *Server) SeedDemo() Demo {
	demo := Demo{Subscription: DemoSubscription, Group: "fixpoint-demo", Location: "westeurope", Vault: "fixpoint-demo", Key: "storage"}
	s.SeedSubscription(demo.Subscription, "Fixpoint demo")
	s.SeedGroup(demo.Subscription, demo.Group, demo.Location)
	demo.VaultID = s.SeedVault(demo.Subscription, demo.Group, demo.Vault, VaultSpec{PurgeProtection: true})
	// SeedKey fails only without the key vault, which was created above.
	_, _ = s.SeedKey(demo.Vault, demo.Key, KeySpec{})
	return demo
}
