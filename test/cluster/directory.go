package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fixpoint-dev/fixpoint/test/lockfile"
)

const directoryPrefix = "fixpoint-cluster-"

// directory is a cluster's folder. A temporary one is locked for as long as its
// process lives, so that the next cluster can remove what a killed process left.
type directory struct {
	path string
	lock *os.File
}

func newDirectory(kept string) (*directory, error) {
	if kept != "" {
		return keptDirectory(kept)
	}
	removeAbandoned(os.TempDir())
	path, err := os.MkdirTemp("", directoryPrefix)
	if err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}
	lock, err := lockfile.New(lockOf(path))
	if err != nil {
		return nil, fmt.Errorf("locking the folder %s: %w", path, err)
	}
	return &directory{path: path, lock: lock}, nil
}

func keptDirectory(path string) (*directory, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("finding the folder %s: %w", path, err)
	}
	if err := os.MkdirAll(absolute, 0o700); err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}
	return &directory{path: absolute}, nil
}

func (d *directory) file(name string) string { return filepath.Join(d.path, name) }

// remove removes a temporary folder.
func (d *directory) remove() error {
	if d.lock == nil {
		return nil
	}
	err := errors.Join(os.RemoveAll(d.path), os.Remove(lockOf(d.path)))
	_ = d.lock.Close()
	return err
}

// lockOf is beside the folder, not in it, so that the lock can be held until the
// folder is gone.
func lockOf(path string) string { return path + ".lock" }

// removeAbandoned removes the folders in a temporary folder that processes left
// behind. One whose lock does not exist yet is being created; failures are left to
// the next time.
func removeAbandoned(temporary string) {
	locks, err := filepath.Glob(filepath.Join(temporary, directoryPrefix+"*.lock"))
	if err != nil {
		return
	}
	for _, path := range locks {
		lock, err := lockfile.Try(path)
		if err != nil {
			continue
		}
		d := &directory{path: path[:len(path)-len(".lock")], lock: lock}
		_ = d.remove()
	}
}
