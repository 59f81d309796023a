package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodSecurityStandard is a level of the Pod Security Standards.
// +kubebuilder:validation:Enum=Baseline;Restricted
type PodSecurityStandard string

const (
	// PodSecurityBaseline adds nothing to the pods, and allows what the
	// baseline standard allows.
	PodSecurityBaseline PodSecurityStandard = "Baseline"

	// PodSecurityRestricted adds what the restricted standard requires, and
	// allows only what it allows.
	PodSecurityRestricted PodSecurityStandard = "Restricted"
)

// Condition types of the optional phases of AppService that MCPServer does not
// have, and their reasons.
const (
	// ConditionPreDeployReady says whether the Job of spec.hooks.preDeploy has
	// succeeded for the current version of what it runs.
	ConditionPreDeployReady = "PreDeployReady"

	// ReasonHookFailed: the Job of a hook has failed; the message says why. The
	// Deployment is left unchanged. Correct what the hook runs, or delete the
	// Job to run it again.
	ReasonHookFailed = "HookFailed"
)

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
	Strategy Strategy `json:"strategy,omitempty"`

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
	Mounts []AppServiceMount `json:"mounts,omitempty"`

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
	Probes *AppServiceProbes `json:"probes,omitempty"`

	// autoscaling creates a HorizontalPodAutoscaler that sets the number of
	// pods.
	// +optional
	Autoscaling *AppServiceAutoscaling `json:"autoscaling,omitempty"`

	// disruptionBudget creates a PodDisruptionBudget that limits voluntary
	// disruptions, such as a node drain.
	// +optional
	DisruptionBudget *DisruptionBudget `json:"disruptionBudget,omitempty"`

	// ingress creates an Ingress that exposes the application outside of the
	// cluster.
	// +optional
	Ingress *Ingress `json:"ingress,omitempty"`

	// hooks are one-time operations in the course of a rollout.
	// +optional
	Hooks *AppServiceHooks `json:"hooks,omitempty"`

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
	// podSecurityContext sets another runAsUser. Objects that were created in
	// v1alpha1 keep its default, Baseline.
	// +optional
	// +kubebuilder:default=Restricted
	PodSecurityStandard PodSecurityStandard `json:"podSecurityStandard,omitempty"`

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
	AdoptionPolicy AdoptionPolicy `json:"adoptionPolicy,omitempty"`

	// driftPolicy is what happens when another field manager changes a field
	// that the spec declares: Correct reverts the change, Report only reports
	// it.
	// +optional
	// +kubebuilder:default=Correct
	DriftPolicy DriftPolicy `json:"driftPolicy,omitempty"`

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

// AppServiceHooks are one-time operations in the course of a rollout.
type AppServiceHooks struct {
	// preDeploy runs a Job that must succeed before the Deployment changes, for
	// example a migration of a database. The Job runs once for each version of
	// what it runs: a change of the fields below, or of a field of the spec that
	// its pod has in common with those of the application. While it runs, and if
	// it fails, the existing pods are left unchanged and go on serving.
	// +optional
	PreDeploy *AppServiceHook `json:"preDeploy,omitempty"`
}

// AppServiceHook is the pod of a Job: that of the application, without port and
// probes, and with these differences.
//
// +kubebuilder:validation:XValidation:rule="has(self.image) || has(self.command) || has(self.args)",message="preDeploy needs image, command or args, because it would otherwise run the application itself, which does not end: set command to a value such as [/app/migrate, up]"
type AppServiceHook struct {
	// image is the OCI image to run. Defaults to spec.image.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^(([a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?|\\\\[[0-9a-fA-F:.]+\\\\])(:[0-9]+)?/)?[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@[A-Za-z][A-Za-z0-9]*([-+._][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?$')",message="image must be an OCI image reference: use the form [registry[:port]/]path[:tag][@digest] with a lower-case path and without a scheme, for example ghcr.io/acme/shop:1.4.2"
	Image string `json:"image,omitempty"`

	// command is the program to run instead of the entrypoint of the image,
	// with its first arguments, without a shell. At most 64 elements of up to
	// 4096 characters each.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="self.size() == 0 || self[0] != ''",message="command must start with the program to run: use a value such as [/app/migrate, up]"
	Command []string `json:"command,omitempty"`

	// args are the arguments of command, or of the entrypoint of the image. At
	// most 256 elements of up to 16384 characters each.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=16384
	Args []string `json:"args,omitempty"`

	// env are additional environment variables. A variable in env overrides the
	// variable with the same name in spec.env.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	Env []corev1.EnvVar `json:"env,omitempty"`

	// resources are the resource requests and limits. Defaults to
	// spec.resources.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// activeDeadlineSeconds is the time in seconds after which the Job fails if
	// it has not succeeded (1 to 604800). Without it, the Job may take any time.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`
}

