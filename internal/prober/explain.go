package prober

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// explain is why a handshake failed. What was seen on the wire goes before what the SDK says of it.
func (w *wire) explain(ctx context.Context, err error) *Error {
	w.mu.Lock()
	seen := w.seen
	w.mu.Unlock()
	switch {
	case seen.foreign:
		return &Error{Kind: Redirected}
	case seen.large:
		return &Error{Kind: TooLarge}
	case seen.err != nil:
		return explainNetwork(seen.err)
	case seen.status >= http.StatusBadRequest:
		return explainStatus(seen.status)
	case ctx.Err() != nil:
		return &Error{Kind: Timeout}
	}
	return explainAnswer(seen, err)
}

// explainAnswer is about an answer that came in whole or in part, and with a status of success.
func explainAnswer(seen sight, err error) *Error {
	var answered *jsonrpc.Error
	switch {
	case errors.As(err, &answered) && !ofTheSDK(answered.Code):
		return &Error{Kind: Protocol, Code: answered.Code}
	case seen.broken, strings.Contains(err.Error(), "terminated without response"):
		return &Error{Kind: Disconnected}
	case strings.Contains(err.Error(), "unsupported protocol version"):
		return &Error{Kind: Protocol, Detail: "none of the server's protocol versions is known"}
	}
	return &Error{Kind: NotMCP}
}

// ofTheSDK reports whether the code is one that the SDK uses for what happens on this side.
func ofTheSDK(code int64) bool {
	return code >= -32005 && code <= -32003
}

func explainStatus(status int) *Error {
	kind := HTTPStatus
	switch status {
	case http.StatusUnauthorized:
		kind = Unauthorized
	case http.StatusForbidden:
		kind = Forbidden
	}
	return &Error{Kind: kind, Status: status}
}

func explainNetwork(err error) *Error {
	if detail := explainTLS(err); detail != "" {
		return &Error{Kind: TLS, Detail: detail}
	}
	return &Error{Kind: networkKind(err)}
}

func networkKind(err error) ErrorKind {
	var (
		dns     *net.DNSError
		network net.Error
		op      *net.OpError
	)
	switch {
	case errors.As(err, &dns):
		return DNS
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case isAny(err, syscall.ECONNRESET, syscall.EPIPE, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, context.Canceled):
		return Disconnected
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return Timeout
	case errors.As(err, &op) && op.Op == "dial":
		return Unreachable
	}
	return NotMCP
}

func explainTLS(err error) string {
	var (
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		verify    *tls.CertificateVerificationError
		record    tls.RecordHeaderError
		alert     tls.AlertError
	)
	switch {
	case errors.As(err, &authority):
		return "the certificate is not signed by a trusted authority"
	case errors.As(err, &host):
		return "the certificate is for another host"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the certificate has expired or is not valid yet"
	case errors.As(err, &verify):
		return "the certificate is not valid"
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return "the server does not speak it"
	case errors.As(err, &alert):
		return "the server refuses the handshake"
	}
	return ""
}

func isAny(err error, targets ...error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
