package fakecloud

import (
	"encoding/json"
	"time"
)

// Names that Azure uses.
const (
	keySourcePlatform = "Microsoft.Storage"
	keySourceVault    = "Microsoft.Keyvault"

	systemAssigned = "SystemAssigned"

	// CryptoServiceEncryptionUser is the role that lets an account use a key.
	CryptoServiceEncryptionUser = "e147488a-f6f5-4113-8e2d-b22465e65bf6"
	// Tenant is the only tenant.
	Tenant = "72f988bf-0000-4000-8000-2d7cd011db47"
)

// state is everything that survives a restart. The keys of maps are lower-case IDs; for accounts and key
// vaults they are lower-case names, which are unique in the cloud.
type state struct {
	Subscriptions map[string]*Subscription `json:"subscriptions"`
	Groups        map[string]*Group        `json:"groups"`
	Accounts      map[string]*Account      `json:"accounts"`
	Vaults        map[string]*Vault        `json:"vaults"`
	Assignments   map[string]*Assignment   `json:"assignments"`
	Principals    map[string]*Principal    `json:"principals"`
	Locks         map[string]*Lock         `json:"locks"`
	Operations    map[string]*Operation    `json:"operations"`
	// Holds is until when the name of a deleted account is reserved.
	Holds map[string]time.Time `json:"holds"`
	// Generations counts how often a name was created, so that each resource has new identifiers.
	Generations map[string]int    `json:"generations"`
	Draws       map[string]uint64 `json:"draws"`
	Requests    uint64            `json:"requests"`
	Ledger      []Entry           `json:"ledger"`
	Counts      counts            `json:"counts"`
}

func newState() *state {
	return &state{
		Subscriptions: map[string]*Subscription{},
		Groups:        map[string]*Group{},
		Accounts:      map[string]*Account{},
		Vaults:        map[string]*Vault{},
		Assignments:   map[string]*Assignment{},
		Principals:    map[string]*Principal{},
		Locks:         map[string]*Lock{},
		Operations:    map[string]*Operation{},
		Holds:         map[string]time.Time{},
		Generations:   map[string]int{},
		Draws:         map[string]uint64{},
		Counts:        newCounts(),
	}
}

// Subscription is a subscription.
type Subscription struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// Group is a resource group.
type Group struct {
	Subscription string            `json:"subscription"`
	Name         string            `json:"name"`
	Location     string            `json:"location"`
	Tags         map[string]string `json:"tags,omitempty"`
}

// ID is the resource id.
func (g *Group) ID() string {
	return "/subscriptions/" + g.Subscription + "/resourceGroups/" + g.Name
}

// Account is a storage account. Times in the future are pending state changes.
type Account struct {
	Subscription string            `json:"subscription"`
	Group        string            `json:"group"`
	Name         string            `json:"name"`
	Location     string            `json:"location"`
	Kind         string            `json:"kind"`
	SKU          string            `json:"sku"`
	Tags         map[string]string `json:"tags,omitempty"`
	// Settings are the other properties, unchanged.
	Settings   map[string]json.RawMessage `json:"settings,omitempty"`
	Identity   Identity                   `json:"identity"`
	Encryption Encryption                 `json:"encryption"`
	// AccountKeyed are the services that the encryption applies to beside blobs and files. It never changes.
	AccountKeyed []string `json:"accountKeyed,omitempty"`

	Generation int    `json:"generation"`
	Version    uint64 `json:"version"`

	// KeysRegenerated counts how often each access key was regenerated, and KeysAt is when it was last.
	KeysRegenerated [2]int       `json:"keysRegenerated,omitzero"`
	KeysAt          [2]time.Time `json:"keysAt,omitzero"`

	CreatedAt   time.Time `json:"createdAt"`
	VisibleAt   time.Time `json:"visibleAt"`
	ResolvingAt time.Time `json:"resolvingAt"`
	ReadyAt     time.Time `json:"readyAt"`
	// FailsLate is true if the creation fails at ReadyAt.
	FailsLate bool `json:"failsLate,omitempty"`
	Failed    bool `json:"failed,omitempty"`
	// BusyUntil is the end of the operation in progress.
	BusyUntil time.Time `json:"busyUntil"`
	// GoneAt is the end of the deletion; nil without a deletion.
	GoneAt *time.Time `json:"goneAt,omitempty"`
}

