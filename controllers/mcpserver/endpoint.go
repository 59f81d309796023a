package mcpserver

import (
	"fmt"
	"strconv"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
)

// endpointOf is where clients within the cluster reach the server.
func endpointOf(server *v1alpha1.MCPServer) string {
	scheme := "http"
	if server.Spec.Protocol.TLS {
		scheme = "https"
	}
	return fmt.Sprintf("%s://%s.%s.svc:%d%s", scheme, server.Name, server.Namespace, server.Spec.Port, pathOf(server))
}

func joined(versions []string) string { return strings.Join(versions, ",") }

// isBelow says whether a path is at or below a prefix, as Ingress and Gateway compare them: element
// by element.
func isBelow(path, prefix string) bool {
	prefix = strings.TrimSuffix(prefix, "/")
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

// externalEndpoint is where clients outside reach the server, or empty and why that is not known.
func externalEndpoint(s *scope) (url, why string) {
	switch {
	case s.server.Spec.Ingress != nil:
		return throughIngress(s.server)
	case s.server.Spec.HTTPRoute != nil:
		return throughGateway(s)
	default:
		return "", ""
	}
}

func throughIngress(server *v1alpha1.MCPServer) (url, why string) {
	in := server.Spec.Ingress
	if !isBelow(pathOf(server), in.Path) {
		return "", "the URL for clients is not known, because the path of the server, " + pathOf(server) +
			", is not below spec.ingress.path: set spec.path to one that is, or let annotations rewrite it"
	}
	scheme := "http"
	if in.TLSSecretName != "" {
		scheme = "https"
	}
	return scheme + "://" + in.Host + pathOf(server), ""
}

// throughGateway follows the first listener that takes the route.
func throughGateway(s *scope) (url, why string) {
	in := s.server.Spec.HTTPRoute
	if !s.gateways.isFollowed() {
		return "", "the URL for clients is not known, because the manager may not read Gateways"
	}
	for _, parent := range in.ParentRefs {
		gateway := s.gateways.gateway(namespaceOf(parent, s.server), parent.Name)
		if gateway == nil {
			continue
		}
		if listener, host := listenerFor(gateway, parent.SectionName, in.Hostnames); listener != nil {
			return urlOf(listener, host) + externalPath(s.server), ""
		}
	}
	return "", "the URL for clients is not known, because no Gateway of spec.httpRoute.parentRefs has a listener with a host name for it"
}

func namespaceOf(parent v1alpha1.MCPServerParentRef, server *v1alpha1.MCPServer) string {
	if parent.Namespace != "" {
		return parent.Namespace
	}
	return server.Namespace
}

// listenerFor finds a listener for HTTP, the encrypted one first, and the host by which it is reached.
func listenerFor(gateway *gatewayv1.Gateway, section string, hostnames []string) (*gatewayv1.Listener, string) {
	for _, protocol := range []gatewayv1.ProtocolType{gatewayv1.HTTPSProtocolType, gatewayv1.HTTPProtocolType} {
		for i := range gateway.Spec.Listeners {
			listener := &gateway.Spec.Listeners[i]
			if listener.Protocol != protocol || section != "" && string(listener.Name) != section {
				continue
			}
			if host := hostAt(gateway, listener, hostnames); host != "" {
				return listener, host
			}
		}
	}
	return nil, ""
}

// hostAt is the first host name of the route that the listener serves, or else the listener's own, or
// the address of the Gateway.
func hostAt(gateway *gatewayv1.Gateway, listener *gatewayv1.Listener, hostnames []string) string {
	own := ""
	if listener.Hostname != nil {
		own = string(*listener.Hostname)
	}
	for _, hostname := range hostnames {
		if serves(own, hostname) {
			return hostname
		}
	}
	switch {
	case len(hostnames) > 0 || strings.HasPrefix(own, "*"):
		return ""
	case own != "":
		return own
	case len(gateway.Status.Addresses) > 0:
		return bracketed(gateway.Status.Addresses[0].Value)
	default:
		return ""
	}
}

func serves(listener, hostname string) bool {
	if suffix, isWild := strings.CutPrefix(listener, "*"); isWild {
		return strings.HasSuffix(hostname, suffix)
	}
	return listener == "" || listener == hostname
}

func bracketed(address string) string {
	if strings.Contains(address, ":") {
		return "[" + address + "]"
	}
	return address
}

func urlOf(listener *gatewayv1.Listener, host string) string {
	scheme, usual := "http", gatewayv1.PortNumber(80)
	if listener.Protocol == gatewayv1.HTTPSProtocolType {
		scheme, usual = "https", 443
	}
	if listener.Port != usual {
		host += ":" + strconv.Itoa(int(listener.Port))
	}
	return scheme + "://" + host
}

// externalPath is the path of the URL outside: the prefix that the Gateway takes off comes before it.
func externalPath(server *v1alpha1.MCPServer) string {
	if prefix := server.Spec.HTTPRoute.Path; takesPrefixOff(server) {
		return strings.TrimSuffix(prefix, "/") + pathOf(server)
	}
	return pathOf(server)
}

// takesPrefixOff says whether the path of the server is not below the one that leads to it.
func takesPrefixOff(server *v1alpha1.MCPServer) bool {
	return !isBelow(pathOf(server), server.Spec.HTTPRoute.Path)
}
