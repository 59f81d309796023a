// Package e2e tests Fixpoint as it is deployed: its images, in pods with real
// containers, on a node of its own (package node), or on the cluster that KUBECONFIG
// names with E2E_CLUSTER=current. docs/e2e.md says what it shows and how to run it.
package e2e
