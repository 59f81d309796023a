package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Limits that the schema sets and that code which writes a status has to keep.
const (
	// MaxDrifts is how many drifts a status holds; the oldest make room.
	MaxDrifts = 10

	// MaxDriftValueLength is how long, in bytes, a value in a drift may be;
	// longer ones are cut by whoever writes the status.
	MaxDriftValueLength = 256
)

// AppServiceStrategy says how running pods are replaced by new ones.
// +kubebuilder:validation:Enum=RollingUpdate;Recreate
type AppServiceStrategy string

const (
	// StrategyRollingUpdate starts new pods before it stops old ones: no outage.
	StrategyRollingUpdate AppServiceStrategy = "RollingUpdate"

	// StrategyRecreate stops all old pods before it starts new ones: an outage,
	// but two versions never run at the same time.
	StrategyRecreate AppServiceStrategy = "Recreate"
)

// AdoptionPolicy says what becomes of an object that already exists under the
// name of a child.
// +kubebuilder:validation:Enum=Never;IfUnowned
type AdoptionPolicy string

const (
	// AdoptionNever leaves the object alone and reports the reason NotOwned.
	AdoptionNever AdoptionPolicy = "Never"

	// AdoptionIfUnowned takes the object over when it has no controlling owner.
	// An object that another controller owns is left alone all the same.
	AdoptionIfUnowned AdoptionPolicy = "IfUnowned"
)

// DriftPolicy says what happens when somebody else changes what the spec declares.
// +kubebuilder:validation:Enum=Correct;Report
type DriftPolicy string

const (
	// DriftCorrect puts the field back and reports who had changed it.
	DriftCorrect DriftPolicy = "Correct"

	// DriftReport changes nothing and reports the drift until it is gone.
	DriftReport DriftPolicy = "Report"
)

// AppServicePhase sums an AppService up in one word, for people. Programs read
// the conditions.
// +kubebuilder:validation:Enum=Pending;Provisioning;Running;Degraded;Failed;Suspended;Deleting
type AppServicePhase string

const (
	// AppServicePending has been accepted and not been worked on yet.
	AppServicePending AppServicePhase = "Pending"

	// AppServiceProvisioning is on its way to what the spec declares.
	AppServiceProvisioning AppServicePhase = "Provisioning"

	// AppServiceRunning is as the spec declares.
	AppServiceRunning AppServicePhase = "Running"

	// AppServiceDegraded serves, but not as the spec declares.
	AppServiceDegraded AppServicePhase = "Degraded"

	// AppServiceFailed cannot go on until the spec or the cluster changes.
	AppServiceFailed AppServicePhase = "Failed"

	// AppServiceSuspended is left alone, as spec.suspend asks.
	AppServiceSuspended AppServicePhase = "Suspended"

	// AppServiceDeleting is being torn down.
	AppServiceDeleting AppServicePhase = "Deleting"
)

// DriftAction says what was done about a drift.
// +kubebuilder:validation:Enum=Corrected;Reported
type DriftAction string

const (
	// DriftCorrected means that the field was put back.
	DriftCorrected DriftAction = "Corrected"

	// DriftReported means that the field was left as it was found.
	DriftReported DriftAction = "Reported"
)

