// Package azuresdk holds the fake cloud against clients that its authors did not write: the SDKs that Azure publishes
// for JavaScript. Each scenario is a program that goes through the life of an account, a key vault, a key or a grant
// with the SDKs as they are, and with their own endpoints. It reports what it found out, and each property of a
// response that the SDK does not know, or misses.
//
// The npm packages are pinned by package-lock.json and installed into node_modules by the tests themselves. The types
// of the SDKs are read with the TypeScript compiler.
package azuresdk
