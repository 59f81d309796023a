package v1beta1

// Condition types of SecureStorage, one for each phase, in addition to Ready,
// Reconciling, Stalled and Suspended, which every kind has. True: the phase is
// ready. False: the phase waits or has failed, as the reason says. Unknown: the
// phase waits for an earlier phase.
const (
	// ConditionStorageAccountReady says whether the storage account exists,
	// matches the spec and belongs to this SecureStorage.
	ConditionStorageAccountReady = "StorageAccountReady"

	// ConditionIdentityReady says whether the storage account has a
	// system-assigned managed identity with a known principal.
	ConditionIdentityReady = "IdentityReady"

	// ConditionKeyAccessReady says whether the key vault and the key are
	// suitable, and the identity has access to the key.
	ConditionKeyAccessReady = "KeyAccessReady"

	// ConditionEncryptionReady says whether the storage account is encrypted
	// with the key in the spec.
	ConditionEncryptionReady = "EncryptionReady"

	// ConditionExportReady says whether the ConfigMap of spec.export exists as
	// declared. It is absent without spec.export.
	ConditionExportReady = "ExportReady"

	// ConditionAccountKeysReady says whether the Secret of
	// spec.export.accountKeys exists with the current keys of the storage
	// account. It is absent unless the keys are exported.
	ConditionAccountKeysReady = "AccountKeysReady"
)

// Reasons for the progress of a SecureStorage. They require no action.
const (
	// ReasonCreating: Azure is creating the storage account.
	ReasonCreating = "Creating"

	// ReasonUpdating: Azure is updating the storage account to match the spec.
	ReasonUpdating = "Updating"

	// ReasonWaitingForPrincipal: the storage account exists, but the principal
	// of its identity is not available yet.
	ReasonWaitingForPrincipal = "WaitingForPrincipal"

	// ReasonGranting: the identity is being granted access to the key.
	ReasonGranting = "Granting"

	// ReasonPropagating: the grant exists, but Azure has not propagated it yet.
	// This usually takes up to ten minutes.
	ReasonPropagating = "Propagating"

	// ReasonEncrypting: the encryption of the storage account is being changed
	// to the key.
	ReasonEncrypting = "Encrypting"

	// ReasonOperationInProgress: another operation on the same Azure resource
	// is in progress; the controller retries when it has completed.
	ReasonOperationInProgress = "OperationInProgress"

	// ReasonThrottled: Azure throttles the requests; the controller retries
	// after the delay that Azure specifies.
	ReasonThrottled = "Throttled"

	// ReasonCloudUnavailable: Azure did not respond or is unavailable. The
	// controller retries.
	ReasonCloudUnavailable = "CloudUnavailable"

	// ReasonEncryptionDrifted: the encryption of the storage account was
	// changed outside of Fixpoint to another key or to platform-managed keys.
	// The controller reverts the change; the Azure activity log shows who made
	// it.
	ReasonEncryptionDrifted = "EncryptionDrifted"
)

// Reasons for errors of the storage account.
const (
	// ReasonNameTaken: the name of the storage account is already in use or
	// reserved in Azure. Create a SecureStorage with another accountName, or
	// without one.
	ReasonNameTaken = "NameTaken"

	// ReasonAccountNotOwned: a storage account with the name exists in the
	// resource group and does not belong to this SecureStorage. The controller
	// does not change it. Create a SecureStorage with another accountName; or,
	// if the account belongs to no SecureStorage, adopt it as the message says.
	ReasonAccountNotOwned = "AccountNotOwned"

	// ReasonAccountLost: the storage account was deleted outside of Fixpoint,
	// possibly with its data. Restore it in Azure (deleted accounts are kept
	// for 14 days), or set accountLossPolicy to Recreate to create an empty one.
	ReasonAccountLost = "AccountLost"
)

// Reasons of a SecureStorage with managementPolicy Observe.
const (
	// ReasonObserved: the storage account matches the spec. The controller
	// writes nothing in Azure.
	ReasonObserved = "Observed"

	// ReasonDiffers: the storage account differs from the spec. The message and
	// status.drifts name the fields. Correct the spec, change the account in
	// Azure, or set managementPolicy to Manage.
	ReasonDiffers = "Differs"

	// ReasonAccountMissing: the storage account to observe does not exist.
	// Create it in Azure, correct spec.accountName, or set managementPolicy to
	// Manage to create it.
	ReasonAccountMissing = "AccountMissing"
)

