package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// SecureStoragePhase is a one-word summary of a SecureStorage for users.
// Programs should use the conditions.
// +kubebuilder:validation:Enum=Pending;Provisioning;Ready;Degraded;Failed;Suspended;Deleting
type SecureStoragePhase string

// SecureStorageEncryption is the key source of the encryption of a storage
// account, as in the Azure API. controller-gen does not accept the limit of a
// field whose type is text in another package.
type SecureStorageEncryption string

// SecureStorageSpec is the desired state of a storage account with a
// customer-managed key.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.export) && has(self.export.accountKeys) && self.export.accountKeys && has(self.managementPolicy) && self.managementPolicy == 'Observe')",fieldPath=".export.accountKeys",message="export.accountKeys requires managementPolicy Manage, because the keys of a storage account that is only observed are not read: remove accountKeys, or set managementPolicy to Manage"
// +kubebuilder:validation:XValidation:rule="has(self.accountName) == has(oldSelf.accountName) && (!has(self.accountName) || self.accountName == oldSelf.accountName)",fieldPath=".accountName",message="accountName is immutable and cannot be set or removed later, because the data is stored under this name: revert the change, and create a new SecureStorage for an account with another name"
type SecureStorageSpec struct {
	// provider is the location of the storage account in the cloud, and the
	// credentials to manage it.
	// +required
	Provider SecureStorageProvider `json:"provider"`

	// sku is the redundancy of the data: Standard_LRS (one data center),
	// Standard_ZRS (three zones), Standard_GRS and Standard_GZRS (with a
	// secondary location), Standard_RAGRS and Standard_RAGZRS (with a readable
	// secondary location), or Premium_LRS (one data center, premium disks).
	// Azure does not support all changes of the SKU; the reason InvalidRequest
	// reports a change that it rejects.
	// +optional
	// +kubebuilder:default=Standard_LRS
	SKU v1beta1.SecureStorageSKU `json:"sku,omitempty"`

	// accountName is the name of the storage account: 3 to 24 lower-case
	// letters and digits, globally unique in Azure. If omitted, the name is
	// derived from the UID of the object. It is immutable, and cannot be set or
	// removed later.
	// +optional
	// +kubebuilder:validation:MaxLength=24
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]{3,}$')",message="accountName must consist of 3 to 24 lower-case letters and digits: use a value such as acmeinvoices, or omit accountName to derive a name"
	AccountName string `json:"accountName,omitempty"`

	// tags are tags of the storage account, in addition to those of Fixpoint.
	// Other tags on the storage account are kept. At most 12, with keys of up
	// to 128 and values of up to 256 characters; keys that start with
	// fixpoint.dev are reserved for Fixpoint. Do not store secrets in tags.
	// +optional
	// +kubebuilder:validation:MaxProperties=12
	// +kubebuilder:validation:XValidation:rule="self.all(key, key.matches('^[^<>%&?/\\\\\\\\]{1,128}$'))",message="tags must have keys of 1 to 128 characters without '<', '>', '%', '&', '?', '/' and the backslash: rename the key"
	// +kubebuilder:validation:XValidation:rule="!self.exists(key, key.matches('^(?i)fixpoint[.]dev'))",message="tags must not have keys that start with 'fixpoint.dev', which are reserved for Fixpoint: rename the key"
	// +kubebuilder:validation:XValidation:rule="self.all(key, self[key].size() <= 256)",message="tags must have values of at most 256 characters: shorten the value"
	Tags map[string]string `json:"tags,omitempty"`

	// key is the encryption key of the storage account. The key vault and the
	// key must exist; a SecureStorage does not create them.
	// +required
	Key SecureStorageKey `json:"key"`

	// access is how the storage account is granted access to the key.
	// +optional
	// +kubebuilder:default={}
	Access v1beta1.SecureStorageAccess `json:"access,omitzero"`

	// export publishes how to reach the storage account, in objects of the namespace
	// that other workloads mount. They have the name of this object, are kept as
	// declared, and are deleted when export is removed or this object is deleted.
	// They are created when the storage account is encrypted with the key. An
	// existing object of the name that this object does not control is not changed.
	// +optional
	Export *v1beta1.SecureStorageExport `json:"export,omitempty"`

	// managementPolicy is whether the controller changes anything in Azure: Manage
	// creates or adopts the storage account and reverts changes; Observe writes
	// nothing, not even on deletion, and reports in the conditions and in
	// status.drifts what differs from the spec.
	// +optional
	// +kubebuilder:default=Manage
	ManagementPolicy v1beta1.SecureStorageManagementPolicy `json:"managementPolicy,omitempty"`

	// deletionPolicy is what happens to the storage account when this object is
	// deleted: Retain keeps the storage account and its grant, and removes the
	// owner tag; Delete deletes the storage account, its grant and the data. With
	// managementPolicy Observe, nothing is changed.
	// +optional
	// +kubebuilder:default=Retain
	DeletionPolicy v1beta1.SecureStorageDeletionPolicy `json:"deletionPolicy,omitempty"`

	// adoptionPolicy is what happens to an existing storage account with the
	// name accountName in the resource group: Never does not change it and
	// reports an error, IfUnowned adopts it if it belongs to no SecureStorage.
	// With the credential of the manager, IfUnowned is the same as Never: set the
	// tag fixpoint.dev-owner of the storage account to the UID of this object
	// instead.
	// +optional
	// +kubebuilder:default=Never
	AdoptionPolicy v1beta1.AdoptionPolicy `json:"adoptionPolicy,omitempty"`

	// onAccountLoss is what happens when the storage account was deleted
	// outside of Fixpoint, possibly with its data: Stall creates nothing and
	// reports the reason AccountLost, Recreate creates an empty storage
	// account.
	// +optional
	// +kubebuilder:default=Stall
	OnAccountLoss v1beta1.AccountLossPolicy `json:"onAccountLoss,omitempty"`

	// pollInterval is the interval at which the controller compares the storage
	// account with the spec (10s to 24h), with a small jitter, because Azure
	// does not send notifications of changes.
	// +optional
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:XValidation:rule="self != '' && self.matches('^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}([.][0-9]{1,9})?s)?$') && duration(self) >= duration('10s') && duration(self) <= duration('24h')",message="pollInterval must be a duration from 10s to 24h, in hours, minutes and seconds: use a value such as 5m or 1h30m"
	PollInterval metav1.Duration `json:"pollInterval,omitzero"`

	// propagationDeadline is the time that Azure has to propagate a grant (1s
	// to 24h), which usually takes up to ten minutes. After the deadline, the
	// phase fails with the reason PropagationTimedOut.
	// +optional
	// +kubebuilder:default="15m"
	// +kubebuilder:validation:XValidation:rule="self != '' && self.matches('^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}([.][0-9]{1,9})?s)?$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="propagationDeadline must be a duration from 1s to 24h, in hours, minutes and seconds: use a value such as 15m or 1h30m"
	PropagationDeadline metav1.Duration `json:"propagationDeadline,omitzero"`

	// suspend suspends reconciliation: while it is true, the controller does
	// not call the cloud, except for deletion.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// SecureStorageProvider is the location of the storage account in the cloud,
