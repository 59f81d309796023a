package mcpserver_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

func pin(s *v1beta1.MCPServerSpec) {
	s.Contract = &v1beta1.MCPServerContract{Policy: v1beta1.ContractPin}
}

// readyPods are the images of the pods that are ready.
func (w *fixture) readyPods(name string) []string {
	var pods corev1.PodList
	w.Expect(api.List(w.Ctx, &pods, client.InNamespace(w.Namespace), client.MatchingLabels{"app.kubernetes.io/name": name})).To(Succeed())
	images := []string{}
	for _, pod := range pods.Items {
		isReady := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
		if isReady && pod.DeletionTimestamp == nil {
			images = append(images, pod.Spec.Containers[0].Image)
		}
	}
	slices.Sort(images)
	return images
}

// approve sets the annotation, as kubectl fixpoint approve does.
func (w *fixture) approve(name, digest string) {
	w.T.Helper()
	live := harness.Read(w, name, &v1beta1.MCPServer{})
	changed := live.DeepCopy()
	changed.Annotations = map[string]string{v1beta1.AnnotationApprovedContract: digest}
	w.Expect(w.As("kubectl-fixpoint-approve").Patch(w.Ctx, changed, client.MergeFrom(live))).To(Succeed())
}

// waitsForApproval waits until a contract does, and returns its digest.
func (w *fixture) waitsForApproval(name, change string) string {
	w.T.Helper()
	live := harness.Eventually(w, name, &v1beta1.MCPServer{}, func(g Gomega, m *v1beta1.MCPServer) {
		g.Expect(conditions(m)).To(And(HaveKeyWithValue("ContractReady", "False ContractNotApproved"), HaveKeyWithValue("Ready", "False ContractNotApproved")))
		g.Expect(m.Status.PendingContract).NotTo(BeNil())
	})
	w.Expect(messageOf(live, "ContractReady")).To(And(ContainSubstring(change), ContainSubstring(live.Status.PendingContract.Digest)))
	return live.Status.PendingContract.Digest
}

