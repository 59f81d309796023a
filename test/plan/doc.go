// Package plan tests that the plans of the kubectl plugin equal what the manager then does: for random edits of objects
// and random changes of their children and of the cloud. The engines of the controllers run over an API server in
// memory and over the fake cloud.
package plan
