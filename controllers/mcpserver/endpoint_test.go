package mcpserver

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// fakeGateways is a Gateway API with these Gateways, by namespace/name.
type fakeGateways map[string]*gatewayv1.Gateway

func (l fakeGateways) isWatched() bool { return l != nil }
func (l fakeGateways) isServed() bool  { return true }
func (l fakeGateways) denied() error   { return nil }
func (l fakeGateways) gateway(namespace, name string) *gatewayv1.Gateway {
	return l[namespace+"/"+name]
}

// route is one that the Gateway infra/accepting has accepted.
func (l fakeGateways) route(_, _ string) *gatewayv1.HTTPRoute {
	r := &gatewayv1.HTTPRoute{}
	for name, status := range map[gatewayv1.ObjectName]metav1.ConditionStatus{"accepting": metav1.ConditionTrue, "rejecting": metav1.ConditionFalse} {
		r.Status.Parents = append(r.Status.Parents, gatewayv1.RouteParentStatus{
			ParentRef:  gatewayv1.ParentReference{Namespace: ptr.To(gatewayv1.Namespace("infra")), Name: name},
			Conditions: []metav1.Condition{{Type: string(gatewayv1.RouteConditionAccepted), Status: status}},
		})
	}
	return r
}

// allowing is a listener that allows routes of namespaces.
func allowing(from gatewayv1.FromNamespaces) gatewayv1.Listener {
	l := listener("web", "HTTP", 8443, "")
	l.AllowedRoutes = &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{From: &from}}
	return l
}

func gatewayWith(listeners ...gatewayv1.Listener) *gatewayv1.Gateway {
	return &gatewayv1.Gateway{Spec: gatewayv1.GatewaySpec{Listeners: listeners}}
}

func listener(name string, protocol gatewayv1.ProtocolType, port gatewayv1.PortNumber, hostname string) gatewayv1.Listener {
	l := gatewayv1.Listener{Name: gatewayv1.SectionName(name), Protocol: protocol, Port: port}
	if hostname != "" {
		l.Hostname = ptr.To(gatewayv1.Hostname(hostname))
	}
	return l
}

