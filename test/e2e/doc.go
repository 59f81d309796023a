// Package e2e tests the deployed manager, with its images in real containers: on a node of its own (package node), or
// on the cluster of KUBECONFIG with E2E_CLUSTER=current. docs/e2e.md describes the tests.
package e2e
