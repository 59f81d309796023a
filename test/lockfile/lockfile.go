// Package lockfile holds files locked between processes, for as long as a process lives.
package lockfile

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// ErrLocked says that another process, or another caller in this one, has the lock.
var ErrLocked = errors.New("locked by another process")

// Try takes the lock of a file, which it makes if there is none, or fails with [ErrLocked]. The lock ends
// when the file is closed, at the latest with the process.
func Try(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return file, nil
	}
	_ = file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, ErrLocked
	}
	return nil, fmt.Errorf("locking %s: %w", path, err)
}

// New makes a file that is locked from the first moment in which it has its name: whoever looks for files
// that nobody has locked, to remove them, never finds this one between its being made and its being locked.
func New(path string) (*os.File, error) {
	file, err := Try(path + ".new")
	if err != nil {
		return nil, err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
