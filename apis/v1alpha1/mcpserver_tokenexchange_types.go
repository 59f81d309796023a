package v1alpha1

// Keys of the Secret of MCPServerTokenExchange.
const (
	ClientIDKey     = "client-id"
	ClientSecretKey = "client-secret"
)

// MCPServerTokenExchange exchanges tokens of callers (RFC 8693).
//
// +kubebuilder:validation:XValidation:rule="has(self.audience) || has(self.resource)",message="tokenExchange needs audience or resource: set what the server calls"
type MCPServerTokenExchange struct {
	// tokenURL is the URL of the token endpoint.
	// +required
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="isURL(self) && self.matches('^https://[^#@]+$')",message="tokenURL must be an https URL, because it gets tokens: use a value such as https://id.example.com/token"
	TokenURL string `json:"tokenURL"`

	// clientSecretRef has the keys client-id and client-secret.
	// +required
	ClientSecretRef MCPServerClientSecretRef `json:"clientSecretRef"`

	// audience of the token.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^[!-~]+$')",message="audience must not have spaces: use a value such as orders"
	Audience string `json:"audience,omitempty"`

	// resource of the token (RFC 8707), a URL.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="isURL(self) && self.matches('^https?://[^#@]+$')",message="resource must be a URL: use a value such as https://orders.example.com"
	Resource string `json:"resource,omitempty"`

	// scopes of the token. At most 16.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.all(s, s.matches('^[!#-~]+$'))",message="scopes must not have spaces and quotes: use values such as orders:read"
	Scopes []string `json:"scopes,omitempty"`
}

// MCPServerClientSecretRef is a Secret of the namespace.
type MCPServerClientSecretRef struct {
	// name is the name of the Secret.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="name must be that of a Secret: use lower-case letters, digits, '-' and '.'"
	Name string `json:"name"`
}
