package mcpserver_test

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// option is one that makes a child of its own.
type option struct {
	on, off edit
	// child is an empty object of the child's type, drift changes it by hand, and field is what of it.
	child func() client.Object
	drift func(client.Object)
	field string
	// isBack says whether the child is as declared.
	isBack func(client.Object) bool
}

const ingressClass = "test"

func (w *fixture) createIngressClass() {
	w.T.Helper()
	class := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: ingressClass}}
	class.Spec.Controller = "example.com/ingress"
	if err := api.Create(w.Ctx, class); !apierrors.IsAlreadyExists(err) {
		w.Expect(err).NotTo(HaveOccurred())
	}
}

// childOf adapts functions of a child of type L.
func childOf[L client.Object](drift func(L), isBack func(L) bool) (func(client.Object), func(client.Object) bool) {
	typed := func(object client.Object) L {
		live, ok := object.(L)
		if !ok {
			panic("the child is of another type")
		}
		return live
	}
	return func(o client.Object) { drift(typed(o)) }, func(o client.Object) bool { return isBack(typed(o)) }
}

func options() map[string]option {
	autoscaler := option{
		on: func(s *v1beta1.MCPServerSpec) {
			s.Replicas = nil
			s.Autoscaling = &v1beta1.MCPServerAutoscaling{MinReplicas: 1, MaxReplicas: 3, TargetCPUUtilizationPercent: ptr.To[int32](80)}
		},
		off:   func(s *v1beta1.MCPServerSpec) { s.Autoscaling = nil },
		child: func() client.Object { return &autoscalingv2.HorizontalPodAutoscaler{} }, field: ".spec.maxReplicas",
	}
	autoscaler.drift, autoscaler.isBack = childOf(
		func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Spec.MaxReplicas = 9 },
		func(h *autoscalingv2.HorizontalPodAutoscaler) bool { return h.Spec.MaxReplicas == 3 })

	budget := option{
		on: func(s *v1beta1.MCPServerSpec) {
			s.DisruptionBudget = &v1beta1.DisruptionBudget{MaxUnavailable: ptr.To(intstr.FromInt32(1))}
		},
		off:   func(s *v1beta1.MCPServerSpec) { s.DisruptionBudget = nil },
		child: func() client.Object { return &policyv1.PodDisruptionBudget{} }, field: ".spec.maxUnavailable",
	}
	budget.drift, budget.isBack = childOf(
		func(b *policyv1.PodDisruptionBudget) { b.Spec.MaxUnavailable = ptr.To(intstr.FromInt32(9)) },
		func(b *policyv1.PodDisruptionBudget) bool { return b.Spec.MaxUnavailable.IntValue() == 1 })

	ingress := option{
		on: func(s *v1beta1.MCPServerSpec) {
			s.Ingress = &v1beta1.Ingress{Host: "tools.example.com", Path: "/", IngressClassName: ptr.To(ingressClass), TLSSecretName: "cert"}
		},
		off:   func(s *v1beta1.MCPServerSpec) { s.Ingress = nil },
		child: func() client.Object { return &networkingv1.Ingress{} }, field: ".spec.ingressClassName",
	}
	ingress.drift, ingress.isBack = childOf(
		func(i *networkingv1.Ingress) { i.Spec.IngressClassName = ptr.To("other") },
		func(i *networkingv1.Ingress) bool { return *i.Spec.IngressClassName == ingressClass })

	policy := option{
		on:    everybody,
		off:   func(s *v1beta1.MCPServerSpec) { s.NetworkPolicy = nil },
		child: func() client.Object { return &networkingv1.NetworkPolicy{} }, field: ".spec.ingress",
	}
	policy.drift, policy.isBack = childOf(
		func(p *networkingv1.NetworkPolicy) { p.Spec.Ingress[0].Ports[0].Port = ptr.To(intstr.FromInt32(1)) },
		func(p *networkingv1.NetworkPolicy) bool { return p.Spec.Ingress[0].Ports[0].Port.String() == "mcp" })

	route := option{
		on: routed(), off: func(s *v1beta1.MCPServerSpec) { s.HTTPRoute = nil },
		child: func() client.Object { return &gatewayv1.HTTPRoute{} }, field: ".spec.hostnames",
	}
	route.drift, route.isBack = childOf(
		func(r *gatewayv1.HTTPRoute) { r.Spec.Hostnames = []gatewayv1.Hostname{"else.example.com"} },
		func(r *gatewayv1.HTTPRoute) bool { return r.Spec.Hostnames[0] == "tools.example.com" })

	account := option{
		on:    func(s *v1beta1.MCPServerSpec) { s.ServiceAccount = &v1beta1.MCPServerServiceAccount{Create: true} },
		off:   func(s *v1beta1.MCPServerSpec) { s.ServiceAccount = nil },
		child: func() client.Object { return &corev1.ServiceAccount{} }, field: ".metadata.labels",
	}
	const managedBy = "app.kubernetes.io/managed-by"
	account.drift, account.isBack = childOf(
		func(a *corev1.ServiceAccount) { a.Labels[managedBy] = "edited" },
		func(a *corev1.ServiceAccount) bool { return a.Labels[managedBy] == "fixpoint" })

	config := option{
		on: files("/etc/a", "1"), off: files(),
		child: func() client.Object { return &corev1.ConfigMap{} }, field: ".data",
	}
	config.drift, config.isBack = childOf(
		func(c *corev1.ConfigMap) {
			for key := range c.Data {
				c.Data[key] = "edited"
			}
		},
		func(c *corev1.ConfigMap) bool {
			return slices.Equal(slices.Collect(maps.Values(c.Data)), []string{"1"})
		})

	return map[string]option{"account": account, "config": config, "autoscaling": autoscaler, "budget": budget, "ingress": ingress, "policy": policy, "route": route}
}