// AppServiceMount is a volume and its mount path.
type AppServiceMount struct {
	// name is the name of the volume in the pod.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && self != 'config' && !self.startsWith('fixpoint-')",message="name must consist of lower-case letters, digits and '-', starting and ending with a letter or digit, and must not be 'config' or start with 'fixpoint-', which are reserved for Fixpoint: use a value such as tmp"
	Name string `json:"name"`

	// mountPath is the directory of the container to mount the volume in.
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^(/[^/:[:cntrl:]]+)+$') && !self.matches('/[.]{1,2}(/|$)')",message="mountPath must be an absolute path other than '/', without ':', control characters, '.', '..' and empty segments, not ending with '/': use a value such as /tmp"
	MountPath string `json:"mountPath"`

	// emptyDir is a directory that is empty when the pod starts and is deleted
	// with the pod.
	// +required
	EmptyDir MCPServerEmptyDir `json:"emptyDir"`
}

// AppServiceProbes are the probes of the container.
type AppServiceProbes struct {
	// readiness determines whether a pod receives traffic.
	// +optional
	Readiness *AppServiceProbe `json:"readiness,omitempty"`

	// liveness determines whether the container is restarted.
	// +optional
	Liveness *AppServiceProbe `json:"liveness,omitempty"`

	// startup delays the other probes until it has succeeded once.
	// +optional
	Startup *AppServiceProbe `json:"startup,omitempty"`
}

// AppServiceProbe is an HTTP GET that succeeds with a status from 200 to 399.
type AppServiceProbe struct {
	// path is the path of the HTTP request.
	// +optional
	// +kubebuilder:default="/"
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/')",message="path must start with '/': use a value such as /healthz"
	Path string `json:"path,omitempty"`

	// port is the port of the HTTP request (1 to 65535). Defaults to the port
	// of the application.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`

	// initialDelaySeconds is the delay in seconds between the start of the
	// container and the first probe (0 to 3600).
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	InitialDelaySeconds int32 `json:"initialDelaySeconds,omitempty"`

	// periodSeconds is the interval between probes in seconds (1 to 3600).
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	PeriodSeconds int32 `json:"periodSeconds,omitempty"`

	// timeoutSeconds is the timeout of a probe in seconds (1 to 3600).
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`

	// failureThreshold is the number of consecutive failures after which the
	// probe fails (1 to 1000).
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	FailureThreshold int32 `json:"failureThreshold,omitempty"`
}

// AppServiceAutoscaling configures a HorizontalPodAutoscaler.
//
// +kubebuilder:validation:XValidation:rule="self.maxReplicas >= self.minReplicas",fieldPath=".maxReplicas",message="maxReplicas must not be less than minReplicas: raise maxReplicas or lower minReplicas"
// +kubebuilder:validation:XValidation:rule="has(self.targetCPUUtilizationPercent) || has(self.targetMemoryUtilizationPercent)",message="autoscaling needs at least one target: set targetCPUUtilizationPercent (80 is usual), targetMemoryUtilizationPercent, or both"
type AppServiceAutoscaling struct {
	// minReplicas is the minimum number of pods, at least 2.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:XValidation:rule="self >= 2",message="minReplicas must be at least 2, because the eviction of a single pod is an outage: set 2 or more"
	MinReplicas int32 `json:"minReplicas,omitempty"`

	// maxReplicas is the maximum number of pods, not less than minReplicas.
	// +required
	MaxReplicas int32 `json:"maxReplicas"`

	// targetCPUUtilizationPercent is the target CPU utilization, averaged over
	// the pods, in percent of the requests (1 to 1000).
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	TargetCPUUtilizationPercent *int32 `json:"targetCPUUtilizationPercent,omitempty"`

	// targetMemoryUtilizationPercent is the target memory utilization, averaged
	// over the pods, in percent of the requests (1 to 1000).
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	TargetMemoryUtilizationPercent *int32 `json:"targetMemoryUtilizationPercent,omitempty"`
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
	// +kubebuilder:validation:Enum=Pending;Provisioning;Running;Degraded;Failed;Suspended;Deleting
	Phase Phase `json:"phase,omitempty"`

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
	Hooks *AppServiceHooksStatus `json:"hooks,omitempty"`

	// drifts are the most recent changes of other field managers to fields that
	// the spec declares, newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Drifts []Drift `json:"drifts,omitempty"`
}

// AppServiceHooksStatus is the observed state of the hooks.
type AppServiceHooksStatus struct {
	// preDeploy is the observed state of spec.hooks.preDeploy.
	// +optional
	PreDeploy *AppServiceHookStatus `json:"preDeploy,omitempty"`
}

// AppServiceHookStatus is the observed state of a hook.
type AppServiceHookStatus struct {
	// phase is a one-word summary for users: Pending before the Job is created,
	// Running, Failed, or Succeeded once the operation of the current version is
	// complete. It is empty if the spec has no such hook.
	// +optional
	// +kubebuilder:validation:Enum=Pending;Running;Succeeded;Failed
	Phase Phase `json:"phase,omitempty"`

	// version is a digest of what the hook of the current spec runs. The name of
	// its Job ends with it.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version,omitempty"`

	// succeededVersions are the versions for which the hook has succeeded, and
	// for which it does not run again, last used first; the last 32 are kept.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=63
	SucceededVersions []string `json:"succeededVersions,omitempty"`
}

// AppService runs a web application as a Deployment and a Service, with an
// optional ConfigMap, HorizontalPodAutoscaler, PodDisruptionBudget and Ingress.
// The controller reverts changes of other field managers, and reports them in
// the status.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
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
