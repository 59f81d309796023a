// Package mcp tests the bridge and the proxy with what their users run: the official npm
// servers, the official conformance suite, and the clients of the official SDKs.
//
// The npm packages are pinned by package-lock.json and installed into
// node_modules by the tests themselves.
package mcp
