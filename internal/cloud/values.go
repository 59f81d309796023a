package cloud

import "time"

// OwnerTag is the tag that holds the UID of the SecureStorage that manages an account.
const OwnerTag = "fixpoint.dev-owner"

// Account is a storage account.
type Account struct {
	// ID is the resource ID.
	ID       string
	Name     string
	Location string
	SKU      string
	Tags     map[string]string
	// State is the provisioningState, such as Creating, ResolvingDNS, Succeeded or Failed.
	State string
	// CreatedOn is the creation time from Azure; zero if it is missing.
	CreatedOn time.Time
	// HasIdentity is true if the system-assigned identity is enabled. PrincipalID is empty until it
	// exists in Microsoft Entra ID.
	HasIdentity bool
	PrincipalID string
	Encryption  Encryption
	// HasServiceKeys is true if queues or tables have keys of their own, which Azure manages whatever Encryption says.
	HasServiceKeys bool
	Endpoints      Endpoints
	// KeysCreated are the times at which the two access keys were created: a change shows that one was regenerated.
	KeysCreated [2]time.Time

	// hasUserIdentity is true if user-assigned identities exist.
	hasUserIdentity bool
	// etag is the ETag that was read, or "".
	etag string
}

// Endpoints are the URLs of the services of an account; empty for those that it does not have.
type Endpoints struct {
	Blob, DFS, File, Queue, Table, Web string
}

// AccountKeys are the access keys of an account: each permits everything in its data.
type AccountKeys struct {
	Key1, Key2 string
}

// Provisioned says whether the account is provisioned and can be changed.
func (a Account) Provisioned() bool { return a.State == "Succeeded" }

// Failed says whether the provisioning failed.
func (a Account) Failed() bool { return a.State == "Failed" || a.State == "Canceled" }

// IsDeleting says whether the account is being deleted.
func (a Account) IsDeleting() bool { return a.State == "Deleting" }

// Key sources of an account's encryption.
const (
	PlatformKeys    = "Microsoft.Storage"
	CustomerManaged = "Microsoft.Keyvault"
)

// Encryption is the encryption of an account.
type Encryption struct {
	// KeySource is [PlatformKeys] or [CustomerManaged].
	KeySource string
	// VaultURI, KeyName and KeyVersion identify the configured key; no version means the latest.
	VaultURI, KeyName, KeyVersion string
	// UserIdentity is the resource ID of the user-assigned identity with which the account uses the key; empty is its
	// system-assigned identity.
	UserIdentity string
	// CurrentKeyID is the identifier of the key version in use, and CurrentVersion the version.
	CurrentKeyID, CurrentVersion string
}

// Vault is a key vault.
type Vault struct {
	ID, URI, Tenant string
	SoftDelete      bool
	PurgeProtection bool
	// RBAC is true if the key vault uses role assignments, and false if it uses access policies.
	RBAC bool
	// Policies are the key permissions of the access policies by principal, in lower case.
	Policies map[string][]string
}

// Key is one version of a key in a vault.
type Key struct {
	// ID is the identifier without the version, VersionID with it.
	ID, VersionID string
	Version       string
	Enabled       bool
	// Type is RSA, RSA-HSM, EC and so on; Size is the number of bits.
	Type       string
	Size       int32
	Operations []string
}

// Grant is a role assignment.
type Grant struct {
	ID string
	// CreatedOn is the creation time.
	CreatedOn time.Time
}

// Accepted is the response to a write that starts a long-running operation.
type Accepted struct {
	// RetryAfter is the delay that Azure suggests before the next read; zero if it suggests none.
	RetryAfter time.Duration
}
