// Package authproxy is the proxy that stands in front of an MCP server in its pod, so that clients reach the server only
// with an access token, or within limits. It forwards responses as they arrive, and has no timeouts for them, because
// streams stay open.
package authproxy
