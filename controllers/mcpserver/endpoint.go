package mcpserver

import (
	"fmt"
	"strconv"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
)

// endpointOf is the URL of the server within the cluster.
func endpointOf(server *v1alpha1.MCPServer) string {
	scheme := "http"
	if server.Spec.Protocol.TLS {
		scheme = "https"
	}
	return fmt.Sprintf("%s://%s.%s.svc:%d%s", scheme, server.Name, server.Namespace, server.Spec.Port, pathOf(server))
}

func joinVersions(versions []string) string { return strings.Join(versions, ",") }

// isBelow reports whether a path has the prefix, compared element by element as Ingress and Gateway do.
func isBelow(path, prefix string) bool {
	prefix = strings.TrimSuffix(prefix, "/")
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

// externalEndpoint is the URL of the server outside the cluster, or empty and why it is unknown.
func externalEndpoint(s *scope) (url, why string) {
	switch {
	case s.server.Spec.Ingress != nil:
		return ingressURL(s.server)
	case s.server.Spec.HTTPRoute != nil:
		return gatewayURL(s)
	default:
		return "", ""
	}
}

func ingressURL(server *v1alpha1.MCPServer) (url, why string) {
	in := server.Spec.Ingress
	if !isBelow(pathOf(server), in.Path) {
		return "", "the external URL is unknown: the path of the server, " + pathOf(server) +
			", is not below spec.ingress.path; correct spec.path or spec.ingress.path, or rewrite the path with spec.ingress.annotations"
	}
	scheme := "http"
	if in.TLSSecretName != "" {
		scheme = "https"
	}
	return scheme + "://" + in.Host + pathOf(server), ""
}

// gatewayURL is the URL at the first listener that serves the route.
func gatewayURL(s *scope) (url, why string) {
	in := s.server.Spec.HTTPRoute
	if !s.gateways.isWatched() {
		return "", "the external URL is unknown: the manager has no permission to read Gateways"
	}
	for _, parent := range in.ParentRefs {
		gateway := s.gateways.gateway(namespaceOf(parent, s.server), parent.Name)
		if gateway == nil {
			continue
		}
		if listener, host := listenerFor(gateway, parent.SectionName, in.Hostnames); listener != nil {
			return listenerURL(listener, host) + externalPath(s.server), ""
		}
	}
	return "", "the external URL is unknown: no Gateway in spec.httpRoute.parentRefs has a listener for the host name; correct spec.httpRoute or the Gateway"
}

func namespaceOf(parent v1alpha1.MCPServerParentRef, server *v1alpha1.MCPServer) string {
	if parent.Namespace != "" {
		return parent.Namespace
	}
	return server.Namespace
}

// listenerFor finds an HTTPS listener, or else an HTTP listener, and the host under which it is reached.
func listenerFor(gateway *gatewayv1.Gateway, section string, hostnames []string) (*gatewayv1.Listener, string) {
	for _, protocol := range []gatewayv1.ProtocolType{gatewayv1.HTTPSProtocolType, gatewayv1.HTTPProtocolType} {
		for i := range gateway.Spec.Listeners {
			listener := &gateway.Spec.Listeners[i]
			if listener.Protocol != protocol || section != "" && string(listener.Name) != section {
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
func externalPath(server *v1alpha1.MCPServer) string {
	if prefix := server.Spec.HTTPRoute.Path; stripsPrefix(server) {
		return strings.TrimSuffix(prefix, "/") + pathOf(server)
	}
	return pathOf(server)
}

// stripsPrefix reports whether the Gateway strips spec.httpRoute.path, because the path of the server is not
// below it.
func stripsPrefix(server *v1alpha1.MCPServer) bool {
	return !isBelow(pathOf(server), server.Spec.HTTPRoute.Path)
}
