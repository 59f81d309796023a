//go:build linux && !386 && !arm

package bridge

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// checkPrivileges returns an error if the bridge cannot run processes as other users.
func checkPrivileges() error {
	const needed = 1<<unix.CAP_CHOWN | 1<<unix.CAP_KILL | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID
	var data [2]unix.CapUserData // version 3 writes both
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0]); err != nil {
		return fmt.Errorf("reading the capabilities: %w", err)
	}
	if os.Geteuid() != 0 || data[0].Effective&needed != needed {
		return errors.New("-first-session-user (spec.bridge.firstSessionUser) requires user 0 and the capabilities CHOWN, KILL, SETGID and SETUID: " +
			"set runAsUser and capabilities.add in the security context of the container, or do not set it")
	}
	return nil
}

// disallowNewPrivileges applies to this thread and the processes that it starts: they gain no privileges by executing a file.
func disallowNewPrivileges() error {
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
}

// hasProcesses reports whether a process of the user exists, including those that are not yet reaped.
func hasProcesses(id int) bool {
	_, err := unix.Getpriority(unix.PRIO_USER, id)
	return !errors.Is(err, unix.ESRCH)
}

// killAll kills all processes of a user, also those that fork all the time: the kernel sends a signal to all processes
// that a user may signal at once, and excludes those of the sender. So a thread becomes the user. Its real and saved user is
// the killer: otherwise, the processes could signal the thread, and with it the bridge.
func killAll(id, killer int) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // The thread ends with the goroutine, because it is never unlocked.
		_, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(killer), uintptr(id), uintptr(killer))
		if errno == 0 {
			_ = syscall.Kill(-1, syscall.SIGKILL) // None may be left.
		}
	}()
	<-done
}
