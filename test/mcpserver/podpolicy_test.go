package mcpserver_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
	"github.com/fixpoint-dev/fixpoint/internal/references"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// restrictedContext is what the restricted Pod Security Standard requires of each container.
const restrictedContext = `"securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}`

// The pods of an MCPServer that breaks the policy of an upgraded manager are neither deleted nor replaced.
func TestPolicyLeavesRunningPodsUnchanged(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	// Given pods that an earlier version, which had no policy, has created
	permissive := w.options()
	permissive.PodOverrides = mcpserver.OverridesAll
	before := w.StartManager(shared.Config(harness.ManagerUser), permissive)
	w.createReady("tools", unasked, replicas(2), overrides(`{"hostPID":true}`))
	pods := w.podUIDs("tools")
	w.Expect(pods).To(HaveLen(2))
	mark := w.Settled()

	// When the manager is upgraded
	w.Stop(before)
	w.startManager()

	// Then the object is stalled and names the field,
	server := w.shows("tools", "DeploymentReady", "False NotPermitted", Equal("spec.podOverrides: the restricted Pod Security Standard forbids such pods: host namespaces (hostPID=true); change these settings, or ask the administrator to run the manager with --pod-overrides=all. An existing Deployment and its pods are left unchanged"))
	w.Expect(conditions(server)).To(And(HaveKeyWithValue("Stalled", "True NotPermitted"), HaveKeyWithValue("Ready", "False NotPermitted")))
	w.Expect(server.Status.Phase).To(Equal(v1beta1.PhaseDegraded))
	w.Expect(server.Status.ReadyReplicas).To(BeEquivalentTo(2))

	// its pods run on, and a change of the spec does not reach them,
	w.change("tools", withImage(otherImage))
	w.shows("tools", "DeploymentReady", "False NotPermitted", Not(BeEmpty()))
	w.Settled()
	w.Expect(w.Requests(mark).Writes().Except("mcpservers.fixpoint.dev")).To(BeEmpty())
	w.Expect(w.podUIDs("tools")).To(ConsistOf(pods))

	// until the field is corrected.
	w.changeReady("tools", overrides(`{"hostAliases":[{"ip":"10.0.0.1","hostnames":["db"]}]}`))
	w.Expect(w.deployment("tools").Spec.Template.Spec.HostPID).To(BeFalse())
	w.Expect(w.deployment("tools").Spec.Template.Spec.Containers[0].Image).To(Equal(otherImage))
}

func TestUserPerSessionRunsTheBridgeAsRootIfThePolicyPermits(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	stdio := func(s *v1beta1.MCPServerSpec) { s.Transport, s.Command = v1beta1.TransportStdio, []string{"serve"} }
	users := func(s *v1beta1.MCPServerSpec) {
		s.Bridge = &v1beta1.MCPServerBridge{FirstSessionUser: ptr.To[int64](100000)}
	}
	// Given pods of a server without the field, and the default policy
	restrictive := w.startManager()
	w.createReady("tools", unasked, stdio)
	pods := w.podUIDs("tools")

	// When the field is set, then the object is stalled and names it, and the pods run on.
	w.change("tools", users)
	server := w.shows("tools", "DeploymentReady", "False NotPermitted", HavePrefix("spec.bridge.firstSessionUser: "))
	w.Expect(conditions(server)).To(HaveKeyWithValue("Stalled", "True NotPermitted"))
	w.Expect(w.podUIDs("tools")).To(ConsistOf(pods))

	// When the policy permits it, then the pods are replaced by ones whose bridge has the users and the capabilities.
	w.Stop(restrictive)
	permissive := w.options()
	permissive.PodOverrides = mcpserver.OverridesAll
	w.StartManager(shared.Config(harness.ManagerUser), permissive)
	w.Eventually(func() []string { return w.deployment("tools").Spec.Template.Spec.Containers[0].Command }).Should(ContainElements("--first-session-user", "100000"))
	w.complete("tools")
	container := w.deployment("tools").Spec.Template.Spec.Containers[0]
	w.Expect(container.SecurityContext).To(HaveValue(Equal(corev1.SecurityContext{
		RunAsUser: ptr.To[int64](0), RunAsNonRoot: ptr.To(false), AllowPrivilegeEscalation: ptr.To(false),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"CHOWN", "KILL", "SETGID", "SETUID"}}})))
	w.Expect(w.podUIDs("tools")).NotTo(ContainElements(pods))

	// When the field is removed, then so are the privileges.
	w.change("tools", func(s *v1beta1.MCPServerSpec) { s.Bridge = nil })
	w.Eventually(func() *corev1.SecurityContext {
		return w.deployment("tools").Spec.Template.Spec.Containers[0].SecurityContext
	}).Should(HaveValue(Equal(corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}})))
	w.complete("tools")
}

