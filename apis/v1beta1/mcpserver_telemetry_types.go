package v1beta1

// MCPServerTelemetry is what is recorded about requests.
//
// +kubebuilder:validation:XValidation:rule="has(self.audit) || has(self.otlp)",message="telemetry must have audit or otlp: set one, for example {audit: {}}"
type MCPServerTelemetry struct {
	// audit writes a JSON line for each request to the standard output.
	// +optional
	Audit *MCPServerAudit `json:"audit,omitempty"`

	// otlp exports spans and metrics over HTTP to an OpenTelemetry collector.
	// +optional
	OTLP *MCPServerOTLP `json:"otlp,omitempty"`
}

// MCPServerAudit configures the audit of requests.
type MCPServerAudit struct {
	// arguments is what a line has of arguments: Digest (SHA-256), Full or None.
	// Defaults to Digest.
	// +optional
	Arguments MCPServerAuditArguments `json:"arguments,omitempty"`
}

// MCPServerAuditArguments is what an audit line has of the arguments of calls.
// +kubebuilder:validation:Enum=Digest;Full;None
type MCPServerAuditArguments string

const (
	// AuditDigest records the SHA-256 digest of the arguments. It is the default.
	AuditDigest MCPServerAuditArguments = "Digest"

	// AuditFull records the arguments, which may be confidential.
	AuditFull MCPServerAuditArguments = "Full"

	// AuditNone records nothing of the arguments.
	AuditNone MCPServerAuditArguments = "None"
)

// MCPServerOTLP configures an OpenTelemetry collector.
type MCPServerOTLP struct {
	// endpoint is the base URL of OTLP over HTTP, for example
	// http://collector.observability:4318.
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[-A-Za-z0-9.:\\\\[\\\\]]+(/[-A-Za-z0-9._~/]*)?$') && isURL(self)",message="endpoint must be an http or https URL without user and query: use a value such as http://collector.observability:4318"
	Endpoint string `json:"endpoint"`

	// headersSecretRef is a key of a Secret with headers for the collector, one
	// per line, such as Authorization: Bearer abc.
	// +optional
	HeadersSecretRef *MCPServerHeadersSecretRef `json:"headersSecretRef,omitempty"`

	// samplePercent is the share of traces that begin here and are exported (0
	// to 100). Clients decide about their own. Defaults to 100.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	SamplePercent *int32 `json:"samplePercent,omitempty"`
}

// MCPServerHeadersSecretRef is a key of a Secret with HTTP headers.
type MCPServerHeadersSecretRef struct {
	// name is the name of the Secret.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name must be the name of a Secret: use lower-case letters, digits, '-' and '.'"
	Name string `json:"name"`

	// key is the key in the Secret. Defaults to headers.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]+$')",message="key must be a key of a Secret: use letters, digits, '-', '_' and '.'"
	Key string `json:"key,omitempty"`
}
