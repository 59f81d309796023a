package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MCPServerContractPolicy is what happens with the contract of a server.
// +kubebuilder:validation:Enum=Observe;Pin;Disabled
type MCPServerContractPolicy string

// MCPServerContract configures the contract of the server.
// +kubebuilder:validation:XValidation:rule="!has(self.digest) || has(self.policy) && self.policy == 'Pin'",fieldPath=".digest",message="digest requires policy Pin: set policy to Pin, or remove digest"
type MCPServerContract struct {
	// policy is Observe, which records the contract in status.contract and
	// emits an Event when it changes; Pin, which also lets only pods take
	// traffic whose contract is approved; or Disabled. Defaults to Observe.
	// +optional
	Policy MCPServerContractPolicy `json:"policy,omitempty"`

	// digest is that of the approved contract, with policy Pin. Defaults to what
	// kubectl fixpoint approve has approved, or to the first contract.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-f]{32}$')",message="digest must have 32 hexadecimal digits: use that of status.contract or status.pendingContract"
	Digest string `json:"digest,omitempty"`

	// allow are the tools that clients get; * stands for any characters.
	// Defaults to all. At most 64.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.all(t, t.matches('^[-\\\\w./:*]+$'))",message="allow must have names of tools: use values such as get_*"
	Allow []string `json:"allow,omitempty"`

	// deny are tools that clients do not get, even if allowed. At most 64.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.all(t, t.matches('^[-\\\\w./:*]+$'))",message="deny must have names of tools: use values such as delete_*"
	Deny []string `json:"deny,omitempty"`
}

// MCPServerContractItemKind is the kind of an item of a contract.
// +kubebuilder:validation:Enum=tool;prompt;resourceTemplate
type MCPServerContractItemKind string

// MCPServerContractStatus is what all serving pods offered when they were last
// listed.
type MCPServerContractStatus struct {
	// digest changes if and only if the contract changes, including the items
	// that are not listed.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Digest string `json:"digest"`

	// items are the first 256 items, sorted by kind and name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Items []MCPServerContractItem `json:"items,omitempty"`

	// omitted is the number of items that are not listed.
	// +optional
	Omitted int32 `json:"omitted,omitempty"`

	// lastChange is the last change of the contract. It is empty until the
	// first change.
	// +optional
	LastChange *MCPServerContractChange `json:"lastChange,omitempty"`
}

// MCPServerContractItem is a tool, a prompt or a resource template.
type MCPServerContractItem struct {
	// kind is tool, prompt or resourceTemplate.
	// +required
	Kind MCPServerContractItemKind `json:"kind"`

	// name is the name of the item, without characters that cannot be printed,
	// truncated to 128 bytes.
	// +required
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name"`

	// digest is the beginning of the digest of the schema, and, after "-", that
	// of the description, the title and the icons.
	// +required
	// +kubebuilder:validation:MaxLength=32
	Digest string `json:"digest"`
}

// MCPServerContractChange is a change of the contract. Items are named by kind
// and name, such as tool/search.
type MCPServerContractChange struct {
	// time is when the change was observed.
	// +required
	Time metav1.Time `json:"time"`

	// added are items that did not exist before.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=160
	Added []string `json:"added,omitempty"`

	// removed are items that no longer exist.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=160
	Removed []string `json:"removed,omitempty"`

	// schemaChanged are items with another schema.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=160
	SchemaChanged []string `json:"schemaChanged,omitempty"`

	// descriptionChanged are items with the same schema and another
	// description, title or icon.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=160
	DescriptionChanged []string `json:"descriptionChanged,omitempty"`

	// omitted is the number of changed items that the lists above do not name
	// because they are full.
	// +optional
	Omitted int32 `json:"omitted,omitempty"`
}

// MCPServerPendingContract is a contract that pods offer and that is not
// approved, with spec.contract.policy Pin.
type MCPServerPendingContract struct {
	// digest is the value of spec.contract.digest that approves the contract.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Digest string `json:"digest"`

	// change is how the contract differs from status.contract. It is empty
	// without one.
	// +optional
	Change *MCPServerContractChange `json:"change,omitempty"`
}
