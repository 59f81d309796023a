package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnnotationAbandon, set to "true" on a SecureStorage that is being deleted,
// gives up whatever the cloud cannot be brought to delete, or cannot be asked
// about: the object goes, and an Event names what may be left in the cloud. It
// means nothing on an object that is not being deleted.
const AnnotationAbandon = "fixpoint.dev/abandon"

// TagPrefix is how the tags start that Fixpoint itself puts on a storage
// account. Nobody else may use it, in upper or in lower case.
const TagPrefix = "fixpoint.dev"

// KeyVersionLatest, or an empty string, follows the newest version of the key.
const KeyVersionLatest = "latest"

// Keys of the Secret that credentialsRef names.
const (
	// CredentialTenantID holds the UUID of the tenant.
	CredentialTenantID = "tenantID"

	// CredentialClientID holds the UUID of the application.
	CredentialClientID = "clientID"

	// CredentialClientSecret holds the secret of the application.
	CredentialClientSecret = "clientSecret"
)

// SecureStorageSKU says how many copies of the data there are, and where.
// +kubebuilder:validation:Enum=Standard_LRS;Standard_ZRS;Standard_GRS;Standard_RAGRS;Standard_GZRS;Standard_RAGZRS;Premium_LRS
type SecureStorageSKU string

const (
	// SKUStandardLRS keeps three copies in one building.
	SKUStandardLRS SecureStorageSKU = "Standard_LRS"

	// SKUStandardZRS keeps three copies in three zones of the location.
	SKUStandardZRS SecureStorageSKU = "Standard_ZRS"

	// SKUStandardGRS is Standard_LRS with a copy in another location.
	SKUStandardGRS SecureStorageSKU = "Standard_GRS"

	// SKUStandardRAGRS is Standard_GRS whose other location can be read.
	SKUStandardRAGRS SecureStorageSKU = "Standard_RAGRS"

	// SKUStandardGZRS is Standard_ZRS with a copy in another location.
	SKUStandardGZRS SecureStorageSKU = "Standard_GZRS"

	// SKUStandardRAGZRS is Standard_GZRS whose other location can be read.
	SKUStandardRAGZRS SecureStorageSKU = "Standard_RAGZRS"

	// SKUPremiumLRS keeps three copies in one building, on fast disks.
	SKUPremiumLRS SecureStorageSKU = "Premium_LRS"
)

// SecureStorageAccessType says how the storage account is granted the use of
// the key.
// +kubebuilder:validation:Enum=RoleAssignment;AccessPolicy
type SecureStorageAccessType string

const (
	// AccessRoleAssignment assigns the role Key Vault Crypto Service Encryption
	// User at the vault.
	AccessRoleAssignment SecureStorageAccessType = "RoleAssignment"

	// AccessPolicy adds an access policy (get, wrapKey, unwrapKey) to the vault;
	// for vaults that do not authorize by roles.
	AccessPolicy SecureStorageAccessType = "AccessPolicy"
)

// SecureStorageDeletionPolicy says what becomes of the storage account when the
// SecureStorage is deleted.
// +kubebuilder:validation:Enum=Retain;Delete
type SecureStorageDeletionPolicy string

const (
	// DeletionRetain leaves the storage account and its grant as they are.
	DeletionRetain SecureStorageDeletionPolicy = "Retain"

	// DeletionDelete deletes the storage account, its data and its grant.
	DeletionDelete SecureStorageDeletionPolicy = "Delete"
)

// SecureStorageLossPolicy says what happens when the storage account has been
// deleted by somebody else.
// +kubebuilder:validation:Enum=Stall;Recreate
type SecureStorageLossPolicy string

const (
	// LossStall creates nothing and reports the reason AccountLost.
	LossStall SecureStorageLossPolicy = "Stall"

	// LossRecreate creates an empty storage account of the same name.
	LossRecreate SecureStorageLossPolicy = "Recreate"
)

// SecureStoragePhase sums a SecureStorage up in one word, for people. Programs
// read the conditions.
// +kubebuilder:validation:Enum=Pending;Provisioning;Ready;Degraded;Failed;Suspended;Deleting
type SecureStoragePhase string

