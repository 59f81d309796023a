package mcpserver_test

import (
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

const routeDefinition = "httproutes.gateway.networking.k8s.io"

// installGatewayAPI returns when the cluster serves HTTPRoutes and Gateways.
func (w *fixture) installGatewayAPI() {
	w.T.Helper()
	// The API server gives up large definitions that a busy machine does not store in time.
	w.Eventually(func() error { return harness.InstallGatewayAPI(w.Ctx, shared) }).Should(Succeed())
	w.Eventually(func() error { return api.List(w.Ctx, &gatewayv1.HTTPRouteList{}, client.InNamespace(w.Namespace)) }).Should(Succeed())
	w.Eventually(func() error { return api.List(w.Ctx, &gatewayv1.GatewayList{}, client.InNamespace(w.Namespace)) }).Should(Succeed())
}

// removeGatewayAPI returns when the cluster does not serve HTTPRoutes.
func (w *fixture) removeGatewayAPI() {
	w.T.Helper()
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: routeDefinition}}
	w.Expect(client.IgnoreNotFound(definitions().Delete(w.Ctx, definition))).To(Succeed())
	w.Eventually(func() bool {
		return apierrors.IsNotFound(definitions().Get(w.Ctx, client.ObjectKeyFromObject(definition), definition.DeepCopy()))
	}).Should(BeTrue())
}

// definitions is a client for CustomResourceDefinitions.
var definitions = sync.OnceValue(func() client.Client {
	scheme := runtime.NewScheme()
	harness.Must(apiextensionsv1.AddToScheme(scheme))
	c, err := client.New(shared.Admin(), client.Options{Scheme: scheme})
	harness.Must(err)
	return c
})

func routed(change ...func(*v1beta1.MCPServerHTTPRoute)) edit {
	return func(s *v1beta1.MCPServerSpec) {
		s.HTTPRoute = &v1beta1.MCPServerHTTPRoute{
			ParentRefs: []v1beta1.MCPServerParentRef{{Name: "public"}}, Hostnames: []string{"tools.example.com"}, Path: "/"}
		for _, c := range change {
			c(s.HTTPRoute)
		}
	}
}

func (w *fixture) createGateway(name string, protocol gatewayv1.ProtocolType, port gatewayv1.PortNumber) {
	w.T.Helper()
	gateway := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}}
	gateway.Spec.GatewayClassName = "test"
	listener := gatewayv1.Listener{Name: "web", Protocol: protocol, Port: port}
	if protocol == gatewayv1.HTTPSProtocolType {
		listener.TLS = &gatewayv1.ListenerTLSConfig{CertificateRefs: []gatewayv1.SecretObjectReference{{Name: "cert"}}}
	}
	gateway.Spec.Listeners = []gatewayv1.Listener{listener}
	w.Expect(api.Create(w.Ctx, gateway)).To(Succeed())
}

// answer is what the controller of a Gateway says of a route.
func (w *fixture) answer(name string, status metav1.ConditionStatus, reason, message string) {
	w.T.Helper()
	w.Eventually(func() error {
		route := &gatewayv1.HTTPRoute{}
		if err := api.Get(w.Ctx, w.Key(name), route); err != nil {
			return err
		}
		route.Status.Parents = []gatewayv1.RouteParentStatus{{
			ParentRef: gatewayv1.ParentReference{Name: "public"}, ControllerName: "example.com/gateways",
			Conditions: []metav1.Condition{{Type: "Accepted", Status: status, Reason: reason, Message: message,
				ObservedGeneration: route.Generation, LastTransitionTime: metav1.Now()}}}}
		return w.As("gateways").Status().Update(w.Ctx, route)
	}).Should(Succeed())
}

