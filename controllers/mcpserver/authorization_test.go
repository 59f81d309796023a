package mcpserver

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/authorization"
	"github.com/fixpoint-dev/fixpoint/internal/references"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
)

// authorized requires tokens of three issuers, whose keys come from different places.
func authorized(s *spec) {
	s.Authorization = &v1beta1.MCPServerAuthorization{
		Issuers: []v1beta1.MCPServerIssuer{
			{Issuer: "https://c.example.com", JWKSConfigMapRef: &v1beta1.MCPServerJWKSConfigMapRef{Name: "keys"}},
			{Issuer: "https://a.example.com"},
			{Issuer: "https://b.example.com", JWKSURI: "https://b.example.com/keys"},
		},
		Scopes: []string{"mcp", "base"},
		Tools:  []v1beta1.MCPServerToolScopes{{Name: "delete_*", Scopes: []string{"b", "a"}}, {Name: "add", Scopes: []string{"c"}}},
	}
}

const authorizedArguments = `--issuer, https://a.example.com, --issuer, "https://b.example.com https://b.example.com/keys", ` +
	`--issuer, "https://c.example.com /.fixpoint-jwks/9016d3103126d4cb.json", --resource, "http://tools.acme.svc:8080/mcp", --scopes, base mcp, ` +
	`--tool-scopes, add c, --tool-scopes, delete_* a b`

func templateOf(t *testing.T, changes ...func(*spec)) *corev1ac.PodTemplateSpecApplyConfiguration {
	t.Helper()
	deployment, err := desiredDeployment(&scope{server: tools(changes...), settings: settings})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return deployment.Spec.Template
}

func containerNamed(template *corev1ac.PodTemplateSpecApplyConfiguration, name string) *corev1ac.ContainerApplyConfiguration {
	for i := range template.Spec.Containers {
		if *template.Spec.Containers[i].Name == name {
			return &template.Spec.Containers[i]
		}
	}
	return nil
}

func TestProxyChecksTokensOfAServerThatServesHTTP(t *testing.T) {
	g := NewWithT(t)
	deployment, err := desiredDeployment(&scope{server: tools(authorized), settings: settings})
	g.Expect(err).NotTo(HaveOccurred())
	proxy := containerNamed(deployment.Spec.Template, proxyContainer)
	g.Expect(asJSON(t, proxy)).To(MatchYAML(`
name: fixpoint-proxy
image: ghcr.io/fixpoint-dev/fixpoint:1
imagePullPolicy: IfNotPresent
command: [/mcp-bridge, proxy, --listen, ":9190", --admin-listen, ":9191", --server-port, "8080", --drain-timeout, 48s, ` + authorizedArguments + `]
ports: [{name: mcp, containerPort: 9190, protocol: TCP}, {name: proxy-health, containerPort: 9191, protocol: TCP}]
resources: {requests: {cpu: 10m, memory: 32Mi}, limits: {memory: 256Mi}}
securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, readOnlyRootFilesystem: true}
lifecycle: {preStop: {sleep: {seconds: 10}}}
readinessProbe: {httpGet: {path: /readyz, port: proxy-health}, initialDelaySeconds: 0, periodSeconds: 5, timeoutSeconds: 2, failureThreshold: 6}
livenessProbe: {httpGet: {path: /healthz, port: proxy-health}, initialDelaySeconds: 0, periodSeconds: 10, timeoutSeconds: 2, failureThreshold: 3}
volumeMounts: [{name: fixpoint-jwks, mountPath: /.fixpoint-jwks, readOnly: true}]
`))
	// The rest is the plain Deployment, but for the name of the port and the probes.
	deployment.Spec.Template.Spec.Containers = deployment.Spec.Template.Spec.Containers[:1]
	g.Expect(asJSON(t, deployment)).To(MatchYAML(edited(t, plainDeployment, map[string]string{
		container + ".ports":          "[{name: mcp-server, containerPort: 8080, protocol: TCP}]",
		container + ".startupProbe":   "",
		container + ".readinessProbe": "",
		pod + ".volumes":              "[{name: fixpoint-jwks, projected: {sources: [{configMap: {name: keys, items: [{key: jwks.json, path: 9016d3103126d4cb.json}]}}]}}]",
	})))
	violations := workload.Violations(v1beta1.PodSecurityRestricted, templateOf(t, authorized))
	g.Expect(violations).To(BeEmpty())
}

