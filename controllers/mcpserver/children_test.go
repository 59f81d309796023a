package mcpserver

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/references"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
)

const metadata = `
metadata:
  name: tools
  namespace: acme
  labels: {app.kubernetes.io/name: tools, app.kubernetes.io/managed-by: fixpoint, fixpoint.dev/kind: mcpserver}
`

const plainService = `
apiVersion: v1
kind: Service` + metadata + `
spec:
  selector: {app.kubernetes.io/name: tools, fixpoint.dev/kind: mcpserver}
  ports: [{name: mcp, protocol: TCP, port: 8080, targetPort: mcp}]
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 10800}}
`

func TestDesiredService(t *testing.T) {
	cases := map[string]struct {
		change func(*spec)
		want   map[string]string
	}{
		"by default": {func(*spec) {}, nil},
		"sse":        {sse, nil},
		"stdio":      {stdio, nil},
		"a port":     {func(s *spec) { s.Port = 80 }, map[string]string{"spec.ports": "[{name: mcp, protocol: TCP, port: 80, targetPort: mcp}]"}},
		"for longer": {func(s *spec) {
			s.SessionAffinity, s.SessionAffinityTimeoutSeconds = v1beta1.SessionAffinityClientIP, 60
		},
			map[string]string{"spec.sessionAffinityConfig": "{clientIP: {timeoutSeconds: 60}}"}},
		"without sessions": {func(s *spec) { s.SessionAffinity = v1beta1.SessionAffinityNone },
			map[string]string{"spec.sessionAffinity": "None", "spec.sessionAffinityConfig": ""}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(asJSON(t, desiredService(tools(c.change)))).To(MatchYAML(edited(t, plainService, c.want)))
		})
	}
}

func peer(namespace string) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": namespace}}}
}

