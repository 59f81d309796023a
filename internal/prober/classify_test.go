package prober

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	. "github.com/onsi/gomega"
)

func TestNetworkErrorsAreClassifiedByTheirRemedy(t *testing.T) {
	of := func(op string, err error) error { return &net.OpError{Op: op, Net: "tcp", Err: err} }
	for name, test := range map[string]struct {
		err  error
		then Error
	}{
		"no such host":             {of("dial", &net.DNSError{Err: "no such host", IsNotFound: true}), Error{Kind: DNS}},
		"no answer of DNS":         {of("dial", &net.DNSError{Err: "i/o timeout", IsTimeout: true, IsTemporary: true}), Error{Kind: DNS}},
		"nothing listens":          {of("dial", os.NewSyscallError("connect", syscall.ECONNREFUSED)), Error{Kind: Refused}},
		"no route":                 {of("dial", os.NewSyscallError("connect", syscall.EHOSTUNREACH)), Error{Kind: Unreachable}},
		"no route while reading":   {of("read", os.NewSyscallError("read", syscall.EHOSTUNREACH)), Error{Kind: NotMCP}},
		"reset":                    {of("read", os.NewSyscallError("read", syscall.ECONNRESET)), Error{Kind: Disconnected}},
		"closed while writing":     {of("write", os.NewSyscallError("write", syscall.EPIPE)), Error{Kind: Disconnected}},
		"closed":                   {fmt.Errorf("reading: %w", net.ErrClosed), Error{Kind: Disconnected}},
		"end":                      {io.EOF, Error{Kind: Disconnected}},
		"early end":                {io.ErrUnexpectedEOF, Error{Kind: Disconnected}},
		"cancelled":                {context.Canceled, Error{Kind: Disconnected}},
		"deadline of the probe":    {context.DeadlineExceeded, Error{Kind: Timeout}},
		"timeout of a connection":  {of("dial", os.NewSyscallError("connect", syscall.ETIMEDOUT)), Error{Kind: Timeout}},
		"timeout of a read":        {of("read", os.ErrDeadlineExceeded), Error{Kind: Timeout}},
		"not HTTP":                 {errors.New("malformed HTTP response"), Error{Kind: NotMCP}},
		"an unknown authority":     {x509.UnknownAuthorityError{}, Error{Kind: TLS, Detail: "the certificate is not signed by a trusted authority"}},
		"another name":             {x509.HostnameError{Certificate: &x509.Certificate{}, Host: "a"}, Error{Kind: TLS, Detail: "the certificate is for another host"}},
		"expired":                  {&tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired}}, Error{Kind: TLS, Detail: "the certificate has expired or is not valid yet"}},
		"not for servers":          {&tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.IncompatibleUsage}}, Error{Kind: TLS, Detail: "the certificate is not valid"}},
		"another certificate":      {&tls.CertificateVerificationError{Err: errors.New("x")}, Error{Kind: TLS, Detail: "the certificate is not valid"}},
		"no TLS record":            {tls.RecordHeaderError{Msg: "x"}, Error{Kind: TLS, Detail: "the server does not speak TLS"}},
		"HTTP instead of TLS":      {fmt.Errorf("x: %w", http.ErrSchemeMismatch), Error{Kind: TLS, Detail: "the server does not speak TLS"}},
		"an alert":                 {of("remote error", tls.AlertError(40)), Error{Kind: TLS, Detail: "the server rejected the handshake"}},
		"an Error of Options.Dial": {fmt.Errorf("x: %w", &Error{Kind: NotForwarded, Detail: "y"}), Error{Kind: NotForwarded, Detail: "y"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(classifyNetwork(test.err)).To(Equal(&test.then))
			g.Expect((&probeTransport{observed: observation{err: test.err}}).classifyError(t.Context(), errors.New("that of the SDK"))).To(Equal(&test.then))
		})
	}
}

func TestWhatWasObservedPrecedesTheErrorOfTheSDK(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	answered := func(code int64) error { return fmt.Errorf("calling: %w", &jsonrpc.Error{Code: code}) }
	other := errors.New("x")
	for name, test := range map[string]struct {
		ctx      context.Context
		observed observation
		err      error
		then     Error
	}{
		"another host, then a network error":    {nil, observation{otherHost: true, err: io.EOF}, other, Error{Kind: Redirected}},
		"a response that was too large":         {nil, observation{status: 200, rejected: errTooLarge}, other, Error{Kind: TooLarge}},
		"one of a redirect":                     {nil, observation{status: 399, rejected: errTooLarge}, other, Error{Kind: TooLarge}},
		"a large page of an error":              {nil, observation{status: 400, rejected: errTooLarge}, other, Error{Kind: HTTPStatus, Status: 400}},
		"a status, and the timeout":             {ended, observation{status: 503}, other, Error{Kind: HTTPStatus, Status: 503}},
		"the timeout":                           {ended, observation{status: 200}, other, Error{Kind: Timeout}},
		"the timeout while a body was read":     {ended, observation{status: 200, broken: true}, other, Error{Kind: Timeout}},
		"a body that ended":                     {nil, observation{status: 200, broken: true}, other, Error{Kind: Disconnected}},
		"an error of the server":                {nil, observation{status: 200}, answered(-32002), Error{Kind: Protocol, Code: -32002}},
		"another error of the server":           {nil, observation{status: 200}, answered(-32006), Error{Kind: Protocol, Code: -32006}},
		"an error that the SDK made":            {nil, observation{status: 200}, answered(-32003), Error{Kind: NotMCP}},
		"another error that the SDK made":       {nil, observation{status: 200}, answered(-32005), Error{Kind: NotMCP}},
		"one of those, after a body that ended": {nil, observation{status: 200, broken: true}, answered(-32004), Error{Kind: Disconnected}},
	} {
		t.Run(name, func(t *testing.T) {
			if test.ctx == nil {
				test.ctx = t.Context()
			}
			w := &probeTransport{observed: test.observed}
			NewWithT(t).Expect(w.classifyError(test.ctx, test.err)).To(Equal(&test.then))
		})
	}
}
