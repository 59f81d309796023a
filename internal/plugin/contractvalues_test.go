package plugin

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

func TestContractValues(t *testing.T) {
	g := NewWithT(t)
	values := contractValues(reachable(isPinned))
	values.add(exampleStored())
	g.Expect(values.Digest).To(Equal("3f786850e387550fdab836ed7e6dc881"))
	g.Expect(values.Items).To(HaveLen(4))
	g.Expect(values.Items[1].Name).To(Equal("search"))
	g.Expect(values.Items[1].Lines).To(ContainElement("name: search"))
	g.Expect(values.Items[0].Lines).To(BeEmpty(), "it is not stored")
	g.Expect(values.Approve).To(Equal("kubectl fixpoint approve mcp/tools -n agents --digest 9f2c5e1ab0c4d7734d5ecbaa1f20c3e8"))
	g.Expect(values.Changes).To(Equal([]string{"other description: tool/search", "added: tool/delete_all"}))
	g.Expect(values.Diff).To(HaveLen(2))
	g.Expect(values.Note).To(BeEmpty())

	none := contractValues(reachable())
	g.Expect(none.Items).To(BeEmpty())
	g.Expect(none.Note).To(HavePrefix("There is no contract: wait until"))

	older := contractValues(reachable(isPinned, func(s *v1beta1.MCPServer) { s.Status.Contract.Digest = "newer" }))
	older.add(exampleStored())
	g.Expect(older.Items[1].Lines).To(BeEmpty(), "the definition is that of another contract")

	declared := contractValues(reachable(isPinned, func(s *v1beta1.MCPServer) { s.Spec.Contract.Digest = "3f786850e387550fdab836ed7e6dc881" }))
	g.Expect(declared.Approve).To(Equal("set spec.contract.digest to 9f2c5e1ab0c4d7734d5ecbaa1f20c3e8"))
}

// The console reads with the credential of the user, who may not be permitted to read ConfigMaps.
func TestContractOfAClient(t *testing.T) {
	g := NewWithT(t)
	server := reachable(isPinned, func(s *v1beta1.MCPServer) { s.UID = "uid" })
	const text = `{"items":[{"kind":"tool","name":"search","definition":` + searchBefore + `}]}`
	stored := storedFor(server, map[string]string{"current." + server.Status.Contract.Digest: text})

	c := &Client{clients: clientOf(server, stored)}
	values, err := c.Contract(t.Context(), "mcpservers", "agents", "tools")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(values.Items[1].Lines).NotTo(BeEmpty())

	c = &Client{clients: clientOf(server)}
	values, err = c.Contract(t.Context(), "mcpservers", "agents", "tools")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(values.Items).To(HaveLen(4))
	g.Expect(values.Note).To(HavePrefix("Schemas and descriptions are not shown: reading ConfigMap agents/tools-contract"))

	_, err = c.Contract(t.Context(), "appservices", "agents", "tools")
	g.Expect(err).To(MatchError(ContainSubstring("not found")))
}
