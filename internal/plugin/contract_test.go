package plugin

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// exampleContract has an item of each kind, and a change.
func exampleContract() *v1beta1.MCPServerContractStatus {
	return &v1beta1.MCPServerContractStatus{
		Digest: "3f786850e387550fdab836ed7e6dc881",
		Items: []v1beta1.MCPServerContractItem{
			{Kind: "tool", Name: "create_issue", Digest: "5a1f0c3d-88e0b4c2"},
			{Kind: "tool", Name: "search", Digest: "c0ffee12-0badf00d"},
			{Kind: "prompt", Name: "triage", Digest: "17c2f9aa-4be1d003"},
			{Kind: "resourceTemplate", Name: "issue", Digest: "90b1e2f7-6d5c4b3a"},
		},
		LastChange: &v1beta1.MCPServerContractChange{
			Time: before(26 * time.Hour), Removed: []string{"tool/delete_issue"}, SchemaChanged: []string{"tool/search"},
			DescriptionChanged: []string{"prompt/triage"}, Added: []string{"resourceTemplate/issue"},
		},
	}
}

func TestContractText(t *testing.T) {
	g := NewWithT(t)
	empty := contractText(&v1beta1.MCPServerContractStatus{Digest: "e3b0"}, now)
	g.Expect(empty).To(And(ContainSubstring("offers no tools"), ContainSubstring("No change is recorded."), Not(ContainSubstring("Not listed"))))

	large := exampleContract()
	large.Omitted, large.LastChange.Omitted = 44, 7
	g.Expect(contractText(large, now)).To(And(ContainSubstring("\nNot listed: 44 more.\n"), ContainSubstring("\n  and 7 more\n")))

	hidden := exampleContract()
	hidden.LastChange = &v1beta1.MCPServerContractChange{Time: before(time.Minute)}
	g.Expect(contractText(hidden, now)).To(HaveSuffix("Last change, 60s ago:\n  in parts that the status does not show\n"))

	// Whoever can write the status must not control the terminal.
	hostile := exampleContract()
	hostile.Digest, hostile.Items[0].Name, hostile.LastChange.Added = "\x1b[2J", "\x1b[2J", []string{"tool/\x1b[2J"}
	g.Expect(contractText(hostile, now)).NotTo(ContainSubstring("\x1b"))
}

func TestContractOutput(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1beta1.MCPServer)
		want   string
	}{
		"disabled": {func(s *v1beta1.MCPServer) {
			s.Spec.Contract = &v1beta1.MCPServerContract{Policy: v1beta1.ContractDisabled}
		}, "MCPServer agents/tools has no contract: spec.contract.policy is Disabled"},
		"not probed":    {func(s *v1beta1.MCPServer) { s.Spec.Protocol.Probe = v1beta1.ProbeDisabled }, "spec.protocol.probe is Disabled"},
		"not known yet": {func(*v1beta1.MCPServer) {}, "wait until the manager has read the lists"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &options{IOStreams: testStreams()}
			NewWithT(t).Expect(o.printContract(reachable(c.change))).To(MatchError(ContainSubstring(c.want)))
		})
	}
	g := NewWithT(t)
	var out strings.Builder
	o := &options{IOStreams: testStreams(), output: "json"}
	o.Out = &out
	g.Expect(o.printContract(reachable(func(s *v1beta1.MCPServer) {
		s.Status.Contract = exampleContract()
		s.Status.Contract.Items, s.Status.Contract.LastChange = s.Status.Contract.Items[:1], nil
	}))).To(Succeed())
	g.Expect(out.String()).To(MatchJSON(`{"digest": "3f786850e387550fdab836ed7e6dc881", "items": [{"kind": "tool", "name": "create_issue", "digest": "5a1f0c3d-88e0b4c2"}]}`))
}
