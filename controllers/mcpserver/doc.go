// Package mcpserver reconciles MCPServers: a server of the Model Context Protocol as a workload with
// all that it needs, and a readiness that means that the protocol answers.
//
// [Phases] is the order in which that comes about; each phase has the file of its name. What a child
// should be and when it is ready are functions of values. docs/mcpserver.md is the same for people.
package mcpserver
