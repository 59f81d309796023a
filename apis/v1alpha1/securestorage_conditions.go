package v1alpha1

// Condition types of SecureStorage, one for each of its phases, beside Ready,
// Reconciling, Stalled and Suspended, which every kind has. True: the phase is
// done. False: it waits or has failed, and the reason says which. Unknown: an
// earlier phase blocks it.
const (
	// ConditionStorageAccountReady says whether the storage account exists as
	// declared and is ours.
	ConditionStorageAccountReady = "StorageAccountReady"

	// ConditionIdentityReady says whether the storage account has a
	// system-assigned identity whose principal is known.
	ConditionIdentityReady = "IdentityReady"

	// ConditionKeyAccessReady says whether vault and key are fit for the purpose
	// and the identity has been granted the use of the key.
	ConditionKeyAccessReady = "KeyAccessReady"

	// ConditionEncryptionReady says whether the storage account is encrypted
	// with the key that the spec names.
	ConditionEncryptionReady = "EncryptionReady"
)

// Reasons that tell on what way to the declared state a phase of a
// SecureStorage is. They need time and nothing else.
const (
	// ReasonCreating: the cloud is making the storage account.
	ReasonCreating = "Creating"

	// ReasonUpdating: the cloud is changing the storage account to what the
	// spec declares.
	ReasonUpdating = "Updating"

	// ReasonWaitingForPrincipal: the storage account exists, and the cloud has
	// not yet told, or not yet spread, the principal of its identity.
	ReasonWaitingForPrincipal = "WaitingForPrincipal"

	// ReasonGranting: the identity is being granted the use of the key.
	ReasonGranting = "Granting"

	// ReasonPropagating: the grant exists, and the cloud does not honour it
	// everywhere yet. Up to ten minutes are usual.
	ReasonPropagating = "Propagating"

	// ReasonEncrypting: the storage account is being switched to the key.
	ReasonEncrypting = "Encrypting"

	// ReasonOperationInProgress: the cloud is busy with another operation on the
	// same resource; it is tried again when that has ended.
	ReasonOperationInProgress = "OperationInProgress"

	// ReasonThrottled: the cloud asks to be called less often; it is called
	// again when it said, and not earlier.
	ReasonThrottled = "Throttled"

	// ReasonCloudUnavailable: the cloud did not answer, or answered that it
	// cannot now. It is tried again.
	ReasonCloudUnavailable = "CloudUnavailable"

	// ReasonEncryptionDrifted: somebody else has switched the storage account to
	// another key, or to keys of the platform. It is being put back; find out
	// who did it in the activity log of the cloud.
	ReasonEncryptionDrifted = "EncryptionDrifted"
)

// Reasons that tell why the storage account of a SecureStorage could not be
// made or kept.
const (
	// ReasonNameTaken: a storage account of the name exists elsewhere in the
	// cloud, or the cloud reserves the name. Create a SecureStorage with another
	// accountName, or without one.
	ReasonNameTaken = "NameTaken"

	// ReasonAccountNotOurs: a storage account of the name exists in the resource
	// group, and this SecureStorage has not made it. It is not touched. Create a
	// SecureStorage with another accountName; or, if nobody owns the account,
	// set adoptionPolicy to IfUnowned to take it over.
	ReasonAccountNotOurs = "AccountNotOurs"

	// ReasonAccountLost: the storage account has existed and is gone, and its
	// data may be gone with it. Restore it in the cloud (Azure keeps deleted
	// accounts for 14 days), or set onAccountLoss to Recreate to begin with an
	// empty one.
	ReasonAccountLost = "AccountLost"
)

// Reasons that tell what is wrong with the key vault, the key or the grant of a
// SecureStorage.
const (
	// ReasonVaultMissing: the key vault does not exist, or has been deleted
	// softly. Create or recover it, or mend spec.key.
	ReasonVaultMissing = "VaultMissing"

	// ReasonVaultNotProtected: the key vault lacks purge protection or soft
	// delete, without which the cloud takes no key of it. Switch both on.
	ReasonVaultNotProtected = "VaultNotProtected"

	// ReasonAccessTypeMismatch: the key vault does not go by what
	// spec.access.type grants: it authorizes by role assignments and the type is
	// AccessPolicy, or the other way round. Change one of the two.
	ReasonAccessTypeMismatch = "AccessTypeMismatch"

	// ReasonKeyMissing: the key vault has no key of the name. Create or recover
	// the key, or mend spec.key.keyName.
	ReasonKeyMissing = "KeyMissing"

	// ReasonKeyDisabled: the key, or the version that is asked for, is disabled.
	// Data may be out of reach: enable the key.
	ReasonKeyDisabled = "KeyDisabled"

	// ReasonKeyUnfit: the key cannot wrap the account's key: it is not an RSA
	// key of 2048, 3072 or 4096 bits with the operations wrapKey and unwrapKey.
	// Name another key.
	ReasonKeyUnfit = "KeyUnfit"

	// ReasonKeyVersionMissing: the key exists, and not in the version that
	// spec.key.version pins. Recover the version, or pin another one; data may
	// be out of reach until then.
	ReasonKeyVersionMissing = "KeyVersionMissing"

	// ReasonPropagationTimedOut: the grant exists, and the cloud has not
	// honoured it within spec.propagationDeadline. Look for a policy, a firewall
	// of the vault or a condition on the grant that denies it.
	ReasonPropagationTimedOut = "PropagationTimedOut"
)

// Reasons that tell why the cloud cannot be asked, or refuses.
const (
	// ReasonCredentialsMissing: the Secret of credentialsRef, a key of it, or the
	// ServiceAccount of workloadIdentity does not exist. Create it; the message
	// names what is missing, never what is in it.
	ReasonCredentialsMissing = "CredentialsMissing"

	// ReasonCredentialsInvalid: the cloud does not accept the credentials: they
	// are wrong, expired, or not trusted. Renew them.
	ReasonCredentialsInvalid = "CredentialsInvalid"

	// ReasonPermissionMissing: the credentials are good and may not do this. The
	// message names the role to assign, and the scope to assign it at.
	ReasonPermissionMissing = "PermissionMissing"

	// ReasonResourceGroupMissing: the subscription has no resource group of the
	// name. Create it; a SecureStorage never creates resource groups.
	ReasonResourceGroupMissing = "ResourceGroupMissing"

	// ReasonInvalidRequest: the cloud has refused a value of the spec; the
	// message carries which one and why. Change it.
	ReasonInvalidRequest = "InvalidRequest"
)

// Reasons that tell how the deletion of a SecureStorage goes.
const (
	// ReasonDeletionBlocked: a lock or a policy in the cloud keeps the storage
	// account or the grant from being deleted. Remove the lock, or set the
	// annotation fixpoint.dev/abandon to give up what is left.
	ReasonDeletionBlocked = "DeletionBlocked"

	// ReasonRetained: the SecureStorage has been deleted, and the storage
	// account and its grant stay, as deletionPolicy Retain asks. An Event says
	// so; there is no object any more to carry a condition.
	ReasonRetained = "Retained"

	// ReasonGrantLeft: the account is encrypted as declared, and a grant on the
	// key vault of before may not be taken back. It informs and does not keep
	// the object from being Ready, and it is tried again. Give the credential
	// the permission, or delete the grant by hand.
	ReasonGrantLeft = "GrantLeft"

	// ReasonAbandoned: the SecureStorage has been deleted without the cloud
	// having said that everything is gone, as the annotation
	// fixpoint.dev/abandon asks; or more former grants may not be taken back
	// than can be noted. An Event names what may be left.
	ReasonAbandoned = "Abandoned"
)
