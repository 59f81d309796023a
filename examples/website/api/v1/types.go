// Package v1 is the API of Website.
//
// +kubebuilder:object:generate=true
// +groupName=example.com
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is the group, version and kind of Website.
var Kind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Website"}

// AddToScheme registers Website in a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(Kind.GroupVersion(), &Website{}, &WebsiteList{})
	metav1.AddToGroupVersion(scheme, Kind.GroupVersion())
	return nil
}

// Website serves static pages under a name in a DNS zone.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Host",type=string,JSONPath=`.status.host`
type Website struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              WebsiteSpec `json:"spec"`
	// +kubebuilder:default:={"observedGeneration":-1}
	Status WebsiteStatus `json:"status,omitempty"`
}

// WebsiteSpec is the desired state.
type WebsiteSpec struct {
	// Image of the web server. It serves the files in /usr/share/nginx/html on port 8080.
	Image string `json:"image"`
	// +kubebuilder:default=2
	Replicas int32 `json:"replicas,omitempty"`
	// Pages are the served files by name. Each becomes a ConfigMap.
	// +kubebuilder:validation:MinProperties=1
	Pages map[string]string `json:"pages"`
	// Zone is the DNS zone in which the site is registered as <name>.<zone>.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="zone is immutable: create another Website"
	Zone string `json:"zone"`
}

// WebsiteStatus is the observed state.
type WebsiteStatus struct {
	ObservedGeneration int64  `json:"observedGeneration,omitempty"`
	Host               string `json:"host,omitempty"`
	ReadyReplicas      int32  `json:"readyReplicas,omitempty"`
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// WebsiteList is a list of Websites.
//
// +kubebuilder:object:root=true
type WebsiteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Website `json:"items"`
}
