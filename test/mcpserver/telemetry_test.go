package mcpserver_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

func TestTelemetryPutsAProxyWithHeadersInFrontOfTheServer(t *testing.T) {
	w := newManagedFixture(t)
	w.create("tools", unasked, func(s *v1beta1.MCPServerSpec) {
		s.Telemetry = &v1beta1.MCPServerTelemetry{Audit: &v1beta1.MCPServerAudit{}, OTLP: &v1beta1.MCPServerOTLP{
			Endpoint: "http://collector.observability:4318", HeadersSecretRef: &v1beta1.MCPServerHeadersSecretRef{Name: "otlp"},
		}}
	})
	w.shows("tools", "DependenciesReady", "False DependencyMissing", HavePrefix("missing: Secret otlp;"))
	w.createSecret("otlp", "headers", "Authorization: Bearer a")
	w.complete("tools")

	pod := w.deployment("tools").Spec.Template.Spec
	w.Expect(pod.Containers).To(HaveLen(2))
	w.Expect(pod.Containers[1].Command).To(ContainElements("--audit", "Digest", "--otlp-endpoint", "http://collector.observability:4318"))
	w.Expect(pod.Volumes).To(ConsistOf(HaveField("VolumeSource.Secret.SecretName", "otlp")))
	w.Eventually(func() []int32 { return w.endpointPorts("tools") }).Should(ConsistOf(BeEquivalentTo(9190)))

	t.Log("other headers replace no pods")
	before := w.podUIDs("tools")
	harness.Update(w, "kubectl-edit", "otlp", &corev1.Secret{}, func(s *corev1.Secret) { s.Data["headers"] = []byte("Authorization: Bearer b") })
	w.Settled()
	w.Expect(w.podUIDs("tools")).To(ConsistOf(before))

	t.Log("without the field the pods are as before")
	w.change("tools", func(s *v1beta1.MCPServerSpec) { s.Telemetry = nil })
	w.complete("tools")
	w.Eventually(func() []int32 { return w.endpointPorts("tools") }).Should(ConsistOf(BeEquivalentTo(8080)))
}
