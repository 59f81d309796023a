//go:build !linux || 386 || arm

package bridge

import "errors"

func checkPrivileges() error {
	return errors.New("-first-session-user is supported only on 64-bit Linux: do not set it")
}

func disallowNewPrivileges() error { return nil }

func hasProcesses(int) bool { return false }

func killAll(_, _ int) {}
