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

// classifyError determines why a handshake failed. HTTP and network errors take precedence over the error of
// the SDK.
func (w *probeTransport) classifyError(ctx context.Context, err error) *Error {
	w.mu.Lock()
	observed := w.observed
	w.mu.Unlock()
	switch {
	case observed.otherHost:
		return &Error{Kind: Redirected}
	case observed.rejected != nil && observed.status < http.StatusBadRequest:
		return observed.rejected
	case observed.err != nil:
		return classifyNetwork(observed.err)
	case observed.status >= http.StatusBadRequest:
		return classifyStatus(observed.status)
	case ctx.Err() != nil:
		return &Error{Kind: Timeout}
	}
	return classifyResponse(observed, err)
}

// classifyResponse classifies a response with a successful status.
func classifyResponse(observed observation, err error) *Error {
	var answered *jsonrpc.Error
	switch {
	case errors.As(err, &answered) && !isClientCode(answered.Code):
		return &Error{Kind: Protocol, Code: answered.Code}
	case observed.broken, strings.Contains(err.Error(), "terminated without response"):
		return &Error{Kind: Disconnected}
	case strings.Contains(err.Error(), "unsupported protocol version"):
		return &Error{Kind: Protocol, Detail: "the server supports no known protocol version"}
	}
	return &Error{Kind: NotMCP}
}

// isClientCode reports whether the SDK uses the code for errors of the client side.
func isClientCode(code int64) bool {
	return code >= -32005 && code <= -32003
}

func classifyStatus(status int) *Error {
	kind := HTTPStatus
	switch status {
	case http.StatusUnauthorized:
		kind = Unauthorized
	case http.StatusForbidden:
		kind = Forbidden
	}
	return &Error{Kind: kind, Status: status}
}

func classifyNetwork(err error) *Error {
	var dialed *Error
	if errors.As(err, &dialed) {
		return dialed
	}
	if detail := classifyTLS(err); detail != "" {
		return &Error{Kind: TLS, Detail: detail}
	}
	if strings.Contains(err.Error(), "response headers exceeded") { // the error of net/http has no type
		return errLongHeaders
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
	case errors.As(err, &network) && network.Timeout(): // also context.DeadlineExceeded
		return Timeout
	case errors.As(err, &op) && op.Op == "dial":
		return Unreachable
	}
	return NotMCP
}

func classifyTLS(err error) string {
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
		return "the server does not speak TLS"
	case errors.As(err, &alert):
		return "the server rejected the handshake"
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
