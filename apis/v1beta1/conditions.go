package v1beta1

// Condition types of every Fixpoint kind.
//
// Ready follows the Kubernetes convention: it is always present, and True means
// ready. Reconciling and Stalled follow kstatus: they are present only while
// they are True, so that tools such as Flux, Argo CD and cli-utils interpret
// them correctly.
const (
	// ConditionReady is True if all phases that the spec configures are ready.
	// It describes the generation in its observedGeneration.
	ConditionReady = "Ready"

	// ConditionReconciling is present, and True, while the controller applies
	// the spec. Its message says what it waits for.
	ConditionReconciling = "Reconciling"

	// ConditionStalled is present, and True, if a retry cannot succeed until
	// the spec or the environment changes. Its message says what to change.
	ConditionStalled = "Stalled"

	// ConditionDrifted is present, and True, while changes of other field
	// managers are not reverted, because driftPolicy is Report. status.drifts
	// lists the changes.
	ConditionDrifted = "Drifted"

	// ConditionSuspended is present, and True, while spec.suspend is true:
	// nothing is created, reverted or pruned. Deletion still works.
	ConditionSuspended = "Suspended"
)

// Condition types of AppService, one for each phase that the spec configures;
// other phases have no condition. True: the phase is ready. False: the phase
// waits or has failed, as the reason says. Unknown: the phase waits for an
// earlier phase. Those of optional phases that MCPServer does not have are in
// appservice_types.go.
const (
	// ConditionDependenciesReady says whether all Secrets, ConfigMaps,
	// ServiceAccounts and PersistentVolumeClaims that the spec references, and
	// that are not optional, exist.
	ConditionDependenciesReady = "DependenciesReady"

	// ConditionConfigReady says whether the ConfigMap contains spec.config.
	ConditionConfigReady = "ConfigReady"

	// ConditionServiceReady says whether the Service is applied.
	ConditionServiceReady = "ServiceReady"

	// ConditionDeploymentReady says whether the rollout of the Deployment is
	// complete and all replicas are available.
	ConditionDeploymentReady = "DeploymentReady"

	// ConditionAutoscalingReady says whether the HorizontalPodAutoscaler can scale
	// the Deployment, and the number of pods is within its bounds. The reason
	// ScalingInactive means that it has no metrics.
	ConditionAutoscalingReady = "AutoscalingReady"

	// ConditionDisruptionBudgetReady says whether the PodDisruptionBudget is
	// applied.
	ConditionDisruptionBudgetReady = "DisruptionBudgetReady"

	// ConditionIngressReady says whether the Ingress is applied, and its
	// IngressClass and the Secret with its certificate exist.
	ConditionIngressReady = "IngressReady"
)

// Reasons for the progress of an object or of a phase.
const (
	// ReasonReady: the object or phase is ready. No action is required.
	ReasonReady = "Ready"

	// ReasonBlocked: the phase waits for an earlier phase; check the condition
	// of that phase.
	ReasonBlocked = "Blocked"

	// ReasonSuspended: spec.suspend is true; set it to false to resume
	// reconciliation.
	ReasonSuspended = "Suspended"

	// ReasonTerminating: the object, or one of its children, is being deleted;
	// the message says what the deletion waits for.
	ReasonTerminating = "Terminating"

	// ReasonPruning: a child that is no longer desired is being deleted.
	ReasonPruning = "Pruning"

	// ReasonRecreating: a child was deleted by another client; it is recreated
	// once its deletion is complete.
	ReasonRecreating = "Recreating"

	// ReasonProgressing: the child is applied, but is not ready yet.
	ReasonProgressing = "Progressing"

	// ReasonDrifted: another field manager changed a field that the spec
	// declares, and driftPolicy is Report. Revert the change, add it to the
	// spec, or set driftPolicy to Correct.
	ReasonDrifted = "Drifted"
)

// Reasons for errors. The message names the object, the field if known, and the
// remedy.
const (
	// ReasonFailed: an error that no other reason describes. The controller
	// retries with exponential backoff.
	ReasonFailed = "Failed"

	// ReasonConflict: another field manager owns a shared field with a
	// different value. The message names the field and the field manager.
	ReasonConflict = "Conflict"

	// ReasonNotOwned: an object with the name of the child exists and no
	// controller owns it. Rename or delete it, or set adoptionPolicy to IfUnowned
	// to adopt it.
	ReasonNotOwned = "NotOwned"

	// ReasonOwnedByAnother: an object with the name of the child exists and
	// another controller owns it. It is never adopted: rename one of the
	// objects.
	ReasonOwnedByAnother = "OwnedByAnother"

	// ReasonImmutableField: the change affects an immutable field of an
	// existing object. Revert the change, or delete the child so that it is
	// recreated.
	ReasonImmutableField = "ImmutableField"

	// ReasonQuotaExceeded: a ResourceQuota of the namespace is exceeded. Reduce
	// the requests, or raise the quota.
	ReasonQuotaExceeded = "QuotaExceeded"

	// ReasonAdmissionDenied: an admission webhook or policy denied the request;
	// the message contains its response.
	ReasonAdmissionDenied = "AdmissionDenied"

	// ReasonInvalid: the API server rejects the child as invalid; the message
	// names the field to correct.
	ReasonInvalid = "Invalid"

	// ReasonNotPermitted: the installation does not permit pods of this kind. The
	// message names the field and the remedy. An existing Deployment and its
	// pods are left unchanged.
	ReasonNotPermitted = "NotPermitted"

	// ReasonForbidden: the manager lacks an RBAC permission; grant it to the
	// service account of the manager.
	ReasonForbidden = "Forbidden"

	// ReasonKindMissing: the API server does not serve a required kind; install
	// its CustomResourceDefinition or upgrade the cluster.
	ReasonKindMissing = "KindMissing"

	// ReasonNamespaceTerminating: the namespace is being deleted, so that no
	// object can be created in it.
	ReasonNamespaceTerminating = "NamespaceTerminating"

	// ReasonAPIUnavailable: the API server did not respond or is unavailable.
	// The controller retries.
	ReasonAPIUnavailable = "APIUnavailable"
)

// Reasons of the phases of AppService, which MCPServer shares.
const (
	// ReasonDependencyMissing: referenced objects, or keys in them, do not
	// exist. The message lists all of them. Create them, or mark them as
	// optional.
	ReasonDependencyMissing = "DependencyMissing"

	// ReasonRolloutProgressing: the rollout of the Deployment is in progress.
	// This is normal within spec.progressDeadlineSeconds.
	ReasonRolloutProgressing = "RolloutProgressing"

	// ReasonRolloutStalled: the rollout made no progress for
	// spec.progressDeadlineSeconds. Check the pods; the message says why they
	// are not ready, if Kubernetes reports it.
	ReasonRolloutStalled = "RolloutStalled"

	// ReasonPodsFailing: pods of the new version cannot start, for example
	// because the image cannot be pulled or the container crashes.
	ReasonPodsFailing = "PodsFailing"

	// ReasonIngressClassMissing: the IngressClass in
	// spec.ingress.ingressClassName does not exist. Install an ingress
	// controller, or use an existing IngressClass.
	ReasonIngressClassMissing = "IngressClassMissing"

	// ReasonScalingInactive: the HorizontalPodAutoscaler cannot read its
	// metrics, so that the number of replicas does not change. Install
	// metrics-server, and set spec.resources.requests for the target metrics.
	// The object can still be Ready, unless the Deployment was scaled to 0,
	// which disables the autoscaler: scale it to minReplicas.
	ReasonScalingInactive = "ScalingInactive"
)
