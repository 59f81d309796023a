// Package mcp tests the bridge with what its users run: the official npm
// servers, the official conformance suite, and the official SDK's client.
//
// The npm packages are pinned by package-lock.json and installed into
// node_modules by the tests themselves.
package mcp