// everybody of the namespace may connect.
func everybody(s *v1beta1.MCPServerSpec) {
	s.NetworkPolicy = &v1beta1.MCPServerNetworkPolicy{Ingress: &v1beta1.MCPServerNetworkIngress{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}}}
}

// everyOptionalChildHasACase compares the options with the phases: a child that the smallest MCPServer has
// not is an option.
func everyOptionalChildHasACase(w *fixture, all map[string]option) {
	w.T.Helper()
	w.createReady("least", unasked)
	var optional, covered []string
	for kind, newObject := range harness.ChildKinds(mcpserver.Name) {
		if kind == "Secret" {
			continue // it has another name: see TestSessionKeys
		}
		if w.IsGone("least", newObject())() == nil {
			optional = append(optional, kind)
		}
		for _, o := range all {
			if reflect.TypeOf(o.child()) == reflect.TypeOf(newObject()) {
				covered = append(covered, kind)
			}
		}
	}
	w.Expect(covered).To(ConsistOf(optional), "the kinds with an option")
}

func TestRevertsAndPrunesOptionalChildren(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.installGatewayAPI()
	w.createIngressClass()
	w.createSecret("cert")
	w.startManager()
	all := options()
	everyOptionalChildHasACase(w, all)
	for name, o := range all {
		w.create(name, unasked, o.on)
	}
	for name, o := range all {
		w.complete(name)
		harness.Update(w, "kubectl-edit", name, o.child(), o.drift)
	}
	for name, o := range all {
		harness.Eventually(w, name, o.child(), func(g Gomega, child client.Object) { g.Expect(o.isBack(child)).To(BeTrue(), name) })
		server := harness.Eventually(w, name, &v1beta1.MCPServer{}, func(g Gomega, m *v1beta1.MCPServer) { g.Expect(m.Status.Drifts).To(HaveLen(1), name) })
		w.Expect(server.Status.Drifts[0].Manager).To(Equal("kubectl-edit"))
		w.Expect(server.Status.Drifts[0].Field).To(HavePrefix(o.field))
		w.Expect(server.Status.Drifts[0].Action).To(Equal(v1beta1.DriftCorrected))

		// A deleted child is recreated.
		before := harness.Read(w, name, o.child())
		w.Expect(api.Delete(w.Ctx, before)).To(Succeed())
		harness.Eventually(w, name, o.child(), func(g Gomega, child client.Object) { g.Expect(child.GetUID()).NotTo(Equal(before.GetUID()), name) })
		w.complete(name)

		// When the option is turned off, it goes.
		w.change(name, o.off)
		w.Eventually(w.IsGone(name, o.child())).Should(Succeed(), name)
		w.complete(name)
	}
	mark := w.Settled()
	w.Expect(w.Requests(mark)).To(BeEmpty())
}

