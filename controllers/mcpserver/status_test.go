package mcpserver

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/prober"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

func deploymentWith(replicas, ready int32) *appsv1.Deployment {
	return &appsv1.Deployment{Status: appsv1.DeploymentStatus{Replicas: replicas, ReadyReplicas: ready}}
}

func TestDesiredStatus(t *testing.T) {
	const before = `
apiVersion: fixpoint.dev/v1beta1
kind: MCPServer
metadata: {name: tools, namespace: acme}
status:
  observedGeneration: 3
  phase: Provisioning
  endpoint: http://tools.acme.svc:8080/mcp
  replicas: 0
  readyReplicas: 0
  selector: app.kubernetes.io/name=tools,fixpoint.dev/kind=mcpserver
`
	old := &v1beta1.MCPServerInfo{Name: "old", Version: "1", Capabilities: []string{"tools"}, Tools: 4}
	cases := map[string]struct {
		change func(*v1beta1.MCPServer, *scope)
		want   map[string]string
	}{
		"at first": {func(*v1beta1.MCPServer, *scope) {}, nil},
		"a changed endpoint": {func(m *v1beta1.MCPServer, _ *scope) {
			m.Status.Endpoint, m.Spec.Port, m.Spec.Path = "http://tools.acme.svc:8080/mcp", 90, "/new"
		}, map[string]string{"status.endpoint": "http://tools.acme.svc:90/new"}},
		"pods": {func(_ *v1beta1.MCPServer, s *scope) { s.deployment = deploymentWith(3, 1) },
			map[string]string{"status.replicas": "3", "status.readyReplicas": "1"}},
		"the server": {func(m *v1beta1.MCPServer, s *scope) {
			m.Status.Server = old
			s.probed = &prober.Result{Server: &prober.Server{
				Name: "everything", Version: "2", ProtocolVersion: "2025-11-25", Capabilities: []string{"prompts", "tools"}, Tools: 7, Prompts: 2}}
		}, map[string]string{"status.server": `{name: everything, version: "2", protocolVersion: "2025-11-25", capabilities: [prompts, tools], tools: 7, prompts: 2, resources: 0}`}},
		"the last server info is kept until the next probe": {func(m *v1beta1.MCPServer, s *scope) { m.Status.Server, s.probed = old, &prober.Result{} },
			map[string]string{"status.server": `{name: old, version: "1", protocolVersion: "", capabilities: [tools], tools: 4, prompts: 0, resources: 0}`}},
		"the contract": {func(_ *v1beta1.MCPServer, s *scope) {
			s.probed = &prober.Result{Contract: foundContract("tool/add=1-1")}
		}, map[string]string{"status.contract": `{digest: "digest of [tool/add=1-1]", items: [{kind: tool, name: add, digest: "1-1"}]}`}},
		"a changed contract": {func(m *v1beta1.MCPServer, s *scope) {
			m.Status.Contract, s.probed = recorded(foundContract("tool/add=1-1")), &prober.Result{Contract: withOmitted(foundContract("tool/add=2-1"), 1)}
		}, map[string]string{"status.contract": `{digest: "digest of [tool/add=2-1] and 1", items: [{kind: tool, name: add, digest: "2-1"}], omitted: 1,
			lastChange: {time: "2026-01-02T00:00:00Z", schemaChanged: [tool/add]}}`}},
		"probed versions are kept": {func(m *v1beta1.MCPServer, _ *scope) { m.Status.ProbedVersions = []string{"tools-1"} },
			map[string]string{"status.probedVersions": "[tools-1]"}},
		"new probed versions": {func(m *v1beta1.MCPServer, s *scope) {
			m.Status.ProbedVersions, s.probedVersions = []string{"tools-1"}, []string{"tools-2"}
		},
			map[string]string{"status.probedVersions": "[tools-2]"}},
		"an external endpoint": {func(m *v1beta1.MCPServer, _ *scope) {
			m.Status.ExternalEndpoint, m.Spec.Ingress = "http://old.example.com/mcp", &v1beta1.Ingress{Host: "tools.example.com", Path: "/", TLSSecretName: "x"}
		}, map[string]string{"status.externalEndpoint": "https://tools.example.com/mcp"}},
		"the counts of the last server info are kept": {func(m *v1beta1.MCPServer, _ *scope) {
			m.Status.Server = &v1beta1.MCPServerInfo{Name: "old", Version: "1", ProtocolVersion: "2025-11-25", Tools: 4, Prompts: 5, Resources: 6}
		}, map[string]string{"status.server": `{name: old, version: "1", protocolVersion: "2025-11-25", tools: 4, prompts: 5, resources: 6}`}},
		"the resources of the server": {func(_ *v1beta1.MCPServer, s *scope) {
			s.probed = &prober.Result{Server: &prober.Server{Resources: 3}}
		}, map[string]string{"status.server": `{name: "", version: "", protocolVersion: "", tools: 0, prompts: 0, resources: 3}`}},
		"a request to reconcile": {func(m *v1beta1.MCPServer, _ *scope) {
			m.Annotations = map[string]string{v1beta1.AnnotationReconcileRequest: "now"}
		}, map[string]string{"status.lastHandledReconcileAt": "now"}},
		"a contract that waits": {func(m *v1beta1.MCPServer, _ *scope) {
			pin(&m.Spec)
			m.Status.PendingContract = &v1beta1.MCPServerPendingContract{Digest: "d2"}
		}, map[string]string{"status.pendingContract": "{digest: d2}"}},
		"drifts are kept": {func(m *v1beta1.MCPServer, _ *scope) {
			m.Spec.DriftHistoryLimit = ptr.To[int32](10)
			m.Status.Drifts = []v1beta1.Drift{{Time: earlier, Kind: "Deployment", Name: "tools", Action: v1beta1.DriftCorrected}}
		}, map[string]string{"status.drifts": `[{time: "2026-01-01T00:00:00Z", kind: Deployment, name: tools, action: Corrected}]`}},
		"no probed versions with probes disabled": {func(m *v1beta1.MCPServer, _ *scope) {
			m.Status.ProbedVersions, m.Spec.Protocol.Probe = []string{"tools-1"}, v1beta1.ProbeDisabled
		}, nil},
		"no server info with probes disabled": {func(m *v1beta1.MCPServer, _ *scope) {
			m.Status.Server, m.Spec.Protocol.Probe = old, v1beta1.ProbeDisabled
		}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := &scope{server: tools()}
			c.change(s.server, s)
			status := desiredStatus(s, phases.Summary{ObservedGeneration: 3, ReadyReason: "RolloutProgressing", Now: later})
			g.Expect(asJSON(t, status)).To(MatchYAML(edited(t, before, c.want)))
		})
	}
}