func TestDesiredNetworkPolicy(t *testing.T) {
	const selector = "\n  podSelector: {matchLabels: {app.kubernetes.io/name: tools, fixpoint.dev/kind: mcpserver}}\n"
	const dns = "{ports: [{protocol: UDP, port: 53}, {protocol: TCP, port: 53}]}"
	type policy = v1beta1.MCPServerNetworkPolicy
	cases := map[string]struct {
		policy *policy
		spec   string
	}{
		"none": {nil, ""},
		// A rule without peers would allow all traffic.
		"no peers": {&policy{Ingress: &v1beta1.MCPServerNetworkIngress{}}, "  policyTypes: [Ingress]"},
		"peers": {&policy{Ingress: &v1beta1.MCPServerNetworkIngress{From: []networkingv1.NetworkPolicyPeer{peer("a"), {IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8"}}}}},
			`  policyTypes: [Ingress]
  ingress:
  - from: [{namespaceSelector: {matchLabels: {name: a}}}, {ipBlock: {cidr: 10.0.0.0/8}}]
    ports: [{protocol: TCP, port: mcp}]`},
		"only DNS":  {&policy{Egress: &v1beta1.MCPServerNetworkEgress{}}, "  policyTypes: [Egress]\n  egress: [" + dns + "]"},
		"no egress": {&policy{Egress: &v1beta1.MCPServerNetworkEgress{DNS: v1beta1.DNSDenied}}, "  policyTypes: [Egress]"},
		"rules": {&policy{Ingress: &v1beta1.MCPServerNetworkIngress{}, Egress: &v1beta1.MCPServerNetworkEgress{Rules: []v1beta1.MCPServerNetworkEgressRule{
			{To: []networkingv1.NetworkPolicyPeer{peer("db")}, Ports: []v1beta1.MCPServerNetworkPort{{Port: 5432}, {Protocol: "UDP", Port: 100, EndPort: ptr.To[int32](200)}}},
			{Ports: []v1beta1.MCPServerNetworkPort{{Port: 443}}},
		}}}, `  policyTypes: [Ingress, Egress]
  egress:
  - ` + dns + `
  - to: [{namespaceSelector: {matchLabels: {name: db}}}]
    ports: [{protocol: TCP, port: 5432}, {protocol: UDP, port: 100, endPort: 200}]
  - ports: [{protocol: TCP, port: 443}]`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			desired := desiredNetworkPolicy(tools(func(s *spec) { s.NetworkPolicy = c.policy }), settings)
			if c.policy == nil {
				g.Expect(desired).To(BeNil())
				return
			}
			g.Expect(asJSON(t, desired)).To(MatchYAML("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy" + metadata + "spec:" + selector + c.spec))
		})
	}
}

func TestNetworkPolicyAdmitsTheManager(t *testing.T) {
	known := Settings{ManagerNamespace: "system", ManagerLabels: map[string]string{"app": "manager"}}
	restricted := func(s *spec) {
		s.NetworkPolicy = &v1beta1.MCPServerNetworkPolicy{Ingress: &v1beta1.MCPServerNetworkIngress{From: []networkingv1.NetworkPolicyPeer{peer("a")}}}
	}
	const given = "{namespaceSelector: {matchLabels: {name: a}}}"
	const its = "namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: system}}"
	cases := map[string]struct {
		change   func(*spec)
		settings Settings
		want     string
		message  string
	}{
		"its pods":      {restricted, known, "[" + given + ", {" + its + ", podSelector: {matchLabels: {app: manager}}}]", ""},
		"its namespace": {restricted, Settings{ManagerNamespace: "system"}, "[" + given + ", {" + its + "}]", ""},
		"unknown":       {restricted, Settings{}, "[" + given + "]", "; the manager probes the pods but does not know its own namespace: add the manager to spec.networkPolicy.ingress.from, or start it with --pod-namespace"},
		"probes disabled": {func(s *spec) {
			restricted(s)
			s.Protocol.Probe = v1beta1.ProbeDisabled
		}, known, "[" + given + "]", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := tools(c.change)
			desired := desiredNetworkPolicy(server, c.settings)
			g.Expect(asJSON(t, desired.Spec.Ingress[0].From)).To(MatchYAML(c.want))
			verdict := networkPolicy.Ready(t.Context(), &scope{server: server, settings: c.settings}, nil)
			g.Expect(verdict.Message()).To(Equal(policyApplied + c.message))
		})
	}
}

func TestDesiredRoute(t *testing.T) {
	g := NewWithT(t)
	g.Expect(desiredRoute(tools())).To(BeNil())
	route := desiredRoute(tools(func(s *spec) {
		s.HTTPRoute = &v1beta1.MCPServerHTTPRoute{
			ParentRefs: []v1beta1.MCPServerParentRef{{Name: "a"}, {Name: "b", Namespace: "infra", SectionName: "https"}},
			Hostnames:  []string{"tools.example.com"}, Path: "/mcp"}
	}))
	g.Expect(asJSON(t, route)).To(MatchYAML(`
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute` + metadata + `
spec:
  parentRefs: [{name: a}, {name: b, namespace: infra, sectionName: https}]
  hostnames: [tools.example.com]
  rules:
  - matches: [{path: {type: PathPrefix, value: /mcp}}]
    backendRefs: [{name: tools, port: 8080}]`))
	elsewhere := desiredRoute(tools(func(s *spec) { s.HTTPRoute = &v1beta1.MCPServerHTTPRoute{Path: "/tools"} }))
	g.Expect(asJSON(t, elsewhere.Spec.Rules[0].Filters)).To(MatchYAML(
		"[{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}}]"))
	everything := desiredRoute(tools(func(s *spec) { s.HTTPRoute = &v1beta1.MCPServerHTTPRoute{} }))
	g.Expect(everything.Spec.Rules[0].Matches[0].Path.Value).To(HaveValue(Equal("/")))
}

func TestRouteReady(t *testing.T) {
	applied := outcome{"done", "Ready", "HTTPRoute applied"}
	refused := outcome{"stalled", "RouteRejected", "Gateway a rejected the HTTPRoute: no such listener; correct spec.httpRoute or the listener of the Gateway"}
	parent := func(status metav1.ConditionStatus, generation int64) []gatewayv1.RouteParentStatus {
		return []gatewayv1.RouteParentStatus{{ParentRef: gatewayv1.ParentReference{Name: "a"},
			Conditions: []metav1.Condition{{Type: "Accepted", Status: status, ObservedGeneration: generation, Message: "no such listener"}}}}
	}
	cases := map[string]struct {
		parents []gatewayv1.RouteParentStatus
		want    outcome
	}{
		"no status":                       {nil, applied},
		"accepted":                        {parent(metav1.ConditionTrue, 2), applied},
		"rejected":                        {parent(metav1.ConditionFalse, 2), refused},
		"rejected, for an old generation": {parent(metav1.ConditionFalse, 1), applied},
		"no conditions":                   {[]gatewayv1.RouteParentStatus{{}}, applied},
		"unresolved Service": {[]gatewayv1.RouteParentStatus{{ParentRef: gatewayv1.ParentReference{Name: "a"},
			Conditions: []metav1.Condition{{Type: "ResolvedRefs", Status: metav1.ConditionFalse, ObservedGeneration: 2, Message: "no such listener"}}}}, refused},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			route := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
			route.Status.Parents = c.parents
			NewWithT(t).Expect(outcomeOf(routeReady(route))).To(Equal(c.want))
		})
	}
}

