package mcpserver

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// endpointOf is the URL of the server within the cluster.
func endpointOf(server *v1beta1.MCPServer) string {
	scheme := "http"
	if server.Spec.Protocol.Scheme == v1beta1.SchemeHTTPS {
		scheme = "https"
	}
	return fmt.Sprintf("%s://%s.%s.svc:%d%s", scheme, server.Name, server.Namespace, server.Spec.Port, pathOf(server))
}

// isBelow reports whether a path has the prefix, compared element by element as Ingress and Gateway do.
func isBelow(path, prefix string) bool {
	prefix = strings.TrimSuffix(prefix, "/")
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

// externalEndpoint is the URL of the server outside the cluster, or empty and why it is unknown.
func externalEndpoint(s *scope) (of, why string) {
	switch {
	case s.server.Spec.Ingress != nil:
		return ingressURL(s.server)
	case s.server.Spec.HTTPRoute != nil && s.plans:
		return plannedURL(s.server)
	case s.server.Spec.HTTPRoute != nil:
		return gatewayURL(s)
	default:
		return "", ""
	}
}

func ingressURL(server *v1beta1.MCPServer) (of, why string) {
	in := server.Spec.Ingress
	if !isBelow(pathOf(server), in.Path) {
		return rewrittenURL(server)
	}
	scheme := "http"
	if in.TLSSecretName != "" {
		scheme = "https"
	}
	return scheme + "://" + in.Host + pathOf(server), ""
}

// gatewayURL is the URL at the first listener that serves the route. Other listeners are not shown: the user may
// have no permission to read the Gateway.
func gatewayURL(s *scope) (of, why string) {
	in := s.server.Spec.HTTPRoute
	if !s.gateways.isWatched() {
		return "", "the external URL is unknown: the manager has no permission to read Gateways"
	}
	for _, parent := range in.ParentRefs {
		gateway := s.gateways.gateway(namespaceOf(parent, s.server), parent.Name)
		if gateway == nil {
			continue
		}
		admits := func(listener *gatewayv1.Listener) bool { return admitsRoute(s, parent, listener) }
		if listener, host := listenerFor(gateway, parent.SectionName, in.Hostnames, admits); listener != nil {
			return listenerURL(listener, host) + externalPath(s.server), ""
		}
	}
	return "", "the external URL is unknown: no Gateway in spec.httpRoute.parentRefs has a listener for the host name that allows routes of this namespace; correct spec.httpRoute or the Gateway"
}

// plannedURL is the URL in a plan: at the listener that the manager has found. The manager may be permitted to read Gateways
// that the user is not, and the reverse.
func plannedURL(server *v1beta1.MCPServer) (of, why string) {
	found, err := url.Parse(server.Status.ExternalEndpoint)
	if err != nil || found.Host == "" {
		return "", "the external URL is unknown: status.externalEndpoint has none, and a plan does not read Gateways"
	}
	hostnames := server.Spec.HTTPRoute.Hostnames
	if len(hostnames) > 0 && !slices.Contains(hostnames, found.Hostname()) {
		port := found.Port()
		found.Host = hostnames[0]
		if port != "" {
			found.Host = net.JoinHostPort(hostnames[0], port)
		}
	}
	return found.Scheme + "://" + found.Host + externalPath(server), ""
}

func namespaceOf(parent v1beta1.MCPServerParentRef, server *v1beta1.MCPServer) string {
	return cmp.Or(parent.Namespace, server.Namespace)
}

// admitsRoute reports whether a listener allows routes of the namespace of the MCPServer. Only the controller of the
// Gateway knows whether a selector matches the namespace, so its status of the HTTPRoute decides.
func admitsRoute(s *scope, parent v1beta1.MCPServerParentRef, listener *gatewayv1.Listener) bool {
	from := gatewayv1.NamespacesFromSame
	if allowed := listener.AllowedRoutes; allowed != nil && allowed.Namespaces != nil && allowed.Namespaces.From != nil {
		from = *allowed.Namespaces.From
	}
	switch from {
	case gatewayv1.NamespacesFromAll:
		return true
	case gatewayv1.NamespacesFromSame:
		return namespaceOf(parent, s.server) == s.server.Namespace
	case gatewayv1.NamespacesFromSelector:
		return isAccepted(s.gateways.route(s.server.Namespace, s.server.Name), parent, s.server)
	default:
		return false
	}
}

// isAccepted reports whether a Gateway has accepted a route. A nil route is not accepted.
func isAccepted(route *gatewayv1.HTTPRoute, parent v1beta1.MCPServerParentRef, server *v1beta1.MCPServer) bool {
	if route == nil {
		return false
	}
	return slices.ContainsFunc(route.Status.Parents, func(status gatewayv1.RouteParentStatus) bool {
		reference := status.ParentRef
		return string(reference.Name) == parent.Name &&
			string(ptr.Deref(reference.Namespace, gatewayv1.Namespace(server.Namespace))) == namespaceOf(parent, server) &&
			string(ptr.Deref(reference.SectionName, "")) == parent.SectionName &&
			meta.IsStatusConditionTrue(status.Conditions, string(gatewayv1.RouteConditionAccepted))
	})
}

// listenerFor finds an HTTPS listener, or else an HTTP listener, that admits the route, and the host under which it
// is reached.
func listenerFor(gateway *gatewayv1.Gateway, section string, hostnames []string, admits func(*gatewayv1.Listener) bool) (*gatewayv1.Listener, string) {
	for _, protocol := range []gatewayv1.ProtocolType{gatewayv1.HTTPSProtocolType, gatewayv1.HTTPProtocolType} {
		for i := range gateway.Spec.Listeners {
			listener := &gateway.Spec.Listeners[i]
			if listener.Protocol != protocol || section != "" && string(listener.Name) != section || !admits(listener) {
				continue
			}
			if host := hostFor(gateway, listener, hostnames); host != "" {
				return listener, host
			}
		}
	}
	return nil, ""
}

// hostFor is the first host name of the route that the listener serves; without host names in the route,
// it is the host name of the listener, or the address of the Gateway.
func hostFor(gateway *gatewayv1.Gateway, listener *gatewayv1.Listener, hostnames []string) string {
	own := ""
	if listener.Hostname != nil {
		own = string(*listener.Hostname)
	}
	for _, hostname := range hostnames {
		if matchesHostname(own, hostname) {
			return hostname
		}
	}
	switch {
	case len(hostnames) > 0 || strings.HasPrefix(own, "*"):
		return ""
	case own != "":
		return own
	case len(gateway.Status.Addresses) > 0:
		return bracketIPv6(gateway.Status.Addresses[0].Value)
	default:
		return ""
	}
}

func matchesHostname(listener, hostname string) bool {
	if suffix, isWild := strings.CutPrefix(listener, "*"); isWild {
		return strings.HasSuffix(hostname, suffix)
	}
	return listener == "" || listener == hostname
}

func bracketIPv6(address string) string {
	if strings.Contains(address, ":") {
		return "[" + address + "]"
	}
	return address
}

func listenerURL(listener *gatewayv1.Listener, host string) string {
	scheme, defaultPort := "http", gatewayv1.PortNumber(80)
	if listener.Protocol == gatewayv1.HTTPSProtocolType {
		scheme, defaultPort = "https", 443
	}
	if listener.Port != defaultPort {
		host += ":" + strconv.Itoa(int(listener.Port))
	}
	return scheme + "://" + host
}

// externalPath is the path of the external URL, including the prefix that the Gateway strips.
func externalPath(server *v1beta1.MCPServer) string {
	if prefix := server.Spec.HTTPRoute.Path; stripsPrefix(server) {
		return strings.TrimSuffix(prefix, "/") + pathOf(server)
	}
	return pathOf(server)
}

// stripsPrefix reports whether the Gateway strips spec.httpRoute.path, because the path of the server is not
// below it.
func stripsPrefix(server *v1beta1.MCPServer) bool {
	return !isBelow(pathOf(server), server.Spec.HTTPRoute.Path)
}
