//go:build !linux

package bridge

// AdoptOrphans does nothing; only Linux supports it.
func AdoptOrphans() error { return nil }
