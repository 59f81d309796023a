package prober

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"
)

// tlsSessionCacheSize is the number of TLS sessions to resume per target. Servers with more replicas need
// some more full TLS handshakes.
const tlsSessionCacheSize = 8

// prepare parses the target once for all probes. Errors become the result of its probes.
func (e *entry) prepare(rewrite func(*url.URL)) {
	e.url, e.tls, e.header = nil, nil, nil
	e.invalid = e.parse(rewrite)
}

func (e *entry) parse(rewrite func(*url.URL)) *Error {
	if e.target.Transport != StreamableHTTP && e.target.Transport != SSE {
		return invalid("the transport is unknown")
	}
	parsed, err := url.Parse(e.target.URL)
	if err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https" {
		return invalid("the URL is not valid")
	}
	if rewrite != nil {
		rewrite(parsed)
	}
	e.url = parsed
	var ok bool
	if e.header, ok = header(e.target); !ok {
		return invalid("the credential contains characters that HTTP headers cannot have")
	}
	if parsed.Scheme == "https" {
		return e.configureTLS()
	}
	return nil
}

// configureTLS sets the trusted authorities. Verification cannot be disabled.
func (e *entry) configureTLS() *Error {
	e.tls = &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ClientSessionCache: tls.NewLRUClientSessionCache(tlsSessionCacheSize),
	}
	if e.target.CA == nil {
		return nil
	}
	e.tls.RootCAs = x509.NewCertPool()
	if !e.tls.RootCAs.AppendCertsFromPEM(e.target.CA) {
		return invalid("the CA bundle contains no certificate")
	}
	return nil
}

// header returns the headers of all requests; false if the credential is invalid.
func header(target Target) (http.Header, bool) {
	h := http.Header{}
	bearer := bytes.TrimSpace(target.Bearer)
	if !isHeaderValue(bearer) {
		return nil, false
	}
	if len(bearer) > 0 {
		h.Set("Authorization", "Bearer "+string(bearer))
	}
	return h, true
}

// isHeaderValue reports whether value is a valid HTTP header value.
func isHeaderValue(value []byte) bool {
	for _, c := range value {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

func invalid(detail string) *Error {
	return &Error{Kind: Invalid, Detail: detail}
}