func TestDesiredChildren(t *testing.T) {
	g := NewWithT(t)
	plain := tools()
	g.Expect(desiredConfig(plain)).To(BeNil())
	g.Expect(desiredServiceAccount(plain)).To(BeNil())
	g.Expect(desiredAutoscaler(plain)).To(BeNil())
	g.Expect(desiredDisruptionBudget(plain)).To(BeNil())
	g.Expect(desiredIngress(plain, workload.IngressClasses{})).To(BeNil())
	g.Expect(desiredServiceAccount(tools(func(s *spec) { s.ServiceAccount = &v1beta1.MCPServerServiceAccount{Name: "robot"} }))).To(BeNil())

	full := tools(func(s *spec) {
		s.Files = []v1beta1.MCPServerFile{{Path: "/etc/b", Content: "content"}}
		s.ServiceAccount = &v1beta1.MCPServerServiceAccount{Create: true, Annotations: map[string]string{"cloud": "id"}}
		s.Autoscaling = &v1beta1.MCPServerAutoscaling{MinReplicas: 2, MaxReplicas: 5, TargetMemoryUtilizationPercent: ptr.To[int32](70)}
		s.DisruptionBudget = &v1beta1.DisruptionBudget{MaxUnavailable: ptr.To(intstr.FromInt32(1))}
		s.Ingress = &v1beta1.Ingress{Host: "tools.example.com", Path: "/"}
	})
	g.Expect(asJSON(t, desiredConfig(full))).To(MatchYAML("apiVersion: v1\nkind: ConfigMap" + metadata + "data: {file-79d24e96ede13d39: content}"))
	account := desiredServiceAccount(full)
	g.Expect(account.Annotations).To(Equal(map[string]string{"cloud": "id"}))
	g.Expect(account.AutomountServiceAccountToken).To(HaveValue(BeFalse()))
	g.Expect(asJSON(t, desiredAutoscaler(full).Spec)).To(MatchYAML(`
scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: tools}
minReplicas: 2
maxReplicas: 5
metrics: [{type: Resource, resource: {name: memory, target: {type: Utilization, averageUtilization: 70}}}]`))
	byCPU := tools(func(s *spec) {
		s.Autoscaling = &v1beta1.MCPServerAutoscaling{MinReplicas: 2, MaxReplicas: 5, TargetCPUUtilizationPercent: ptr.To[int32](60)}
	})
	g.Expect(asJSON(t, desiredAutoscaler(byCPU).Spec.Metrics)).To(MatchYAML(
		"[{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}]"))
	g.Expect(asJSON(t, desiredDisruptionBudget(full).Spec)).To(MatchYAML(
		"{maxUnavailable: 1, selector: {matchLabels: {app.kubernetes.io/name: tools, fixpoint.dev/kind: mcpserver}}}"))
	in, err := desiredIngress(full, workload.IngressClasses{})
	g.Expect(err).NotTo(HaveOccurred())
	backend := in.Spec.Rules[0].HTTP.Paths[0].Backend.Service
	g.Expect(asJSON(t, backend)).To(MatchYAML("{name: tools, port: {name: mcp}}"))
	for _, labels := range []map[string]string{desiredConfig(full).Labels, account.Labels, desiredAutoscaler(full).Labels, desiredDisruptionBudget(full).Labels, in.Labels} {
		g.Expect(labels).To(Equal(labelsOf(full)))
	}
}

