package bridge

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
)

// users are the users of server processes. One is used again only after all of its processes are gone.
type users struct {
	free chan int
	// folder has a directory for each user that is not free. Only root can change its entries.
	folder string
	// killer is the real user of the thread that kills processes. No process has it.
	killer int
}

// user is the user and the group of a server process and of its descendants. nil is the user of the bridge.
type user struct {
	id   int
	home string
	of   *users
}

// newUsers returns the users of sessions, and the one of processes without a session: those after the first,
// which is 0 if all processes run as the user of the bridge.
func newUsers(first, sessions int) (ofSessions, shared *users, err error) {
	if first == 0 {
		return nil, nil, nil
	}
	if err := checkPrivileges(); err != nil {
		return nil, nil, err
	}
	folder, err := homes(first)
	if err != nil {
		return nil, nil, fmt.Errorf("creating a directory for -first-session-user: %w; mount an emptyDir volume at %s", err, os.TempDir())
	}
	killer := first + sessions + 1
	return &users{userIDs(first, sessions), folder, killer}, &users{userIDs(first+sessions, 1), folder, killer}, nil
}

// validUsers reports whether the users are not those of a system: from 60000, systemd has those of 16 bits, and nobody.
func validUsers(first, sessions int) bool {
	last := first + sessions + 1
	return first == 0 || first >= 10000 && (last < 60000 || first > math.MaxUint16) && last <= math.MaxInt32
}

// userIDs are first in, first out, so that the owner of files that a session left elsewhere is not soon used again.
func userIDs(first, count int) chan int {
	free := make(chan int, count)
	for id := first; id < first+count; id++ {
		free <- id
	}
	return free
}

// homes creates the empty directory for those of the users, in place of that of a bridge that was killed.
func homes(first int) (string, error) {
	parent := os.TempDir()
	info, err := os.Stat(parent)
	if err == nil && info.Mode()&fs.ModeSticky == 0 {
		// Otherwise other users can replace the directory. An emptyDir volume is not sticky.
		err = os.Chmod(parent, info.Mode()|fs.ModeSticky)
	}
	if err != nil {
		return "", err
	}
	folder := filepath.Join(parent, "mcp-bridge-"+strconv.Itoa(first))
	return folder, errors.Join(removeAll(folder), os.Mkdir(folder, 0o700), os.Chmod(folder, 0o711)) //nolint:gosec // users pass it
}

// take waits for a free user. There is always one for a session, as it counts towards MaxSessions until its user is free.
func (u *users) take(log logr.Logger) (*user, error) {
	if u == nil {
		return nil, nil
	}
	taken := &user{id: <-u.free, of: u}
	home, err := os.MkdirTemp(u.folder, "")
	if err == nil {
		taken.home = home
		err = os.Lchown(home, taken.id, taken.id)
	}
	if err != nil {
		taken.release(log)
		return nil, fmt.Errorf("creating the directory of a server process: %w", err)
	}
	return taken, nil
}

// close removes the directory. All users must be free.
func (u *users) close() {
	if u != nil {
		_ = os.Remove(u.folder)
	}
}

// own makes the user that of a process with these attributes and pipes.
func (u *user) own(attr *syscall.ProcAttr, p *pipes) error {
	if u == nil {
		return nil
	}
	attr.Sys.Credential = &syscall.Credential{Uid: uint32(u.id), Gid: uint32(u.id)} //nolint:gosec // see validUsers
	attr.Env = slices.DeleteFunc(attr.Env, func(variable string) bool {
		return strings.HasPrefix(variable, "HOME=") || strings.HasPrefix(variable, "TMPDIR=")
	})
	attr.Env = append(attr.Env, "HOME="+u.home, "TMPDIR="+u.home)
	var errs []error
	for _, pipe := range []*os.File{p.childStdin, p.childStdout, p.childErr} {
		errs = append(errs, pipe.Chown(u.id, u.id)) // for servers that open /dev/stderr
	}
	return errors.Join(append(errs, disallowNewPrivileges())...)
}

// release kills the processes of the user, and makes it free once they are reaped and its directory is removed.
func (u *user) release(log logr.Logger) {
	if u == nil {
		return
	}
	for tick := time.Tick(reapInterval); hasProcesses(u.id); <-tick {
		killAll(u.id, u.of.killer)
	}
	if err := removeAll(u.home); err != nil {
		log.Error(err, "Failed to remove the directory of a server process", "directory", u.home)
	}
	u.of.free <- u.id
}

// reapInterval is how often release checks whether killed processes were reaped.
const reapInterval = 5 * time.Millisecond

// removeAll removes a directory of users without processes. Root has no capability that overrides modes, so it takes
// each directory before its entries. From then on, nobody can replace these by links.
func removeAll(folder string) error {
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		return errors.Join(os.Lchown(path, 0, 0), os.Chmod(path, 0o700)) //nolint:gosec // a directory
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, os.RemoveAll(folder))
}