// and the credentials to manage it. With neither credentialsRef nor
// workloadIdentity, the controller uses the credential of the manager, if the
// flag --ambient-credentials of the manager allows it for the namespace.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.credentialsRef) && has(self.workloadIdentity))",fieldPath=".credentialsRef",message="credentialsRef and workloadIdentity are mutually exclusive: remove credentialsRef to use the workload identity, or workloadIdentity to use the Secret"
type SecureStorageProvider struct {
	// subscriptionID is the UUID of the subscription. It is immutable.
	// +required
	// +kubebuilder:validation:MaxLength=36
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$')",message="subscriptionID must be a UUID such as 00000000-0000-0000-0000-000000000001: copy the id from the output of `az account show`"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="subscriptionID is immutable, because the storage account and its data are in this subscription: restore the previous value, and create a new SecureStorage for the other subscription"
	SubscriptionID string `json:"subscriptionID"`

	// resourceGroup is the existing resource group of the storage account. It
	// is immutable.
	// +required
	// +kubebuilder:validation:MaxLength=90
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-0-9A-Za-z_.()]*[-0-9A-Za-z_()]$')",message="resourceGroup must consist of 1 to 90 letters, digits, '-', '_', '.', '(' and ')', not ending with '.': use the name of a resource group, not its ID"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="resourceGroup is immutable, because the storage account and its data are in this resource group: restore the previous value, and create a new SecureStorage for the other resource group"
	ResourceGroup string `json:"resourceGroup"`

	// location is the Azure location of the storage account, for example
	// westeurope. It is immutable.
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]+$')",message="location must be the short name of an Azure location, in lower-case letters and digits: use a value such as westeurope instead of 'West Europe'"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="location is immutable, because Azure does not move the data of a storage account: restore the previous value, create a new SecureStorage in the other location and copy the data"
	Location string `json:"location"`

	// credentialsRef is a Secret in the same namespace with the credentials of
	// an application.
	// +optional
	CredentialsRef *SecureStorageCredentialsRef `json:"credentialsRef,omitempty"`

	// workloadIdentity is an application with a federated credential for a
	// ServiceAccount in the same namespace. It needs no secret.
	// +optional
	WorkloadIdentity *v1beta1.SecureStorageWorkloadIdentity `json:"workloadIdentity,omitempty"`
}