// TestPinnedContract is approved on first use, holds a rollout until another one is approved, and takes traffic from a
// server that changes it while it runs.
func TestPinnedContract(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	routes := newNetwork(w)
	options := controllers.Options{Namespaces: []string{w.Namespace}, Controllers: []string{mcpserver.Name}, ProbeDial: routes.dial}
	manager := w.StartManager(shared.Config(harness.ManagerUser), options)
	newer := another(t, "2.0.0")
	offer[struct{}](newer, "three", "")
	routes.lead(otherImage, newer)

	// Given the first contract
	w.create("tools", often, replicas(2), pin)
	first := w.complete("tools")
	w.Expect(conditions(first)).To(HaveKeyWithValue("ContractReady", "True Ready"))
	w.Expect(contractNames(first.Status.Contract)).To(Equal([]string{"tool/one", "tool/two"}))
	w.Expect(first.Status.PendingContract).To(BeNil())
	w.Expect(w.readyPods("tools")).To(Equal([]string{image, image}))

	// At rest, probes write nothing. On a busy machine, it takes some probes until the last status is written.
	probe := func() {
		probed := w.server.requests("/mcp")
		w.Eventually(func() int { return w.server.requests("/mcp") }).Should(BeNumerically(">", probed+20))
	}
	probe()
	mark := w.Settled()
	probe()
	w.Expect(w.Requests(mark).Writes()).To(BeEmpty())

	// When a rollout brings another contract, then the new pods wait, and the old ones serve
	w.change("tools", withImage(otherImage))
	pending := w.waitsForApproval("tools", `added: tool "three"`)
	w.Expect(w.readyPods("tools")).To(Equal([]string{image, image}))
	live := harness.Read(w, "tools", &v1beta1.MCPServer{})
	w.Expect(contractNames(live.Status.Contract)).To(Equal([]string{"tool/one", "tool/two"}))
	w.Expect(live.Status.PendingContract.Change.Added).To(Equal([]string{"tool/three"}))

	// It waits through a restart of the manager
	w.Settled()
	w.Stop(manager)
	mark = w.Settled()
	w.StartManager(shared.Config(harness.ManagerUser), options)
	probed := newer.requests("/mcp")
	w.Eventually(func() int { return newer.requests("/mcp") }).Should(BeNumerically(">", probed+10))
	w.Settled()
	w.Expect(w.Requests(mark).Writes()).To(BeEmpty())

	// When it is approved, then the rollout completes
	w.approve("tools", pending)
	w.Eventually(func() []string { return w.readyPods("tools") }).Should(Equal([]string{otherImage, otherImage}))
	done := harness.Eventually(w, "tools", &v1beta1.MCPServer{}, func(g Gomega, m *v1beta1.MCPServer) {
		g.Expect(conditions(m)).To(And(HaveKeyWithValue("ContractReady", "True Ready"), HaveKeyWithValue("Ready", "True Ready")))
		g.Expect(contractNames(m.Status.Contract)).To(Equal([]string{"tool/one", "tool/three", "tool/two"}))
		g.Expect(m.Status.PendingContract).To(BeNil())
	})
	w.Expect(done.Status.Contract.Digest).To(Equal(pending))

	// When the server changes while it runs, then no pod takes traffic
	offer[struct{}](newer, "four", "Deletes everything.")
	w.Eventually(func() []string { return w.readyPods("tools") }).Should(BeEmpty())
	changed := w.waitsForApproval("tools", `added: tool "four"`)
	w.Expect(changed).NotTo(Equal(pending))

	// When it changes back, then they do again
	newer.answers.RemoveTools("four")
	w.Eventually(func() []string { return w.readyPods("tools") }).Should(Equal([]string{otherImage, otherImage}))
	harness.Eventually(w, "tools", &v1beta1.MCPServer{}, func(g Gomega, m *v1beta1.MCPServer) {
		g.Expect(conditions(m)).To(HaveKeyWithValue("Ready", "True Ready"))
	})

	// When it lists what the manager refuses to read, and clients may read, then no pod takes traffic until it is removed
	newer.answers.AddTool(&mcp.Tool{Name: "five", InputSchema: json.RawMessage(strings.Repeat(`{"type":"object","not":`, 70) + "{}" + strings.Repeat("}", 70))}, nil)
	w.Eventually(func() []string { return w.readyPods("tools") }).Should(BeEmpty())
	harness.Eventually(w, "tools", &v1beta1.MCPServer{}, func(g Gomega, m *v1beta1.MCPServer) {
		g.Expect(conditions(m)).To(HaveKeyWithValue("ContractReady", "False ContractPending"))
		g.Expect(messageOf(m, "ContractReady")).To(ContainSubstring("nested deeper than 64 levels"))
	})
	newer.answers.RemoveTools("five")
	w.Eventually(func() []string { return w.readyPods("tools") }).Should(Equal([]string{otherImage, otherImage}))

	// When the digest of the spec changes with the image, then the rollout needs no approval
	w.change("tools", func(s *v1beta1.MCPServerSpec) { s.Image, s.Contract.Digest = image, first.Status.Contract.Digest })
	w.Eventually(func() []string { return w.readyPods("tools") }).Should(Equal([]string{image, image}))
	harness.Eventually(w, "tools", &v1beta1.MCPServer{}, func(g Gomega, m *v1beta1.MCPServer) {
		g.Expect(conditions(m)).To(HaveKeyWithValue("Ready", "True Ready"))
		g.Expect(m.Status.Contract.Digest).To(Equal(first.Status.Contract.Digest))
	})

	// When contracts are only observed, then pods have no gate
	w.change("tools", func(s *v1beta1.MCPServerSpec) { s.Contract = nil })
	w.complete("tools")
	harness.Eventually(w, "tools", &v1beta1.MCPServer{}, func(g Gomega, m *v1beta1.MCPServer) {
		g.Expect(conditions(m)).NotTo(HaveKey("ContractReady"))
		g.Expect(harness.Read(w, "tools", &appsv1.Deployment{}).Spec.Template.Spec.ReadinessGates).To(BeEmpty())
	})
}

// TestHeldPodsDoNotBlockChanges of other children, and of the pods themselves.
func TestHeldPodsDoNotBlockChanges(t *testing.T) {
	w, routes := newNetworkedFixture(t)
	newer := another(t, "2.0.0")
	offer[struct{}](newer, "three", "")
	routes.lead(otherImage, newer)

	// Given a first rollout with another contract than that of the spec
	w.create("tools", often, pin, withImage(otherImage), func(s *v1beta1.MCPServerSpec) { s.Contract.Digest = "00000000000000000000000000000000" })
	w.waitsForApproval("tools", "set spec.contract.digest to")
	live := harness.Read(w, "tools", &v1beta1.MCPServer{})
	w.Expect(conditions(live)).To(And(
		HaveKeyWithValue("DeploymentReady", "True ContractPending"), HaveKeyWithValue("ProtocolReady", "Unknown Blocked")))
	w.Expect(live.Status.Contract).To(BeNil())
	w.Expect(w.readyPods("tools")).To(BeEmpty())

	// When the spec is corrected, then the pods serve
	w.change("tools", func(s *v1beta1.MCPServerSpec) { s.Contract.Digest = live.Status.PendingContract.Digest })
	w.complete("tools")
	w.Expect(w.readyPods("tools")).To(Equal([]string{otherImage}))
}
