package mcpserver_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// tenLines is what a user has to write.
const tenLines = `
apiVersion: fixpoint.dev/v1beta1
kind: MCPServer
metadata:
  name: tools
spec:
  image: registry.test/tools:1
  transport: streamable-http
`

func (w *fixture) apply(text string) {
	w.T.Helper()
	server := &v1beta1.MCPServer{}
	raw := map[string]any{}
	w.Expect(yaml.Unmarshal([]byte(text), &raw)).To(Succeed())
	w.Expect(yaml.UnmarshalStrict([]byte(text), server)).To(Succeed())
	asJSON, err := yaml.YAMLToJSON([]byte(text))
	w.Expect(err).NotTo(HaveOccurred())
	server.Namespace = w.Namespace
	w.Expect(w.As("kubectl").Patch(w.Ctx, server, client.RawPatch("application/apply-patch+yaml", asJSON))).To(Succeed())
}

func TestTenLinesGiveAWorkingEndpoint(t *testing.T) {
	w := newManagedFixture(t)

	w.apply(tenLines)
	server := w.complete("tools")

	w.Expect(conditions(server)).To(Equal(map[string]string{
		"Ready": "True Ready", "DependenciesReady": "True Ready", "ServiceReady": "True Ready",
		"DeploymentReady": "True Ready", "ProtocolReady": "True Ready",
	}))
	w.Expect(server.Status.Phase).To(Equal(v1beta1.PhaseRunning))
	w.Expect(server.Status.Endpoint).To(Equal("http://tools." + w.Namespace + ".svc:8080/mcp"))
	w.Expect(server.Status.Replicas).To(BeEquivalentTo(1))
	w.Expect(server.Status.ReadyReplicas).To(BeEquivalentTo(1))
	w.Expect(server.Status.Server).NotTo(BeNil())
	w.Expect(server.Status.Server.Name).To(Equal("stand-in"))
	w.Expect(server.Status.Server.Version).To(Equal("1.2.3"))
	w.Expect(server.Status.Server.ProtocolVersion).NotTo(BeEmpty())
	w.Expect(server.Status.Server.Capabilities).To(ContainElement("tools"))
	harness.Eventually(w, "tools", &v1beta1.MCPServer{}, toolsAreCounted)
	w.Expect(w.server.requests("/mcp")).To(BeNumerically(">", 0))
	w.Expect(w.server.requests("/sse")).To(BeZero())
}

// toolsAreCounted is for Eventually: servers of a namespace are listed one at a time, so that some are only listed with a
// later probe than that which makes them Ready.
func toolsAreCounted(g Gomega, m *v1beta1.MCPServer) {
	g.Expect(m.Status.Server).To(HaveField("Tools", BeEquivalentTo(2)))
}

func TestFewWritesFromNothingToReady(t *testing.T) {
	w := newManagedFixture(t)

	w.createReady("tools", unasked)
	w.Settled()

	writes := w.Requests(w.Began).Writes()
	t.Logf("%d writes:\n%s", len(writes), writes)
	for _, write := range writes {
		w.Expect(write.FieldManager()).To(Equal("fixpoint-mcpserver"), "%s", write)
	}
	if !w.ReadsStale() { // or writes may be repeated
		// A rollout that takes longer than the first report waits is reported then, and after each further interval.
		atMost, took := 7, writes[len(writes)-1].Received.Sub(writes[0].Received)
		if took > workload.ReportInterval {
			atMost += 1 + int((took-workload.ReportInterval)/phases.ProgressInterval)
		}
		w.Expect(len(writes)).To(BeNumerically("<=", atMost), "writes from nothing to Ready:\n%s", writes)
		w.Expect(writes.Succeeded()).To(HaveLen(len(writes)), "%s", writes)
	}
	w.Expect(w.server.requests("/mcp")).To(BeZero(), "nobody asks")
}

func TestOtherTransports(t *testing.T) {
	w := newManagedFixture(t)
	w.create("older", func(s *v1beta1.MCPServerSpec) { s.Transport = v1beta1.TransportSSE })
	w.create("bridged", func(s *v1beta1.MCPServerSpec) {
		s.Transport, s.Command = v1beta1.TransportStdio, []string{"serve"}
	})

	older, bridged := w.complete("older"), w.complete("bridged")

	w.Expect(older.Status.Endpoint).To(HaveSuffix(".svc:8080/sse"))
	harness.Eventually(w, "older", &v1beta1.MCPServer{}, toolsAreCounted)
	w.Expect(w.server.requests("/sse")).To(BeNumerically(">", 0))
	w.Expect(bridged.Status.Endpoint).To(HaveSuffix(".svc:8080/mcp"))
	pod := w.deployment("bridged").Spec.Template.Spec
	w.Expect(pod.InitContainers[0].Image).To(Equal(controllers.DefaultBridgeImage))
	w.Expect(strings.Join(pod.Containers[0].Command, " ")).To(Equal(
		"/.fixpoint/mcp-bridge serve --listen :8080 --admin-listen :9191 --path /mcp --allowed-host " +
			strings.ReplaceAll("bridged,bridged.NS,bridged.NS.svc,bridged.NS.svc.cluster.local", "NS", w.Namespace) + " --drain-timeout 48s -- serve"))
}

