package securestorage

import (
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// Phases is the order in which a SecureStorage comes about. It is torn down in reverse.
//
//	StorageAccount  the account, with an identity of its own; waits until the cloud has made it
//	Identity        waits until the directory knows the identity's principal
//	KeyAccess       vault and key are fit, and the principal may use the key
//	Encryption      the account is encrypted with the key; waits until the grant has spread
func Phases() []phases.Phase[*scope] {
	return []phases.Phase[*scope]{
		storageAccount,
		identity,
		keyAccess,
		encryption,
	}
}
