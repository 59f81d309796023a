package mcpserver_test

import (
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// another is one more server beside the cluster.
func another(t *testing.T, version string) *fakeServer {
	t.Helper()
	s := newServer(version)
	s.http = httptest.NewServer(s.handler)
	t.Cleanup(s.close)
	return s
}

func TestReadyNeedsAnAnswerOfEveryServingPod(t *testing.T) {
	w, network := newNetworkedFixture(t)
	w.createReady("tools", often, replicas(3))
	bad := another(t, "1.2.3")
	bad.set(true, "")
	var pods corev1.PodList
	w.Expect(api.List(w.Ctx, &pods, client.InNamespace(w.Namespace))).To(Succeed())

	network.leadPod(pods.Items[1].Name, bad)
	server := w.shows("tools", "ProtocolReady", "False ProtocolFailing", ContainSubstring("500"))
	w.Expect(server.Status.ReadyReplicas).To(BeEquivalentTo(3), "to Kubernetes it is ready")

	bad.set(false, "")
	w.ready("tools")
}

// TestProbesNewPodsBeforeReady: what the pods of the earlier version have answered says
// nothing about those of the new one.
func TestProbesNewPodsBeforeReady(t *testing.T) {
	for name, pods := range map[string]int32{"one pod": 1, "three pods": 3} {
		t.Run(name, func(t *testing.T) {
			w, network := newNetworkedFixture(t)
			newer := another(t, "2.0.0")
			newer.set(true, "")
			network.lead(otherImage, newer)
			w.createReady("tools", often, replicas(pods))
			harness.Eventually(w, "tools", &v1beta1.MCPServer{}, func(g Gomega, m *v1beta1.MCPServer) { g.Expect(m.Status.Server).To(HaveField("Version", "1.2.3")) })
			old := w.replicaSets("tools")[0].Name
			w.Expect(harness.Read(w, "tools", &v1beta1.MCPServer{}).Status.ProbedVersions).To(Equal([]string{old}))
			versions := harness.Versions[*v1beta1.MCPServer](w, &v1beta1.MCPServerList{}, "tools")

			// When pods take over that Kubernetes takes for ready, and that do not answer
			w.change("tools", withImage(otherImage))
			w.shows("tools", "ProtocolReady", "False ProtocolFailing", ContainSubstring("500"))

			// Then it was never said of them that they answer.
			for _, version := range versions() {
				if version.Status.ObservedGeneration != version.Generation || conditions(version)["DeploymentReady"] != "True Ready" {
					continue
				}
				// Until its endpoints are updated, the Service routes to the old pods.
				if conditions(version)["ProtocolReady"] == "True Ready" {
					w.Expect(version.Status.ProbedVersions).To(Equal([]string{old}), "%v", version.Status)
				}
			}
			newer.set(false, "")
			w.complete("tools")
			server := harness.Eventually(w, "tools", &v1beta1.MCPServer{}, func(g Gomega, m *v1beta1.MCPServer) { g.Expect(m.Status.Server).To(HaveField("Version", "2.0.0")) })
			w.Expect(server.Status.ProbedVersions).NotTo(ContainElement(old))
		})
	}
}

// TestHangingServerDoesNotDelayOthers: even a manager with a single worker goes on.
func TestHangingServerDoesNotDelayOthers(t *testing.T) {
	w, network := newNetworkedFixture(t, func(o *controllers.Options) { o.Concurrency = 1 })
	hanging := another(t, "1.2.3")
	hanging.hang()
	network.lead(otherImage, hanging)
	w.create("hangs", withImage(otherImage), func(s *v1beta1.MCPServerSpec) {
		s.Protocol.Interval, s.Protocol.Timeout = metav1.Duration{Duration: 30 * time.Second}, metav1.Duration{Duration: 30 * time.Second}
	})
	w.shows("hangs", "ProtocolReady", "False ProtocolPending", ContainSubstring("waiting for the first MCP handshake"))

	for _, name := range []string{"a", "b", "c"} {
		tries := 0
		w.Eventually(func(g Gomega) {
			g.Expect(hanging.waiting()).To(Equal(1))
			tries++
			before := hanging.requests("/mcp")
			w.createReady(fmt.Sprintf("%s-%d", name, tries), often)
			g.Expect(hanging.waiting()).To(Equal(1))
			g.Expect(hanging.requests("/mcp")).To(Equal(before), "the same request still hangs")
		}).Should(Succeed())
	}
}