// The server is untrusted, and its texts must fit into the schema.
func TestInfoIsBounded(t *testing.T) {
	g := NewWithT(t)
	long := strings.Repeat("é", 200)
	info := infoOf(prober.Server{Name: long, Version: long, ProtocolVersion: long, Tools: prober.NotCounted, Prompts: 1 << 40})
	for _, text := range []*string{info.Name, info.Version, info.ProtocolVersion} {
		g.Expect(len(*text)).To(BeNumerically("<=", maxInfo))
		g.Expect(*text).To(HaveSuffix("…"))
	}
	g.Expect(info.Tools).To(HaveValue(BeZero()))
	g.Expect(info.Prompts).To(HaveValue(BeNumerically(">", 1<<29)))
}

// The limits are those of the schema.
func TestCapabilitiesAndCountsAreBounded(t *testing.T) {
	g := NewWithT(t)
	g.Expect(capabilities(numbered(32, "c%d"))).To(HaveLen(32))
	g.Expect(capabilities(numbered(33, "c%d"))).To(HaveLen(32))
	g.Expect(capabilities([]string{strings.Repeat("a", 64), strings.Repeat("b", 65)})).To(
		HaveExactElements(strings.Repeat("a", 64), And(HaveSuffix("…"), Satisfy(func(s string) bool { return len(s) <= 64 }))))
	g.Expect(boundedCount(1 << 30)).To(BeEquivalentTo(1 << 30))
	g.Expect(boundedCount(1<<30 + 1)).To(BeEquivalentTo(1 << 30))
}
