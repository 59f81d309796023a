package mcpserver_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

func TestEndpointFollowsTheSpecInOneStatusWrite(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("tools", often)
	versions := harness.Versions[*v1beta1.MCPServer](w, &v1beta1.MCPServerList{}, "tools")

	w.changeReady("tools", func(s *v1beta1.MCPServerSpec) { s.Port = 9090 })
	w.changeReady("tools", func(s *v1beta1.MCPServerSpec) { s.Path = "/else" })

	w.Expect(harness.Read(w, "tools", &v1beta1.MCPServer{}).Status.Endpoint).To(Equal("http://tools." + w.Namespace + ".svc:9090/else"))
	for _, version := range versions() {
		if version.Status.ObservedGeneration != version.Generation {
			continue
		}
		want := "http://tools." + w.Namespace + ".svc:8080/mcp"
		if version.Spec.Port == 9090 {
			want = "http://tools." + w.Namespace + ".svc:9090/mcp"
		}
		if version.Spec.Path != "" {
			want = "http://tools." + w.Namespace + ".svc:9090" + version.Spec.Path
		}
		w.Expect(version.Status.Endpoint).To(Equal(want))
	}
	w.Expect(w.server.requests("/else")).To(BeNumerically(">", 0))
}

// TestServerThatStopsAnsweringLosesAndRegainsReady each time. TestStoppedServerIsFailingWithinTwoIntervals in
// internal/prober tests how soon, with a fake clock, independently of the speed of this machine.
func TestServerThatStopsAnsweringLosesAndRegainsReady(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("tools", often)
	generation := w.deployment("tools").Generation

	for range 3 {
		w.server.set(true, "")
		server := w.shows("tools", "ProtocolReady", "False ProtocolFailing", ContainSubstring("the server responded with 500 Internal Server Error"))
		w.Expect(conditions(server)).To(HaveKeyWithValue("Ready", "False ProtocolFailing"))
		w.Expect(server.Status.Phase).To(Equal(v1beta1.PhaseDegraded))
		w.Expect(server.Status.Server).NotTo(BeNil(), "what it said last stands")

		w.server.set(false, "")
		server = w.ready("tools")
		w.Expect(server.Status.Phase).To(Equal(v1beta1.PhaseRunning))
	}
	w.Eventually(func() []string { return w.events("tools") }).Should(ContainElement(
		HavePrefix("Warning ProtocolFailing Ready is False: Protocol: MCP handshake failed: the server responded with 500 Internal Server Error")))
	w.Expect(w.deployment("tools").Generation).To(Equal(generation), "what serves is never taken down")
}

func TestProbesWithCredentialsThatTheServerRequires(t *testing.T) {
	w := newManagedFixture(t)
	w.server.set(false, "sesame")
	w.create("tools", often)
	server := w.shows("tools", "ProtocolReady", "True CredentialsRequired", ContainSubstring("401 Unauthorized; to probe it with a token, set spec.protocol.credentialsSecretRef"))
	w.Expect(conditions(server)).To(HaveKeyWithValue("Ready", "True Ready"))
	w.Expect(server.Status.Server).To(BeNil())

	w.change("tools", func(s *v1beta1.MCPServerSpec) {
		s.Protocol.CredentialsSecretRef = &v1beta1.MCPServerCredentialsSecretRef{Name: "tokens"}
	})
	w.shows("tools", "DependenciesReady", "False DependencyMissing", ContainSubstring("Secret tokens"))
	w.createSecret("tokens", "token", "wrong")
	w.shows("tools", "ProtocolReady", "True CredentialsRequired", ContainSubstring("401"))
	w.rotate("tokens", "token", "sesame")
	server = w.shows("tools", "ProtocolReady", "True Ready", Not(BeEmpty()))
	w.Eventually(func() *v1beta1.MCPServerInfo { return harness.Read(w, "tools", &v1beta1.MCPServer{}).Status.Server }).ShouldNot(BeNil())
	w.Expect(w.replicaSets("tools")).To(HaveLen(1), "pods do not take the token")
	w.Expect(server.Status.Endpoint).NotTo(BeEmpty())
}

// A server is not said to answer because it did when nobody asked.
func TestEnablingTheProbeProbes(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("tools", unasked)
	w.Settled()
	w.server.set(true, "")

	w.change("tools", often, func(s *v1beta1.MCPServerSpec) { s.Protocol.Probe = v1beta1.ProbePeriodic })
	versions := harness.Versions[*v1beta1.MCPServer](w, &v1beta1.MCPServerList{}, "tools")
	w.shows("tools", "ProtocolReady", "False ProtocolFailing", Not(BeEmpty()))

	for _, version := range versions() {
		if version.Status.ObservedGeneration == version.Generation {
			w.Expect(conditions(version)).To(HaveKeyWithValue("ProtocolReady", HavePrefix("False ")))
		}
	}
}

func TestRolloutKeepsReadyWhileOldPodsServe(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("tools", unasked, replicas(3))
	versions := harness.Versions[*v1beta1.MCPServer](w, &v1beta1.MCPServerList{}, "tools")

	w.changeReady("tools", withImage(otherImage))

	for _, version := range versions() {
		if version.Status.ObservedGeneration != version.Generation {
			continue
		}
		w.Expect(version.Status.ReadyReplicas).To(BeNumerically(">=", 3), "%v", conditions(version))
		if conditions(version)["Ready"] == "True Ready" {
			w.Expect(conditions(version)["DeploymentReady"]).To(BeElementOf("True Ready", "True OldReplicasServing"))
		}
	}
}