// SecureStorageCredentialsRef is a Secret in the same namespace with the keys
// tenantID, clientID and clientSecret.
type SecureStorageCredentialsRef struct {
	// name is the name of the Secret.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name must be the name of a Secret in this namespace: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit"
	Name string `json:"name"`
}

// SecureStorageKey is a key in a key vault. Exactly one of vault and vaultID is
// set.
//
// +kubebuilder:validation:XValidation:rule="has(self.vault) != has(self.vaultID)",message="key needs exactly one of vault and vaultID: set vault for a key vault in the same subscription, or vaultID for a key vault in any subscription, and remove the other"
type SecureStorageKey struct {
	// vault is a key vault in the subscription of the storage account.
	// +optional
	Vault *v1beta1.SecureStorageVault `json:"vault,omitempty"`

	// vaultID is the resource ID of a key vault in any subscription of the
	// tenant.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^(?i)/subscriptions/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/resourceGroups/[-0-9a-z_.()]{0,89}[-0-9a-z_()]/providers/Microsoft[.]KeyVault/vaults/[a-z](-?[0-9a-z]){2,23}$') && self.matches('/[^/]{3,24}$')",message="vaultID must be the resource ID of a key vault, whose name has 3 to 24 characters: use the form /subscriptions/<UUID>/resourceGroups/<group>/providers/Microsoft.KeyVault/vaults/<name>, as in the output of `az keyvault show`"
	VaultID string `json:"vaultID,omitempty"`

	// keyName is the name of the key in the key vault: 1 to 127 letters, digits
	// and '-'. It must be an RSA key of 2048, 3072 or 4096 bits with the
	// operations wrapKey and unwrapKey.
	// +required
	// +kubebuilder:validation:MaxLength=127
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-zA-Z-]+$')",message="keyName must consist of 1 to 127 letters, digits and '-': use the name of a key, not its URI"
	KeyName string `json:"keyName"`

	// version is the version of the key: 32 digits and lower-case letters from
	// a to f, or latest. If omitted, or latest, the storage account follows the
	// latest version of the key. Keep old versions as long as data is encrypted
	// with them.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9a-f]{32}|latest)$')",message="version must be a version of the key, of 32 digits and lower-case letters from a to f, or 'latest': copy it from the end of the URI of the key, or omit it to follow the latest version"
	Version string `json:"version,omitempty"`
}

