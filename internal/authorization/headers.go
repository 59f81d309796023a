package authorization

import (
	"net/http"
	"strings"
)

// Headers with the identity of the caller, for what is behind the middleware. Characters of the subject and the issuer
// other than printable ASCII, and %, are percent-encoded.
const (
	HeaderSubject = "Fixpoint-User-Subject"
	HeaderIssuer  = "Fixpoint-User-Issuer"
	// HeaderScopes has the scopes of the token, sorted and separated by spaces.
	HeaderScopes = "Fixpoint-User-Scopes"
)

// identityPrefix begins the names of all headers with the identity.
const identityPrefix = "fixpoint-user-"

// isIdentityHeader reports whether a server may take a header for one with the identity. Some servers do not
// distinguish letter case, and - from _ and other characters.
func isIdentityHeader(name string) bool {
	if len(name) < len(identityPrefix) {
		return false
	}
	for i := range len(identityPrefix) {
		c := name[i]
		switch {
		case c >= 'A' && c <= 'Z':
			c += 'a' - 'A'
		case (c < 'a' || c > 'z') && (c < '0' || c > '9'):
			c = '-'
		}
		if c != identityPrefix[i] {
			return false
		}
	}
	return true
}

// withIdentity is the request for the server behind: with the identity, and without the token. Headers of the
// connection are removed, too, because they could name the headers with the identity to have them removed later.
func withIdentity(r *http.Request, who *identity) *http.Request {
	out := r.Clone(r.Context())
	for name := range out.Header {
		if isIdentityHeader(name) {
			delete(out.Header, name)
		}
	}
	for _, name := range []string{"Authorization", "Proxy-Authorization", "Connection", "Proxy-Connection", "Keep-Alive", "Te", "Trailer", "Upgrade"} {
		out.Header.Del(name)
	}
	out.Trailer = nil
	set(out.Header, HeaderSubject, encoded(who.subject))
	set(out.Header, HeaderIssuer, encoded(who.issuer))
	set(out.Header, HeaderScopes, strings.Join(who.scopes, " "))
	return out
}

// Caller identifies the caller of a request that [Authorizer.Protect] has let through.
func Caller(r *http.Request) string {
	return r.Header.Get(HeaderIssuer) + " " + r.Header.Get(HeaderSubject)
}

func set(header http.Header, name, value string) {
	if value != "" {
		header.Set(name, value)
	}
}

// encoded makes a value one that a header can have.
func encoded(value string) string {
	const hex = "0123456789ABCDEF"
	var out strings.Builder
	for _, c := range []byte(value) {
		if c <= ' ' || c > '~' || c == '%' {
			out.WriteString(string([]byte{'%', hex[c>>4], hex[c&15]}))
			continue
		}
		out.WriteByte(c)
	}
	return out.String()
}
