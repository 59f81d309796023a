package v1alpha1

// Condition types of MCPServer, one for each of its phases, beside those that
// every kind has and ConfigReady, ServiceReady, DeploymentReady,
// AutoscalingReady, DisruptionBudgetReady and IngressReady, which it shares with
// AppService. True: the phase is done, or it is not configured and nothing is
// left of it. False: it waits or has failed, and the reason says which. Unknown:
// an earlier phase blocks it.
const (
	// ConditionDependenciesReady says whether every Secret, ConfigMap,
	// ServiceAccount and PersistentVolumeClaim exists that the spec names and
	// Fixpoint does not make.
	ConditionDependenciesReady = "DependenciesReady"

	// ConditionServiceAccountReady says whether the ServiceAccount exists that
	// spec.serviceAccount.create asks for.
	ConditionServiceAccountReady = "ServiceAccountReady"

	// ConditionNetworkPolicyReady says whether the NetworkPolicy exists as
	// declared.
	ConditionNetworkPolicyReady = "NetworkPolicyReady"

	// ConditionRouteReady says whether the HTTPRoute exists as declared and no
	// Gateway refuses it.
	ConditionRouteReady = "RouteReady"

	// ConditionProtocolReady says whether the server answers in its protocol,
	// from every pod that takes traffic.
	ConditionProtocolReady = "ProtocolReady"
)

// Reasons that only MCPServer uses.
const (
	// ReasonDependencyMissing: objects that the spec names, or keys of them, do
	// not exist. The message names them all. Create them, or mark them optional.
	ReasonDependencyMissing = "DependencyMissing"

	// ReasonOldReplicasServing: a rollout is not complete, and the pods of the
	// earlier version still serve. Within spec.progressDeadlineSeconds this is
	// normal; then look at the new pods, as the message says.
	ReasonOldReplicasServing = "OldReplicasServing"

	// ReasonBridgeCommandFailed: the bridge could not start spec.command, for
	// example because the image has no such program. The message repeats what
	// the bridge has said. Mend command, args or image.
	ReasonBridgeCommandFailed = "BridgeCommandFailed"

	// ReasonRouteRejected: the Gateway does not take the HTTPRoute; the message
	// carries what it said. Mend spec.httpRoute, or the Gateway's listener.
	ReasonRouteRejected = "RouteRejected"

	// ReasonProtocolPending: the pods run, and the server has not been asked yet,
	// or not for long enough to count as failing.
	ReasonProtocolPending = "ProtocolPending"

	// ReasonProtocolFailing: the server does not answer in its protocol; the
	// message says how it failed. Look at its log, and whether port, path and
	// transport are what it serves.
	ReasonProtocolFailing = "ProtocolFailing"

	// ReasonCredentialsRequired: the server is there and answers 401 or 403 to
	// the probe. It counts as ready; what it offers is not known. Set
	// spec.protocol.credentialsSecretRef to a token that it takes.
	ReasonCredentialsRequired = "CredentialsRequired"

	// ReasonProbeDisabled: spec.protocol.disabled is true, so nobody asks the
	// server. It counts as ready when its pods do.
	ReasonProbeDisabled = "ProbeDisabled"
)
