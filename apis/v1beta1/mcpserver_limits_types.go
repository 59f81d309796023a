package v1beta1

// MCPServerLimits limits what clients may send. Each pod counts on its own.
type MCPServerLimits struct {
	// requestsPerMinute is the limit of a caller (60 to 1000000).
	// +optional
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=1000000
	RequestsPerMinute int32 `json:"requestsPerMinute,omitempty"`

	// callsPerMinute are limits of a caller (1 to 1000000) by the name of the
	// tool, in which * stands for any characters. At most 16.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(t, t.size() < 129 && t.matches('^[-\\\\w./:*]+$'))",message="callsPerMinute must have names of tools: use a value such as {get_*: 10}"
	CallsPerMinute map[string]MCPServerCallsPerMinute `json:"callsPerMinute,omitempty"`

	// maxConcurrentCalls is the limit of a pod.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxConcurrentCalls int32 `json:"maxConcurrentCalls,omitempty"`

	// maxBodyBytes is the limit of a request (1024 to 33554432).
	// +optional
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=33554432
	MaxBodyBytes int32 `json:"maxBodyBytes,omitempty"`

	// callTimeoutSeconds is the limit of a call (1 to 86400).
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	CallTimeoutSeconds int32 `json:"callTimeoutSeconds,omitempty"`
}

// MCPServerCallsPerMinute is a number of calls of tools per minute.
//
// +kubebuilder:validation:Minimum=1
// +kubebuilder:validation:Maximum=1000000
type MCPServerCallsPerMinute int32
