package bridge

import (
	"fmt"
	"syscall"
)

// prSetChildSubreaper is PR_SET_CHILD_SUBREAPER of prctl(2).
const prSetChildSubreaper = 36

// AdoptOrphans makes this process a subreaper: it becomes the parent of orphaned
// descendants. It is needed if the containers of a pod share the process namespace,
// where the bridge is not PID 1.
func AdoptOrphans() error {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0); errno != 0 {
		return fmt.Errorf("setting the child subreaper: %w", errno)
	}
	return nil
}