func exchanged(s *spec) {
	authorized(s)
	s.Authorization.TokenExchange = &v1beta1.MCPServerTokenExchange{
		TokenURL: "https://a.example.com/token", ClientSecretRef: v1beta1.MCPServerClientSecretRef{Name: "tools-client"}, Audience: "orders$(A)", Scopes: []string{"write", "read"},
	}
}

func TestProxyExchangesTokens(t *testing.T) {
	g := NewWithT(t)
	template, without := templateOf(t, exchanged), templateOf(t, authorized)
	proxy, plain := containerNamed(template, proxyContainer), containerNamed(without, proxyContainer)
	arguments := []string{
		"--exchange-url", "https://a.example.com/token", "--exchange-credentials", "/.fixpoint-client", "--exchange-audience", "orders$$(A)", "--exchange-scopes", "read write",
	}
	g.Expect(proxy.Command).To(Equal(append(slices.Clone(plain.Command), arguments...)))
	g.Expect(asJSON(t, proxy.VolumeMounts[1:])).To(MatchYAML("[{name: fixpoint-client, mountPath: /.fixpoint-client, readOnly: true}]"))
	g.Expect(asJSON(t, template.Spec.Volumes[1:])).To(MatchYAML(`[{name: fixpoint-client, secret: {secretName: tools-client, items: [{key: client-id, path: client-id}, {key: client-secret, path: client-secret}]}}]`))
	g.Expect(asJSON(t, template.Spec.Containers[0])).To(MatchJSON(asJSON(t, without.Spec.Containers[0])), "the server does not see the client credentials")
	violations := workload.Violations(v1beta1.PodSecurityRestricted, template)
	g.Expect(violations).To(BeEmpty())

	resource := tools(exchanged, func(s *spec) {
		s.Authorization.TokenExchange.Audience, s.Authorization.TokenExchange.Scopes, s.Authorization.TokenExchange.Resource = "", nil, "https://orders.example.com"
	})
	g.Expect(exchangeArguments(resource.Spec.Authorization.TokenExchange)[4:]).To(Equal([]string{"--exchange-resource", "https://orders.example.com"}))
}

// A rotated secret takes effect without another rollout, so its data is not part of the template.
func TestClientCredentialsAreADependency(t *testing.T) {
	NewWithT(t).Expect(referencesOf(tools(exchanged))).To(ContainElement(references.Reference{
		Kind: references.Secret, Name: "tools-client", Keys: []string{"client-id", "client-secret"},
	}))
}

func TestBridgeChecksTokensOfAStdioServer(t *testing.T) {
	g := NewWithT(t)
	template := templateOf(t, stdio, authorized)
	g.Expect(template.Spec.Containers).To(HaveLen(1))
	server := template.Spec.Containers[0]
	g.Expect(asJSON(t, server.Command)).To(MatchYAML(`[/.fixpoint/mcp-bridge, serve, --listen, ":8080", --admin-listen, ":9191", --path, /mcp,
 --allowed-host, "tools,tools.acme,tools.acme.svc,tools.acme.svc.cluster.local", --drain-timeout, 48s, ` + authorizedArguments + `,
 --issuer-ca, /.fixpoint/ca-certificates.crt, --, npx, -y, server-memory]`))
	g.Expect(asJSON(t, server.VolumeMounts)).To(MatchYAML("[{name: fixpoint-bridge, mountPath: /.fixpoint, readOnly: true}, {name: fixpoint-jwks, mountPath: /.fixpoint-jwks, readOnly: true}]"))
	g.Expect(server.ReadinessProbe.HTTPGet.Port.StrVal).To(Equal("bridge-metrics"), "which needs no token")
	g.Expect(template.Spec.InitContainers[0].Command).To(Equal([]string{"/mcp-bridge", "install", "/.fixpoint/mcp-bridge", "/.fixpoint/ca-certificates.crt"}))
}