// systemNamespace creates a namespace for the manager.
func (w *fixture) systemNamespace() string {
	w.T.Helper()
	name := w.Namespace + "-system"
	w.Expect(api.Create(w.Ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	return name
}

func (w *fixture) dependenciesHash(name string) string {
	w.T.Helper()
	return w.deployment(name).Spec.Template.Annotations["fixpoint.dev/dependencies-hash"]
}

// A hash without a key, as earlier versions declared it, stays until the data changes. Then it has a key that
// all replicas share. Neither the upgrade nor another replica replaces a pod.
func TestHashOfSecretDataGetsAKeyWithoutReplacingPods(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	// Given pods whose template has a hash without a key
	earlier := w.startManager()
	w.createSecret("pin", "pin", "481516")
	w.createReady("tools", unasked, replicas(2), fromSecrets("pin"))
	pods := w.podUIDs("tools")
	w.Expect(w.dependenciesHash("tools")).To(HaveLen(16))
	mark := w.Settled()

	// When the manager is upgraded to one that has a key
	w.Stop(earlier)
	options := w.options()
	options.PodNamespace = w.systemNamespace()
	upgraded := w.StartManager(shared.Config(harness.ManagerUser), options)
	w.Eventually(func() int { return upgraded.Checks("MCPServer", "tools", "Deployment") }).Should(BeNumerically(">=", 1))
	w.Settled()

	// Then nothing is written,
	w.Expect(w.Requests(mark).Writes().Where(isOfManager)).To(BeEmpty())
	w.Expect(w.podUIDs("tools")).To(ConsistOf(pods))

	// and the next change of the data replaces the pods once, with a hash that has a key.
	w.rotate("pin", "pin", "230042")
	w.Eventually(func() int { return len(w.replicaSets("tools")) }).Should(Equal(2))
	w.complete("tools")
	keyed := w.dependenciesHash("tools")
	w.Expect(keyed).To(HaveLen(32))
	key := &corev1.Secret{}
	w.Expect(api.Get(w.Ctx, client.ObjectKey{Namespace: options.PodNamespace, Name: references.KeySecret}, key)).To(Succeed())
	w.Expect(key.Data["key"]).To(HaveLen(32))
	pods = w.podUIDs("tools")
	mark = w.Settled()

	// When another replica takes over
	w.Stop(upgraded)
	replica := w.StartManager(shared.Config(harness.ManagerUser), options)
	w.Eventually(func() int { return replica.Checks("MCPServer", "tools", "Deployment") }).Should(BeNumerically(">=", 1))
	w.Settled()

	// Then it declares the same hash.
	w.Expect(w.Requests(mark).Writes().Where(isOfManager)).To(BeEmpty())
	w.Expect(w.dependenciesHash("tools")).To(Equal(keyed))
	w.Expect(w.podUIDs("tools")).To(ConsistOf(pods))

	// When the key is lost
	w.Stop(replica)
	w.Expect(api.Delete(w.Ctx, key)).To(Succeed())
	w.StartManager(shared.Config(harness.ManagerUser), options)

	// Then a new one is created, and the pods are replaced once.
	w.Eventually(func() string { return w.dependenciesHash("tools") }).ShouldNot(Equal(keyed))
	w.complete("tools")
	w.Settled()
	w.Expect(w.replicaSets("tools")).To(HaveLen(3))
}
