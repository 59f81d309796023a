package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fixpoint-dev/fixpoint/test/lockfile"
)

const statePrefix = "fixpoint-e2e-"

// state is the folder of one run. It is locked for as long as the run lives, so that
// the next one can remove what a killed run left.
type state struct {
	dir  string
	lock *os.File
}

func newState() (*state, error) {
	removeAbandoned()
	dir, err := os.MkdirTemp("", statePrefix)
	if err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}
	// Containers look through it for their roots.
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}
	lock, err := lockfile.New(dir + ".lock")
	if err != nil {
		return nil, fmt.Errorf("locking %s: %w", dir, err)
	}
	return &state{dir: dir, lock: lock}, nil
}

func (s *state) remove() {
	defer s.lock.Close()
	if os.Getenv(keepVariable) != "" {
		progress("kept " + s.dir)
		return
	}
	if err := errors.Join(os.RemoveAll(s.dir), os.Remove(s.dir+".lock")); err != nil {
		progress(err.Error())
	}
}

func removeAbandoned() {
	locks, err := filepath.Glob(filepath.Join(os.TempDir(), statePrefix+"*.lock"))
	if err != nil {
		return
	}
	for _, path := range locks {
		lock, err := lockfile.Try(path)
		if err != nil { // its run is under way
			continue
		}
		s := &state{dir: path[:len(path)-len(".lock")], lock: lock}
		_ = os.RemoveAll(s.dir)
		_ = os.Remove(path)
		_ = lock.Close()
	}
}
