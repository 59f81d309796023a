package mcpserver

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/references"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
)

// Names within pods with spec.authorization, or with a proxy.
const (
	proxyContainer = v1beta1.MCPReservedPrefix + "proxy"
	// serverPortName is the port of the server behind the proxy, which has the port with the name portName. So the
	// Service and the NetworkPolicy, which use this name, lead to the proxy, also while old pods have none.
	serverPortName = "mcp-server"
	proxyPortName  = "proxy-health"
	jwksVolume     = v1beta1.MCPReservedPrefix + "jwks"
	// jwksPath is not below MCPReservedPath, where a read-only volume is mounted.
	jwksPath = v1beta1.MCPReservedPath + "-jwks"
	// clientVolume has the client credentials for the exchange of tokens.
	clientVolume = v1beta1.MCPReservedPrefix + "client"
	clientPath   = v1beta1.MCPReservedPath + "-client"
	// certificatesPath is where the init container copies the CA certificates of the bridge's image.
	certificatesPath = v1beta1.MCPReservedPath + "/ca-certificates.crt"
	// wellKnownPath is the path of the metadata of the resource (RFC 9728), which the path of the resource follows.
	wellKnownPath = "/.well-known/oauth-protected-resource"
)

// Timings of the readiness probe of the proxy, which connects to the server. It has no startup probe, because its
// failure would restart the proxy, not the server.
const proxyReadyPeriod, proxyReadyFailures = 5, 6

// hasProxy reports whether a proxy in front of the server checks tokens, applies limits, records requests, or forwards
// sessions. With stdio, the bridge does.
func hasProxy(server *v1beta1.MCPServer) bool {
	return (server.Spec.Authorization != nil || hasPolicy(server) || server.Spec.Telemetry != nil || forwardsSessions(server)) && !isStdio(server)
}

// containerPortName is the name of the port of the server's container.
func containerPortName(server *v1beta1.MCPServer) string {
	if hasProxy(server) {
		return serverPortName
	}
	return portName
}

// proxyPort is the port of the proxy for clients. The port of its health is that of a bridge.
func proxyPort(server *v1beta1.MCPServer) int32 {
	const port = 9190
	if server.Spec.Port == port {
		return port + 3 // bridgePort may be either of the next two
	}
	return port
}

// resourcesOf are the URLs of the server; a token must be for one of them.
func resourcesOf(s *scope) []string {
	authorization := s.server.Spec.Authorization
	switch {
	case authorization == nil:
		return nil
	case authorization.Resource != "":
		return []string{authorization.Resource}
	}
	internal := endpointOf(s.server)
	external, _ := externalEndpoint(s)
	// The address of a Gateway may be anything.
	if parsed, err := url.Parse(external); err == nil && parsed.Host != "" && external != internal {
		return []string{external, internal}
	}
	return []string{internal}
}

// rewrittenURL is the URL behind an Ingress whose annotations rewrite the path. Only the user knows how.
func rewrittenURL(server *v1beta1.MCPServer) (of, why string) {
	why = "the external URL is unknown: the path of the server, " + pathOf(server) +
		", is not below spec.ingress.path; correct spec.path or spec.ingress.path, or rewrite the path with spec.ingress.annotations"
	authorization := server.Spec.Authorization
	if authorization == nil {
		return "", why
	}
	if resource, err := url.Parse(authorization.Resource); err == nil && resource.Hostname() == server.Spec.Ingress.Host {
		return authorization.Resource, ""
	}
	return "", why + " and set spec.authorization.resource to the URL of clients"
}