// An upgrade of the manager must not replace the pods of MCPServers without the field. Here are the parts of the template
// that the field changes; TestDesiredDeployment has the whole of it.
func TestWithoutAuthorizationPodsAreUnchanged(t *testing.T) {
	for name, change := range map[string]func(*spec){"streamable-http": func(*spec) {}, "sse": sse, "stdio": stdio} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			template := templateOf(t, change)
			g.Expect(template.Spec.Containers).To(HaveLen(1))
			g.Expect(template.Spec.Containers[0].Ports[0].Name).To(HaveValue(Equal("mcp")))
			g.Expect(template.Spec.Containers[0].ReadinessProbe).NotTo(BeNil())
			g.Expect(asJSON(t, template)).NotTo(Or(ContainSubstring("issuer"), ContainSubstring("resource"), ContainSubstring("jwks"), ContainSubstring("proxy"), ContainSubstring("certificates")))
			for _, install := range template.Spec.InitContainers {
				g.Expect(install.Command).To(Equal([]string{"/mcp-bridge", "install", "/.fixpoint/mcp-bridge"}))
			}
		})
	}
}

func TestServiceAndNetworkPolicyLeadToTheProxy(t *testing.T) {
	g := NewWithT(t)
	restricted := func(s *spec) {
		s.NetworkPolicy = &v1beta1.MCPServerNetworkPolicy{Ingress: &v1beta1.MCPServerNetworkIngress{}}
	}
	g.Expect(asJSON(t, desiredService(tools(authorized)))).To(MatchJSON(asJSON(t, desiredService(tools()))))
	with := desiredNetworkPolicy(tools(restricted, authorized), settings)
	without := desiredNetworkPolicy(tools(restricted), settings)
	g.Expect(asJSON(t, with)).To(MatchJSON(asJSON(t, without)))
	for _, c := range templateOf(t, authorized).Spec.Containers {
		named := slices.ContainsFunc(c.Ports, func(p corev1ac.ContainerPortApplyConfiguration) bool { return *p.Name == portName })
		g.Expect(named).To(Equal(*c.Name == proxyContainer), *c.Name)
	}
}

func TestPortsOfTheProxyAreFree(t *testing.T) {
	for _, port := range []int32{80, 8080, 9189, 9190, 9191, 9192, 9193} {
		g := NewWithT(t)
		ports := map[int32]bool{}
		for _, c := range templateOf(t, authorized, func(s *spec) { s.Port = port }).Spec.Containers {
			for _, p := range c.Ports {
				g.Expect(ports).NotTo(HaveKey(*p.ContainerPort))
				ports[*p.ContainerPort] = true
			}
		}
		g.Expect(ports).To(HaveLen(3))
	}
}

func TestProbesWithAProxy(t *testing.T) {
	cases := map[string]struct {
		probes *v1beta1.MCPServerProbes
		// server are the probes of the container of the server, ready is that of the proxy.
		server, ready string
	}{
		"defaults": {nil, "{}", "{periodSeconds: 5, failureThreshold: 6, timeoutSeconds: 2}"},
		"timings": {&v1beta1.MCPServerProbes{
			Readiness: &v1beta1.MCPServerProbe{PeriodSeconds: ptr.To[int32](7)}, Startup: &v1beta1.MCPServerProbe{PeriodSeconds: ptr.To[int32](9)},
		}, "{}", "{periodSeconds: 7, failureThreshold: 6, timeoutSeconds: 2}"},
		"off": {&v1beta1.MCPServerProbes{Readiness: &v1beta1.MCPServerProbe{Type: v1beta1.ProbeOff}},
			"{}", "{periodSeconds: 5, failureThreshold: 6, timeoutSeconds: 2}"},
		"of the server itself": {&v1beta1.MCPServerProbes{
			Liveness: &v1beta1.MCPServerProbe{Type: v1beta1.ProbeHTTP, Path: "/health"}, Startup: &v1beta1.MCPServerProbe{Type: v1beta1.ProbeTCP},
		}, `
livenessProbe: {httpGet: {path: /health, port: mcp-server}, initialDelaySeconds: 0, periodSeconds: 10, timeoutSeconds: 2, failureThreshold: 3}
startupProbe: {tcpSocket: {port: mcp-server}, initialDelaySeconds: 0, periodSeconds: 2, timeoutSeconds: 2, failureThreshold: 60}`,
			"{periodSeconds: 5, failureThreshold: 6, timeoutSeconds: 2}"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			template := templateOf(t, authorized, func(s *spec) { s.Probes = c.probes })
			server := template.Spec.Containers[0]
			g.Expect(asJSON(t, corev1ac.ContainerApplyConfiguration{
				LivenessProbe: server.LivenessProbe, ReadinessProbe: server.ReadinessProbe, StartupProbe: server.StartupProbe,
			})).To(MatchYAML(c.server))
			ready := containerNamed(template, proxyContainer).ReadinessProbe
			ready.HTTPGet, ready.InitialDelaySeconds = nil, nil
			g.Expect(asJSON(t, ready)).To(MatchYAML(c.ready))
		})
	}
}

