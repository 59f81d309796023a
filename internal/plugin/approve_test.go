package plugin

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// isPinned has a contract that waits for approval.
func isPinned(s *v1beta1.MCPServer) {
	s.Spec.Contract = &v1beta1.MCPServerContract{Policy: v1beta1.ContractPin}
	s.Status.Contract = exampleContract()
	s.Status.PendingContract = &v1beta1.MCPServerPendingContract{
		Digest: "9f2c5e1ab0c4d7734d5ecbaa1f20c3e8",
		Change: &v1beta1.MCPServerContractChange{Time: before(time.Hour), DescriptionChanged: []string{"tool/search"}, Added: []string{"tool/delete_all"}},
	}
}

func TestDigestToApprove(t *testing.T) {
	const pending, other = "9f2c5e1ab0c4d7734d5ecbaa1f20c3e8", "3f786850e387550fdab836ed7e6dc881"
	for name, c := range map[string]struct {
		change func(*v1beta1.MCPServer)
		given  string
		want   string
		err    string
	}{
		"the one that waits": {isPinned, "", pending, ""},
		"a given one":        {isPinned, other, other, ""},
		"none waits": {func(s *v1beta1.MCPServer) { isPinned(s); s.Status.PendingContract = nil }, "", "",
			"no contract of MCPServer agents/tools waits for approval; kubectl fixpoint mcp contract tools -n agents shows the current one"},
		"a given one, and none waits": {func(s *v1beta1.MCPServer) { isPinned(s); s.Status.PendingContract = nil }, other, other, ""},
		"not a digest":                {isPinned, "latest", "", `"latest" is no digest of a contract`},
		"not pinned":                  {func(*v1beta1.MCPServer) {}, "", "", "set spec.contract.policy to Pin"},
		"observed": {func(s *v1beta1.MCPServer) { isPinned(s); s.Spec.Contract.Policy = v1beta1.ContractObserve }, "", "",
			"set spec.contract.policy to Pin"},
		"the spec decides": {func(s *v1beta1.MCPServer) { isPinned(s); s.Spec.Contract.Digest = other }, "", "",
			"has spec.contract.digest, which decides: set it to " + pending},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			digest, err := digestToApprove(reachable(c.change), c.given)
			g.Expect(digest).To(Equal(c.want))
			if c.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(c.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
		})
	}
}

// The user is told of an approval also if the API server does not respond any more.
func TestApproveReadsNothingAfterItsWrite(t *testing.T) {
	g := NewWithT(t)
	written := false
	api := interceptor.NewClient(clientOf().WithWatch, interceptor.Funcs{
		Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			written = true
			return nil
		},
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("connection refused")
		},
	})
	streams, out := testStreams(), &bytes.Buffer{}
	streams.Out = out
	g.Expect((&options{IOStreams: streams}).approve(t.Context(), &clients{WithWatch: api, namespace: "agents"}, reachable(isPinned), "")).To(Succeed())
	g.Expect(written).To(BeTrue())
	g.Expect(out.String()).To(ContainSubstring("is approved"))
}

func TestApprovalText(t *testing.T) {
	g := NewWithT(t)
	g.Expect(approvalText(reachable(isPinned), "other")).To(Equal("The contract other of MCPServer agents/tools is approved.\n"))
	g.Expect(pendingText(reachable())).To(BeEmpty())
	hostile := reachable(isPinned)
	hostile.Status.PendingContract.Change.Added = []string{"tool/\x1b[2J"}
	g.Expect(pendingText(hostile)).NotTo(ContainSubstring("\x1b"))
	hostile.Status.Contract = nil
	g.Expect((&options{IOStreams: testStreams()}).printContract(t.Context(), clientOf(), hostile)).To(MatchError(HaveSuffix(": one waits for approval; to approve it, run kubectl fixpoint approve mcp/tools -n agents --digest 9f2c5e1ab0c4d7734d5ecbaa1f20c3e8")))
}

func TestNamesOfServersAreCompletedWithTheKindThatIsTyped(t *testing.T) {
	for typed, want := range map[string]string{
		"": "", "to": "", "mcp/": "mcp/", "mcp/to": "mcp/", "mcpserver/": "mcpserver/", "MCPServers.fixpoint.dev/t": "MCPServers.fixpoint.dev/",
	} {
		prefix, isServer := serverPrefix(typed)
		NewWithT(t).Expect(isServer).To(BeTrue(), typed)
		NewWithT(t).Expect(prefix).To(Equal(want), typed)
	}
	for _, typed := range []string{"appservice/", "pod/to"} {
		_, isServer := serverPrefix(typed)
		NewWithT(t).Expect(isServer).To(BeFalse(), typed)
	}
}
