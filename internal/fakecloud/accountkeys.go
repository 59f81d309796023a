package fakecloud

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// accountKeyNames are the names of the access keys of an account.
var accountKeyNames = []string{"key1", "key2"}

// accountKeyLength is the number of bytes of an access key.
const accountKeyLength = 64

// keyCreatedAt is when an access key was created or last regenerated.
func (a *Account) keyCreatedAt(i int) time.Time {
	if a.KeysAt[i].IsZero() {
		return a.CreatedAt
	}
	return a.KeysAt[i]
}

// accountKey is the value of an access key.
func (s *Server) accountKey(a *Account, i int) string {
	var key []byte
	for part := 0; len(key) < accountKeyLength; part++ {
		key = append(key, s.chance.digest("account key", a.ID(), strconv.Itoa(a.Generation), accountKeyNames[i], strconv.Itoa(a.KeysRegenerated[i]), strconv.Itoa(part))...)
	}
	return base64.StdEncoding.EncodeToString(key[:accountKeyLength])
}

// AccountKeys returns the access keys of an account.
func (s *Server) AccountKeys(account string) (keys [2]string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.accountNamed(account, s.clock.Now())
	if a == nil {
		return keys, fmt.Errorf("account %s does not exist", account)
	}
	return [2]string{s.accountKey(a, 0), s.accountKey(a, 1)}, nil
}

// RegenerateKey replaces an access key of an account: key1 or key2.
func (s *Server) RegenerateKey(account, name string) error {
	i := slices.Index(accountKeyNames, name)
	if i < 0 {
		return fmt.Errorf("key %q does not exist: use key1 or key2", name)
	}
	return s.meddleAccount(name+" regenerated", account, func(a *Account, now time.Time) {
		a.KeysRegenerated[i]++
		a.KeysAt[i] = now
	})
}

// listAccountKeys changes nothing, although it is a POST.
func (s *Server) listAccountKeys(c *call) reply {
	a := s.liveAccount(c)
	if a == nil || c.now.Before(a.VisibleAt) {
		return refused(resourceNotFound(accountKind, c.path.name(0), c.path.group))
	}
	if a.State(c.now) != "Succeeded" {
		return refused(notProvisioned())
	}
	var keys []any
	for i, name := range accountKeyNames {
		keys = append(keys, map[string]any{
			"keyName": name, "value": s.accountKey(a, i), "permissions": "FULL", "creationTime": instant(a.keyCreatedAt(i)),
		})
	}
	return ok(map[string]any{"keys": keys})
}
