// Package chart has nothing but tests of what is packaged: the Helm chart against the manifests that
// kustomize makes, a release's life on a cluster, and the alerts and the dashboard against what the
// manager really serves.
package chart