// AppServiceSpec declares a web application.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.replicas) && has(self.autoscaling))",fieldPath=".replicas",message="replicas and autoscaling exclude each other: remove replicas to let the autoscaler decide, or remove autoscaling to fix the number"
// +kubebuilder:validation:XValidation:rule="!has(self.config) || has(self.configMountPath) || self.config.all(key, key.matches('^[A-Za-z_][A-Za-z0-9_]*$'))",fieldPath=".config",message="config keys become environment variables and must be letters, digits and '_', not starting with a digit: rename the key, or set configMountPath to get the keys as files"
type AppServiceSpec struct {
	// image is the OCI image to run, as [registry[:port]/]path[:tag][@digest],
	// for example ghcr.io/acme/shop:1.4.2. A tag that moves is not followed:
	// change the image to roll out a new one.
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^(([a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?|\\\\[[0-9a-fA-F:.]+\\\\])(:[0-9]+)?/)?[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@[A-Za-z][A-Za-z0-9]*([-+._][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?$')",message="image must be an OCI image reference: write it as [registry[:port]/]path[:tag][@digest], the path in lower case and without a scheme, for example ghcr.io/acme/shop:1.4.2"
	Image string `json:"image"`

	// port is where the container listens for HTTP (1 to 65535). The
	// Service listens on the same number.
	// +optional
	// +kubebuilder:default=8080
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// replicas is the number of pods, at least 2: with a single one every
	// update of a node is an outage. Left out, Fixpoint does not touch the
	// number, and an autoscaler may own it; setting both replicas and
	// autoscaling is refused. `kubectl scale`, and an autoscaler of your own
	// that targets the AppService, need it set.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 2",message="replicas must be at least 2, because a single pod is an outage whenever it is moved: set 2 or more, or leave replicas out to let an autoscaler own the number"
	Replicas *int32 `json:"replicas,omitempty"`

	// strategy says how running pods are replaced: RollingUpdate without an
	// outage, or Recreate, which never runs two versions at the same time.
	// +optional
	// +kubebuilder:default=RollingUpdate
	Strategy AppServiceStrategy `json:"strategy,omitempty"`

	// config is the application's configuration: it becomes a ConfigMap, and a
	// change of it rolls the pods. The container gets it as environment
	// variables, or as files when configMountPath is set. At most 64 keys with
	// values of up to 16384 characters each; for what is secret use env with a
	// secretKeyRef.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(key, key.size() <= 253 && key.matches('^[-._a-zA-Z0-9]+$') && key != '.' && !key.startsWith('..'))",message="config keys must be 1 to 253 letters, digits, '-', '_' and '.', and neither be '.' nor start with '..': rename the key"
	// +kubebuilder:validation:XValidation:rule="self.all(key, self[key].size() <= 16384)",message="config values must be at most 16384 characters: shorten the value, or mount larger data from elsewhere"
	Config map[string]string `json:"config,omitempty"`

	// configMountPath is the directory in the container where config appears,
	// each key a file. Left out, config becomes environment variables.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^/[^:]+$') && !self.matches('(^|/)[.][.](/|$)')",message="configMountPath must be an absolute path other than '/', without ':' and without '..': write for example /etc/shop"
	ConfigMountPath string `json:"configMountPath,omitempty"`

	// env is added to the container's environment, and wins over a key of
	// config of the same name.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	Env []corev1.EnvVar `json:"env,omitempty"`

	// resources are the container's requests and limits. An autoscaler that
	// targets a share of CPU or memory needs the request for it.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`

	// probes tell Kubernetes how the application is. Left out, a pod counts as
	// ready as soon as its container runs.
	// +optional
	Probes *AppServiceProbes `json:"probes,omitempty"`

	// autoscaling lets a HorizontalPodAutoscaler choose the number of pods.
	// +optional
	Autoscaling *AppServiceAutoscaling `json:"autoscaling,omitempty"`

	// disruptionBudget limits how many pods a voluntary disruption, such as the
	// drain of a node, may take away at a time.
	// +optional
	DisruptionBudget *AppServiceDisruptionBudget `json:"disruptionBudget,omitempty"`

	// ingress makes the application reachable from outside of the cluster.
	// +optional
	Ingress *AppServiceIngress `json:"ingress,omitempty"`

	// imagePullSecrets are Secrets of the namespace to pull the image with.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// serviceAccountName is the ServiceAccount that the pods run as. Left out,
	// it is the default one of the namespace.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="serviceAccountName must be the name of a ServiceAccount: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit, or leave it out for the default one"
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// nodeSelector keeps the pods to nodes that carry these labels.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=32
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// progressDeadlineSeconds is how many seconds a rollout may go without
	// progress before it counts as stalled (10 to 86400).
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=86400
	ProgressDeadlineSeconds int32 `json:"progressDeadlineSeconds,omitempty"`

	// adoptionPolicy says what becomes of an object that already exists under
	// the name of a child: Never leaves it alone and says so, IfUnowned takes it
	// over when no controller owns it.
	// +optional
	// +kubebuilder:default=Never
	AdoptionPolicy AdoptionPolicy `json:"adoptionPolicy,omitempty"`

	// driftPolicy says what happens when somebody else changes what is declared
	// here: Correct puts it back, Report only tells.
	// +optional
	// +kubebuilder:default=Correct
	DriftPolicy DriftPolicy `json:"driftPolicy,omitempty"`

	// suspend stops all work on this AppService: nothing is created, corrected
	// or pruned until it is false again. Deletion still works.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// AppServiceProbes are the questions that Kubernetes asks the application.
type AppServiceProbes struct {
	// readiness decides whether a pod gets traffic.
	// +optional
	Readiness *AppServiceProbe `json:"readiness,omitempty"`

	// liveness decides whether a container is restarted.
	// +optional
	Liveness *AppServiceProbe `json:"liveness,omitempty"`

	// startup holds the other two back until it has succeeded once.
	// +optional
	Startup *AppServiceProbe `json:"startup,omitempty"`
}

// AppServiceProbe is an HTTP GET that succeeds with a status from 200 to 399.
type AppServiceProbe struct {
	// path to ask for.
	// +optional
	// +kubebuilder:default="/"
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/')",message="path must start with '/': write for example /healthz"
	Path string `json:"path,omitempty"`

	// port to ask (1 to 65535). Left out, it is the port of the application.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`

	// initialDelaySeconds is how long after the start of the container the first
	// question is asked, in seconds (0 to 3600).
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	InitialDelaySeconds int32 `json:"initialDelaySeconds,omitempty"`

	// periodSeconds is the time from one question to the next, in seconds (1 to
	// 3600).
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	PeriodSeconds int32 `json:"periodSeconds,omitempty"`

	// timeoutSeconds is how long an answer may take, in seconds (1 to 3600).
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`

	// failureThreshold is how many questions in a row have to fail (1 to 1000).
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	FailureThreshold int32 `json:"failureThreshold,omitempty"`
}

// AppServiceAutoscaling bounds and steers a HorizontalPodAutoscaler.
//
// +kubebuilder:validation:XValidation:rule="self.maxReplicas >= self.minReplicas",fieldPath=".maxReplicas",message="maxReplicas must not be less than minReplicas: raise maxReplicas or lower minReplicas"
// +kubebuilder:validation:XValidation:rule="has(self.targetCPUUtilizationPercent) || has(self.targetMemoryUtilizationPercent)",message="autoscaling needs something to measure: set targetCPUUtilizationPercent (80 is usual), targetMemoryUtilizationPercent, or both"
type AppServiceAutoscaling struct {
	// minReplicas is the smallest number of pods, at least 2.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:XValidation:rule="self >= 2",message="minReplicas must be at least 2, because a single pod is an outage whenever it is moved: set 2 or more"
	MinReplicas int32 `json:"minReplicas,omitempty"`

	// maxReplicas is the largest number of pods; not less than minReplicas.
	// +required
	MaxReplicas int32 `json:"maxReplicas"`

	// targetCPUUtilizationPercent is the CPU use to aim at, averaged over the
	// pods, in percent of what they request (1 to 1000).
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	TargetCPUUtilizationPercent *int32 `json:"targetCPUUtilizationPercent,omitempty"`

	// targetMemoryUtilizationPercent is the memory use to aim at, averaged over
	// the pods, in percent of what they request (1 to 1000).
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	TargetMemoryUtilizationPercent *int32 `json:"targetMemoryUtilizationPercent,omitempty"`
}

// AppServiceDisruptionBudget is the bound of a PodDisruptionBudget: exactly one
// of its fields is set.
//
// +kubebuilder:validation:XValidation:rule="has(self.minAvailable) != has(self.maxUnavailable)",message="disruptionBudget needs exactly one of minAvailable and maxUnavailable: set one and remove the other"
type AppServiceDisruptionBudget struct {
	// minAvailable is how many pods have to stay, as a number or a percentage.
	// +optional
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 2147483647 : self.matches('^(100|[1-9]?[0-9])%$')",message="minAvailable must be a number from 0 to 2147483647, or a percentage from '0%' to '100%': write for example 2 or '50%'"
	MinAvailable *intstr.IntOrString `json:"minAvailable,omitempty"`

	// maxUnavailable is how many pods may be away, as a number or a percentage.
	// +optional
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 2147483647 : self.matches('^(100|[1-9]?[0-9])%$')",message="maxUnavailable must be a number from 0 to 2147483647, or a percentage from '0%' to '100%': write for example 1 or '25%'"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// AppServiceIngress is one host and path under which the application is reached.
type AppServiceIngress struct {
	// host is the DNS name, without a scheme, port or wildcard.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="host must be a DNS name in lower case, without scheme, port, path or wildcard: write for example shop.example.com"
	Host string `json:"host"`

	// path is the prefix of the URL's path that leads to the application.
	// +optional
	// +kubebuilder:default="/"
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/')",message="path must start with '/': write for example /shop"
	Path string `json:"path,omitempty"`

	// ingressClassName is the IngressClass that serves this host. Left out, it
	// is the default one of the cluster, also when another one becomes that.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="ingressClassName must be the name of an IngressClass: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit, or leave it out for the cluster's default"
	IngressClassName *string `json:"ingressClassName,omitempty"`

	// tlsSecretName is the Secret of the namespace with the certificate for
	// host. Left out, the application is reached by plain HTTP.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="tlsSecretName must be the name of a Secret: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit, or leave it out for plain HTTP"
	TLSSecretName string `json:"tlsSecretName,omitempty"`

	// annotations are put on the Ingress, for its ingress controller to read.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`
}

// AppServiceStatus is what was observed of an AppService. It is computed anew
// on every pass, and nothing is ever read back from it.
type AppServiceStatus struct {
	// observedGeneration is the metadata.generation that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase sums the AppService up in one word, for people.
	// +optional
	Phase AppServicePhase `json:"phase,omitempty"`

	// conditions say how things stand: Ready over all, and one for each phase.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// replicas is the number of pods that there are.
	//
	// No omitempty here and below: zero is an answer, and it has to be stored
	// and shown like any other.
	// +optional
	Replicas int32 `json:"replicas"`

	// readyReplicas is the number of pods that are ready.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`

	// selector finds the pods, as a label selector in its string form. An
	// autoscaler that targets the AppService reads it.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Selector string `json:"selector,omitempty"`

	// url is where the application is reached: through the Ingress if there is
	// one, within the cluster otherwise.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url,omitempty"`

	// drifts are the last changes, newest first, that somebody else made to
	// what the spec declares.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Drifts []AppServiceDrift `json:"drifts,omitempty"`
}

// AppServiceDrift is one field that somebody else changed.
type AppServiceDrift struct {
	// time when the drift was noticed.
	// +required
	Time metav1.Time `json:"time"`

	// kind of the changed object, for example Deployment.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// name of the changed object. It lies in the namespace of the AppService.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// field that was changed, as a path. It is left out when the object as a
	// whole was deleted.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Field string `json:"field,omitempty"`

	// manager is the field manager that made the change; empty when the API
	// server does not tell.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Manager string `json:"manager,omitempty"`

	// from is the value that was declared, cut to 256 bytes.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	From string `json:"from,omitempty"`

	// to is the value that was found, cut to 256 bytes.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	To string `json:"to,omitempty"`

	// action says what was done about it.
	// +required
	Action DriftAction `json:"action"`
}

// AppService runs a web application and keeps it as declared: it becomes a
// Deployment, a Service and a ConfigMap, with an autoscaler, a disruption budget
// and an Ingress where asked for. A change that somebody else makes to them is
// corrected, and the status says who made it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=appservices,singular=appservice,scope=Namespaced,shortName=asvc,categories=fixpoint
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether everything the spec declares exists and works"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is ready, or is not"
// +kubebuilder:printcolumn:name="Pods",type=integer,JSONPath=`.status.readyReplicas`,description="Pods that are ready"
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.status.url`,description="Where the application is reached"
// +kubebuilder:printcolumn:name="Phase",type=string,priority=1,JSONPath=`.status.phase`,description="One word for people"
// +kubebuilder:printcolumn:name="Image",type=string,priority=1,JSONPath=`.spec.image`,description="The image that is declared"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 57 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name names the Service too and must be at most 57 lower-case letters, digits and '-', starting with a letter and ending with a letter or digit: choose such a name"
type AppService struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard metadata of an object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec declares the application.
	// +required
	Spec AppServiceSpec `json:"spec"`

	// status is what was observed. Only the controller writes it.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status AppServiceStatus `json:"status,omitzero"`
}

// AppServiceList is a list of AppServices.
//
// +kubebuilder:object:root=true
type AppServiceList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard metadata of a list.
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	// items are the AppServices.
	Items []AppService `json:"items"`
}
