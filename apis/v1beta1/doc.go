// Package v1beta1 is the API of Fixpoint: its kinds, and the condition types
// and reasons in their status.
//
// The package imports only the Kubernetes API libraries, so that clients of the
// API have few dependencies. The typed apply configurations for Server-Side
// Apply are generated in the package applyconfiguration/apis/v1beta1.
//
// +kubebuilder:object:generate=true
// +groupName=fixpoint.dev
// +kubebuilder:ac:generate=true
// +kubebuilder:ac:output:package=applyconfiguration
package v1beta1
