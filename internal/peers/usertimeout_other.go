//go:build !linux

package peers

import (
	"syscall"
	"time"
)

// failAfter does nothing: only Linux has the option.
func failAfter(time.Duration) func(network, address string, raw syscall.RawConn) error { return nil }