func TestExternalEndpoint(t *testing.T) {
	plain, encrypted := listener("web", "HTTP", 80, ""), listener("websecure", "HTTPS", 443, "*.example.com")
	parent := []v1beta1.MCPServerParentRef{{Name: "public"}}
	route := func(change func(*v1beta1.MCPServerHTTPRoute)) func(*spec) {
		return func(s *spec) {
			s.HTTPRoute = &v1beta1.MCPServerHTTPRoute{ParentRefs: parent, Hostnames: []string{"tools.example.com"}, Path: "/"}
			change(s.HTTPRoute)
		}
	}
	asIs := route(func(*v1beta1.MCPServerHTTPRoute) {})
	in := func(gateway string) func(*spec) {
		return route(func(r *v1beta1.MCPServerHTTPRoute) {
			r.ParentRefs = []v1beta1.MCPServerParentRef{{Name: gateway, Namespace: "infra"}}
		})
	}
	ingress := func(path, secret string) func(*spec) {
		return func(s *spec) {
			s.Ingress = &v1beta1.Ingress{Host: "tools.example.com", Path: path, TLSSecretName: secret}
		}
	}
	protected := func(resource string, change func(*spec)) func(*spec) {
		return func(s *spec) {
			authorized(s)
			s.Authorization.Resource = resource
			change(s)
		}
	}
	withAddress := gatewayWith(plain)
	withAddress.Status.Addresses = []gatewayv1.GatewayStatusAddress{{Value: "2001:db8::1"}}
	withIPv4 := gatewayWith(plain)
	withIPv4.Status.Addresses = []gatewayv1.GatewayStatusAddress{{Value: "192.0.2.1"}}
	allowed := func(routes *gatewayv1.AllowedRoutes) gatewayv1.Listener {
		l := plain
		l.AllowedRoutes = routes
		return l
	}
	const noListener = "the external URL is unknown: no Gateway in spec.httpRoute.parentRefs has a listener for the host name that allows routes of this namespace; correct spec.httpRoute or the Gateway"

	cases := map[string]struct {
		change       func(*spec)
		fakeGateways gatewayReader
		url          string
		why          string
	}{
		"no external access":          {func(*spec) {}, fakeGateways(nil), "", ""},
		"an Ingress":                  {ingress("/", ""), nil, "http://tools.example.com/mcp", ""},
		"an encrypted Ingress":        {ingress("/mcp", "cert"), nil, "https://tools.example.com/mcp", ""},
		"an Ingress for another path": {ingress("/mc", ""), nil, "", "the external URL is unknown: the path of the server, /mcp, is not below spec.ingress.path; correct spec.path or spec.ingress.path, or rewrite the path with spec.ingress.annotations"},
		"an Ingress that rewrites":    {protected("https://tools.example.com/team/mcp", ingress("/team", "")), nil, "https://tools.example.com/team/mcp", ""},
		"one that is not told how":    {protected("", ingress("/team", "")), nil, "", "the external URL is unknown: the path of the server, /mcp, is not below spec.ingress.path; correct spec.path or spec.ingress.path, or rewrite the path with spec.ingress.annotations and set spec.authorization.resource to the URL of clients"},
		"a resource that is no URL":   {protected("http://[", ingress("/team", "")), nil, "", "the external URL is unknown: the path of the server, /mcp, is not below spec.ingress.path; correct spec.path or spec.ingress.path, or rewrite the path with spec.ingress.annotations and set spec.authorization.resource to the URL of clients"},
		"a resource of another host":  {protected("https://mcp.example.com/team/mcp", ingress("/team", "")), nil, "", "the external URL is unknown: the path of the server, /mcp, is not below spec.ingress.path; correct spec.path or spec.ingress.path, or rewrite the path with spec.ingress.annotations and set spec.authorization.resource to the URL of clients"},

		"a Gateway":                   {asIs, fakeGateways{"acme/public": gatewayWith(plain)}, "http://tools.example.com/mcp", ""},
		"the encrypted listener":      {asIs, fakeGateways{"acme/public": gatewayWith(plain, encrypted)}, "https://tools.example.com/mcp", ""},
		"another port":                {asIs, fakeGateways{"acme/public": gatewayWith(listener("web", "HTTP", 8080, ""))}, "http://tools.example.com:8080/mcp", ""},
		"a listener for another host": {asIs, fakeGateways{"acme/public": gatewayWith(plain, listener("x", "HTTPS", 443, "*.example.org"))}, "http://tools.example.com/mcp", ""},
		"the listener that is named": {route(func(r *v1beta1.MCPServerHTTPRoute) {
			r.ParentRefs = []v1beta1.MCPServerParentRef{{Name: "public", Namespace: "infra", SectionName: "web"}}
		}), fakeGateways{"infra/public": gatewayWith(encrypted, plain, allowing(gatewayv1.NamespacesFromAll))}, "http://tools.example.com:8443/mcp", ""},
		"a Gateway of another namespace": {in("public"), fakeGateways{"infra/public": gatewayWith(plain)}, "", noListener},
		"one that allows all namespaces": {in("public"), fakeGateways{"infra/public": gatewayWith(allowing(gatewayv1.NamespacesFromAll))}, "http://tools.example.com:8443/mcp", ""},
		"one that allows its namespace":  {in("public"), fakeGateways{"infra/public": gatewayWith(allowing(gatewayv1.NamespacesFromSame))}, "", noListener},
		"one that allows no namespace":   {in("public"), fakeGateways{"infra/public": gatewayWith(allowing(gatewayv1.NamespacesFromNone))}, "", noListener},
		"one that has not decided":       {in("public"), fakeGateways{"infra/public": gatewayWith(allowing(gatewayv1.NamespacesFromSelector))}, "", noListener},
		"one that has rejected it":       {in("rejecting"), fakeGateways{"infra/rejecting": gatewayWith(allowing(gatewayv1.NamespacesFromSelector))}, "", noListener},
		"one that has accepted it":       {in("accepting"), fakeGateways{"infra/accepting": gatewayWith(allowing(gatewayv1.NamespacesFromSelector))}, "http://tools.example.com:8443/mcp", ""},
		"one of another namespace with the name of one that has accepted it": {route(func(r *v1beta1.MCPServerHTTPRoute) {
			r.ParentRefs = []v1beta1.MCPServerParentRef{{Name: "accepting", Namespace: "other"}}
		}), fakeGateways{"other/accepting": gatewayWith(allowing(gatewayv1.NamespacesFromSelector))}, "", noListener},
		"another listener than the one that has accepted it": {route(func(r *v1beta1.MCPServerHTTPRoute) {
			r.ParentRefs = []v1beta1.MCPServerParentRef{{Name: "accepting", Namespace: "infra", SectionName: "web"}}
		}), fakeGateways{"infra/accepting": gatewayWith(allowing(gatewayv1.NamespacesFromSelector))}, "", noListener},
		"one that allows its namespace by default": {asIs, fakeGateways{"acme/public": gatewayWith(allowed(&gatewayv1.AllowedRoutes{}))}, "http://tools.example.com/mcp", ""},
		"one that does not say which namespaces":   {asIs, fakeGateways{"acme/public": gatewayWith(allowed(&gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{}}))}, "http://tools.example.com/mcp", ""},
		"a listener that is named beside an encrypted one": {route(func(r *v1beta1.MCPServerHTTPRoute) {
			r.ParentRefs = []v1beta1.MCPServerParentRef{{Name: "public", SectionName: "web"}}
		}), fakeGateways{"acme/public": gatewayWith(encrypted, plain)}, "http://tools.example.com/mcp", ""},
		"a listener for the domain alone": {asIs, fakeGateways{"acme/public": gatewayWith(listener("web", "HTTP", 80, "example.com"))}, "", noListener},
		"a listener for the host":         {asIs, fakeGateways{"acme/public": gatewayWith(listener("web", "HTTP", 80, "tools.example.com"))}, "http://tools.example.com/mcp", ""},
		"the IPv4 address of the Gateway": {route(func(r *v1beta1.MCPServerHTTPRoute) { r.Hostnames = nil }), fakeGateways{"acme/public": withIPv4}, "http://192.0.2.1/mcp", ""},
		"the host of the listener": {route(func(r *v1beta1.MCPServerHTTPRoute) { r.Hostnames = nil }),
			fakeGateways{"acme/public": gatewayWith(encrypted, listener("web", "HTTP", 80, "mcp.example.com"))}, "http://mcp.example.com/mcp", ""},
		"the address of the Gateway": {route(func(r *v1beta1.MCPServerHTTPRoute) { r.Hostnames = nil }), fakeGateways{"acme/public": withAddress}, "http://[2001:db8::1]/mcp", ""},
		"a stripped prefix":          {route(func(r *v1beta1.MCPServerHTTPRoute) { r.Path = "/tools/" }), fakeGateways{"acme/public": gatewayWith(plain)}, "http://tools.example.com/tools/mcp", ""},
		"a prefix of the server path": {func(s *spec) {
			route(func(r *v1beta1.MCPServerHTTPRoute) { r.Path = "/tools" })(s)
			s.Path = "/tools/mcp"
		}, fakeGateways{"acme/public": gatewayWith(plain)}, "http://tools.example.com/tools/mcp", ""},
		"no such Gateway":       {asIs, fakeGateways{}, "", noListener},
		"no matching listener":  {asIs, fakeGateways{"acme/public": gatewayWith(listener("x", "HTTP", 80, "example.org"), listener("y", "TCP", 22, ""))}, "", noListener},
		"Gateways not readable": {asIs, fakeGateways(nil), "", "the external URL is unknown: the manager has no permission to read Gateways"},
		"no host name":          {route(func(r *v1beta1.MCPServerHTTPRoute) { r.Hostnames = nil }), fakeGateways{"acme/public": gatewayWith(plain)}, "", noListener},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			url, why := externalEndpoint(&scope{server: tools(c.change), readers: readers{gateways: c.fakeGateways}})
			g.Expect(url).To(Equal(c.url))
			g.Expect(why).To(Equal(c.why))
		})
	}
}

func TestRouteThatDoesNotExistIsNotAccepted(t *testing.T) {
	NewWithT(t).Expect(isAccepted(nil, v1beta1.MCPServerParentRef{Name: "public"}, tools())).To(BeFalse())
}
