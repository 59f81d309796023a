package v1alpha1

// Condition types that every Fixpoint kind has.
//
// Ready follows the Kubernetes convention: it is always there, and True means
// good. Reconciling and Stalled follow kstatus: they are there only while they
// are True, so that tools that wait (Flux, Argo CD, cli-utils) read them right.
const (
	// ConditionReady says whether everything the spec declares exists and
	// works. It is True only for the generation that observedGeneration names.
	ConditionReady = "Ready"

	// ConditionReconciling is present, and True, while the controller is on its
	// way to what the spec declares. Its message says what it waits for.
	ConditionReconciling = "Reconciling"

	// ConditionStalled is present, and True, when trying again would not help:
	// the spec or the world around it has to change first. Its message says what.
	ConditionStalled = "Stalled"

	// ConditionDrifted is present, and True, while something that the spec
	// declares has been changed by somebody else and stays so, because
	// driftPolicy is Report. status.drifts says who changed what.
	ConditionDrifted = "Drifted"

	// ConditionSuspended is present, and True, while spec.suspend is true:
	// nothing is created, corrected or pruned. Deletion still works.
	ConditionSuspended = "Suspended"
)

// Condition types of AppService, one for each of its phases. True: the phase is
// done, or it is not configured and nothing is left of it. False: it waits or
// has failed, and the reason says which. Unknown: an earlier phase blocks it.
const (
	// ConditionConfigReady says whether the ConfigMap holds spec.config.
	ConditionConfigReady = "ConfigReady"

	// ConditionServiceReady says whether the Service exists as declared.
	ConditionServiceReady = "ServiceReady"

	// ConditionDeploymentReady says whether the newest pods are rolled out and
	// as many of them are available as are wanted.
	ConditionDeploymentReady = "DeploymentReady"

	// ConditionAutoscalingReady says whether the HorizontalPodAutoscaler exists
	// as declared. Reason ScalingInactive tells that it cannot scale yet.
	ConditionAutoscalingReady = "AutoscalingReady"

	// ConditionDisruptionBudgetReady says whether the PodDisruptionBudget
	// exists as declared.
	ConditionDisruptionBudgetReady = "DisruptionBudgetReady"

	// ConditionIngressReady says whether the Ingress exists as declared and its
	// class is there to serve it.
	ConditionIngressReady = "IngressReady"
)

// Reasons that tell where an object, or one phase of it, stands.
const (
	// ReasonReady: what is declared exists and works. Nothing to do.
	ReasonReady = "Ready"

	// ReasonNotConfigured: the spec does not ask for this phase, and nothing is
	// left of it. Nothing to do.
	ReasonNotConfigured = "NotConfigured"

	// ReasonBlocked: an earlier phase is not done yet; look at that one.
	ReasonBlocked = "Blocked"

	// ReasonSuspended: spec.suspend is true; set it to false to go on.
	ReasonSuspended = "Suspended"

	// ReasonTerminating: the object, or a child of it, is being deleted; the
	// message says what the deletion waits for.
	ReasonTerminating = "Terminating"

	// ReasonPruning: a child that is no longer declared is being deleted.
	ReasonPruning = "Pruning"

	// ReasonRecreating: somebody has deleted a child, which is still on its way
	// out; it is made anew once it is gone.
	ReasonRecreating = "Recreating"

	// ReasonProgressing: what is declared has been applied and is not there yet.
	ReasonProgressing = "Progressing"

	// ReasonDrifted: somebody else has changed what the spec declares, and
	// driftPolicy is Report. Undo the change, adopt it into the spec, or set
	// driftPolicy to Correct.
	ReasonDrifted = "Drifted"
)

// Reasons that tell why something could not be done. The message names the
// object, the field where there is one, and the remedy.
const (
	// ReasonFailed: an error that none of the other reasons describes. It is
	// tried again, less and less often.
	ReasonFailed = "Failed"

	// ReasonConflict: another field manager holds a field that is shared with
	// us, with another value. The message names both.
	ReasonConflict = "Conflict"

	// ReasonNotOwned: an object of the name exists and has no owner. Rename or
	// delete it, or set adoptionPolicy to IfUnowned to take it over.
	ReasonNotOwned = "NotOwned"

	// ReasonOwnedByAnother: an object of the name exists and another controller
	// owns it. It is never taken over: rename one of the two.
	ReasonOwnedByAnother = "OwnedByAnother"

	// ReasonImmutableField: the change touches a field that cannot be changed on
	// an existing object. Undo it, or delete the child to have it made anew.
	ReasonImmutableField = "ImmutableField"

	// ReasonQuotaExceeded: a ResourceQuota of the namespace leaves no room. Ask
	// for less, or have the quota raised.
	ReasonQuotaExceeded = "QuotaExceeded"

	// ReasonAdmissionDenied: an admission webhook or policy has refused the
	// object; the message carries what it said.
	ReasonAdmissionDenied = "AdmissionDenied"

	// ReasonInvalid: the API server does not accept the child that the spec
	// leads to; the message names the field to mend.
	ReasonInvalid = "Invalid"

	// ReasonForbidden: the manager lacks the permission; grant it by RBAC.
	ReasonForbidden = "Forbidden"

	// ReasonKindMissing: the API server does not serve a kind that is needed;
	// install its CustomResourceDefinition or upgrade the cluster.
	ReasonKindMissing = "KindMissing"

	// ReasonNamespaceTerminating: the namespace is being deleted, and nothing
	// can be created in it any more.
	ReasonNamespaceTerminating = "NamespaceTerminating"

	// ReasonAPIUnavailable: the API server did not answer, or answered that it
	// cannot now. It is tried again.
	ReasonAPIUnavailable = "APIUnavailable"
)

// Reasons that only AppService uses.
const (
	// ReasonRolloutProgressing: new pods are being started and old ones
	// stopped; within spec.progressDeadlineSeconds this is normal.
	ReasonRolloutProgressing = "RolloutProgressing"

	// ReasonRolloutStalled: the rollout made no progress for
	// spec.progressDeadlineSeconds. Look at the pods; the message names why
	// they do not become ready, where Kubernetes says so.
	ReasonRolloutStalled = "RolloutStalled"

	// ReasonPodsFailing: pods of the newest version cannot start, for example
	// because the image cannot be pulled or the container crashes.
	ReasonPodsFailing = "PodsFailing"

	// ReasonIngressClassMissing: spec.ingress.ingressClassName names no
	// IngressClass of the cluster, so nobody would serve the Ingress. Install an
	// ingress controller, or name a class that exists.
	ReasonIngressClassMissing = "IngressClassMissing"

	// ReasonScalingInactive: the HorizontalPodAutoscaler cannot fetch the
	// metrics it needs, so the number of replicas stays as it is. It informs
	// and does not keep the object from being Ready. Install metrics-server,
	// and set spec.resources.requests for what is measured. The object is not
	// Ready if somebody has scaled its Deployment to 0, which turns the
	// autoscaler off: scale it to the least number again.
	ReasonScalingInactive = "ScalingInactive"
)
