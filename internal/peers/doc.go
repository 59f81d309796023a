// Package peers lets every replica of an MCP server accept the requests of all sessions: a session id says, encrypted, which
// replica has the session, and other replicas forward its requests there over mutual TLS. What arrives from a replica is
// never forwarded again. The bridge and the proxy use it.
package peers