const (
	// SecureStoragePending has been accepted and not been worked on yet.
	SecureStoragePending SecureStoragePhase = "Pending"

	// SecureStorageProvisioning is on its way to what the spec declares.
	SecureStorageProvisioning SecureStoragePhase = "Provisioning"

	// SecureStorageReady is as the spec declares.
	SecureStorageReady SecureStoragePhase = "Ready"

	// SecureStorageDegraded has a storage account that is encrypted with a key
	// of the customer, and is not as the spec declares.
	SecureStorageDegraded SecureStoragePhase = "Degraded"

	// SecureStorageFailed cannot go on until the spec or the cloud changes.
	SecureStorageFailed SecureStoragePhase = "Failed"

	// SecureStorageSuspended is left alone, as spec.suspend asks.
	SecureStorageSuspended SecureStoragePhase = "Suspended"

	// SecureStorageDeleting is being torn down.
	SecureStorageDeleting SecureStoragePhase = "Deleting"
)

// SecureStorageEncryption is where the key comes from that a storage account is
// encrypted with, in the words of the cloud.
type SecureStorageEncryption string

const (
	// EncryptionPlatformKeys are keys that the cloud holds itself.
	EncryptionPlatformKeys SecureStorageEncryption = "Microsoft.Storage"

	// EncryptionCustomerKey is a key in a vault of the customer.
	EncryptionCustomerKey SecureStorageEncryption = "Microsoft.Keyvault"
)

// SecureStorageSpec declares a storage account that is encrypted with a key of
// one's own.
//
// +kubebuilder:validation:XValidation:rule="has(self.accountName) == has(oldSelf.accountName) && (!has(self.accountName) || self.accountName == oldSelf.accountName)",fieldPath=".accountName",message="accountName cannot be changed, set or removed later, because the data is kept and reached under that name: put it back as it was, and create a new SecureStorage for an account of another name"
type SecureStorageSpec struct {
	// provider says where in the cloud the storage account lives, and as whom
	// the cloud is spoken to.
	// +required
	Provider SecureStorageProvider `json:"provider"`

	// sku says how many copies of the data there are, and where: Standard_LRS
	// (one building), Standard_ZRS (three zones), Standard_GRS and Standard_GZRS
	// (a second location as well), Standard_RAGRS and Standard_RAGZRS (a second
	// location that can be read), or Premium_LRS (one building, fast disks). The
	// cloud does not make every change of it: see the reason InvalidRequest.
	// +optional
	// +kubebuilder:default=Standard_LRS
	SKU SecureStorageSKU `json:"sku,omitempty"`

	// accountName is the name of the storage account: 3 to 24 lower-case letters
	// and digits, unique in the whole cloud. Left out, a name is derived from
	// the object's UID. It can be neither changed nor set nor removed later.
	// +optional
	// +kubebuilder:validation:MaxLength=24
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]{3,}$')",message="accountName must be 3 to 24 lower-case letters and digits: write for example acmeinvoices, or leave accountName out to have a name derived"
	AccountName string `json:"accountName,omitempty"`

	// tags are put on the storage account, beside those of Fixpoint itself. A
	// tag that somebody else has put there stays. At most 12, with keys of up to
	// 128 and values of up to 256 characters; keys that start with fixpoint.dev
	// are Fixpoint's own. Tags are not secret.
	// +optional
	// +kubebuilder:validation:MaxProperties=12
	// +kubebuilder:validation:XValidation:rule="self.all(key, key.matches('^[^<>%&?/\\\\\\\\]{1,128}$'))",message="tags must have keys of 1 to 128 characters without '<', '>', '%', '&', '?', '/' and the backslash: rename the key"
	// +kubebuilder:validation:XValidation:rule="!self.exists(key, key.matches('^(?i)fixpoint[.]dev'))",message="tags must not have keys that start with 'fixpoint.dev', because Fixpoint tells by those which accounts are its own: rename the key"
	// +kubebuilder:validation:XValidation:rule="self.all(key, self[key].size() <= 256)",message="tags must have values of at most 256 characters: shorten the value"
	Tags map[string]string `json:"tags,omitempty"`

	// key is what the storage account is encrypted with. Vault and key have to
	// exist; a SecureStorage creates neither.
	// +required
	Key SecureStorageKey `json:"key"`

	// access says how the storage account is granted the use of the key.
	// +optional
	// +kubebuilder:default={}
	Access SecureStorageAccess `json:"access,omitzero"`

	// deletionPolicy says what becomes of the storage account when this object
	// is deleted: Retain leaves it and its grant as they are, Delete deletes it
	// with its data.
	// +optional
	// +kubebuilder:default=Retain
	DeletionPolicy SecureStorageDeletionPolicy `json:"deletionPolicy,omitempty"`

	// adoptionPolicy says what becomes of a storage account that already exists
	// under accountName in the resource group: Never leaves it alone and says
	// so, IfUnowned takes it over when no SecureStorage owns it.
	// +optional
	// +kubebuilder:default=Never
	AdoptionPolicy AdoptionPolicy `json:"adoptionPolicy,omitempty"`

	// onAccountLoss says what happens when somebody else has deleted the storage
	// account, whose data may then be gone: Stall creates nothing and says so,
	// Recreate begins anew with an empty one.
	// +optional
	// +kubebuilder:default=Stall
	OnAccountLoss SecureStorageLossPolicy `json:"onAccountLoss,omitempty"`

	// pollInterval is how often the cloud is asked whether everything still is
	// as declared (10s to 24h), since the cloud does not tell by itself. The
	// moment is varied a little from object to object.
	// +optional
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:XValidation:rule="self != '' && self.matches('^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}([.][0-9]{1,9})?s)?$') && duration(self) >= duration('10s') && duration(self) <= duration('24h')",message="pollInterval must be a duration from 10s to 24h, in hours, minutes and seconds: write for example 5m or 1h30m"
	PollInterval metav1.Duration `json:"pollInterval,omitzero"`

	// propagationDeadline is how long the cloud may take to honour a grant (1s
	// to 24h), counted from the grant. Up to ten minutes are usual; after the
	// deadline it counts as a failure.
	// +optional
	// +kubebuilder:default="15m"
	// +kubebuilder:validation:XValidation:rule="self != '' && self.matches('^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}([.][0-9]{1,9})?s)?$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="propagationDeadline must be a duration from 1s to 24h, in hours, minutes and seconds: write for example 15m or 1h30m"
	PropagationDeadline metav1.Duration `json:"propagationDeadline,omitzero"`

	// suspend stops all work on this SecureStorage: nothing is asked of the
	// cloud, created or corrected until it is false again. Deletion still works.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// SecureStorageProvider is a place in the cloud, and a way to be let in. With
