package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fixpoint-dev/fixpoint/test/lockfile"
)

const directoryPrefix = "fixpoint-cluster-"

// directory is the directory of a cluster. A temporary one is locked while its process runs, so that the next cluster can
// remove the directories of killed processes.
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
		return nil, fmt.Errorf("creating a directory: %w", err)
	}
	lock, err := lockfile.New(lockOf(path))
	if err != nil {
		return nil, fmt.Errorf("locking the directory %s: %w", path, err)
	}
	return &directory{path: path, lock: lock}, nil
}

func keptDirectory(path string) (*directory, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("finding the directory %s: %w", path, err)
	}
	if err := os.MkdirAll(absolute, 0o700); err != nil {
		return nil, fmt.Errorf("creating a directory: %w", err)
	}
	return &directory{path: absolute}, nil
}

func (d *directory) file(name string) string { return filepath.Join(d.path, name) }

// remove removes a temporary directory.
func (d *directory) remove() error {
	if d.lock == nil {
		return nil
	}
	err := errors.Join(os.RemoveAll(d.path), os.Remove(lockOf(d.path)))
	_ = d.lock.Close()
	return err
}

// lockOf returns a path beside the directory, so that the lock can be held until the directory is removed.
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
