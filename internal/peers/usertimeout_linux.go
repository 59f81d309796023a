package peers

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// failAfter makes a connection fail if the other end does not acknowledge data for this time: the node of a pod that
// is gone sends nothing, also no reset.
func failAfter(timeout time.Duration) func(network, address string, raw syscall.RawConn) error {
	return func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(timeout.Milliseconds()))
		})
		if err != nil {
			return err
		}
		return failed
	}
}
