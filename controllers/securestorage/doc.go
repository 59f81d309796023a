// Package securestorage reconciles SecureStorages: a storage account in the cloud that is encrypted
// with the customer's own key.
//
// [Phases] is the order in which that comes about; each phase has the file of its name. Nothing is
// remembered from one pass to the next: every pass reads what the cloud says now, at most three
// calls for one that is as it should be, and goes on from there. Only the grants are noted in the status,
// each before it is made, since nobody can be asked later where there are any. What there is to do and
// whether it is done are functions of values; the calls are in internal/cloud. docs/securestorage.md is
// the same for people.
package securestorage
