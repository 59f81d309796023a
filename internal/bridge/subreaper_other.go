//go:build !linux

package bridge

// AdoptOrphans does nothing: only Linux knows of it.
func AdoptOrphans() error { return nil }