// Reasons for errors of the key vault, the key or the grant.
const (
	// ReasonVaultMissing: the key vault does not exist or is soft-deleted.
	// Create or recover it, or correct spec.key.
	ReasonVaultMissing = "VaultMissing"

	// ReasonVaultNotProtected: purge protection or soft delete is disabled on
	// the key vault; Azure requires both for customer-managed keys. Enable
	// both.
	ReasonVaultNotProtected = "VaultNotProtected"

	// ReasonAccessTypeMismatch: spec.access.type does not match the permission
	// model of the key vault: the type is AccessPolicy and the vault uses Azure
	// RBAC, or the other way round. Change one of them.
	ReasonAccessTypeMismatch = "AccessTypeMismatch"

	// ReasonKeyMissing: the key does not exist in the key vault. Create or
	// recover it, or correct spec.key.name.
	ReasonKeyMissing = "KeyMissing"

	// ReasonKeyDisabled: the key, or its selected version, is disabled, so that
	// the data may be inaccessible. Enable it.
	ReasonKeyDisabled = "KeyDisabled"

	// ReasonKeyUnsuitable: the key is not suitable: it is not an RSA key of 2048,
	// 3072 or 4096 bits with the operations wrapKey and unwrapKey. Use another
	// key.
	ReasonKeyUnsuitable = "KeyUnsuitable"

	// ReasonKeyVersionMissing: the key exists, but not the version in
	// spec.key.version. Recover the version, or select another one; the data
	// may be inaccessible until then.
	ReasonKeyVersionMissing = "KeyVersionMissing"

	// ReasonPropagationTimedOut: the grant exists, but has not taken effect
	// within spec.propagationDeadline. Check for a policy, a firewall of the
	// key vault or a condition of the grant that denies access.
	ReasonPropagationTimedOut = "PropagationTimedOut"
)

// Reasons for errors of the credentials and requests.
const (
	// ReasonCredentialsMissing: the Secret in credentialsSecretRef, one of its keys,
	// or the ServiceAccount in workloadIdentity does not exist, or the manager may
	// not request its tokens. Create it, or grant the permission; the message
	// names what is missing, and never contains secret values.
	ReasonCredentialsMissing = "CredentialsMissing"

	// ReasonCredentialsInvalid: Azure rejects the credentials: they are wrong,
	// expired or not trusted. Renew them.
	ReasonCredentialsInvalid = "CredentialsInvalid"

	// ReasonCredentialsNotAllowed: the spec names no credentials, and the manager
	// is not allowed to use its own for this namespace, storage account or key
	// vault; or it names the ServiceAccount of the manager. Set other credentials
	// in spec.provider, or have an administrator set the flag
	// --ambient-credentials of the manager.
	ReasonCredentialsNotAllowed = "CredentialsNotAllowed"

	// ReasonPermissionMissing: the credentials are valid, but lack a
	// permission. The message names the role to assign and its scope.
	ReasonPermissionMissing = "PermissionMissing"

	// ReasonResourceGroupMissing: the resource group does not exist in the
	// subscription. Create it; a SecureStorage never creates resource groups.
	ReasonResourceGroupMissing = "ResourceGroupMissing"

	// ReasonInvalidRequest: Azure rejects a value of the spec; the message
	// contains the value and the reason. Change the value.
	ReasonInvalidRequest = "InvalidRequest"
)

// Reasons for the deletion of a SecureStorage.
const (
	// ReasonDeletionBlocked: a lock or a policy in Azure prevents the deletion
	// of the storage account or the grant. Remove the lock, or set the
	// annotation fixpoint.dev/abandon to leave the remaining resources.
	ReasonDeletionBlocked = "DeletionBlocked"

	// ReasonRetained: the SecureStorage is deleted, and the storage account and
	// its grant are kept, because deletionPolicy is Retain. It is the reason of
	// an Event.
	ReasonRetained = "Retained"

	// ReasonGrantNotRevoked: the storage account is encrypted as declared, but a
	// grant on the previous key vault could not be revoked. The object is
	// Ready, and the controller retries. Grant the permission to the
	// credential, or delete the grant manually.
	ReasonGrantNotRevoked = "GrantNotRevoked"

	// ReasonAbandoned: the SecureStorage is deleted although cloud resources
	// may remain, because of the annotation fixpoint.dev/abandon; or there are
	// more grants to revoke than the status can record. It is the reason of an
	// Event that lists the resources.
	ReasonAbandoned = "Abandoned"
)
