package cloud

import "time"

// OwnerTag holds the UID of the object that an account belongs to.
const OwnerTag = "fixpoint.dev-owner"

// Account is a storage account.
type Account struct {
	// ID is the ARM resource id.
	ID       string
	Name     string
	Location string
	SKU      string
	Tags     map[string]string
	// State is the provisioningState: Creating, ResolvingDNS, Succeeded, and what goes wrong.
	State string
	// CreatedOn is when it was asked for, by the cloud's clock; zero if the cloud does not tell.
	CreatedOn time.Time
	// HasIdentity is true if a system-assigned identity is asked for; PrincipalID is empty until
	// the directory has it.
	HasIdentity bool
	PrincipalID string
	Encryption  Encryption
	// BlobEndpoint is the URL of the blob service.
	BlobEndpoint string

	// hasUserIdentity is true if there are identities beside the system-assigned one.
	hasUserIdentity bool
	// etag is the version that was read, if the cloud tells one.
	etag string
}

// Provisioned says whether the account can be changed.
func (a Account) Provisioned() bool { return a.State == "Succeeded" }

// Failed says whether the creation has ended without an account that could be used.
func (a Account) Failed() bool { return a.State == "Failed" || a.State == "Canceled" }

// IsDeleting says whether the account is being deleted.
func (a Account) IsDeleting() bool { return a.State == "Deleting" }

// Key sources of an account's encryption.
const (
	PlatformKeys    = "Microsoft.Storage"
	CustomerManaged = "Microsoft.Keyvault"
)

// Encryption is what an account is encrypted with.
type Encryption struct {
	// KeySource is [PlatformKeys] or [CustomerManaged].
	KeySource string
	// VaultURI, KeyName and KeyVersion are what was asked for; no version follows the vault.
	VaultURI, KeyName, KeyVersion string
	// CurrentKeyID is the identifier, with version, of the key in use, and CurrentVersion the version.
	CurrentKeyID, CurrentVersion string
}

// Vault is a key vault.
type Vault struct {
	ID, URI, Tenant string
	SoftDelete      bool
	PurgeProtection bool
	// RBAC is true if role assignments count, and false if access policies do.
	RBAC bool
	// Policies are the key permissions of the access policies, by principal, in lower case.
	Policies map[string][]string
}

// Key is one version of a key in a vault.
type Key struct {
	// ID is the identifier without the version, VersionID the one with it.
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
	// CreatedOn is when it was made; grants take minutes to be seen everywhere.
	CreatedOn time.Time
}

// Accepted is the cloud's answer to a write that it goes on with by itself.
type Accepted struct {
	// RetryAfter is when the cloud suggests to look again; zero if it does not say.
	RetryAfter time.Duration
}
