package v1beta1

// Condition types of MCPServer, one for each phase that the spec configures, in
// addition to those of every kind and to DependenciesReady, ConfigReady,
// ServiceReady, DeploymentReady, AutoscalingReady, DisruptionBudgetReady and
// IngressReady, which it shares with AppService. Other phases have no
// condition. True: the phase is ready. False: the phase waits or has failed, as
// the reason says. Unknown: the phase waits for an earlier phase.
const (
	// ConditionServiceAccountReady says whether the ServiceAccount of
	// spec.serviceAccount.create is applied.
	ConditionServiceAccountReady = "ServiceAccountReady"

	// ConditionNetworkPolicyReady says whether the NetworkPolicy is applied.
	ConditionNetworkPolicyReady = "NetworkPolicyReady"

	// ConditionSessionKeysReady says whether the Secret with the session keys
	// of spec.sessionRouting is applied.
	ConditionSessionKeysReady = "SessionKeysReady"

	// ConditionRouteReady says whether the HTTPRoute is applied and no Gateway
	// rejects it.
	ConditionRouteReady = "RouteReady"

	// ConditionStoredContractReady is present only while the ConfigMap with the
	// contracts in full cannot be applied.
	ConditionStoredContractReady = "StoredContractReady"

	// ConditionContractReady says whether all pods offer the approved contract,
	// with spec.contract.policy Pin.
	ConditionContractReady = "ContractReady"

	// ConditionProtocolReady says whether the MCP handshake succeeds on all
	// serving pods.
	ConditionProtocolReady = "ProtocolReady"
)

// Reasons that only MCPServer uses.
const (
	// ReasonOldReplicasServing: the rollout is not complete, and pods of the
	// previous version are still serving. This is normal within
	// spec.progressDeadlineSeconds; afterwards, check the new pods as the
	// message says.
	ReasonOldReplicasServing = "OldReplicasServing"

	// ReasonBridgeCommandFailed: the bridge could not start spec.command, for
	// example because the image does not contain the program. The message
	// contains the error. Correct command, args or image.
	ReasonBridgeCommandFailed = "BridgeCommandFailed"

	// ReasonRouteRejected: the Gateway rejects the HTTPRoute; the message
	// contains its reason. Correct spec.httpRoute, or the listener of the
	// Gateway.
	ReasonRouteRejected = "RouteRejected"

	// ReasonContractPending: the contract of pods that take no traffic yet is not
	// known, with spec.contract.policy Pin. The message contains the error of
	// the probe, if there is one.
	ReasonContractPending = "ContractPending"

	// ReasonContractNotApproved: pods offer a contract that is not approved,
	// with spec.contract.policy Pin. The message names what differs. Approve it
	// with kubectl fixpoint approve or spec.contract.digest, or correct the
	// server.
	ReasonContractNotApproved = "ContractNotApproved"

	// ReasonProtocolPending: the pods are running, and the server has not been
	// probed yet, or not often enough to count as failing.
	ReasonProtocolPending = "ProtocolPending"

	// ReasonProtocolFailing: the MCP handshake fails; the message contains the
	// error. Check the log of the server, and that port, path and transport
	// match the server.
	ReasonProtocolFailing = "ProtocolFailing"

	// ReasonCredentialsRequired: the server responds to the probe with 401 or
	// 403. It counts as ready, but its tools, prompts and resources are
	// unknown. Set spec.protocol.credentialsSecretRef to a token that the
	// server accepts.
	ReasonCredentialsRequired = "CredentialsRequired"

	// ReasonProbeDisabled: spec.protocol.probe is Disabled. The server is ready
	// when its pods are ready.
	ReasonProbeDisabled = "ProbeDisabled"
)
