package cloud

import (
	"crypto/sha1" //nolint:gosec // a name-based UUID is SHA-1 by its definition (RFC 9562, 5.5), and secures nothing
	"fmt"
	"strings"
)

// CryptoUserRole is the ID of the built-in role Key Vault Crypto Service Encryption User, which permits
// only wrapping and unwrapping keys. See
// https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/security.
const CryptoUserRole = "e147488a-f6f5-4113-8e2d-b22465e65bf6"

// AccountName derives the account name from the UID of an object. It is unique, stable and valid: at most
// 24 characters of a-z and 0-9.
func AccountName(uid string) string {
	sum := sha1.Sum([]byte("storage account of " + uid)) //nolint:gosec // see above
	const letters = "abcdefghijklmnopqrstuvwxyz234567"
	name := strings.Builder{}
	name.WriteString("fx")
	for _, b := range sum[:] {
		name.WriteByte(letters[b%32])
	}
	return name.String()
}

// grantName derives the name of a role assignment, a UUID, from its content, so that creating it again
// is idempotent.
func grantName(scope, principalID string) string {
	sum := sha1.Sum([]byte(strings.ToLower(scope + "|" + principalID + "|" + CryptoUserRole))) //nolint:gosec // see above
	sum[6] = sum[6]&0x0f | 0x50                                                                // version 5
	sum[8] = sum[8]&0x3f | 0x80                                                                // variant 10
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
