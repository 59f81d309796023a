package prober

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"
)

// resumptions is how many TLS sessions are kept for a target, to be resumed by its next probes. A
// server with more replicas than that makes a few more full handshakes.
const resumptions = 8

// prepare turns the target into what its probes need, once and not in every probe. What is wrong
// with a target is found here, and told as the outcome of its probes.
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
	var sendable bool
	if e.header, sendable = header(e.target); !sendable {
		return invalid("a header or the credential holds what no HTTP header can")
	}
	if parsed.Scheme == "https" {
		return e.trust()
	}
	return nil
}

// trust says whose certificates are accepted. There is no way to accept any.
func (e *entry) trust() *Error {
	e.tls = &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ClientSessionCache: tls.NewLRUClientSessionCache(resumptions),
	}
	if e.target.CA == nil {
		return nil
	}
	e.tls.RootCAs = x509.NewCertPool()
	if !e.tls.RootCAs.AppendCertsFromPEM(e.target.CA) {
		return invalid("the CA bundle holds no certificate")
	}
	return nil
}

// header is what every request carries; false if no request could.
func header(target Target) (http.Header, bool) {
	h := make(http.Header, len(target.Headers)+1)
	for name, value := range target.Headers {
		if !token(name) || !text(value) {
			return nil, false
		}
		h.Set(name, string(value))
	}
	bearer := bytes.TrimSpace(target.Bearer)
	if !text(bearer) {
		return nil, false
	}
	if len(bearer) > 0 {
		h.Set("Authorization", "Bearer "+string(bearer))
	}
	return h, true
}

// text reports whether a header can have this value.
func text(value []byte) bool {
	for _, c := range value {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// token reports whether a header can have this name.
func token(name string) bool {
	for _, c := range []byte(name) {
		if c <= ' ' || c >= 0x7f || bytes.IndexByte([]byte(`"(),/:;<=>?@[\]{}`), c) >= 0 {
			return false
		}
	}
	return name != ""
}

func invalid(detail string) *Error {
	return &Error{Kind: Invalid, Detail: detail}
}
