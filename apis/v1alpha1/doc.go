// Package v1alpha1 is the deprecated version of the API of Fixpoint. It is
// served, and converted from and to v1beta1, which is stored. Use v1beta1: see
// docs/versions.md.
//
// +kubebuilder:object:generate=true
// +groupName=fixpoint.dev
package v1alpha1