// neither credentialsRef nor workloadIdentity, it is the manager's own
// credential.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.credentialsRef) && has(self.workloadIdentity))",fieldPath=".credentialsRef",message="credentialsRef and workloadIdentity exclude each other: remove credentialsRef to need no secret, or remove workloadIdentity to use the Secret; with neither, it is the manager's own credential"
type SecureStorageProvider struct {
	// subscriptionID is the UUID of the subscription that pays. It cannot be
	// changed.
	// +required
	// +kubebuilder:validation:MaxLength=36
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$')",message="subscriptionID must be a UUID: write it like 00000000-0000-0000-0000-000000000001, as `az account show` tells it"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="subscriptionID cannot be changed, because the storage account and its data live in that subscription: put it back as it was, and create a new SecureStorage in the other one"
	SubscriptionID string `json:"subscriptionID"`

	// resourceGroup is the resource group of the storage account, which has to
	// exist. It cannot be changed.
	// +required
	// +kubebuilder:validation:MaxLength=90
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-0-9A-Za-z_.()]*[-0-9A-Za-z_()]$')",message="resourceGroup must be 1 to 90 letters, digits, '-', '_', '.', '(' and ')', not ending with '.': write the name of a resource group, not its ID"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="resourceGroup cannot be changed, because the storage account and its data live in that group: put it back as it was, and create a new SecureStorage in the other one"
	ResourceGroup string `json:"resourceGroup"`

	// location is where the data is kept, for example westeurope. It cannot be
	// changed.
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]+$')",message="location must be the short name of a location, of lower-case letters and digits: write for example westeurope instead of 'West Europe'"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="location cannot be changed, because the data lives there and the cloud does not move it: put it back as it was, create a new SecureStorage in the other location and copy the data"
	Location string `json:"location"`

	// credentialsRef names a Secret of this namespace with the credentials of
	// an application.
	// +optional
	CredentialsRef *SecureStorageCredentialsRef `json:"credentialsRef,omitempty"`

	// workloadIdentity is an application that trusts a ServiceAccount of this
	// namespace, so that no secret is needed.
	// +optional
	WorkloadIdentity *SecureStorageWorkloadIdentity `json:"workloadIdentity,omitempty"`
}