// authorizationArguments are the arguments of the proxy and the bridge.
func authorizationArguments(server *v1beta1.MCPServer, resources []string) []string {
	authorization := server.Spec.Authorization
	if authorization == nil {
		return nil
	}
	var arguments []string
	for _, issuer := range issuersInOrder(authorization) {
		value := issuer.Issuer
		switch {
		case issuer.JWKSConfigMapRef != nil:
			value += " " + jwksPath + "/" + jwksFile(issuer)
		case issuer.JWKSURI != "":
			value += " " + issuer.JWKSURI
		}
		arguments = append(arguments, "--issuer", value)
	}
	for _, of := range resources {
		arguments = append(arguments, "--resource", unexpanded(of))
	}
	if len(authorization.Scopes) > 0 {
		arguments = append(arguments, "--scopes", strings.Join(slices.Sorted(slices.Values(authorization.Scopes)), " "))
	}
	byName := func(a, b v1beta1.MCPServerToolScopes) int { return strings.Compare(a.Name, b.Name) }
	for _, tool := range slices.SortedFunc(slices.Values(authorization.Tools), byName) {
		arguments = append(arguments, "--tool-scopes", tool.Name+" "+strings.Join(slices.Sorted(slices.Values(tool.Scopes)), " "))
	}
	if isStdio(server) {
		return append(arguments, "--issuer-ca", certificatesPath)
	}
	return append(arguments, exchangeArguments(authorization.TokenExchange)...)
}

// exchangeArguments are the arguments of the proxy for the exchange of tokens.
func exchangeArguments(exchange *v1beta1.MCPServerTokenExchange) []string {
	if exchange == nil {
		return nil
	}
	arguments := []string{"--exchange-url", exchange.TokenURL, "--exchange-credentials", clientPath}
	for _, option := range [][2]string{
		{"--exchange-audience", exchange.Audience}, {"--exchange-resource", exchange.Resource},
		{"--exchange-scopes", strings.Join(slices.Sorted(slices.Values(exchange.Scopes)), " ")},
	} {
		if option[1] != "" {
			arguments = append(arguments, option[0], option[1])
		}
	}
	for i, argument := range arguments {
		arguments[i] = unexpanded(argument)
	}
	return arguments
}

// unexpanded is the form of an argument from which the kubelet makes the argument: it replaces $(NAME) and $$, which a
// path may contain.
func unexpanded(argument string) string {
	if !strings.Contains(argument, "$(") && !strings.Contains(argument, "$$") {
		return argument // Another form would replace the pods of earlier versions.
	}
	return strings.ReplaceAll(argument, "$", "$$")
}

// issuersInOrder sorts the issuers, so that their order in the spec does not matter. Clients usually take the first one.
func issuersInOrder(authorization *v1beta1.MCPServerAuthorization) []v1beta1.MCPServerIssuer {
	return slices.SortedFunc(slices.Values(authorization.Issuers), func(a, b v1beta1.MCPServerIssuer) int { return strings.Compare(a.Issuer, b.Issuer) })
}

// jwksFile is the name of the file with the keys of an issuer.
func jwksFile(issuer v1beta1.MCPServerIssuer) string {
	sum := sha256.Sum256([]byte(issuer.Issuer))
	return hex.EncodeToString(sum[:8]) + ".json"
}

func jwksKey(ref *v1beta1.MCPServerJWKSConfigMapRef) string { return cmp.Or(ref.Key, "jwks.json") }

// fromAuthorization are the references of spec.authorization. They do not roll the pods, which read the keys again.
func fromAuthorization(authorization *v1beta1.MCPServerAuthorization) []references.Reference {
	if authorization == nil {
		return nil
	}
	var all []references.Reference
	for _, issuer := range authorization.Issuers {
		if ref := issuer.JWKSConfigMapRef; ref != nil {
			all = append(all, references.Reference{Kind: references.ConfigMap, Name: ref.Name, Keys: []string{jwksKey(ref)}})
		}
	}
	if exchange := authorization.TokenExchange; exchange != nil {
		all = append(all, references.Reference{
			Kind: references.Secret, Name: exchange.ClientSecretRef.Name, Keys: []string{v1beta1.ClientIDKey, v1beta1.ClientSecretKey},
		})
	}
	return all
}

