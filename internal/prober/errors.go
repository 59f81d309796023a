package prober

import (
	"fmt"
	"net/http"
)

// ErrorKind classifies failed probes by their remedy.
type ErrorKind string

// The kinds of failure.
const (
	// DNS: the host of the URL does not resolve.
	DNS ErrorKind = "DNS"
	// Refused: nothing listens on the port.
	Refused ErrorKind = "Refused"
	// Unreachable: the address has no route, or a network policy blocks it.
	Unreachable ErrorKind = "Unreachable"
	// Disconnected: the connection closed before the response was complete.
	Disconnected ErrorKind = "Disconnected"
	// Timeout: no complete response within the timeout.
	Timeout ErrorKind = "Timeout"
	// TLS: the certificate is not trusted, or the server does not speak TLS.
	TLS ErrorKind = "TLS"
	// Unauthorized: 401, the credential is missing or not accepted.
	Unauthorized ErrorKind = "Unauthorized"
	// Forbidden: 403, the credential has no permission, or the server does not accept the Host.
	Forbidden ErrorKind = "Forbidden"
	// HTTPStatus: another HTTP status that is not a success; see Error.Status.
	HTTPStatus ErrorKind = "HTTPStatus"
	// Redirected: the server redirects to another host, which probes do not follow.
	Redirected ErrorKind = "Redirected"
	// TooLarge: the response exceeds the limit of a probe.
	TooLarge ErrorKind = "TooLarge"
	// NotMCP: the response is not MCP.
	NotMCP ErrorKind = "NotMCP"
	// Protocol: the server responded to the handshake with an MCP error.
	Protocol ErrorKind = "Protocol"
	// Invalid: the target is invalid.
	Invalid ErrorKind = "Invalid"
	// NotForwarded: the API server did not connect to the replica, through which Options.Dial connects.
	NotForwarded ErrorKind = "NotForwarded"
)

// Error is the reason of a failed probe. Errors with the same cause are equal. It contains no text from
// the server or the network, which may include credentials, addresses or times.
type Error struct {
	Kind ErrorKind
	// Status is the HTTP status, or 0.
	Status int
	// Code is the JSON-RPC error code, or 0.
	Code int64
	// Detail refines the kind.
	Detail string
}

func (e *Error) Error() string {
	message := e.message()
	if e.Detail != "" {
		message += ": " + e.Detail
	}
	return message
}

func (e *Error) message() string {
	switch e.Kind {
	case Unauthorized, Forbidden, HTTPStatus:
		return fmt.Sprintf("the server responded with %d %s", e.Status, http.StatusText(e.Status))
	case Protocol:
		if e.Code != 0 {
			return fmt.Sprintf("the server responded to the handshake with JSON-RPC error %d", e.Code)
		}
	}
	return messages[e.Kind]
}

var messages = map[ErrorKind]string{
	DNS:          "the host name does not resolve",
	Refused:      "connection refused",
	Unreachable:  "the address is unreachable",
	Disconnected: "the connection closed before the response was complete",
	Timeout:      "no response within the timeout",
	TLS:          "TLS handshake failed",
	Redirected:   "the server redirects to another host",
	TooLarge:     "the response is too large",
	NotMCP:       "the response is not MCP",
	Protocol:     "unexpected response",
	Invalid:      "invalid probe configuration",
	NotForwarded: "the API server does not forward the connection to the pod",
}

// isContent reports whether the content of a response is the reason, and neither the network nor an error of the server.
// Clients with other limits may accept such content.
func (e *Error) isContent() bool { return e.Kind == TooLarge || e.Kind == NotMCP }

// closed reports whether the server denies access.
func (e *Error) closed() bool {
	return e.Kind == Unauthorized || e.Kind == Forbidden
}