// SecureStorageCredentialsRef names a Secret in the namespace of the
// SecureStorage with the keys tenantID, clientID and clientSecret.
type SecureStorageCredentialsRef struct {
	// name of the Secret.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name must be the name of a Secret in this namespace: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit"
	Name string `json:"name"`
}

// SecureStorageWorkloadIdentity is an application in the cloud's directory with
// a federated credential for a ServiceAccount of the SecureStorage's namespace.
type SecureStorageWorkloadIdentity struct {
	// clientID is the UUID of the application or of the managed identity.
	// +required
	// +kubebuilder:validation:MaxLength=36
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$')",message="clientID must be a UUID: write the client ID of the application or of the managed identity, not its name"
	ClientID string `json:"clientID"`

	// tenantID is the UUID of the tenant that the application is in.
	// +required
	// +kubebuilder:validation:MaxLength=36
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$')",message="tenantID must be a UUID: write the ID of the tenant, not its domain"
	TenantID string `json:"tenantID"`

	// serviceAccountName is the ServiceAccount of this namespace that the
	// application trusts. Left out, it is the default one of the namespace.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="serviceAccountName must be the name of a ServiceAccount: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit, or leave it out for the default one"
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// SecureStorageKey is a key in a key vault: exactly one of vault and vaultID
// says in which.
//
// +kubebuilder:validation:XValidation:rule="has(self.vault) != has(self.vaultID)",message="key needs exactly one of vault and vaultID: set vault for a vault of the same subscription, or vaultID for one of any, and remove the other"
type SecureStorageKey struct {
	// vault is a key vault in the subscription of the storage account.
	// +optional
	Vault *SecureStorageVault `json:"vault,omitempty"`

	// vaultID is the resource ID of a key vault in any subscription of the
	// tenant.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^(?i)/subscriptions/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/resourceGroups/[-0-9a-z_.()]{0,89}[-0-9a-z_()]/providers/Microsoft[.]KeyVault/vaults/[a-z](-?[0-9a-z]){2,23}$')",message="vaultID must be the resource ID of a key vault: write it as /subscriptions/<UUID>/resourceGroups/<group>/providers/Microsoft.KeyVault/vaults/<name>, as `az keyvault show` tells it"
	VaultID string `json:"vaultID,omitempty"`

	// keyName is the name of the key in the vault: 1 to 127 letters, digits and
	// '-'. It has to be an RSA key of 2048, 3072 or 4096 bits with the
	// operations wrapKey and unwrapKey.
	// +required
	// +kubebuilder:validation:MaxLength=127
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-zA-Z-]+$')",message="keyName must be 1 to 127 letters, digits and '-': write the name of a key, not its URI"
	KeyName string `json:"keyName"`

	// version pins a version of the key, of 32 digits and letters from a to f.
	// Left out, or latest, a new version of the key is taken up when the vault
	// has one; keep the old one for as long as data is encrypted with it.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9a-f]{32}|latest)$')",message="version must be a version of the key, of 32 digits and lower-case letters from a to f, or 'latest': copy it from the end of the key's URI, or leave it out to follow the vault"
	Version string `json:"version,omitempty"`
}

// SecureStorageVault names a key vault.
type SecureStorageVault struct {
	// name of the key vault: 3 to 24 letters, digits and '-'.
	// +required
	// +kubebuilder:validation:MaxLength=24
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z](-?[0-9a-zA-Z]){2,}$')",message="name must be 3 to 24 letters, digits and single '-', starting with a letter and ending with a letter or digit: write the name of a key vault, not its URI"
	Name string `json:"name"`

	// resourceGroup of the key vault. Left out, it is that of the storage
	// account.
	// +optional
	// +kubebuilder:validation:MaxLength=90
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-0-9A-Za-z_.()]*[-0-9A-Za-z_()]$')",message="resourceGroup must be 1 to 90 letters, digits, '-', '_', '.', '(' and ')', not ending with '.': write the name of a resource group, or leave it out for that of the storage account"
	ResourceGroup string `json:"resourceGroup,omitempty"`
}

