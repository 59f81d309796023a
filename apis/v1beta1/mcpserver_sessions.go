package v1beta1

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

// SecretTypeSessionKeys is the type of the Secrets with session keys. The
// manager watches only Secrets of the types that it writes.
const SecretTypeSessionKeys = "fixpoint.dev/session-keys"
