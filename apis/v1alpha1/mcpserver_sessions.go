package v1alpha1

// MCPServerSessionRouting is whether pods forward requests to the pod that has
// the session.
// +kubebuilder:validation:Enum=Forward;None
type MCPServerSessionRouting string

const (
	// SessionRoutingForward forwards requests to the pod that has the session.
	SessionRoutingForward MCPServerSessionRouting = "Forward"

	// SessionRoutingNone serves only the sessions of the pod that receives the
	// request.
	SessionRoutingNone MCPServerSessionRouting = "None"
)
