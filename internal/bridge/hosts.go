package bridge

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Any, in AllowedHosts or AllowedOrigins, allows all of them.
const Any = "*"

// allowList decides which hosts and origins are allowed, against DNS rebinding.
type allowList struct {
	hosts, origins []string
}

// newAllowList validates and normalizes the lists.
func newAllowList(hosts, origins []string) (allowList, error) {
	var l allowList
	for _, given := range hosts {
		host := normalHost(given)
		if host == "" || given != Any && strings.ContainsAny(given, "*/:@ ") {
			return l, fmt.Errorf("AllowedHosts: %q is not a host name: use a value such as tools.example.com, without scheme and port, or %s for all", given, Any)
		}
		l.hosts = append(l.hosts, host)
	}
	for _, given := range origins {
		origin, _ := normalOrigin(given)
		if given == Any {
			origin = Any
		}
		if origin == "" {
			return l, fmt.Errorf("AllowedOrigins: %q is not an origin: use a value such as https://app.example.com, without a path, or %s for all", given, Any)
		}
		l.origins = append(l.origins, origin)
	}
	return l, nil
}

// AllowsHosts returns whether the host of a Host header is one of hosts, an IP address or localhost.
func AllowsHosts(hosts []string) (func(hostport string) bool, error) {
	l, err := newAllowList(hosts, nil)
	if err != nil {
		return nil, err
	}
	return func(hostport string) bool { return l.allowsHost(hostOf(hostport)) }, nil
}

// check returns the error of a request whose host or origin is not allowed.
func (l allowList) check(r *http.Request) *failure {
	host := hostOf(r.Host)
	if !l.allowsHost(host) {
		return forbidden(fmt.Sprintf("host %q is not allowed: use the host name of the Service, Ingress or HTTPRoute, or add it to spec.bridge.allowedHosts (-allowed-host)", host))
	}
	origin := r.Header.Get("Origin")
	if origin != "" && !l.allowsOrigin(origin, r.Host) {
		return forbidden(fmt.Sprintf("origin %q is not allowed: add it to spec.bridge.allowedOrigins (-allowed-origin)", origin))
	}
	return nil
}

// allowsHost allows listed hosts, and those that no attacker can give an address: IP addresses and localhost.
func (l allowList) allowsHost(host string) bool {
	return isFixed(host) || slices.Contains(l.hosts, Any) || slices.Contains(l.hosts, host)
}

// isFixed reports whether no attacker can give a host another address.
func isFixed(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil || host == "localhost"
}

// allowsOrigin allows listed origins, and pages from the host that the request is sent to, unless an attacker
// can give that host an address: where all hosts are allowed, it may be one of the attacker.
func (l allowList) allowsOrigin(given, hostport string) bool {
	if slices.Contains(l.origins, Any) {
		return true
	}
	origin, scheme := normalOrigin(given)
	if origin == "" {
		return false
	}
	if slices.Contains(l.origins, origin) {
		return true
	}
	same, _ := normalOrigin(scheme + "://" + hostport)
	host := hostOf(hostport)
	return origin == same && (isFixed(host) || slices.Contains(l.hosts, host))
}

// hostOf is the normalized host of a Host header. A header whose port is not a number is no host of a list.
func hostOf(hostport string) string {
	if host, port, err := net.SplitHostPort(hostport); err == nil && isPort(port) {
		return normalHost(host)
	}
	return normalHost(strings.Trim(hostport, "[]"))
}

// isPort reports whether a port is a number, or left out after the colon.
func isPort(port string) bool {
	_, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil
}

func normalHost(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// normalOrigin is an origin with its port, or else the default port of its scheme; empty if it is not an origin.
func normalOrigin(given string) (origin, scheme string) {
	u, err := url.Parse(given)
	if err != nil || u.Scheme == "" || u.Hostname() == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.ForceQuery {
		return "", ""
	}
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	return u.Scheme + "://" + net.JoinHostPort(normalHost(u.Hostname()), port), u.Scheme
}

func forbidden(message string) *failure {
	return &failure{Status: http.StatusForbidden, Code: codeRefused, Reason: reasonForbidden, Message: message}
}
