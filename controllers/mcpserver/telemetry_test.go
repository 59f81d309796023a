package mcpserver

import (
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/references"
)

func audited(s *spec) {
	s.Telemetry = &v1beta1.MCPServerTelemetry{Audit: &v1beta1.MCPServerAudit{}}
}

func exported(s *spec) {
	s.Telemetry = &v1beta1.MCPServerTelemetry{OTLP: &v1beta1.MCPServerOTLP{
		Endpoint: "http://collector:4318", HeadersSecretRef: &v1beta1.MCPServerHeadersSecretRef{Name: "otlp"}, SamplePercent: ptr.To[int32](0),
	}}
}

func TestTelemetryArguments(t *testing.T) {
	export := []string{"--otlp-endpoint", "http://collector:4318", "--otlp-headers", "/.fixpoint-otlp/headers", "--otlp-sample-percent", "0"}
	for name, c := range map[string]struct {
		changes []func(*spec)
		want    []string
		proxy   bool
	}{
		"none":  {nil, nil, false},
		"audit": {[]func(*spec){audited}, []string{"--audit", "Digest"}, true},
		"audit with arguments": {[]func(*spec){audited, func(s *spec) { s.Telemetry.Audit.Arguments = v1beta1.AuditFull }},
			[]string{"--audit", "Full"}, true},
		"collector":            {[]func(*spec){exported}, export, true},
		"collector with stdio": {[]func(*spec){exported, stdio}, slices.Concat(export, []string{"--otlp-ca", certificatesPath}), false},
		"audit with stdio":     {[]func(*spec){audited, stdio}, []string{"--audit", "Digest"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := tools(c.changes...)
			got := telemetryArguments(server)
			if c.want != nil {
				g.Expect(got[:4]).To(Equal([]string{"--server-name", server.Name, "--server-namespace", server.Namespace}))
				got = got[4:]
			}
			g.Expect(got).To(Equal(c.want))
			g.Expect(hasProxy(server)).To(Equal(c.proxy))
		})
	}
}

// The headers are mounted where they are used, and change without a rollout.
func TestHeadersForTheCollector(t *testing.T) {
	for name, c := range map[string]struct {
		changes   []func(*spec)
		container string
	}{
		"http":  {[]func(*spec){exported}, proxyContainer},
		"stdio": {[]func(*spec){exported, stdio}, containerName},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			template := templateOf(t, c.changes...)
			var users []string
			for _, container := range template.Spec.Containers {
				for _, mount := range container.VolumeMounts {
					if *mount.MountPath == otlpPath {
						users = append(users, *container.Name)
					}
				}
			}
			g.Expect(users).To(Equal([]string{c.container}))
			g.Expect(referencesOf(tools(c.changes...))).To(ContainElement(
				references.Reference{Kind: references.Secret, Name: "otlp", Keys: []string{"headers"}}))
		})
	}
}

func TestHeadersForTheCollectorAreMountedFromTheSecret(t *testing.T) {
	g := NewWithT(t)
	template := templateOf(t, exported)
	g.Expect(asJSON(t, template.Spec.Volumes)).To(MatchYAML("[{name: fixpoint-otlp, secret: {secretName: otlp, items: [{key: headers, path: headers}]}}]"))
	g.Expect(asJSON(t, containerNamed(template, proxyContainer).VolumeMounts)).To(MatchYAML("[{name: fixpoint-otlp, mountPath: /.fixpoint-otlp, readOnly: true}]"))
}

func TestCollectorNeedsNoHeaders(t *testing.T) {
	g := NewWithT(t)
	plain := func(s *spec) {
		s.Telemetry = &v1beta1.MCPServerTelemetry{OTLP: &v1beta1.MCPServerOTLP{Endpoint: "http://collector:4318"}}
	}
	g.Expect(telemetryArguments(tools(plain))[4:]).To(Equal([]string{"--otlp-endpoint", "http://collector:4318"}))
	for _, change := range []func(*spec){plain, audited} {
		g.Expect(headersOf(tools(change))).To(BeNil())
		g.Expect(templateOf(t, change).Spec.Volumes).To(BeEmpty())
	}
}

func TestCertificatesAreCopiedForTheCollector(t *testing.T) {
	g := NewWithT(t)
	g.Expect(needsCertificates(tools(exported))).To(BeTrue())
	g.Expect(needsCertificates(tools(audited))).To(BeFalse())
	g.Expect(needsCertificates(tools())).To(BeFalse())
}
