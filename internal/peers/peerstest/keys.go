// Package peerstest has session keys for tests of programs with other replicas.
package peerstest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The format of keys. It is not that of the package peers, whose tests use this one.
const (
	keyBytes = 32
	keyName  = "20060102T150405Z"
)

// Keys creates a directory with a key per time of creation. All directories have the same key for the same time.
func Keys(t testing.TB, created ...time.Time) string {
	t.Helper()
	directory := t.TempDir()
	for _, at := range created {
		AddKey(t, directory, at)
	}
	return directory
}

// AddKey adds a key to a directory.
func AddKey(t testing.TB, directory string, at time.Time) {
	t.Helper()
	name := at.UTC().Format(keyName)
	secret := (name + strings.Repeat("k", keyBytes))[:keyBytes]
	if err := os.WriteFile(filepath.Join(directory, name), []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
}
