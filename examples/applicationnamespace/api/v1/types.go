// Package v1 is the API of ApplicationNamespace.
//
// +kubebuilder:object:generate=true
// +groupName=example.com
package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Kind is the group, version and kind of ApplicationNamespace.
var Kind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "ApplicationNamespace"}

// AddToScheme registers ApplicationNamespace in a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(Kind.GroupVersion(), &ApplicationNamespace{}, &ApplicationNamespaceList{})
	metav1.AddToGroupVersion(scheme, Kind.GroupVersion())
	return nil
}

// ApplicationNamespace is the Namespace of its name, with what an application needs in it. It owns the Namespace:
// deleting it deletes the Namespace with everything in it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')",message="metadata.name is that of the Namespace: use at most 63 characters, and no dots"
// +kubebuilder:validation:XValidation:rule="self.metadata.name != 'default' && !self.metadata.name.startsWith('kube-')",message="metadata.name is that of a Namespace of Kubernetes: use another name"
type ApplicationNamespace struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +kubebuilder:default:={}
	Spec ApplicationNamespaceSpec `json:"spec,omitempty"`
	// +kubebuilder:default:={"observedGeneration":-1}
	Status ApplicationNamespaceStatus `json:"status,omitempty"`
}

// ApplicationNamespaceSpec is the desired state.
type ApplicationNamespaceSpec struct {
	// Adopt is the UID of an existing Namespace that no controller owns. Without it, a Namespace that exists is not
	// changed. A Namespace that is adopted is deleted with the ApplicationNamespace, as one that it created.
	Adopt types.UID `json:"adopt,omitempty"`
	// PodSecurity is the Pod Security Standard that pods have to meet.
	// +kubebuilder:validation:Enum=privileged;baseline;restricted
	// +kubebuilder:default=restricted
	PodSecurity string `json:"podSecurity,omitempty"`
	// Quota limits what all pods use together.
	Quota corev1.ResourceList `json:"quota,omitempty"`
	// Teams have access.
	// +listType=map
	// +listMapKey=group
	// +listMapKey=role
	// +kubebuilder:validation:MaxItems=100
	Teams []Team `json:"teams,omitempty"`
}

// Team is a group of users with a role.
type Team struct {
	// +kubebuilder:validation:Pattern=`^[-a-zA-Z0-9.:_]+$`
	// +kubebuilder:validation:MaxLength=200
	Group string `json:"group"`
	// Role is the name of a ClusterRole.
	// +kubebuilder:validation:Enum=view;edit;admin
	Role string `json:"role"`
}

// ApplicationNamespaceStatus is the observed state.
type ApplicationNamespaceStatus struct {
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ApplicationNamespaceList is a list of ApplicationNamespaces.
//
// +kubebuilder:object:root=true
type ApplicationNamespaceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ApplicationNamespace `json:"items"`
}