func TestResourcesOfTheProxyFollowTheLimitsOfTheServer(t *testing.T) {
	g := NewWithT(t)
	all := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi"), corev1.ResourceEphemeralStorage: resource.MustParse("1Gi"),
	}
	template := templateOf(t, authorized, func(s *spec) { s.Resources = corev1.ResourceRequirements{Requests: all, Limits: all} })
	g.Expect(asJSON(t, containerNamed(template, proxyContainer).Resources)).To(MatchYAML(
		`{requests: {cpu: 10m, memory: 32Mi, ephemeral-storage: 16Mi}, limits: {cpu: "1", memory: 256Mi, ephemeral-storage: 64Mi}}`))
}

func TestProxyFollowsThePolicyOfTheServer(t *testing.T) {
	g := NewWithT(t)
	template := templateOf(t, authorized, func(s *spec) { s.ImagePullPolicy, s.DrainSeconds = corev1.PullAlways, ptr.To[int64](0) })
	proxy := containerNamed(template, proxyContainer)
	g.Expect(proxy.ImagePullPolicy).To(HaveValue(Equal(corev1.PullAlways)))
	g.Expect(proxy.Lifecycle).To(BeNil())
}

func TestOrderOfAuthorizationDoesNotReplacePods(t *testing.T) {
	g := NewWithT(t)
	reversed := func(s *spec) {
		authorized(s)
		slices.Reverse(s.Authorization.Issuers)
		slices.Reverse(s.Authorization.Scopes)
		slices.Reverse(s.Authorization.Tools)
		for _, tool := range s.Authorization.Tools {
			slices.Reverse(tool.Scopes)
		}
	}
	g.Expect(asJSON(t, templateOf(t, reversed))).To(MatchJSON(asJSON(t, templateOf(t, authorized))))
}

func TestResourcesOf(t *testing.T) {
	const internal = "http://tools.acme.svc:8080/mcp"
	gateways := fakeGateways{"acme/public": gatewayWith(listener("websecure", "HTTPS", 443, "*.example.com"))}
	odd := gatewayWith(listener("web", "HTTP", 80, ""))
	odd.Status.Addresses = []gatewayv1.GatewayStatusAddress{{Value: "the public one"}}
	ingress := func(s *spec) {
		s.Ingress = &v1beta1.Ingress{Host: "tools.example.com", Path: "/", TLSSecretName: "tls"}
	}
	route := func(s *spec) {
		s.HTTPRoute = &v1beta1.MCPServerHTTPRoute{ParentRefs: []v1beta1.MCPServerParentRef{{Name: "public"}}, Hostnames: []string{"tools.example.com"}, Path: "/tools"}
	}
	for name, c := range map[string]struct {
		changes  []func(*spec)
		gateways gatewayReader
		want     []string
	}{
		"without authorization":      {[]func(*spec){ingress}, gateways, nil},
		"in the cluster":             {[]func(*spec){authorized}, gateways, []string{internal}},
		"with an Ingress":            {[]func(*spec){authorized, ingress}, gateways, []string{"https://tools.example.com/mcp", internal}},
		"with a route":               {[]func(*spec){authorized, route}, gateways, []string{"https://tools.example.com/tools/mcp", internal}},
		"with a Gateway not yet set": {[]func(*spec){authorized, route}, fakeGateways{}, []string{internal}},
		"with an address of a Gateway that is no host": {[]func(*spec){authorized, func(s *spec) {
			s.HTTPRoute = &v1beta1.MCPServerHTTPRoute{ParentRefs: []v1beta1.MCPServerParentRef{{Name: "odd"}}, Path: "/"}
		}}, fakeGateways{"acme/odd": odd}, []string{internal}},
		"as the spec says": {[]func(*spec){authorized, ingress, func(s *spec) { s.Authorization.Resource = "https://mcp.example.com" }},
			gateways, []string{"https://mcp.example.com"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scope{server: tools(c.changes...), readers: readers{gateways: c.gateways}}
			NewWithT(t).Expect(resourcesOf(s)).To(Equal(c.want))
		})
	}
}

