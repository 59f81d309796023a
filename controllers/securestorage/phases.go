package securestorage

import (
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// Phases lists the phases of a SecureStorage in order. Teardown runs in reverse.
//
//	StorageAccount  creates the account with a system-assigned identity; waits until it is provisioned
//	Identity        waits for the principal of the identity
//	KeyAccess       checks the key vault and the key; grants the principal access to the key
//	Encryption      encrypts the account with the key; waits until the grant is effective
//	Export          ConfigMap with the name and the endpoints of the account
//	AccountKeys     Secret with the access keys of the account
func Phases() []phases.Phase[*scope] {
	return []phases.Phase[*scope]{
		observable(storageAccount),
		observable(identity),
		observable(keyAccess),
		observable(encryption),
		export,
		accountKeys,
	}
}
