// Package cloud is the client of Azure Resource Manager: the few calls that the controllers need,
// through the official Azure SDK, with their own value types. No call waits for a long-running
// operation or retries: the state of an operation is read from the resource, and errors say when to
// retry.
//
// The endpoint and the credential come from [Config], so the same code works with Azure, other Azure
// clouds and the fake cloud.
package cloud
