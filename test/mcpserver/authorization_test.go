package mcpserver_test

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// withTokens requires tokens of an issuer whose keys are in a ConfigMap.
func withTokens(s *v1beta1.MCPServerSpec) {
	s.Authorization = &v1beta1.MCPServerAuthorization{
		Issuers: []v1beta1.MCPServerIssuer{{Issuer: "https://id.example.com", JWKSConfigMapRef: &v1beta1.MCPServerJWKSConfigMapRef{Name: "keys"}}},
		Scopes:  []string{"mcp"},
	}
}

// endpointPorts are the ports that the Service leads to.
func (w *fixture) endpointPorts(name string) []int32 {
	w.T.Helper()
	var slices discoveryv1.EndpointSliceList
	w.Expect(api.List(w.Ctx, &slices, client.InNamespace(w.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: name})).To(Succeed())
	var ports []int32
	for _, slice := range slices.Items {
		for _, port := range slice.Ports {
			if len(slice.Endpoints) > 0 {
				ports = append(ports, *port.Port)
			}
		}
	}
	return ports
}

func TestAuthorizationPutsAProxyInFrontOfTheServer(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("tools", unasked)
	w.Eventually(func() []int32 { return w.endpointPorts("tools") }).Should(ConsistOf(BeEquivalentTo(8080)))

	w.change("tools", withTokens)
	w.shows("tools", "DependenciesReady", "False DependencyMissing", HavePrefix("missing: ConfigMap keys;"))
	w.createConfigMap("keys", "jwks.json", `{"keys":[]}`)
	w.complete("tools")

	deployment := &appsv1.Deployment{}
	w.Expect(api.Get(w.Ctx, client.ObjectKey{Namespace: w.Namespace, Name: "tools"}, deployment)).To(Succeed())
	w.Expect(deployment.Spec.Template.Spec.Containers).To(HaveLen(2))
	w.Eventually(func() []int32 { return w.endpointPorts("tools") }).Should(ConsistOf(BeEquivalentTo(9190)))

	t.Log("a change of the keys replaces no pods, and nothing is written after that")
	before := w.podUIDs("tools")
	mark := w.Settled()
	harness.Update(w, "kubectl-edit", "keys", &corev1.ConfigMap{}, func(c *corev1.ConfigMap) { c.Data["jwks.json"] = "{}" })
	w.Settled()
	w.Expect(w.Requests(mark).Writes()).To(BeEmpty())
	w.Expect(w.podUIDs("tools")).To(ConsistOf(before))

	t.Log("without the field the pods are as before")
	w.change("tools", func(s *v1beta1.MCPServerSpec) { s.Authorization = nil })
	w.complete("tools")
	w.Eventually(func() []int32 { return w.endpointPorts("tools") }).Should(ConsistOf(BeEquivalentTo(8080)))
}

func TestMetadataOfTheResourceIsRouted(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.installGatewayAPI()
	w.createGateway("public", gatewayv1.HTTPSProtocolType, 443)
	w.createConfigMap("keys", "jwks.json", `{"keys":[]}`)
	w.startManager()

	w.createReady("tools", unasked, withTokens, routed(func(r *v1beta1.MCPServerHTTPRoute) { r.Path = "/team" }))

	route := harness.Read(w, "tools", &gatewayv1.HTTPRoute{})
	var paths []string
	for _, rule := range route.Spec.Rules {
		paths = append(paths, string(*rule.Matches[0].Path.Type)+" "+*rule.Matches[0].Path.Value)
	}
	w.Expect(paths).To(Equal([]string{"PathPrefix /team", "Exact /.well-known/oauth-protected-resource/team/mcp"}))
	w.Expect(w.deployment("tools").Spec.Template.Spec.Containers[1].Command).To(ContainElements("https://tools.example.com/team/mcp", "http://tools."+w.Namespace+".svc:8080/mcp"))
}
