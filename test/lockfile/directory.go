package lockfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// Directory is a temporary directory that is locked while its process runs, so that another process can remove it if this
// one is killed.
type Directory struct {
	Path string
	// lock is beside the directory, so that it can be held until the directory is removed.
	lock *os.File
}

const suffix = ".lock"

// NewDirectory creates a directory whose name begins with the prefix, and removes those that killed processes have left.
func NewDirectory(parent, prefix string) (*Directory, error) {
	RemoveAbandoned(parent, prefix)
	path, err := os.MkdirTemp(parent, prefix)
	if err != nil {
		return nil, err
	}
	lock, err := New(path + suffix)
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	return &Directory{Path: path, lock: lock}, nil
}

// RemoveAbandoned removes the directories with the prefix that no process has locked. What cannot be removed is left to the
// next call.
func RemoveAbandoned(parent, prefix string) {
	locks, err := filepath.Glob(filepath.Join(parent, prefix+"*"+suffix))
	if err != nil {
		return
	}
	for _, path := range locks {
		if lock, err := Try(path); err == nil {
			_ = (&Directory{Path: strings.TrimSuffix(path, suffix), lock: lock}).Remove()
		}
	}
}

// Remove removes the directory, and then the file of its lock, by which [RemoveAbandoned] finds it.
func (d *Directory) Remove() error {
	defer d.lock.Close()
	if err := os.RemoveAll(d.Path); err != nil {
		return err
	}
	return os.Remove(d.Path + suffix)
}

// Keep removes the file of the lock alone, so that the directory is never removed.
func (d *Directory) Keep() error {
	defer d.lock.Close()
	return os.Remove(d.Path + suffix)
}