func TestDesiredDisruptionBudget(t *testing.T) {
	scaling := func(most int32) func(*spec) {
		return func(s *spec) { s.Autoscaling = &v1beta1.MCPServerAutoscaling{MinReplicas: 1, MaxReplicas: most} }
	}
	cases := map[string]struct {
		change func(*spec)
		want   string
	}{
		"one pod":     {func(s *spec) { s.Replicas = ptr.To[int32](1) }, ""},
		"not set":     {func(*spec) {}, ""},
		"two pods":    {func(s *spec) { s.Replicas = ptr.To[int32](2) }, "1"},
		"at most one": {scaling(1), ""},
		"at most two": {scaling(2), "1"},
		"budget set": {func(s *spec) {
			s.DisruptionBudget = &v1beta1.DisruptionBudget{MaxUnavailable: ptr.To(intstr.FromString("50%"))}
		}, "50%"},
		"budget set, two pods": {func(s *spec) {
			s.Replicas, s.DisruptionBudget = ptr.To[int32](2), &v1beta1.DisruptionBudget{MaxUnavailable: ptr.To(intstr.FromString("50%"))}
		}, "50%"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			budget := desiredDisruptionBudget(tools(c.change))
			if c.want == "" {
				g.Expect(budget).To(BeNil())
				return
			}
			g.Expect(budget.Spec.MaxUnavailable.String()).To(Equal(c.want))
		})
	}
}

// The selector of a Deployment is immutable, so it must never change.
func TestSelectorContainsTheKind(t *testing.T) {
	selector := selectorOf(tools())
	NewWithT(t).Expect(selector).To(Equal(map[string]string{"app.kubernetes.io/name": "tools", "fixpoint.dev/kind": "mcpserver"}))
}

// staticGateways is a Gateway API that is watched or not, and not served.
type staticGateways struct {
	staticGatewayAPI

	watched bool
	denial  error
}

func (s staticGateways) isWatched() bool { return s.watched }
func (s staticGateways) denied() error   { return s.denial }

func TestRouteRequiresTheGatewayAPI(t *testing.T) {
	const missing = "the API server does not serve HTTPRoute (gateway.networking.k8s.io/v1); install the Gateway API"
	for name, c := range map[string]struct {
		gateways gatewayReader
		want     outcome
	}{
		"not permitted to watch it": {staticGateways{watched: true, denial: errors.New("gateways is forbidden: no role")}, outcome{"wait", "Forbidden",
			"gateways is forbidden: no role; grant the manager's service account this permission: the role fixpoint-manager-mcpserver-role has it"}},
		"served":                  {staticGatewayAPI(true), outcome{"done", "Ready", ""}},
		"not served, and watched": {staticGateways{watched: true}, outcome{"stalled", "KindMissing", missing + ", or remove spec.httpRoute"}},
		"not served":              {staticGatewayAPI(false), outcome{"stalled", "KindMissing", missing + " and restart the manager, or remove spec.httpRoute"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			verdict, err := route.Requires(t.Context(), &scope{readers: readers{gateways: c.gateways}})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(outcomeOf(verdict)).To(Equal(c.want))
		})
	}
}

func TestAccessFromOutsideSaysWhyTheURLIsUnknown(t *testing.T) {
	const unknown = "; the external URL is unknown: no Gateway in spec.httpRoute.parentRefs has a listener for the host name that allows routes of this namespace; correct spec.httpRoute or the Gateway"
	routed := func(s *spec) {
		s.HTTPRoute = &v1beta1.MCPServerHTTPRoute{ParentRefs: []v1beta1.MCPServerParentRef{{Name: "public"}}, Hostnames: []string{"tools.example.com"}, Path: "/"}
	}
	rejected := &gatewayv1.HTTPRoute{}
	rejected.Status.Parents = []gatewayv1.RouteParentStatus{{ParentRef: gatewayv1.ParentReference{Name: "public"},
		Conditions: []metav1.Condition{{Type: "Accepted", Status: metav1.ConditionFalse, Message: "no"}}}}
	for name, c := range map[string]struct {
		gateways fakeGateways
		live     *gatewayv1.HTTPRoute
		message  string
	}{
		"a known URL":      {fakeGateways{"acme/public": gatewayWith(listener("web", "HTTP", 80, ""))}, &gatewayv1.HTTPRoute{}, "HTTPRoute applied"},
		"an unknown one":   {fakeGateways{}, &gatewayv1.HTTPRoute{}, "HTTPRoute applied" + unknown},
		"a rejected route": {fakeGateways{}, rejected, "Gateway public rejected the HTTPRoute: no; correct spec.httpRoute or the listener of the Gateway"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := &scope{server: tools(routed), readers: readers{gateways: c.gateways}}
			g.Expect(route.Ready(t.Context(), s, c.live).Message()).To(Equal(c.message))
			g.Expect(route.Health(c.live)).To(Equal(routeReady(c.live)))
		})
	}
}