func TestMetadataIsRouted(t *testing.T) {
	g := NewWithT(t)
	g.Expect(wellKnownPath).To(Equal(authorization.WellKnownPath))
	ingress := func(path string) func(*spec) {
		return func(s *spec) { s.Ingress = &v1beta1.Ingress{Host: "tools.example.com", Path: path} }
	}
	route := func(path string) func(*spec) {
		return func(s *spec) { s.HTTPRoute = &v1beta1.MCPServerHTTPRoute{Path: path} }
	}
	own := func(s *spec) { s.Authorization.Resource = "https://tools.example.com/api/" }
	for name, c := range map[string]struct {
		changes []func(*spec)
		want    []string
	}{
		"Ingress without authorization":  {[]func(*spec){ingress("/mcp")}, []string{"/mcp"}},
		"Ingress for a path":             {[]func(*spec){authorized, ingress("/mcp")}, []string{"/mcp", "/.well-known/oauth-protected-resource/mcp"}},
		"Ingress for all paths":          {[]func(*spec){authorized, ingress("/")}, []string{"/"}},
		"Ingress with its own resource":  {[]func(*spec){authorized, ingress("/api"), own}, []string{"/api", "/.well-known/oauth-protected-resource/api"}},
		"route without authorization":    {[]func(*spec){route("/tools")}, []string{"/tools"}},
		"route with a prefix":            {[]func(*spec){authorized, route("/tools")}, []string{"/tools", "/.well-known/oauth-protected-resource/tools/mcp"}},
		"route for the path":             {[]func(*spec){authorized, route("/mcp")}, []string{"/mcp", "/.well-known/oauth-protected-resource/mcp"}},
		"route for all paths":            {[]func(*spec){authorized, route("/")}, []string{"/"}},
		"a path that cannot be routed":   {[]func(*spec){authorized, ingress("/a"), func(s *spec) { s.Path = "/a/b%2Fc" }}, []string{"/a"}},
		"a path that is too long":        {[]func(*spec){authorized, route("/a"), func(s *spec) { s.Path = "/" + strings.Repeat("a", 1020) }}, []string{"/a"}},
		"route for all paths by default": {[]func(*spec){authorized, route("")}, []string{"/"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := tools(c.changes...)
			var paths []string
			if server.Spec.Ingress != nil {
				desired, err := desiredIngress(server, workload.IngressClasses{})
				g.Expect(err).NotTo(HaveOccurred())
				for _, p := range desired.Spec.Rules[0].HTTP.Paths {
					paths = append(paths, *p.Path)
					g.Expect(*p.PathType).To(BeEquivalentTo(map[bool]string{true: "Exact", false: "Prefix"}[len(paths) > 1]))
					g.Expect(asJSON(t, p.Backend.Service)).To(MatchYAML("{name: tools, port: {name: mcp}}"))
				}
			} else {
				for _, rule := range desiredRoute(server).Spec.Rules {
					paths = append(paths, *rule.Matches[0].Path.Value)
					g.Expect(*rule.Matches[0].Path.Type).To(BeEquivalentTo(map[bool]string{true: "Exact", false: "PathPrefix"}[len(paths) > 1]))
					g.Expect(asJSON(t, rule.BackendRefs)).To(MatchYAML("[{name: tools, port: 8080}]"))
				}
			}
			g.Expect(paths).To(Equal(c.want))
		})
	}
}

