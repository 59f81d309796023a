package peers

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// A sealed session id is, in base64url: the version, the length of the name of the key, the name, the nonce, and the
// sealed replica and local id. What precedes the nonce is authenticated, too.
const sealedVersion = 1

const (
	// MaxLocalID is the maximum length of what a replica calls a session, in bytes.
	MaxLocalID = 1200
	// maxSealedID is the maximum length of a sealed id, with room for the address and the name of the key.
	maxSealedID = 2 << 10
)

// errNotSealed is the error of an id that no accepted key has sealed. It does not say why, because clients choose ids.
var errNotSealed = errors.New("the session id was not sealed by a replica of this server")

// idEncoding has one encoding for each id.
var idEncoding = base64.RawURLEncoding.Strict()

// sealID returns an id that says to each replica of the server, and to nobody else, which replica has the session.
func (k *keyring) sealID(replica netip.AddrPort, local string) (string, error) {
	if len(local) > MaxLocalID {
		return "", fmt.Errorf("the id has %d bytes, and the limit is %d", len(local), MaxLocalID)
	}
	address, err := replica.MarshalBinary()
	if err != nil {
		return "", fmt.Errorf("encoding the address of the replica: %w", err)
	}
	key := k.sealing()
	head := k.head(key.name)
	nonce := make([]byte, key.seal.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	plain := append(append([]byte{byte(len(address))}, address...), local...)
	return idEncoding.EncodeToString(key.seal.Seal(append(head, nonce...), nonce, plain, k.bound(head))), nil
}

// openID returns the replica that has the session, and what that replica calls the session.
func (k *keyring) openID(id string) (replica netip.AddrPort, local string, err error) {
	// The decoder skips the ends of lines, and each session has only one id.
	if len(id) > maxSealedID || strings.ContainsAny(id, "\r\n") {
		return netip.AddrPort{}, "", errNotSealed
	}
	raw, err := idEncoding.DecodeString(id)
	if err != nil || len(raw) < 2 || raw[0] != sealedVersion || len(raw) < 2+int(raw[1]) {
		return netip.AddrPort{}, "", errNotSealed
	}
	head, rest := raw[:2+int(raw[1])], raw[2+int(raw[1]):]
	key := k.find(string(head[2:]))
	if key == nil || len(rest) < key.seal.NonceSize() {
		return netip.AddrPort{}, "", errNotSealed
	}
	plain, err := key.seal.Open(nil, rest[:key.seal.NonceSize()], rest[key.seal.NonceSize():], k.bound(head))
	if err != nil || len(plain) < 1 || len(plain) < 1+int(plain[0]) {
		return netip.AddrPort{}, "", errNotSealed
	}
	if err := replica.UnmarshalBinary(plain[1 : 1+int(plain[0])]); err != nil || !replica.IsValid() {
		return netip.AddrPort{}, "", errNotSealed
	}
	return replica, string(plain[1+int(plain[0]):]), nil
}

func (k *keyring) head(name string) []byte {
	return append([]byte{sealedVersion, byte(len(name))}, name...)
}

// bound is what an id is bound to, beside its contents.
func (k *keyring) bound(head []byte) []byte {
	return append(append([]byte{}, head...), k.server...)
}
