package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fixpoint-dev/fixpoint/test/lockfile"
)

const statePrefix = "fixpoint-e2e-"

// stateDir is the directory of one run. Its lock is held during the run, so that the next run can remove the directories
// of killed runs.
type stateDir struct {
	path string
	lock *os.File
}

func newStateDir() (*stateDir, error) {
	removeAbandoned()
	dir, err := os.MkdirTemp("", statePrefix)
	if err != nil {
		return nil, fmt.Errorf("creating a directory: %w", err)
	}
	// Containers access their root file systems through it.
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, fmt.Errorf("creating a directory: %w", err)
	}
	lock, err := lockfile.New(dir + ".lock")
	if err != nil {
		return nil, fmt.Errorf("locking %s: %w", dir, err)
	}
	return &stateDir{path: dir, lock: lock}, nil
}

func (s *stateDir) remove() {
	defer s.lock.Close()
	if os.Getenv(keepVariable) != "" {
		progress("kept " + s.path)
		return
	}
	if err := errors.Join(os.RemoveAll(s.path), os.Remove(s.path+".lock")); err != nil {
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
		if err != nil { // the run is in progress
			continue
		}
		s := &stateDir{path: path[:len(path)-len(".lock")], lock: lock}
		_ = os.RemoveAll(s.path)
		_ = os.Remove(path)
		_ = lock.Close()
	}
}