// withProxy adds the proxy to the pods of a server that serves HTTP, and the keys of issuers and the headers for the
// collector to the container that uses them.
func withProxy(pod *corev1ac.PodSpecApplyConfiguration, container *corev1ac.ContainerApplyConfiguration, server *v1beta1.MCPServer, settings Settings, resources []string) {
	checks := container
	if hasProxy(server) {
		checks = proxyOf(server, settings, resources)
		withSessionRouting(pod, checks, server)
	}
	if server.Spec.Authorization != nil {
		withKeys(pod, checks, server.Spec.Authorization)
		withClient(pod, checks, server)
	}
	withHeaders(pod, checks, server)
	if hasProxy(server) {
		pod.WithContainers(checks)
	}
}

// withKeys mounts the keys of issuers.
func withKeys(pod *corev1ac.PodSpecApplyConfiguration, checks *corev1ac.ContainerApplyConfiguration, authorization *v1beta1.MCPServerAuthorization) {
	keys := corev1ac.ProjectedVolumeSource()
	for _, issuer := range issuersInOrder(authorization) {
		if ref := issuer.JWKSConfigMapRef; ref != nil {
			keys.WithSources(corev1ac.VolumeProjection().WithConfigMap(corev1ac.ConfigMapProjection().WithName(ref.Name).
				WithItems(corev1ac.KeyToPath().WithKey(jwksKey(ref)).WithPath(jwksFile(issuer)))))
		}
	}
	if len(keys.Sources) > 0 {
		pod.WithVolumes(corev1ac.Volume().WithName(jwksVolume).WithProjected(keys))
		checks.WithVolumeMounts(corev1ac.VolumeMount().WithName(jwksVolume).WithMountPath(jwksPath).WithReadOnly(true))
	}
}

// withClient mounts the client credentials for the exchange of tokens. The kubelet replaces the files when the Secret
// changes.
func withClient(pod *corev1ac.PodSpecApplyConfiguration, proxy *corev1ac.ContainerApplyConfiguration, server *v1beta1.MCPServer) {
	exchange := server.Spec.Authorization.TokenExchange
	if exchange == nil || isStdio(server) {
		return
	}
	pod.WithVolumes(corev1ac.Volume().WithName(clientVolume).WithSecret(corev1ac.SecretVolumeSource().WithSecretName(exchange.ClientSecretRef.Name).WithItems(
		corev1ac.KeyToPath().WithKey(v1beta1.ClientIDKey).WithPath(v1beta1.ClientIDKey),
		corev1ac.KeyToPath().WithKey(v1beta1.ClientSecretKey).WithPath(v1beta1.ClientSecretKey))))
	proxy.WithVolumeMounts(corev1ac.VolumeMount().WithName(clientVolume).WithMountPath(clientPath).WithReadOnly(true))
}

// proxyOf is the container of the proxy.
func proxyOf(server *v1beta1.MCPServer, settings Settings, resources []string) *corev1ac.ContainerApplyConfiguration {
	proxy := corev1ac.Container().
		WithName(proxyContainer).
		WithImage(settings.BridgeImage).
		WithCommand(slices.Concat([]string{
			"/mcp-bridge", "proxy", "--listen", listenAddress(proxyPort(server)), "--admin-listen", listenAddress(bridgePort(server)),
			"--server-port", strconv.Itoa(int(server.Spec.Port)), "--drain-timeout", drainTimeout(server).String(),
		}, routingArguments(server, drainTimeout(server)), hostArguments(server), authorizationArguments(server, resources), policyArguments(server), telemetryArguments(server))...).
		WithPorts(
			corev1ac.ContainerPort().WithName(portName).WithContainerPort(proxyPort(server)).WithProtocol(corev1.ProtocolTCP),
			corev1ac.ContainerPort().WithName(proxyPortName).WithContainerPort(bridgePort(server)).WithProtocol(corev1.ProtocolTCP)).
		WithSecurityContext(workload.RestrictedContainer().WithReadOnlyRootFilesystem(true)).
		WithResources(proxyResources(server.Spec.Resources))
	if server.Spec.ImagePullPolicy == corev1.PullAlways {
		proxy.WithImagePullPolicy(corev1.PullAlways)
	}
	if drain := drainSeconds(server); drain > 0 {
		proxy.WithLifecycle(corev1ac.Lifecycle().WithPreStop(
			corev1ac.LifecycleHandler().WithSleep(corev1ac.SleepAction().WithSeconds(drain))))
	}
	port := intstr.FromString(proxyPortName)
	proxy.WithReadinessProbe(probeOf(server, timingsOf(server.Spec.Probes), httpProbe("/readyz", port), proxyReadyPeriod, proxyReadyFailures))
	proxy.WithLivenessProbe(probeOf(server, nil, httpProbe("/healthz", port), probePeriod, probeFailures))
	return proxy
}

