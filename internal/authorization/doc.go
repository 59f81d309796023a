// Package authorization makes an MCP endpoint an OAuth 2.1 resource server, as the authorization chapter of the MCP
// specification (2025-11-25 and 2026-07-28) requires.
//
// A request needs an access token: a JWT that one of the configured issuers signed, for this resource. Without a valid
// one, the response names the metadata of the resource (RFC 9728), from which clients find the issuer. A token whose
// scopes do not suffice gets 403 with the scopes that are needed, also for single tools.
//
// The token ends here. What is behind the middleware gets the identity of the caller as headers, which clients
// cannot set.
package authorization
