// Package v1alpha1 is the deprecated version of the API of Fixpoint. It is
// served, and converted from and to v1beta1, which is stored. Use v1beta1: see
// docs/versions.md. The package has the types that differ, and uses those of
// v1beta1 otherwise: a field that is added to them is in both versions.
//
// +kubebuilder:object:generate=true
// +groupName=fixpoint.dev
package v1alpha1
