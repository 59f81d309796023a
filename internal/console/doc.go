// Package console serves the web console: pages and an HTTP interface for the objects of Fixpoint.
//
// The console has no rights of its own. Each request to the API server carries the credential of the user who asked:
// that of a kubeconfig, a bearer token with which the user has signed in, or one that an authenticating proxy passes.
package console