// everything turns all options on that this cluster has something to serve with.
func everything(s *v1beta1.MCPServerSpec) {
	s.Replicas = ptr.To[int32](2)
	s.ServiceAccount = &v1beta1.MCPServerServiceAccount{Create: true}
	s.Files = []v1beta1.MCPServerFile{{Path: "/etc/a", Content: "1"}}
	s.Env = []corev1.EnvVar{{Name: "MODE", Value: "fast"}}
	s.DisruptionBudget = &v1beta1.DisruptionBudget{MaxUnavailable: ptr.To(intstr.FromInt32(1))}
	s.NetworkPolicy = &v1beta1.MCPServerNetworkPolicy{Ingress: &v1beta1.MCPServerNetworkIngress{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}}}
	s.Protocol.Probe = v1beta1.ProbeDisabled
}

// needCluster are the kinds that everything leaves out, since they need an IngressClass, the Gateway API or
// a metrics server: each is an option of its own in options. The Secret needs transport stdio: see TestSessionKeys.
var needCluster = []string{"HorizontalPodAutoscaler", "Ingress", "HTTPRoute", "Secret"}

// childKinds are the kinds of the children of everything, with an empty object of each.
var childKinds = func() map[string]func() client.Object {
	kinds := harness.ChildKinds(mcpserver.Name)
	for _, kind := range needCluster {
		delete(kinds, kind)
	}
	return kinds
}()

// The namespace enforces the standard, so that the API server is the judge.
func TestPodsMeetTheRestrictedStandard(t *testing.T) {
	w := newManagedFixture(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}
	w.Expect(api.Patch(w.Ctx, namespace, client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`)))).To(Succeed())

	w.create("http", everything)
	w.create("bridged", everything, func(s *v1beta1.MCPServerSpec) {
		s.Transport, s.Command = v1beta1.TransportStdio, []string{"serve"}
	})

	w.complete("http")
	w.complete("bridged")
}

func TestDeletionIsCompleteWhenItReturns(t *testing.T) {
	w := newManagedFixture(t)
	w.installGatewayAPI() // the order has the resource of HTTPRoutes
	server := w.createReady("tools", everything)
	mark := w.Settled()

	w.Expect(api.Delete(w.Ctx, server)).To(Succeed())
	w.Eventually(w.IsGone("tools", &v1beta1.MCPServer{})).Should(Succeed())

	for kind, newObject := range childKinds {
		w.Expect(w.IsGone("tools", newObject())()).To(Succeed(), kind)
	}
	w.Expect(w.podUIDs("tools")).To(BeEmpty())
	var order []string
	for _, request := range w.Requests(mark).Verbs("delete") {
		if request.Code != http.StatusConflict { // the object had a newer version, and is deleted again
			order = append(order, request.Resource)
		}
	}
	want, err := suite.DeletionOrder(mcpserver.Name)
	w.Expect(err).NotTo(HaveOccurred())
	want = slices.DeleteFunc(want, func(resource string) bool {
		return slices.Contains([]string{"horizontalpodautoscalers", "ingresses", "httproutes", "secrets"}, resource) // see needCluster
	})
	w.Expect(want[0]).To(Equal("configmaps"), "that of contracts")
	if w.ReadsStale() { // then a deletion may be repeated
		order = slices.Compact(order)
	}
	w.Expect(order).To(Equal(want[1:]), "a server that is not probed has no contract")
}

// Pods must not run without their NetworkPolicy, neither before it is created nor after it is deleted.
func TestPodsRunOnlyWithTheirNetworkPolicy(t *testing.T) {
	w := newManagedFixture(t)
	mark := w.Mark()
	server := w.createReady("tools", everything)
	applied := func(resource string) int {
		return slices.IndexFunc(w.Requests(mark), func(r cluster.Request) bool { return r.Resource == resource && r.IsApply() })
	}
	w.Expect(applied("deployments")).To(BeNumerically(">", applied("networkpolicies")))
	w.Expect(applied("networkpolicies")).To(BeNumerically(">=", 0))

	policies, err := api.Watch(w.Ctx, &networkingv1.NetworkPolicyList{}, client.InNamespace(w.Namespace))
	w.Expect(err).NotTo(HaveOccurred())
	defer policies.Stop()
	w.Expect(api.Delete(w.Ctx, server)).To(Succeed())
	w.Eventually(policies.ResultChan()).Should(Receive(HaveField("Type", watch.Deleted)))

	var pods corev1.PodList
	w.Expect(api.List(w.Ctx, &pods, client.InNamespace(w.Namespace))).To(Succeed())
	w.Expect(pods.Items).To(BeEmpty())
	w.Eventually(w.IsGone("tools", &v1beta1.MCPServer{})).Should(Succeed())
}
