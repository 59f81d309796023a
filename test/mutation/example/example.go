// Package example is a tiny package for the tests of package mutation to mutate.
package example

// Clamp returns n, but at most limit.
func Clamp(n, limit int) int { return min(n, limit) }