const accountKind = "Microsoft.Storage/storageAccounts"

// ID is the resource id.
func (a *Account) ID() string {
	return "/subscriptions/" + a.Subscription + "/resourceGroups/" + a.Group + "/providers/" + accountKind + "/" + a.Name
}

// State is the provisioning state at a time.
func (a *Account) State(now time.Time) string {
	switch {
	case a.Failed:
		return "Failed"
	case a.GoneAt != nil:
		return "Deleting"
	case now.Before(a.ResolvingAt):
		return "Creating"
	case now.Before(a.ReadyAt):
		return "ResolvingDNS"
	default:
		return "Succeeded"
	}
}

// Identity is the system-assigned identity of an account.
type Identity struct {
	Type        string    `json:"type,omitempty"`
	PrincipalID string    `json:"principalId,omitempty"`
	VisibleAt   time.Time `json:"visibleAt"`
}

// Encryption is the encryption of an account.
type Encryption struct {
	KeySource string `json:"keySource"`
	VaultURI  string `json:"vaultUri,omitempty"`
	KeyName   string `json:"keyName,omitempty"`
	// Pinned is the requested version; empty means the latest.
	Pinned string `json:"pinned,omitempty"`
	// UserIdentity is the user-assigned identity that uses the key; empty is the one of the account.
	UserIdentity string `json:"userIdentity,omitempty"`
	// Current is the version in use.
	Current   string    `json:"current,omitempty"`
	RotatedAt time.Time `json:"rotatedAt"`
	// LookAt is when the account next checks for a new version.
	LookAt time.Time `json:"lookAt"`
}

// Vault is a key vault, live or soft-deleted.
type Vault struct {
	Subscription     string            `json:"subscription"`
	Group            string            `json:"group"`
	Name             string            `json:"name"`
	Location         string            `json:"location"`
	Tags             map[string]string `json:"tags,omitempty"`
	SKU              string            `json:"sku"`
	RBAC             bool              `json:"rbac"`
	PurgeProtection  bool              `json:"purgeProtection"`
	SoftDelete       bool              `json:"softDelete"`
	RetentionDays    int               `json:"retentionDays"`
	Policies         []*AccessPolicy   `json:"policies,omitempty"`
	RevokedPolicies  []*AccessPolicy   `json:"revokedPolicies,omitempty"`
	Keys             map[string]*Key   `json:"keys"`
	PublicNetwork    string            `json:"publicNetwork"`
	Disabled         bool              `json:"disabled,omitempty"`
	Version          uint64            `json:"version"`
	CreatedAt        time.Time         `json:"createdAt"`
	VisibleAt        time.Time         `json:"visibleAt"`
	ReadyAt          time.Time         `json:"readyAt"`
	BusyUntil        time.Time         `json:"busyUntil"`
	DeletedAt        *time.Time        `json:"deletedAt,omitempty"`
	ScheduledPurgeAt *time.Time        `json:"scheduledPurgeAt,omitempty"`
}

const vaultKind = "Microsoft.KeyVault/vaults"

// ID is the resource id.
func (v *Vault) ID() string {
	return "/subscriptions/" + v.Subscription + "/resourceGroups/" + v.Group + "/providers/" + vaultKind + "/" + v.Name
}

// URI is the address of the data plane.
func (v *Vault) URI() string { return "https://" + v.Name + ".vault.azure.net/" }