// What clients are told leads through the Ingress or the HTTPRoute to the metadata, and names the URL that they use.
func TestMetadataIsFoundFromOutside(t *testing.T) {
	gateways := fakeGateways{"acme/public": gatewayWith(listener("websecure", "HTTPS", 443, "*.example.com"))}
	ingress := func(path, secret string) func(*spec) {
		return func(s *spec) {
			s.Ingress = &v1beta1.Ingress{Host: "tools.example.com", Path: path, TLSSecretName: secret}
		}
	}
	route := func(path string) func(*spec) {
		return func(s *spec) {
			s.HTTPRoute = &v1beta1.MCPServerHTTPRoute{ParentRefs: []v1beta1.MCPServerParentRef{{Name: "public"}}, Hostnames: []string{"tools.example.com"}, Path: path}
		}
	}
	rewritten := func(s *spec) { s.Authorization.Resource = "https://tools.example.com/team/mcp" }
	for name, c := range map[string]struct {
		changes []func(*spec)
		client  string
	}{
		"Ingress for all paths":    {[]func(*spec){ingress("/", "tls")}, "https://tools.example.com/mcp"},
		"Ingress for the path":     {[]func(*spec){ingress("/mcp", "tls")}, "https://tools.example.com/mcp"},
		"Ingress without TLS":      {[]func(*spec){ingress("/mcp", "")}, "http://tools.example.com/mcp"},
		"Ingress that rewrites":    {[]func(*spec){ingress("/team", "tls"), rewritten}, "https://tools.example.com/team/mcp"},
		"route for all paths":      {[]func(*spec){route("/")}, "https://tools.example.com/mcp"},
		"route that strips":        {[]func(*spec){route("/team")}, "https://tools.example.com/team/mcp"},
		"route of a server prefix": {[]func(*spec){route("/api"), func(s *spec) { s.Path = "/api/v1/mcp" }}, "https://tools.example.com/api/v1/mcp"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := tools(append([]func(*spec){authorized}, c.changes...)...)
			s := &scope{server: server, readers: readers{gateways: gateways}}
			external, _ := externalEndpoint(s)
			g.Expect(external).To(Equal(c.client))
			protected, err := authorization.New(authorization.Options{Issuers: []authorization.Issuer{{URL: "https://id.example.com"}}, Resources: resourcesOf(s)})
			g.Expect(err).NotTo(HaveOccurred())
			handler := protected.Protect(http.NotFoundHandler())

			refused := httptest.NewRecorder()
			request := httptest.NewRequest(http.MethodPost, pathOf(server), http.NoBody)
			request.Host = "tools.example.com"
			handler.ServeHTTP(refused, request)
			g.Expect(refused.Code).To(Equal(http.StatusUnauthorized))
			_, rest, _ := strings.Cut(refused.Header().Get("WWW-Authenticate"), `resource_metadata="`)
			told, _, _ := strings.Cut(rest, `"`)
			at, err := url.Parse(told)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(c.client).To(HavePrefix(at.Scheme + "://" + at.Host + "/"))
			g.Expect(asRouted(t, server)).To(ContainElement(BeElementOf("/", at.Path)), "it reaches the server, and is not rewritten")

			found := httptest.NewRecorder()
			request = httptest.NewRequest(http.MethodGet, at.Path, http.NoBody)
			request.Host = at.Host
			handler.ServeHTTP(found, request)
			g.Expect(found.Code).To(Equal(http.StatusOK))
			g.Expect(found.Body.String()).To(ContainSubstring(`"resource":"` + c.client + `"`))
		})
	}
}

// asRouted are the paths that reach the server as they are.
func asRouted(t *testing.T, server *v1beta1.MCPServer) (paths []string) {
	t.Helper()
	if server.Spec.Ingress != nil {
		desired, err := desiredIngress(server, workload.IngressClasses{})
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		for _, path := range desired.Spec.Rules[0].HTTP.Paths {
			paths = append(paths, *path.Path)
		}
		return paths
	}
	for _, rule := range desiredRoute(server).Spec.Rules {
		if len(rule.Filters) == 0 {
			paths = append(paths, *rule.Matches[0].Path.Value)
		}
	}
	return paths
}

