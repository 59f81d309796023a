package bridge

import (
	"fmt"
	"syscall"
)

// prSetChildSubreaper is PR_SET_CHILD_SUBREAPER of prctl(2).
const prSetChildSubreaper = 36

// AdoptOrphans makes this process the one that orphaned descendants fall to, as
// they do to PID 1, which it is not in a pod whose containers share processes.
func AdoptOrphans() error {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0); errno != 0 {
		return fmt.Errorf("becoming the reaper of orphans: %w", errno)
	}
	return nil
}
