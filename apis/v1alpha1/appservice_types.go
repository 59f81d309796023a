package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// AppServicePhase is a one-word summary of an AppService for users. Programs
// should use the conditions.
// +kubebuilder:validation:Enum=Pending;Provisioning;Running;Degraded;Failed;Suspended;Deleting
type AppServicePhase string

// AppServiceSpec is the desired state of a web application.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.replicas) && has(self.autoscaling))",fieldPath=".replicas",message="replicas and autoscaling are mutually exclusive: remove replicas to let the autoscaler set the number of pods, or remove autoscaling to set a fixed number"
// +kubebuilder:validation:XValidation:rule="!has(self.mounts) || !has(self.configMountPath) || !self.mounts.exists(mount, mount.mountPath == self.configMountPath)",fieldPath=".mounts",message="mounts must not have the mountPath configMountPath: change one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.config) || has(self.configMountPath) || self.config.all(key, key.matches('^[A-Za-z_][A-Za-z0-9_]*$'))",fieldPath=".config",message="config keys become environment variables and must consist of letters, digits and '_' and not start with a digit: rename the key, or set configMountPath to mount the keys as files"
type AppServiceSpec struct {
	// image is the OCI image to run, in the form
	// [registry[:port]/]path[:tag][@digest], for example
	// ghcr.io/acme/shop:1.4.2. Fixpoint does not watch mutable tags: change the
	// image to roll out a new version.
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^(([a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?|\\\\[[0-9a-fA-F:.]+\\\\])(:[0-9]+)?/)?[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@[A-Za-z][A-Za-z0-9]*([-+._][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?$')",message="image must be an OCI image reference: use the form [registry[:port]/]path[:tag][@digest] with a lower-case path and without a scheme, for example ghcr.io/acme/shop:1.4.2"
	Image string `json:"image"`

	// imagePullPolicy is when the kubelet pulls the image: Always, IfNotPresent
	// or Never. Defaults to Always for the tag latest and for no tag, and to
	// IfNotPresent otherwise.
	// +optional
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// port is the HTTP port of the container (1 to 65535). The Service uses the
	// same port.
	// +optional
	// +kubebuilder:default=8080
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// replicas is the number of pods, at least 2, because every eviction of a
	// single pod is an outage. If omitted, Fixpoint does not manage the number
	// of pods, and an autoscaler can set it. replicas and autoscaling are
	// mutually exclusive. `kubectl scale`, and an autoscaler that targets the
	// AppService, require replicas.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 2",message="replicas must be at least 2, because the eviction of a single pod is an outage: set 2 or more, or omit replicas to let an autoscaler set the number of pods"
	Replicas *int32 `json:"replicas,omitempty"`

	// strategy is how running pods are replaced: RollingUpdate without an
	// outage, or Recreate, which never runs two versions at the same time.
	// +optional
	// +kubebuilder:default=RollingUpdate
	Strategy v1beta1.Strategy `json:"strategy,omitempty"`

	// config is the configuration of the application. Fixpoint stores it in a
	// ConfigMap, and a change rolls the pods. The container gets the keys as
	// environment variables, or as files if configMountPath is set. At most 64
	// keys with values of up to 16384 characters each. For secret data, use env
	// with a secretKeyRef.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(key, key.size() <= 253 && key.matches('^[-._a-zA-Z0-9]+$') && key != '.' && !key.startsWith('..'))",message="config keys must consist of 1 to 253 letters, digits, '-', '_' and '.', and must not be '.' or start with '..': rename the key"
	// +kubebuilder:validation:XValidation:rule="self.all(key, self[key].size() <= 16384)",message="config values must be at most 16384 characters: shorten the value, or store larger data elsewhere"
	Config map[string]string `json:"config,omitempty"`

	// configMountPath is the directory of the container to mount config in,
	// with one file per key. If omitted, config becomes environment variables.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^(/[^/:[:cntrl:]]+)+$') && !self.matches('/[.]{1,2}(/|$)')",message="configMountPath must be an absolute path other than '/', without ':', control characters, '.', '..' and empty segments, not ending with '/': use a value such as /etc/shop"
	ConfigMountPath string `json:"configMountPath,omitempty"`

	// mounts are writable directories of the container that start empty, for
	// example /tmp. An image needs them for what it writes if its root file
	// system is read-only. At most 16.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(mount, self.exists_one(other, other.mountPath == mount.mountPath))",message="mounts must have unique mountPaths: change one of the duplicates"
	Mounts []v1beta1.AppServiceMount `json:"mounts,omitempty"`

	// env are additional environment variables of the container. A variable in
	// env overrides the config key with the same name.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	Env []corev1.EnvVar `json:"env,omitempty"`

	// resources are the resource requests and limits of the container. An
	// autoscaler with a utilization target requires the matching request.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`

	// probes are the probes of the container. Without a readiness probe, a pod
	// is ready as soon as its container runs.
	// +optional
	Probes *v1beta1.AppServiceProbes `json:"probes,omitempty"`

	// autoscaling creates a HorizontalPodAutoscaler that sets the number of
	// pods.
	// +optional
	Autoscaling *v1beta1.AppServiceAutoscaling `json:"autoscaling,omitempty"`

	// disruptionBudget creates a PodDisruptionBudget that limits voluntary
	// disruptions, such as a node drain.
	// +optional
	DisruptionBudget *v1beta1.DisruptionBudget `json:"disruptionBudget,omitempty"`

	// ingress creates an Ingress that exposes the application outside of the
	// cluster.
	// +optional
	Ingress *v1beta1.Ingress `json:"ingress,omitempty"`

	// hooks are one-time operations in the course of a rollout.
	// +optional
	Hooks *v1beta1.AppServiceHooks `json:"hooks,omitempty"`

	// imagePullSecrets are the Secrets in the same namespace to pull the image
	// with.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// serviceAccountName is the ServiceAccount of the pods. Defaults to the
	// default ServiceAccount of the namespace.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="serviceAccountName must be the name of a ServiceAccount: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit, or omit it for the default ServiceAccount"
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// automountServiceAccountToken is whether the pods mount a token of their
	// ServiceAccount. Defaults to false with podSecurityStandard Restricted, and
	// to the setting of the ServiceAccount, which mounts a token by default,
	// with Baseline.
	// +optional
	AutomountServiceAccountToken *bool `json:"automountServiceAccountToken,omitempty"`

	// podSecurityStandard is the Pod Security Standard of the pods: Baseline, or
	// Restricted, which also sets the security contexts that the restricted
	// standard requires, and mounts no ServiceAccount token by default. An image
	// that runs as root does not start with Restricted, unless
	// podSecurityContext sets another runAsUser. The default in v1beta1 is
	// Restricted.
	// +optional
	// +kubebuilder:default=Baseline
	PodSecurityStandard v1beta1.PodSecurityStandard `json:"podSecurityStandard,omitempty"`

	// podSecurityContext is the security context of the pod, merged over that of
	// podSecurityStandard. The pods must satisfy podSecurityStandard.
	// +optional
	PodSecurityContext *corev1.PodSecurityContext `json:"podSecurityContext,omitempty"`

	// containerSecurityContext is the security context of the container, merged
	// over that of podSecurityStandard. The pods must satisfy
	// podSecurityStandard.
	// +optional
	ContainerSecurityContext *corev1.SecurityContext `json:"containerSecurityContext,omitempty"`

	// nodeSelector restricts the pods to nodes with these labels.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=32
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// progressDeadlineSeconds is the time in seconds without progress after
	// which a rollout is stalled (10 to 86400).
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=86400
	ProgressDeadlineSeconds int32 `json:"progressDeadlineSeconds,omitempty"`

	// adoptionPolicy is what happens to an existing object with the name of a
	// child: Never does not change it and reports the reason NotOwned,
	// IfUnowned adopts it if it has no controller.
	// +optional
	// +kubebuilder:default=Never
	AdoptionPolicy v1beta1.AdoptionPolicy `json:"adoptionPolicy,omitempty"`

	// driftPolicy is what happens when another field manager changes a field
	// that the spec declares: Correct reverts the change, Report only reports
	// it.
	// +optional
	// +kubebuilder:default=Correct
	DriftPolicy v1beta1.DriftPolicy `json:"driftPolicy,omitempty"`

	// driftHistoryLimit is the maximum number of drifts in status.drifts (0 to
	// 50); the oldest are dropped. Defaults to 10.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=50
	DriftHistoryLimit *int32 `json:"driftHistoryLimit,omitempty"`

	// suspend suspends reconciliation: while it is true, nothing is created,
	// reverted or pruned. Deletion still works.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// AppServiceStatus is the observed state of an AppService. The controller
// computes it on every reconcile, and reads back only what it cannot observe
// again. replicas and readyReplicas have no omitempty, because zero must be
// stored and shown.
type AppServiceStatus struct {
	// observedGeneration is the metadata.generation that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// lastHandledReconcileAt is the value of the annotation
	// fixpoint.dev/reconcile-requested-at that the last reconcile observed.
	// kubectl fixpoint reconcile waits for it.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	LastHandledReconcileAt string `json:"lastHandledReconcileAt,omitempty"`

	// phase is a one-word summary for users.
	// +optional
	Phase AppServicePhase `json:"phase,omitempty"`

	// conditions are Ready, the summary, and one condition for each phase that
	// the spec configures.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// replicas is the number of pods.
	// +optional
	Replicas int32 `json:"replicas"`

	// readyReplicas is the number of ready pods.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`

	// selector is the label selector of the pods in string form. Autoscalers
	// that target the AppService use it.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Selector string `json:"selector,omitempty"`

	// url is the URL of the application: the URL of the Ingress if it is
	// configured, and the URL of the Service otherwise.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url,omitempty"`

	// hooks are the one-time operations of spec.hooks.
	// +optional
	Hooks *v1beta1.AppServiceHooksStatus `json:"hooks,omitempty"`

	// drifts are the most recent changes of other field managers to fields that
	// the spec declares, newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Drifts []AppServiceDrift `json:"drifts,omitempty"`
}

// AppServiceDrift is one change of another field manager.
type AppServiceDrift struct {
	// time is when the drift was detected.
	// +required
	Time metav1.Time `json:"time"`

	// kind is the kind of the changed object, for example Deployment.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// name is the name of the changed object, in the same namespace.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// field is the path of the changed field. It is empty if the object was
	// deleted.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Field string `json:"field,omitempty"`

	// manager is the field manager that made the change. It is empty if the API
	// server does not report it.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Manager string `json:"manager,omitempty"`

	// from is the declared value, truncated to 256 bytes.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	From string `json:"from,omitempty"`

	// to is the observed value, truncated to 256 bytes.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	To string `json:"to,omitempty"`

	// action is the response of the controller: Corrected or Reported.
	// +required
	Action v1beta1.DriftAction `json:"action"`
}

// AppService runs a web application as a Deployment and a Service, with an
// optional ConfigMap, HorizontalPodAutoscaler, PodDisruptionBudget and Ingress.
// The controller reverts changes of other field managers, and reports them in
// the status.
//
// +kubebuilder:object:root=true
// +kubebuilder:deprecatedversion:warning="fixpoint.dev/v1alpha1 AppService is deprecated; use fixpoint.dev/v1beta1 AppService"
// +kubebuilder:resource:path=appservices,singular=appservice,scope=Namespaced,shortName=asvc,categories=fixpoint
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the object is ready"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="The reason of the Ready condition"
// +kubebuilder:printcolumn:name="Pods",type=integer,JSONPath=`.status.readyReplicas`,description="The number of ready pods"
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.status.url`,description="The URL of the application"
// +kubebuilder:printcolumn:name="Phase",type=string,priority=1,JSONPath=`.status.phase`,description="A one-word summary"
// +kubebuilder:printcolumn:name="Image",type=string,priority=1,JSONPath=`.spec.image`,description="The image in the spec"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 57 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name is also the name of the Service and must consist of at most 57 lower-case letters, digits and '-', starting with a letter and ending with a letter or digit: rename the object"
type AppService struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the desired state of the application.
	// +required
	Spec AppServiceSpec `json:"spec"`

	// status is the observed state. Only the controller writes it.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1,"phase":"Pending"}
	Status AppServiceStatus `json:"status,omitzero"`
}

// AppServiceList is a list of AppServices.
//
// +kubebuilder:object:root=true
type AppServiceList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	// items is the list of AppServices.
	Items []AppService `json:"items"`
}