// SecureStorageStatus is the observed state of a SecureStorage. The controller
// computes it on every reconcile. It reads back only what it cannot observe
// again, such as the grants. The status contains no secrets.
type SecureStorageStatus struct {
	// observedGeneration is the metadata.generation that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// lastHandledReconcileAt is the value of the annotation
	// fixpoint.dev/reconcile-requested-at that the last reconcile observed.
	// kubectl fixpoint reconcile waits for it.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	LastHandledReconcileAt string `json:"lastHandledReconcileAt,omitempty"`

	// phase is a one-word summary for users.
	// +optional
	Phase SecureStoragePhase `json:"phase,omitempty"`

	// conditions are Ready, the summary, and one condition for each phase.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// waitingSince is when the first phase that is not ready stopped being
	// ready. It is empty if all phases are ready.
	// +optional
	WaitingSince *metav1.Time `json:"waitingSince,omitempty"`

	// accountName is the name of the storage account, from the spec or derived.
	// +optional
	// +kubebuilder:validation:MaxLength=24
	AccountName string `json:"accountName,omitempty"`

	// accountID is the resource ID of the storage account.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	AccountID string `json:"accountID,omitempty"`

	// principalID is the UUID of the managed identity of the storage account in
	// Microsoft Entra ID.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	PrincipalID string `json:"principalID,omitempty"`

	// endpoint is the URL of the blob service of the storage account.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Endpoint string `json:"endpoint,omitempty"`

	// grantID is the resource ID of the grant: the role assignment, or the key
	// vault with an access policy.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	GrantID string `json:"grantID,omitempty"`

	// grants are all grants on key vaults that the controller may have created
	// for this SecureStorage. A grant is recorded before it is created, and
	// removed after it is revoked. The list has one element, except while the
	// key vault, the access type or the identity changes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Grants []v1beta1.SecureStorageGrant `json:"grants,omitempty"`

	// encryption is the key source of the storage account: Microsoft.Keyvault
	// (a customer-managed key) or Microsoft.Storage (keys that Azure manages).
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Encryption SecureStorageEncryption `json:"encryption,omitempty"`

	// keyURI is the URI of the key in use, with its version.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	KeyURI string `json:"keyURI,omitempty"`

	// keyVersion is the version of the key in use.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	KeyVersion string `json:"keyVersion,omitempty"`

	// drifts are the fields of the storage account that differ from the spec,
	// with managementPolicy Observe. With Manage, Events report drifts.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Drifts []AppServiceDrift `json:"drifts,omitempty"`
}

// SecureStorage manages an Azure storage account that is encrypted with a
// customer-managed key, in phases: the storage account, its identity, the
// access to the key, and the encryption. The controller reverts changes that
// are made outside of Fixpoint.
//
// +kubebuilder:object:root=true
// +kubebuilder:deprecatedversion:warning="fixpoint.dev/v1alpha1 SecureStorage is deprecated; use fixpoint.dev/v1beta1 SecureStorage"
// +kubebuilder:resource:path=securestorages,singular=securestorage,scope=Namespaced,shortName=sst,categories=fixpoint
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the object is ready"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="The reason of the Ready condition"
// +kubebuilder:printcolumn:name="Account",type=string,JSONPath=`.status.accountName`,description="The name of the storage account"
// +kubebuilder:printcolumn:name="Key Version",type=string,JSONPath=`.status.keyVersion`,description="The version of the encryption key"
// +kubebuilder:printcolumn:name="Phase",type=string,priority=1,JSONPath=`.status.phase`,description="A one-word summary"
// +kubebuilder:printcolumn:name="Location",type=string,priority=1,JSONPath=`.spec.provider.location`,description="The location of the storage account"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SecureStorage struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the desired state of the storage account.
	// +required
	Spec SecureStorageSpec `json:"spec"`

	// status is the observed state. Only the controller writes it.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1,"phase":"Pending"}
	Status SecureStorageStatus `json:"status,omitzero"`
}

// SecureStorageList is a list of SecureStorages.
//
// +kubebuilder:object:root=true
type SecureStorageList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	// items is the list of SecureStorages.
	Items []SecureStorage `json:"items"`
}
