// Package planted holds bugs that controllers are known to have, each as a change of a few lines to
// this code, and finds out whether the tests notice them: tests that pass prove little unless they
// fail on code that is wrong.
//
// A bug is never written into the tree. It is compiled in by the -overlay of go test.
package planted