// AccessPolicy is an access policy of a key vault without Azure RBAC.
type AccessPolicy struct {
	TenantID     string              `json:"tenantId"`
	ObjectID     string              `json:"objectId"`
	Permissions  map[string][]string `json:"permissions"`
	EffectiveAt  time.Time           `json:"effectiveAt"`
	EffectiveEnd *time.Time          `json:"effectiveEnd,omitempty"`
}

// Key is a key with all its versions, oldest first.
type Key struct {
	Name     string            `json:"name"`
	Type     string            `json:"kty"`
	Size     int               `json:"keySize,omitempty"`
	Curve    string            `json:"curveName,omitempty"`
	Ops      []string          `json:"keyOps"`
	Tags     map[string]string `json:"tags,omitempty"`
	Versions []*KeyVersion     `json:"versions"`
	// DeletedAt is when the key was soft-deleted; its name stays reserved.
	DeletedAt *time.Time `json:"deletedAt,omitempty"`
	// FoundDeletedAt is when the deleted key is found.
	FoundDeletedAt time.Time `json:"foundDeletedAt"`
}

// KeyVersion is one version of a key.
type KeyVersion struct {
	ID        string     `json:"id"`
	Enabled   bool       `json:"enabled"`
	CreatedAt time.Time  `json:"createdAt"`
	UpdatedAt time.Time  `json:"updatedAt"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
}

// Assignment is a role assignment.
type Assignment struct {
	Name             string    `json:"name"`
	Scope            string    `json:"scope"`
	RoleDefinitionID string    `json:"roleDefinitionId"`
	PrincipalID      string    `json:"principalId"`
	PrincipalType    string    `json:"principalType"`
	Description      string    `json:"description,omitempty"`
	CreatedBy        string    `json:"createdBy"`
	CreatedAt        time.Time `json:"createdAt"`
	VisibleAt        time.Time `json:"visibleAt"`
	// EffectiveAt is when the key vault honors the assignment.
	EffectiveAt time.Time  `json:"effectiveAt"`
	DeletedAt   *time.Time `json:"deletedAt,omitempty"`
	// EffectiveEnd is when the key vault stops to honor a deleted assignment.
	EffectiveEnd *time.Time `json:"effectiveEnd,omitempty"`
}

const assignmentKind = "Microsoft.Authorization/roleAssignments"

// ID is the resource id.
func (a *Assignment) ID() string { return a.Scope + "/providers/" + assignmentKind + "/" + a.Name }

// Principal is an identity in the directory.
type Principal struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	// Resource is the resource with this identity.
	Resource string `json:"resource,omitempty"`
	// KnownAt is when role assignments without a principalType find it.
	KnownAt   time.Time  `json:"knownAt"`
	DeletedAt *time.Time `json:"deletedAt,omitempty"`
}

func (p *Principal) gone(now time.Time) bool {
	return p.DeletedAt != nil && !now.Before(*p.DeletedAt)
}

// Lock is a management lock.
type Lock struct {
	Name  string `json:"name"`
	Scope string `json:"scope"`
	Level string `json:"level"`
	Notes string `json:"notes,omitempty"`
}

const lockKind = "Microsoft.Authorization/locks"

// ID is the resource id.
func (l *Lock) ID() string { return l.Scope + "/providers/" + lockKind + "/" + l.Name }

// Operation is a long-running operation.
type Operation struct {
	ID        string    `json:"id"`
	Location  string    `json:"location"`
	Kind      string    `json:"kind"`
	Resource  string    `json:"resource"`
	StartedAt time.Time `json:"startedAt"`
	EndsAt    time.Time `json:"endsAt"`
	// Code and Message are those of an operation that fails.
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

// Status is InProgress, Succeeded or Failed.
func (o *Operation) Status(now time.Time) string {
	switch {
	case now.Before(o.EndsAt):
		return "InProgress"
	case o.Code != "":
		return "Failed"
	default:
		return "Succeeded"
	}
}