func TestReportsExternalEndpoint(t *testing.T) {
	w := newManagedFixture(t)
	w.createIngressClass()
	w.create("tools", unasked, options()["ingress"].on)
	w.shows("tools", "IngressReady", "False DependencyMissing", ContainSubstring("Secret cert (spec.ingress.tlsSecretName) does not exist"))
	w.createSecret("cert")
	server := w.complete("tools")
	w.Expect(server.Status.Endpoint).To(Equal("http://tools." + w.Namespace + ".svc:8080/mcp"))
	w.Expect(server.Status.ExternalEndpoint).To(Equal("https://tools.example.com/mcp"))

	server = w.changeReady("tools", func(s *v1beta1.MCPServerSpec) { s.Ingress.Path = "/else" })
	w.Expect(server.Status.ExternalEndpoint).To(BeEmpty())
	w.Expect(messageOf(server, "IngressReady")).To(ContainSubstring("the path of the server, /mcp, is not below spec.ingress.path"))

	server = w.changeReady("tools", func(s *v1beta1.MCPServerSpec) { s.Ingress = nil })
	w.Expect(server.Status.ExternalEndpoint).To(BeEmpty())
}

// TestNetworkPolicyAdmitsTheManager: whom the spec lets in does not include the manager, which asks.
func TestNetworkPolicyAdmitsTheManager(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	options := w.options()
	options.PodNamespace, options.PodLabels = "fixpoint-system", map[string]string{"control-plane": "controller-manager"}
	w.StartManager(shared.Config(harness.ManagerUser), options)
	w.createReady("tools", seldom, everybody)
	policy := harness.Read(w, "tools", &networkingv1.NetworkPolicy{})
	w.Expect(policy.Spec.Ingress[0].From).To(Equal([]networkingv1.NetworkPolicyPeer{
		{PodSelector: &metav1.LabelSelector{}},
		{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "fixpoint-system"}},
			PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"control-plane": "controller-manager"}}},
	}))

	// One that does not ask need not be let in.
	w.changeReady("tools", unasked)
	w.Expect(harness.Read(w, "tools", &networkingv1.NetworkPolicy{}).Spec.Ingress[0].From).To(HaveLen(1))
}

func TestReportsThatTheManagersNamespaceIsUnknown(t *testing.T) {
	w := newManagedFixture(t)
	server := w.createReady("tools", seldom, everybody)
	w.Expect(messageOf(server, "NetworkPolicyReady")).To(ContainSubstring("the manager probes the pods but does not know its own namespace"))
}

// TestCreatesDisruptionBudgetForSeveralPods that nobody asked for.
func TestCreatesDisruptionBudgetForSeveralPods(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("tools", unasked, replicas(2))
	w.Expect(harness.Read(w, "tools", &policyv1.PodDisruptionBudget{}).Spec.MaxUnavailable.IntValue()).To(Equal(1))

	w.changeReady("tools", replicas(1))
	w.Eventually(w.IsGone("tools", &policyv1.PodDisruptionBudget{})).Should(Succeed())
}

// TestScaling by hand or by another autoscaler goes through the MCPServer.
func TestScaling(t *testing.T) {
	w := newManagedFixture(t)
	server := w.createReady("tools", unasked, replicas(1))
	w.Scale("kubectl-scale", server, 3)
	harness.Eventually(w, "tools", &v1beta1.MCPServer{}, func(g Gomega, m *v1beta1.MCPServer) {
		g.Expect(m.Spec.Replicas).To(HaveValue(BeEquivalentTo(3)))
		g.Expect(m.Status.ReadyReplicas).To(BeEquivalentTo(3))
		g.Expect(m.Status.Drifts).To(BeEmpty())
	})
	w.Expect(w.replicaSets("tools")).To(HaveLen(1))
}
