// Package securestorage reconciles SecureStorages: storage accounts in Azure that are encrypted with a
// customer-managed key.
//
// [Phases] lists the phases in order; each phase has a file of its name. Every reconcile reads the
// current state from the cloud (at most three calls if nothing has to change) and continues from
// there. The exception is status.grants: each grant is recorded in the status before it is created,
// because the cloud cannot list the grants of an identity that no longer exists.
//
// Deciding what to do next is separated from the calls: decide... functions are functions of values,
// and the calls are in internal/cloud. The user documentation is docs/securestorage.md.
package securestorage
