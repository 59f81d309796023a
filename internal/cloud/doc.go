// Package cloud is the door to the cloud: the few calls of Azure Resource Manager that the
// controllers make, through the official SDK, as values of our own. No call here waits for a
// long-running operation or tries again by itself: what an operation has come to is read from the
// resource, and when to come back is an answer that the caller gets.
//
// The endpoint and the credential come from [Config], so that Azure, another Azure cloud and the
// fake cloud are reached by the same code.
package cloud