func TestKeysOfIssuersAreReferencesThatRollNoPods(t *testing.T) {
	g := NewWithT(t)
	server := tools(authorized, func(s *spec) {
		s.Authorization.Issuers = append(s.Authorization.Issuers, v1beta1.MCPServerIssuer{
			Issuer: "https://d.example.com", JWKSConfigMapRef: &v1beta1.MCPServerJWKSConfigMapRef{Name: "others", Key: "d"}})
	})
	g.Expect(referencesOf(server)).To(Equal([]references.Reference{
		{Kind: references.ConfigMap, Name: "keys", Keys: []string{"jwks.json"}},
		{Kind: references.ConfigMap, Name: "others", Keys: []string{"d"}},
	}))
}

func TestTokenOfTheProbeWithAuthorization(t *testing.T) {
	for _, transport := range []func(*spec){func(*spec) {}, stdio} {
		NewWithT(t).Expect(plainTokenRemedy(tools(transport, authorized))).To(ContainSubstring("valid only briefly"))
	}
}

// The schema keeps $(NAME), which the kubelet replaces in arguments, out of all other values.
func TestArgumentsHaveNoExpansions(t *testing.T) {
	for given, want := range map[string]string{
		"/$(HOST)": "/$$(HOST)", "/a$$(HOST)": "/a$$$$(HOST)", "/a$$b": "/a$$$$b", "/a$b": "/a$b", "/mcp": "/mcp",
	} {
		g := NewWithT(t)
		resource := "https://tools.example.com"
		g.Expect(authorizationArguments(tools(authorized), []string{resource + given})).To(ContainElement(resource + want))
		g.Expect(bridgeArguments(tools(stdio, func(s *spec) { s.Path = given }))).To(ContainElement(want))
	}
}

func TestAuthorizationNeedsNeitherScopesNorKeys(t *testing.T) {
	g := NewWithT(t)
	template := templateOf(t, func(s *spec) {
		s.Authorization = &v1beta1.MCPServerAuthorization{Issuers: []v1beta1.MCPServerIssuer{{Issuer: "https://a.example.com"}}}
	})
	proxy := containerNamed(template, proxyContainer)
	g.Expect(proxy.Command).To(ContainElements("--issuer", "https://a.example.com"))
	g.Expect(proxy.Command).NotTo(ContainElement("--scopes"))
	g.Expect(proxy.VolumeMounts).To(BeEmpty())
	g.Expect(template.Spec.Volumes).To(BeEmpty())
}

func TestPathOfTheMetadata(t *testing.T) {
	longest := strings.Repeat("a", maxRoutedPath-len(wellKnownPath)-1)
	for name, c := range map[string]struct{ resource, path, want string }{
		"the longest path":          {"https://tools.example.com/" + longest, "", wellKnownPath + "/" + longest},
		"a longer path":             {"https://tools.example.com/a" + longest, "", ""},
		"a resource that is no URL": {"http://[", "", wellKnownPath + "/mcp"},
		"a path with a space":       {"", "/a b", ""},
	} {
		t.Run(name, func(t *testing.T) {
			server := tools(authorized, func(s *spec) { s.Authorization.Resource, s.Path = c.resource, c.path })
			NewWithT(t).Expect(metadataPath(server, "/mcp")).To(Equal(c.want))
			NewWithT(t).Expect(metadataPath(server, wellKnownPath)).To(BeEmpty(), "it is routed with the prefix")
		})
	}
}

func TestResourceThatIsReachedAlikeFromOutsideIsListedOnce(t *testing.T) {
	server := tools(authorized, func(s *spec) { s.Ingress = &v1beta1.Ingress{Host: "tools.acme.svc:8080", Path: "/"} })
	NewWithT(t).Expect(resourcesOf(&scope{server: server})).To(Equal([]string{"http://tools.acme.svc:8080/mcp"}))
}

// The bridge exchanges no tokens, so the server, in whose container it runs, must not have the client credentials.
func TestServerDoesNotHaveTheClientCredentials(t *testing.T) {
	g := NewWithT(t)
	g.Expect(asJSON(t, templateOf(t, exchanged, stdio))).NotTo(Or(ContainSubstring(clientVolume), ContainSubstring("tools-client")))
	g.Expect(asJSON(t, containerNamed(templateOf(t, exchanged), containerName))).NotTo(ContainSubstring(clientVolume))
}
