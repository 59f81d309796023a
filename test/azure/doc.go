// Package azure runs the life of a SecureStorage against Azure: the manager, with its credential, creates an account in
// a resource group of its own, encrypts it with a key, reverts a change, and deletes it. Everything that the life
// created is removed again, also after a failure.
//
// Without the flag -azure, the same life runs against the fake cloud. docs/azure.md describes the credentials.
package azure
