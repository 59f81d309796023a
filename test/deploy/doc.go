// Package deploy puts the manager onto a local cluster as its manifests say: they are applied by
// kubectl, and the program runs beside the simulated nodes with the arguments and the environment of
// its Deployment, as the service account that the Deployment names, with nothing but the rights that
// the manifests give to it.
package deploy
