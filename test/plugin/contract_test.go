package plugin_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

func TestContractOfAServer(t *testing.T) {
	w := newFixture(t)
	w.createServer("tools", 1)
	w.Expect(w.kubectlFixpoint("mcp", "contract", "tools").err).To(ContainSubstring("has no contract: spec.protocol.probe is Disabled"))

	live := harness.Read(w, "tools", &v1beta1.MCPServer{})
	live.Status.Contract = &v1beta1.MCPServerContractStatus{
		Digest: "a1", Items: []v1beta1.MCPServerContractItem{{Kind: "tool", Name: "search", Digest: "1-2"}},
		LastChange: &v1beta1.MCPServerContractChange{Time: metav1.NewTime(time.Now()), Added: []string{"tool/search"}},
	}
	w.Expect(w.As("manager").Status().Update(w.Ctx, live, client.FieldOwner("manager"))).To(Succeed())

	w.Expect(w.succeed("mcp", "contract", "mcpserver/tools")).To(MatchRegexp(`(?s)^Contract a1\n\nKIND +NAME +DIGEST\ntool +search +1-2\n.*\n  added: tool/search\n$`))
	w.Expect(w.succeed("mcp", "contract", "tools", "-o", "yaml")).To(HavePrefix("digest: a1\nitems:\n- digest: 1-2\n  kind: tool\n  name: search\nlastChange:\n"))
	w.Expect(w.kubectlFixpoint("mcp", "contract", "missing").err).To(ContainSubstring(`"missing" not found`))
	w.shows(ContainSubstring("tools\n"), "__complete", "mcp", "contract", "") // which waits only briefly
}

func TestApproveTheContractOfAServer(t *testing.T) {
	w := newFixture(t)
	const digest = "9f2c5e1ab0c4d7734d5ecbaa1f20c3e8"
	w.createServer("tools", 1)
	w.Expect(w.kubectlFixpoint("approve", "mcp/tools").err).To(ContainSubstring("set spec.contract.policy to Pin"))

	live := harness.Read(w, "tools", &v1beta1.MCPServer{})
	live.Spec.Contract, live.Spec.Protocol.Probe = &v1beta1.MCPServerContract{Policy: v1beta1.ContractPin}, ""
	w.Expect(w.As("user").Update(w.Ctx, live)).To(Succeed())
	w.Expect(w.kubectlFixpoint("approve", "mcp/tools").err).To(ContainSubstring("waits for approval"))

	live.Status.PendingContract = &v1beta1.MCPServerPendingContract{
		Digest: digest, Change: &v1beta1.MCPServerContractChange{Time: metav1.NewTime(time.Now()), Added: []string{"tool/search"}},
	}
	w.Expect(w.As("manager").Status().Update(w.Ctx, live, client.FieldOwner("manager"))).To(Succeed())
	w.Expect(w.succeed("approve", "mcpserver/tools")).To(HavePrefix("The contract " + digest + " of MCPServer "))
	w.Expect(harness.Read(w, "tools", &v1beta1.MCPServer{}).Annotations).To(HaveKeyWithValue(v1beta1.AnnotationApprovedContract, digest))

	// Other commands leave the approval
	w.succeed("suspend", "mcpserver/tools")
	w.succeed("resume", "mcpserver/tools")
	w.Expect(harness.Read(w, "tools", &v1beta1.MCPServer{}).Annotations).To(HaveKeyWithValue(v1beta1.AnnotationApprovedContract, digest))
}
