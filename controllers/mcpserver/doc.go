// Package mcpserver reconciles MCPServers: it runs a server of the Model Context Protocol with all
// objects that it needs, and reports it as ready once MCP handshakes succeed.
//
// [Phases] lists the phases in order; each phase is in the file of its name. The desired state of a child
// and its readiness are pure functions. docs/mcpserver.md is the user documentation.
package mcpserver
