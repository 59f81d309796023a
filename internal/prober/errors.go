package prober

import (
	"fmt"
	"net/http"
)

// ErrorKind sorts failed probes by what has to be done about them.
type ErrorKind string

// The kinds of failure.
const (
	// DNS: the host of the URL does not resolve.
	DNS ErrorKind = "DNS"
	// Refused: nothing listens on the port.
	Refused ErrorKind = "Refused"
	// Unreachable: there is no way to the address, or none that a network policy leaves open.
	Unreachable ErrorKind = "Unreachable"
	// Disconnected: the connection ended before the answer did.
	Disconnected ErrorKind = "Disconnected"
	// Timeout: no answer, or not all of it, in the time that a probe has.
	Timeout ErrorKind = "Timeout"
	// TLS: the certificate is not trusted, or the server does not speak TLS.
	TLS ErrorKind = "TLS"
	// Unauthorized: 401, the server wants a credential, or another one.
	Unauthorized ErrorKind = "Unauthorized"
	// Forbidden: 403, the credential is not enough, or the server does not accept the Host.
	Forbidden ErrorKind = "Forbidden"
	// HTTPStatus: an HTTP status that is no success; Error.Status has it.
	HTTPStatus ErrorKind = "HTTPStatus"
	// Redirected: the server sends clients to another host, where no probe follows.
	Redirected ErrorKind = "Redirected"
	// TooLarge: the answer is larger than a probe reads.
	TooLarge ErrorKind = "TooLarge"
	// NotMCP: what answers does not speak MCP.
	NotMCP ErrorKind = "NotMCP"
	// Protocol: the server speaks MCP, and answers the handshake with an error.
	Protocol ErrorKind = "Protocol"
	// Invalid: the target cannot be probed as it is declared.
	Invalid ErrorKind = "Invalid"
)

// Error is why a probe failed. Two errors of the same cause are equal. Nothing that a server or
// the network said is repeated in it, because that may hold a credential, an address or a time.
type Error struct {
	Kind ErrorKind
	// Status is the HTTP status, if the failure is one.
	Status int
	// Code is the error code of JSON-RPC, if the failure is one.
	Code int64
	// Detail tells apart what the kind leaves open.
	Detail string
}

// Error implements error.
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
		return fmt.Sprintf("the server answers %d %s", e.Status, http.StatusText(e.Status))
	case Protocol:
		if e.Code != 0 {
			return fmt.Sprintf("the server answers the handshake with error %d", e.Code)
		}
	}
	return messages[e.Kind]
}

var messages = map[ErrorKind]string{
	DNS:          "the host name does not resolve",
	Refused:      "the connection is refused",
	Unreachable:  "the address cannot be reached",
	Disconnected: "the connection is closed before the answer is complete",
	Timeout:      "the server does not answer in time",
	TLS:          "TLS fails",
	Redirected:   "the server redirects to another host",
	TooLarge:     "the answer is too large",
	NotMCP:       "the server answers, but not with MCP",
	Protocol:     "the handshake fails",
	Invalid:      "the server cannot be probed",
}

// closed reports whether the failure is an answer by a server that lets only others in.
func (e *Error) closed() bool {
	return e.Kind == Unauthorized || e.Kind == Forbidden
}
