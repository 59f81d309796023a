package mcpserver

import (
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
)

func limited(s *spec) {
	s.Limits = &v1beta1.MCPServerLimits{
		RequestsPerMinute: 600, CallsPerMinute: map[string]v1beta1.MCPServerCallsPerMinute{"get_*": 60, "*": 100, "delete": 1},
		MaxConcurrentCalls: 20, MaxBodyBytes: 65536, CallTimeoutSeconds: 90,
	}
}

func filtered(s *spec) {
	s.Contract = &v1beta1.MCPServerContract{Allow: []string{"set", "get_*"}, Deny: []string{"get_b", "get_a"}}
}

func TestPolicyArguments(t *testing.T) {
	limits := []string{
		"--requests-per-minute", "600", "--calls-per-minute", "* 100", "--calls-per-minute", "delete 1", "--calls-per-minute", "get_* 60",
		"--max-concurrent-calls", "20", "--max-body-bytes", "65536", "--call-timeout", "1m30s",
	}
	selected := []string{"--allow-tool", "get_*,set", "--deny-tool", "get_a,get_b"}
	for name, c := range map[string]struct {
		changes []func(*spec)
		want    []string
		proxy   bool
	}{
		"none":              {nil, nil, false},
		"limits":            {[]func(*spec){limited}, limits, true},
		"one limit":         {[]func(*spec){func(s *spec) { s.Limits = &v1beta1.MCPServerLimits{MaxConcurrentCalls: 1} }}, []string{"--max-concurrent-calls", "1"}, true},
		"tools":             {[]func(*spec){filtered}, selected, true},
		"denied tools only": {[]func(*spec){filtered, func(s *spec) { s.Contract.Allow = nil }}, selected[2:], true},
		"empty": {[]func(*spec){func(s *spec) {
			s.Limits, s.Contract = &v1beta1.MCPServerLimits{}, &v1beta1.MCPServerContract{}
		}}, nil, false},
		"both":            {[]func(*spec){limited, filtered}, slices.Concat(limits, selected), true},
		"both with stdio": {[]func(*spec){stdio, limited, filtered}, slices.Concat(limits, selected), false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(policyArguments(tools(c.changes...))).To(Equal(c.want))
			g.Expect(hasProxy(tools(c.changes...))).To(Equal(c.proxy))
		})
	}
}

// The proxy is the same as with spec.authorization, but without tokens.
func TestProxyAppliesLimitsOfAServerThatServesHTTP(t *testing.T) {
	g := NewWithT(t)
	template := templateOf(t, limited, filtered)
	g.Expect(template.Spec.Containers).To(HaveLen(2))
	proxy := *containerNamed(template, proxyContainer)
	g.Expect(proxy.Command).To(Equal(slices.Concat(
		[]string{"/mcp-bridge", "proxy", "--listen", ":9190", "--admin-listen", ":9191", "--server-port", "8080", "--drain-timeout", "48s",
			"--allowed-host", "tools,tools.acme,tools.acme.svc,tools.acme.svc.cluster.local"}, policyArguments(tools(limited, filtered)))))
	withTokens := *containerNamed(templateOf(t, authorized), proxyContainer)
	proxy.Command, withTokens.Command, withTokens.VolumeMounts = nil, nil, nil
	g.Expect(asJSON(t, proxy)).To(MatchJSON(asJSON(t, withTokens)))
	g.Expect(template.Spec.Containers[0].Ports[0].Name).To(HaveValue(Equal(serverPortName)))
	g.Expect(template.Spec.Volumes).To(BeEmpty())
	violations := workload.Violations(v1beta1.PodSecurityRestricted, template)
	g.Expect(violations).To(BeEmpty())
}

func TestBridgeAppliesLimitsOfAStdioServer(t *testing.T) {
	g := NewWithT(t)
	template, plain := templateOf(t, stdio, limited, filtered), templateOf(t, stdio)
	g.Expect(template.Spec.Containers).To(HaveLen(1))
	command := template.Spec.Containers[0].Command
	separator := slices.Index(command, "--")
	arguments := policyArguments(tools(limited, filtered))
	g.Expect(command[separator-len(arguments) : separator]).To(Equal(arguments))
	template.Spec.Containers[0].Command = slices.Delete(command, separator-len(arguments), separator)
	g.Expect(asJSON(t, template)).To(MatchJSON(asJSON(t, plain)))
}

func TestProxyWithTokensAndLimits(t *testing.T) {
	g := NewWithT(t)
	proxy := containerNamed(templateOf(t, authorized, limited), proxyContainer)
	g.Expect(proxy.Command).To(ContainElements("--issuer", "--requests-per-minute"))
	g.Expect(proxy.VolumeMounts).To(Equal([]corev1ac.VolumeMountApplyConfiguration{*corev1ac.VolumeMount().WithName(jwksVolume).WithMountPath(jwksPath).WithReadOnly(true)}))
}

func TestServiceLeadsToTheProxyOfLimits(t *testing.T) {
	g := NewWithT(t)
	g.Expect(asJSON(t, desiredService(tools(limited)))).To(MatchJSON(asJSON(t, desiredService(tools()))))
	g.Expect(metadataPath(tools(limited, func(s *spec) { s.Ingress = &v1beta1.Ingress{Host: "a.b"} }), "/mcp")).To(BeEmpty(), "without tokens, clients need no metadata")
}
