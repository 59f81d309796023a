package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Limits of the schema that the controllers apply when they write a status.
const (
	// DefaultDriftHistoryLimit is the maximum number of drifts in a status if
	// spec.driftHistoryLimit is omitted; the oldest are dropped.
	DefaultDriftHistoryLimit = 10

	// MaxDrifts is the maximum of spec.driftHistoryLimit.
	MaxDrifts = 50

	// MaxDriftValueLength is the maximum length, in bytes, of a value in a
	// drift. Longer values are truncated.
	MaxDriftValueLength = 256
)

// DriftValuesAnnotation on an AppService or MCPServer, with the value
// DriftValuesShow, makes the reports of drifts quote all values. By default,
// values of environment variables, commands, arguments, annotations, HTTP
// headers and ConfigMaps are not quoted, because they may be confidential.
const (
	DriftValuesAnnotation = "fixpoint.dev/drift-values"
	DriftValuesShow       = "show"
)

// Annotations on objects of all kinds, which kubectl fixpoint sets.
const (
	// AnnotationReconcileRequest requests a reconcile, which any new value
	// triggers. The status reports the value that was handled last, of which at
	// most MaxReconcileRequestLength bytes count.
	AnnotationReconcileRequest = "fixpoint.dev/reconcile-requested-at"

	// AnnotationReason is why a user suspended, resumed or reconciled the
	// object. It is for people only.
	AnnotationReason = "fixpoint.dev/reason"

	// MaxReconcileRequestLength is the maximum length, in bytes, of
	// status.lastHandledReconcileAt.
	MaxReconcileRequestLength = 64
)

// Phase is a one-word summary of an object for users. Programs should use the
// conditions.
type Phase string

const (
	// PhasePending means that the object has not been reconciled yet. It is the
	// default of the schema.
	PhasePending Phase = "Pending"

	// PhaseProvisioning means that the controller is applying the spec.
	PhaseProvisioning Phase = "Provisioning"

	// PhaseRunning means that an AppService or MCPServer matches its spec, and
	// that an MCPServer responds to the Model Context Protocol; or that a
	// one-time operation, such as a hook, is in progress.
	PhaseRunning Phase = "Running"

	// PhaseSucceeded means that a one-time operation is complete.
	PhaseSucceeded Phase = "Succeeded"

	// PhaseReady means that the storage account of a SecureStorage matches the
	// spec.
	PhaseReady Phase = "Ready"

	// PhaseDegraded means that the object does not match its spec, but pods are
	// ready, or the storage account is encrypted with a customer-managed key.
	PhaseDegraded Phase = "Degraded"

	// PhaseFailed means that the object, or a one-time operation, cannot progress
	// until the spec, the cluster or the cloud changes.
	PhaseFailed Phase = "Failed"

	// PhaseSuspended means that reconciliation is suspended by spec.suspend.
	PhaseSuspended Phase = "Suspended"

	// PhaseDeleting means that the object is being deleted.
	PhaseDeleting Phase = "Deleting"
)

// Strategy is how the Deployment replaces running pods.
// +kubebuilder:validation:Enum=RollingUpdate;Recreate
type Strategy string

const (
	// StrategyRollingUpdate starts new pods before it stops old pods, without
	// an outage.
	StrategyRollingUpdate Strategy = "RollingUpdate"

	// StrategyRecreate stops all old pods before it starts new pods. This is an
	// outage, but two versions never run at the same time.
	StrategyRecreate Strategy = "Recreate"
)

// AdoptionPolicy is what happens to an existing object with the name of a
// child.
// +kubebuilder:validation:Enum=Never;IfUnowned
type AdoptionPolicy string

const (
	// AdoptionNever does not change the object, and reports the reason
	// NotOwned.
	AdoptionNever AdoptionPolicy = "Never"

	// AdoptionIfUnowned adopts the object if it has no controller. An object of
	// another controller is never changed.
	AdoptionIfUnowned AdoptionPolicy = "IfUnowned"
)

// DriftPolicy is what happens when another field manager changes a field that
// the spec declares.
// +kubebuilder:validation:Enum=Correct;Report
type DriftPolicy string

const (
	// DriftCorrect reverts the change and reports the field manager.
	DriftCorrect DriftPolicy = "Correct"

	// DriftReport does not revert the change, and reports it until it is
	// resolved.
	DriftReport DriftPolicy = "Report"
)

// DriftAction is the response of the controller to a drift.
// +kubebuilder:validation:Enum=Corrected;Reported
type DriftAction string

const (
	// DriftCorrected means that the change was reverted.
	DriftCorrected DriftAction = "Corrected"

	// DriftReported means that the change was not reverted.
	DriftReported DriftAction = "Reported"
)

// DisruptionBudget configures a PodDisruptionBudget. Exactly one of
// its fields is set.
//
// +kubebuilder:validation:XValidation:rule="has(self.minAvailable) != has(self.maxUnavailable)",message="disruptionBudget needs exactly one of minAvailable and maxUnavailable: set one and remove the other"
type DisruptionBudget struct {
	// minAvailable is the minimum number of pods that must stay available, as a
	// number or a percentage.
	// +optional
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 2147483647 : self.matches('^(100|[1-9]?[0-9])%$')",message="minAvailable must be a number from 0 to 2147483647, or a percentage from '0%' to '100%': use a value such as 2 or '50%'"
	MinAvailable *intstr.IntOrString `json:"minAvailable,omitempty"`

	// maxUnavailable is the maximum number of pods that may be unavailable, as
	// a number or a percentage.
	// +optional
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 2147483647 : self.matches('^(100|[1-9]?[0-9])%$')",message="maxUnavailable must be a number from 0 to 2147483647, or a percentage from '0%' to '100%': use a value such as 1 or '25%'"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// Ingress configures an Ingress with one host and path.
type Ingress struct {
	// host is the DNS name, without a scheme, port or wildcard.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$') && !self.matches('^(0*(25[0-5]|2[0-4][0-9]|1?[0-9]{1,2})([.]|$)){4}$')",message="host must be a DNS name in lower case, not an IP address, and without scheme, port, path or wildcard: use a value such as shop.example.com"
	Host string `json:"host"`

	// path is the URL path prefix of the application.
	// +optional
	// +kubebuilder:default="/"
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/') && !self.matches('//|/[.]{1,2}(/|$)|%2[fF]')",message="path must start with '/', without '.', '..' and empty segments and '%2F': use a value such as /shop"
	Path string `json:"path,omitempty"`

	// ingressClassName is the IngressClass of the Ingress. Defaults to the
	// default IngressClass of the cluster, and follows it when it changes.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="ingressClassName must be the name of an IngressClass: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit, or omit it for the default of the cluster"
	IngressClassName *string `json:"ingressClassName,omitempty"`

	// tlsSecretName is the Secret in the same namespace with the TLS
	// certificate for host. If omitted, the Ingress serves plain HTTP.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="tlsSecretName must be the name of a Secret: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit, or omit it for plain HTTP"
	TLSSecretName string `json:"tlsSecretName,omitempty"`

	// annotations are added to the Ingress for the ingress controller.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Drift is one change of another field manager.
type Drift struct {
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

	// desired is the declared value, truncated to 256 bytes.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Desired string `json:"desired,omitempty"`

	// found is the value that the field manager set, truncated to 256 bytes.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Found string `json:"found,omitempty"`

	// action is the response of the controller: Corrected or Reported.
	// +required
	Action DriftAction `json:"action"`
}