// SecureStorageAccess is a way of granting the use of a key.
type SecureStorageAccess struct {
	// type is how it is granted: RoleAssignment assigns the role Key Vault Crypto
	// Service Encryption User at the vault; AccessPolicy adds an access policy,
	// for vaults that do not authorize by roles.
	// +optional
	// +kubebuilder:default=RoleAssignment
	Type SecureStorageAccessType `json:"type,omitempty"`
}

// SecureStorageStatus is what was observed of a SecureStorage. It is computed
// anew on every pass. What is read back from it only serves to find what would
// otherwise be lost, as the grants. There is nothing secret in it.
type SecureStorageStatus struct {
	// observedGeneration is the metadata.generation that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase sums the SecureStorage up in one word, for people.
	// +optional
	Phase SecureStoragePhase `json:"phase,omitempty"`

	// conditions say how things stand: Ready over all, and one for each phase.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// waitingSince is since when the phase that gates the others has waited, or
	// not been done for another reason. It is left out when nothing gates.
	// +optional
	WaitingSince *metav1.Time `json:"waitingSince,omitempty"`

	// accountName is the name of the storage account, given or derived.
	// +optional
	// +kubebuilder:validation:MaxLength=24
	AccountName string `json:"accountName,omitempty"`

	// accountID is the resource ID of the storage account in the cloud.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	AccountID string `json:"accountID,omitempty"`

	// principalID is the UUID of the storage account's identity in the cloud's
	// directory.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	PrincipalID string `json:"principalID,omitempty"`

	// endpoint is the URL of the storage account's blobs.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Endpoint string `json:"endpoint,omitempty"`

	// grantID is the resource ID of what lets the storage account use the key:
	// of the role assignment, or, with an access policy, of the key vault.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	GrantID string `json:"grantID,omitempty"`

	// grants are all grants on key vaults that may exist and were made for this
	// SecureStorage. One is noted before it is made, and until it is taken back.
	// It is one, except while the vault, the access type or the identity changes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Grants []SecureStorageGrant `json:"grants,omitempty"`

	// encryption is where the key in use comes from: Microsoft.Keyvault (a vault
	// of the customer) or Microsoft.Storage (the platform).
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Encryption SecureStorageEncryption `json:"encryption,omitempty"`

	// keyURI is the key in use, with its version.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	KeyURI string `json:"keyURI,omitempty"`

	// keyVersion is the version of the key in use.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	KeyVersion string `json:"keyVersion,omitempty"`
}

// SecureStorageGrant is a grant on a key vault that may exist.
type SecureStorageGrant struct {
	// vaultID is the resource ID of the key vault.
	// +required
	// +kubebuilder:validation:MaxLength=512
	VaultID string `json:"vaultID"`

	// accessType is how it is granted.
	// +required
	AccessType SecureStorageAccessType `json:"accessType"`

	// principalID is the UUID of the identity that it is for. It is left out as
	// long as the storage account has none.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	PrincipalID string `json:"principalID,omitempty"`
}

// SecureStorage is a storage account in a cloud that is encrypted with a key of
// one's own. It is built in phases: the account, its identity, the grant on the
// key, the encryption. It is kept so: what somebody else changes in the cloud is
// put back.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=securestorages,singular=securestorage,scope=Namespaced,shortName=sst,categories=fixpoint
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether everything the spec declares exists and works"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is ready, or is not"
// +kubebuilder:printcolumn:name="Account",type=string,JSONPath=`.status.accountName`,description="The storage account"
// +kubebuilder:printcolumn:name="Key Version",type=string,JSONPath=`.status.keyVersion`,description="The version of the key that the account is encrypted with"
// +kubebuilder:printcolumn:name="Phase",type=string,priority=1,JSONPath=`.status.phase`,description="One word for people"
// +kubebuilder:printcolumn:name="Location",type=string,priority=1,JSONPath=`.spec.provider.location`,description="Where the data is kept"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SecureStorage struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard metadata of an object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec declares the storage account.
	// +required
	Spec SecureStorageSpec `json:"spec"`

	// status is what was observed. Only the controller writes it.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status SecureStorageStatus `json:"status,omitzero"`
}

// SecureStorageList is a list of SecureStorages.
//
// +kubebuilder:object:root=true
type SecureStorageList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard metadata of a list.
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	// items are the SecureStorages.
	Items []SecureStorage `json:"items"`
}
