package authorization

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
)

// Issuer is an authorization server whose tokens are accepted.
type Issuer struct {
	// URL is the issuer in tokens, compared exactly.
	URL string
	// Keys is the URL of its JSON Web Key Set, or the absolute path of a file with it. If empty, it is discovered from
	// the metadata of the issuer (RFC 8414 or OpenID Connect Discovery).
	Keys string
}

// ToolScopes are the scopes that calls of some tools need in addition.
type ToolScopes struct {
	// Pattern is the name of a tool, in which * stands for any characters.
	Pattern string
	Scopes  []string
}

// Options configure [New].
type Options struct {
	// Issuers are the accepted issuers, at least one.
	Issuers []Issuer
	// Resources are the URLs of the endpoint, at least one. A token must be for one of them. Clients are told the one
	// whose host they use, and the first one otherwise.
	Resources []string
	// Scopes are those that every request needs.
	Scopes []string
	// Tools are further scopes for calls of tools. If several entries match, the scopes of all are needed.
	Tools []ToolScopes
	// Exchange, if set, gives the server another token of the caller.
	Exchange *Exchange
	// MaxMessageBytes is the maximum size of a message if Tools is set; 0 is 4 MiB.
	MaxMessageBytes int
	// Roots verify the certificates of issuers; nil are those of the system.
	Roots *x509.CertPool
	// AllowHTTP allows issuers and keys at http URLs of hosts other than localhost. Who can change such responses can
	// sign tokens.
	AllowHTTP bool

	Log logr.Logger
	// Refused, if set, is called with the reason of each refusal, of which there are few.
	Refused func(reason string)

	// now is the time; nil is time.Now.
	now func() time.Time
}

const defaultMaxMessageBytes = 4 << 20

// complete sets defaults and validates the options.
func (o *Options) complete() error {
	if o.MaxMessageBytes == 0 {
		o.MaxMessageBytes = defaultMaxMessageBytes
	}
	if o.Log.GetSink() == nil {
		o.Log = logr.Discard()
	}
	if o.now == nil {
		o.now = time.Now
	}
	var errs []error
	if len(o.Issuers) == 0 {
		errs = append(errs, errors.New("no issuer: set at least one"))
	}
	if len(o.Resources) == 0 {
		errs = append(errs, errors.New("no resource: set the URL of the MCP endpoint"))
	}
	errs = append(errs, o.checkExchange())
	for i, issuer := range o.Issuers {
		errs = append(errs, o.checkIssuer(issuer))
		if slices.ContainsFunc(o.Issuers[:i], func(other Issuer) bool { return other.URL == issuer.URL }) {
			errs = append(errs, fmt.Errorf("issuer %q is repeated: remove one", issuer.URL))
		}
	}
	for _, scope := range o.allScopes() {
		if !isScope(scope) {
			errs = append(errs, fmt.Errorf(`scope %q must consist of printable ASCII characters other than space, '"' and '\': correct it`, scope))
		}
	}
	for _, tool := range o.Tools {
		if tool.Pattern == "" || len(tool.Scopes) == 0 {
			errs = append(errs, fmt.Errorf("tool %q must be a name with at least one scope: correct it", tool.Pattern))
		}
	}
	return errors.Join(errs...)
}

func (o *Options) checkIssuer(issuer Issuer) error {
	if issuer.URL == "" {
		return errors.New("an issuer is empty: set its URL")
	}
	switch {
	case issuer.Keys == "":
		if err := o.checkURL(issuer.URL); err != nil {
			return fmt.Errorf("issuer %q: %w", issuer.URL, err)
		}
	case !filepath.IsAbs(issuer.Keys):
		if err := o.checkURL(issuer.Keys); err != nil {
			return fmt.Errorf("keys %q of the issuer %q: %w", issuer.Keys, issuer.URL, err)
		}
	}
	return nil
}

// checkURL allows URLs that nobody on the network can answer for.
func (o *Options) checkURL(given string) error {
	u, err := url.Parse(given)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http" {
		return errors.New("it is not a URL: use a value such as https://id.example.com")
	}
	if u.Scheme == "http" && !o.AllowHTTP && !isLoopback(u.Hostname()) {
		return errors.New("it must use https, because who can change the response can sign tokens, or gets them")
	}
	return nil
}

func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

// allScopes are all scopes that any request needs, sorted.
func (o *Options) allScopes() []string {
	all := slices.Clone(o.Scopes)
	for _, tool := range o.Tools {
		all = append(all, tool.Scopes...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// isScope is the grammar of a scope in RFC 6749, section 3.3.
func isScope(scope string) bool {
	for _, c := range []byte(scope) {
		if c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return scope != ""
}

// resource is a URL of the endpoint.
type resource struct {
	// id is the URL as given, and canonical the form for comparisons.
	id, canonical string
	// origin, host and path are parts of the URL; path is empty for the root.
	origin, host, path string
}

func newResource(given string) (resource, error) {
	u, err := url.Parse(given)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || u.RawQuery != "" || u.Scheme != "https" && u.Scheme != "http" {
		return resource{}, fmt.Errorf("resource %q is not the URL of an endpoint: use a value such as https://tools.example.com/mcp, without query and fragment", given)
	}
	path := strings.TrimSuffix(u.EscapedPath(), "/")
	return resource{
		id: given, canonical: canonicalURL(given), origin: u.Scheme + "://" + u.Host,
		host: withoutPort(u.Host, u.Scheme), path: path,
	}, nil
}

// canonicalURL is the form in which resources are compared: clients and issuers may write the scheme and the host in
// upper case, the default port, and a slash at the end.
func canonicalURL(given string) string {
	u, err := url.Parse(given)
	if err != nil || u.Host == "" {
		return given
	}
	canonical := strings.ToLower(u.Scheme) + "://" + withoutPort(u.Host, strings.ToLower(u.Scheme)) + strings.TrimSuffix(u.EscapedPath(), "/")
	if u.RawQuery != "" {
		canonical += "?" + u.RawQuery
	}
	if u.Fragment != "" {
		canonical += "#" + u.EscapedFragment()
	}
	if u.User != nil {
		return given
	}
	return canonical
}

// withoutPort is a host in lower case, without the default port of the scheme.
func withoutPort(hostport, scheme string) string {
	hostport = strings.ToLower(hostport)
	host, port, err := net.SplitHostPort(hostport)
	if err != nil || port != map[string]string{"http": "80", "https": "443"}[scheme] {
		return hostport
	}
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}
