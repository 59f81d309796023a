// Package mutation checks that the tests notice bugs. Its catalogue, mutations.yaml, lists bugs that
// controllers are known to have, each as a change of a few lines of this repository. The runner applies
// one mutation at a time and runs the test suites that are expected to fail.
//
// Beside the catalogue, [Instrument] makes mutants of a package by rules, and a [Scorer] finds those that no
// test of the package notices.
//
// The working tree is never changed: `go test -overlay` compiles the mutated file in place of the
// original.
package mutation
