// Package identity tests the authorization of MCPServers with an identity provider: the OpenID Provider of
// github.com/zitadel/oidc, and the authorization code flow of the official SDK of MCP.
package identity
