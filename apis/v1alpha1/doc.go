// Package v1alpha1 is the API of Fixpoint: the kinds that a user declares, and
// the condition types and reasons that the status of those kinds speaks in.
//
// The package imports nothing but the Kubernetes API libraries, so that a
// program that only reads or creates our objects stays small. The typed apply
// configurations for Server-Side Apply are generated into the package
// applyconfiguration/apis/v1alpha1 below this one.
//
// +kubebuilder:object:generate=true
// +groupName=fixpoint.dev
// +kubebuilder:ac:generate=true
// +kubebuilder:ac:output:package=applyconfiguration
package v1alpha1