// hostArguments keep the hosts of other requests visible to a server on localhost, which may refuse them. With tokens
// there is no need: web pages of an attacker have none.
func hostArguments(server *v1beta1.MCPServer) []string {
	if server.Spec.Authorization != nil {
		return nil
	}
	return []string{"--allowed-host", strings.Join(allowedHosts(server), ",")}
}

// timingsOf are the timings of the readiness probe, which the proxy has unless the spec sets its type: then the
// container of the server has it.
func timingsOf(given *v1beta1.MCPServerProbes) *v1beta1.MCPServerProbe {
	if given == nil || given.Readiness == nil || given.Readiness.Type != "" {
		return nil
	}
	return given.Readiness
}

// proxyResources are small. An autoscaler with a utilization target needs requests of all containers, and a
// ResourceQuota may require limits: the proxy has a limit where the server has one.
func proxyResources(server corev1.ResourceRequirements) *corev1ac.ResourceRequirementsApplyConfiguration {
	requests := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")}
	limits := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")}
	if _, ok := server.Limits[corev1.ResourceCPU]; ok {
		limits[corev1.ResourceCPU] = resource.MustParse("1")
	}
	if _, ok := server.Limits[corev1.ResourceEphemeralStorage]; ok {
		limits[corev1.ResourceEphemeralStorage] = resource.MustParse("64Mi")
	}
	if _, ok := server.Requests[corev1.ResourceEphemeralStorage]; ok {
		requests[corev1.ResourceEphemeralStorage] = resource.MustParse("16Mi")
	}
	return corev1ac.ResourceRequirements().WithRequests(requests).WithLimits(limits)
}

// metadataPath is the path of the metadata of the resource outside of the cluster, which an Ingress or HTTPRoute must
// route to the server; empty if clients need none, the prefix that is routed includes it, or it cannot be routed.
func metadataPath(server *v1beta1.MCPServer, prefix string) string {
	if server.Spec.Authorization == nil || isBelow(wellKnownPath, prefix) {
		return ""
	}
	path := pathOf(server)
	if server.Spec.HTTPRoute != nil {
		path = externalPath(server)
	}
	if given, err := url.Parse(server.Spec.Authorization.Resource); err == nil && given.Host != "" {
		path = given.EscapedPath()
	}
	path = wellKnownPath + strings.TrimSuffix(path, "/")
	if len(path) > maxRoutedPath || !isRoutable.MatchString(path) || isNotRoutable.MatchString(path) {
		return ""
	}
	return path
}

// maxRoutedPath is the maximum length of a path of an HTTPRoute.
const maxRoutedPath = 1024

// The rules for exact paths of an HTTPRoute, which include those of an Ingress.
var (
	isRoutable    = regexp.MustCompile(`^([-A-Za-z0-9/._~!$&'()*+,;=:@]|%[0-9A-Fa-f]{2})+$`)
	isNotRoutable = regexp.MustCompile(`//|/\.{1,2}(/|$)|%2[fF]`)
)
