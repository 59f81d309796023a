package v1beta1

// MCPServerContract is what clients get of the server.
type MCPServerContract struct {
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
