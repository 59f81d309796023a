// Package callpolicy limits what callers may send to an MCP server, and selects the tools that they can list and call.
//
// A caller has a token bucket for all requests and one for each limit of calls of tools; the server has a maximum number
// of concurrent calls, of bytes in a request, and of time for a call. Tools that are not selected are removed from the
// results of tools/list, and calls of them get the error of an unknown tool, in all versions of the protocol.
//
// The same middleware works in the proxy in front of a server that serves HTTP, and in the bridge.
package callpolicy