func TestIngressNeedsItsClassAndItsCertificate(t *testing.T) {
	g := NewWithT(t)
	server := tools(func(s *spec) {
		s.Ingress = &v1beta1.Ingress{Host: "tools.example.com", Path: "/mc", TLSSecretName: "cert"}
	})
	s := &scope{server: server, ingressClasses: workload.IngressClasses{Reader: newClient()}, readers: readers{references: &references.Reader{Metadata: newClient()}}}
	verdict, err := ingress.Requires(t.Context(), s)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(verdict.IsDone()).To(BeFalse(), "no class exists")

	live := &networkingv1.Ingress{Spec: networkingv1.IngressSpec{IngressClassName: ptr.To("nginx")}}
	g.Expect(ingress.Health(live).IsDone()).To(BeTrue())
	g.Expect(ingress.Ready(t.Context(), s, live).Message()).To(ContainSubstring("Secret cert (spec.ingress.tlsSecretName) does not exist"))
	server.Spec.Ingress.TLSSecretName = ""
	g.Expect(ingress.Ready(t.Context(), s, live).Message()).To(HavePrefix("Ingress applied; the external URL is unknown: the path of the server, /mcp, is not below spec.ingress.path"))

	s.ingressClasses.Reader = withoutLists(&networkingv1.IngressClassList{})
	_, err = ingress.Desired(s)
	g.Expect(err).To(MatchError("listing ingress classes: no answer"))
}

// The cache holds the EndpointSlices with these labels, which have those of the Services.
func TestLabelsOfEndpointsAreThoseOfAllServices(t *testing.T) {
	g := NewWithT(t)
	g.Expect(EndpointLabels()).To(Equal(map[string]string{"app.kubernetes.io/managed-by": "fixpoint", "fixpoint.dev/kind": "mcpserver"}))
	for name, value := range EndpointLabels() {
		g.Expect(desiredService(tools()).Labels).To(HaveKeyWithValue(name, value))
	}
}

func TestHealthOfAppliedChildren(t *testing.T) {
	g := NewWithT(t)
	g.Expect(outcomeOf(networkPolicy.Health(nil))).To(Equal(outcome{"done", "Ready", policyApplied}))
	g.Expect(networkPolicy.Health(nil).Message()).To(Equal("NetworkPolicy applied; enforcement requires a network plugin that supports it"))
	g.Expect(restrictsProbes(tools())).To(BeFalse(), "without a policy")
	unprobed := tools(func(s *spec) {
		s.NetworkPolicy, s.Protocol.Probe = &v1beta1.MCPServerNetworkPolicy{Ingress: &v1beta1.MCPServerNetworkIngress{}}, v1beta1.ProbeDisabled
	})
	g.Expect(networkPolicy.Ready(t.Context(), &scope{server: unprobed}, nil).Message()).To(Equal(policyApplied), "the manager need not reach the pods")
	egress := tools(func(s *spec) {
		s.NetworkPolicy = &v1beta1.MCPServerNetworkPolicy{Egress: &v1beta1.MCPServerNetworkEgress{}}
	})
	g.Expect(restrictsProbes(egress)).To(BeFalse(), "the manager connects to the pods")
	budget := &policyv1.PodDisruptionBudget{}
	g.Expect(disruptionBudget.Health(budget)).To(Equal(workload.DisruptionBudgetReady(budget)))
	desired, err := serviceAccount.Desired(&scope{server: tools(), settings: Settings{ManagerAccount: types.NamespacedName{Namespace: "acme", Name: "tools"}}})
	g.Expect(err).NotTo(HaveOccurred(), "no ServiceAccount is created")
	g.Expect(desired).To(BeNil())
}