// TestGatewayAPIIsNoticedWhenInstalledAndRemoved runs before the parallel tests, because what it
// removes is cluster-scoped.
func TestGatewayAPIIsNoticedWhenInstalledAndRemoved(t *testing.T) {
	w := newFixture(t)
	w.removeGatewayAPI()

	// Given a manager that starts on a cluster without it
	w.startManager()
	w.create("tools", unasked, routed())
	w.createReady("inside", unasked)
	server := w.shows("tools", "RouteReady", "False KindMissing", Equal(
		"the API server does not serve HTTPRoute (gateway.networking.k8s.io/v1); install the Gateway API, or remove spec.httpRoute"))
	w.Expect(conditions(server)).To(HaveKeyWithValue("Ready", "False KindMissing"))
	w.Expect(server.Status.ExternalEndpoint).To(BeEmpty())
	mark := w.Settled()
	w.Expect(w.Requests(mark)).To(BeEmpty(), "it does not ask whether there is one by now")

	// When it is installed, then that is noticed,
	w.installGatewayAPI()
	server = w.ready("tools")
	w.Expect(conditions(server)).To(HaveKeyWithValue("RouteReady", "True Ready"))
	w.Expect(messageOf(server, "RouteReady")).To(Equal("HTTPRoute applied; the external URL is unknown: no Gateway in spec.httpRoute.parentRefs has a listener for the host name that allows routes of this namespace; correct spec.httpRoute or the Gateway"))
	route := harness.Read(w, "tools", &gatewayv1.HTTPRoute{})
	w.Expect(route.Spec.Hostnames).To(Equal([]gatewayv1.Hostname{"tools.example.com"}))

	// and its Gateways are.
	w.createGateway("public", gatewayv1.HTTPSProtocolType, 443)
	harness.Eventually(w, "tools", &v1beta1.MCPServer{}, func(g Gomega, m *v1beta1.MCPServer) {
		g.Expect(m.Status.ExternalEndpoint).To(Equal("https://tools.example.com/mcp"))
		g.Expect(messageOf(m, "RouteReady")).To(Equal("HTTPRoute applied"))
	})

	// When another manager starts, which finds it there, then nothing changes.
	w.AtRest("tools", "inside")
	w.Settled()
	w.Stop(w.Managers[0])
	versions, mark := w.versions([]string{"tools", "inside"}), w.Mark()
	second := w.startManager()
	for _, name := range []string{"tools", "inside"} {
		w.Eventually(func() int { return second.Checks("MCPServer", name, "Deployment") }).Should(BeNumerically(">=", 1), name)
	}
	w.Settled()
	w.Expect(w.Requests(mark).Writes()).To(BeEmpty())
	w.Expect(w.versions([]string{"tools", "inside"})).To(Equal(versions))

	// When it goes, and comes again
	w.removeGatewayAPI()
	w.shows("tools", "RouteReady", "False KindMissing", Not(BeEmpty()))
	w.ready("inside")
	w.installGatewayAPI()
	w.ready("tools")
	w.Expect(harness.Read(w, "tools", &gatewayv1.HTTPRoute{}).UID).NotTo(Equal(route.UID))

	// and an MCPServer without a route goes without one.
	w.Expect(api.Delete(w.Ctx, server)).To(Succeed())
	w.Eventually(w.IsGone("tools", &v1beta1.MCPServer{})).Should(Succeed())
	w.Expect(w.IsGone("tools", &gatewayv1.HTTPRoute{})()).To(Succeed())
}

func TestRouteThroughGateway(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.installGatewayAPI()
	w.startManager()
	w.createGateway("public", gatewayv1.HTTPProtocolType, 8080)
	server := w.createReady("tools", unasked, routed(func(r *v1beta1.MCPServerHTTPRoute) { r.Path = "/tools" }))
	w.Expect(server.Status.Endpoint).To(Equal("http://tools." + w.Namespace + ".svc:8080/mcp"))
	harness.Eventually(w, "tools", &v1beta1.MCPServer{}, func(g Gomega, m *v1beta1.MCPServer) {
		g.Expect(m.Status.ExternalEndpoint).To(Equal("http://tools.example.com:8080/tools/mcp"))
	})
	rule := harness.Read(w, "tools", &gatewayv1.HTTPRoute{}).Spec.Rules[0]
	w.Expect(rule.Filters).To(HaveLen(1))
	w.Expect(rule.Filters[0].URLRewrite.Path.ReplacePrefixMatch).To(HaveValue(Equal("/")))

	// The address outside follows with the status that sees the change.
	versions := harness.Versions[*v1beta1.MCPServer](w, &v1beta1.MCPServerList{}, "tools")
	server = w.changeReady("tools", func(s *v1beta1.MCPServerSpec) { s.Path = "/tools/v2" })
	w.Expect(server.Status.ExternalEndpoint).To(Equal("http://tools.example.com:8080/tools/v2"))
	for _, version := range versions() {
		if version.Status.ObservedGeneration == version.Generation && version.Spec.Path != "" {
			w.Expect(version.Status.ExternalEndpoint).To(Equal("http://tools.example.com:8080/tools/v2"))
		}
	}
	harness.Eventually(w, "tools", &gatewayv1.HTTPRoute{}, func(g Gomega, r *gatewayv1.HTTPRoute) { g.Expect(r.Spec.Rules[0].Filters).To(BeEmpty()) })

	// What the Gateway says counts.
	w.answer("tools", metav1.ConditionFalse, "NoMatchingListenerHostname", "no listener serves tools.example.com")
	server = w.shows("tools", "RouteReady", "False RouteRejected", Equal(
		"Gateway public rejected the HTTPRoute: no listener serves tools.example.com; correct spec.httpRoute or the listener of the Gateway"))
	w.Expect(conditions(server)).To(HaveKeyWithValue("Stalled", "True RouteRejected"))
	w.answer("tools", metav1.ConditionTrue, "Accepted", "")
	w.ready("tools")
}
