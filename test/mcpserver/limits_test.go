package mcpserver_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

func TestLimitsPutAProxyInFrontOfTheServer(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("tools", unasked)

	w.change("tools", func(s *v1beta1.MCPServerSpec) {
		s.Limits = &v1beta1.MCPServerLimits{CallsPerMinute: map[string]v1beta1.MCPServerCallsPerMinute{"*": 10, "delete_*": 1}}
	})
	w.complete("tools")

	containers := w.deployment("tools").Spec.Template.Spec.Containers
	w.Expect(containers).To(HaveLen(2))
	w.Expect(containers[1].Command).To(ContainElements("--calls-per-minute", "* 10", "delete_* 1"))
	w.Eventually(func() []int32 { return w.endpointPorts("tools") }).Should(ConsistOf(BeEquivalentTo(9190)))

	t.Log("another order of names replaces no pods")
	w.change("tools", func(s *v1beta1.MCPServerSpec) {
		s.Limits, s.Contract = nil, &v1beta1.MCPServerContract{Allow: []string{"b", "a"}, Deny: []string{"c"}}
	})
	w.complete("tools")
	before := w.podUIDs("tools")
	w.change("tools", func(s *v1beta1.MCPServerSpec) { s.Contract.Allow = []string{"a", "b"} })
	w.Settled()
	w.Expect(w.podUIDs("tools")).To(ConsistOf(before))
	w.Expect(w.deployment("tools").Spec.Template.Spec.Containers[1].Command).To(ContainElements("--allow-tool", "a,b", "--deny-tool", "c"))

	t.Log("without the fields the pods are as before")
	w.change("tools", func(s *v1beta1.MCPServerSpec) { s.Contract = nil })
	w.complete("tools")
	w.Eventually(func() []int32 { return w.endpointPorts("tools") }).Should(ConsistOf(BeEquivalentTo(8080)))
}
