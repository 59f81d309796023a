package mcpserver_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
	"github.com/fixpoint-dev/fixpoint/internal/prober"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// offer adds a tool to a server that runs, or replaces it.
func offer[In any](s *fakeServer, name, description string) {
	mcp.AddTool(s.answers, &mcp.Tool{Name: name, Description: description}, func(context.Context, *mcp.CallToolRequest, In) (*mcp.CallToolResult, struct{}, error) {
		return &mcp.CallToolResult{}, struct{}{}, nil
	})
}

// contractNames are the items of a contract.
func contractNames(contract *v1beta1.MCPServerContractStatus) []string {
	var names []string
	if contract != nil {
		for _, item := range contract.Items {
			names = append(names, string(item.Kind)+"/"+item.Name)
		}
	}
	return names
}

// contractEvents are those about changes of the contract, oldest first or not.
func (w *fixture) contractEvents(name string) []string {
	return slices.DeleteFunc(w.events(name), func(event string) bool { return !strings.Contains(event, v1beta1.EventContractChanged) })
}

// stored are the contracts in the ConfigMap, by the part of their keys before the digest.
func (w *fixture) stored(g Gomega, name string) map[string]prober.ContractText {
	live := &corev1.ConfigMap{}
	g.Expect(w.Suite.API.Get(w.Ctx, w.Key(name+v1beta1.ContractSuffix), live)).To(Succeed())
	g.Expect(live.OwnerReferences).To(ConsistOf(And(HaveField("Kind", "MCPServer"), HaveField("Name", name),
		HaveField("BlockOwnerDeletion", BeNil()))), "see storedContractPhase")
	contracts := map[string]prober.ContractText{}
	for key, value := range live.Data {
		var text prober.ContractText
		g.Expect(json.Unmarshal([]byte(value), &text)).To(Succeed())
		kind, digest, _ := strings.Cut(key, ".")
		g.Expect(prober.DigestOfText(text)).To(Equal(digest))
		contracts[kind] = text
	}
	return contracts
}

// definitionsIn are those of the items of a contract.
func definitionsIn(text prober.ContractText) (all string) {
	for _, item := range text.Items {
		all += string(item.Definition) + "\n"
	}
	return all
}

// TestContractFollowsTheServer through a rollout, while the server runs, and through a restart of the manager.
func TestContractFollowsTheServer(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	routes := newNetwork(w)
	options := controllers.Options{Namespaces: []string{w.Namespace}, Controllers: []string{mcpserver.Name}, ProbeDial: routes.dial}
	manager := w.StartManager(shared.Config(harness.ManagerUser), options)
	newer := another(t, "2.0.0")
	offer[struct {
		Query string `json:"query"`
	}](newer, "two", "")
	offer[struct{}](newer, "three", "")
	newer.answers.RemoveTools("one")
	routes.lead(otherImage, newer)

	// Given the contract of two pods
	w.create("tools", often, replicas(2))
	first := harness.Eventually(w, "tools", &v1beta1.MCPServer{}, func(g Gomega, m *v1beta1.MCPServer) {
		g.Expect(contractNames(m.Status.Contract)).To(Equal([]string{"tool/one", "tool/two"}))
	})
	w.Expect(first.Status.Contract.LastChange).To(BeNil())
	w.Eventually(func(g Gomega) {
		stored := w.stored(g, "tools")
		g.Expect(stored).To(HaveLen(1))
		g.Expect(definitionsIn(stored["current"])).To(And(ContainSubstring(`"name":"one"`), ContainSubstring(`"inputSchema":{`)))
	}).Should(Succeed())
	versions := harness.Versions[*v1beta1.MCPServer](w, &v1beta1.MCPServerList{}, "tools")

	// When the pods are replaced, then that is one change
	w.change("tools", withImage(otherImage))
	w.complete("tools")
	second := harness.Eventually(w, "tools", &v1beta1.MCPServer{}, func(g Gomega, m *v1beta1.MCPServer) {
		g.Expect(contractNames(m.Status.Contract)).To(Equal([]string{"tool/three", "tool/two"}))
	})
	change := second.Status.Contract.LastChange
	w.Expect(change.Time.Time).NotTo(BeZero())
	w.Expect(change.Added).To(Equal([]string{"tool/three"}))
	w.Expect(change.Removed).To(Equal([]string{"tool/one"}))
	w.Expect(change.SchemaChanged).To(Equal([]string{"tool/two"}))
	w.Eventually(func() []string { return w.contractEvents("tools") }).Should(HaveExactElements(
		`Warning ContractChanged the contract changed: removed: tool "one"; other schema: tool "two"; added: tool "three"; see status.contract`))

	w.Eventually(func(g Gomega) {
		stored := w.stored(g, "tools")
		g.Expect(definitionsIn(stored["current"])).To(And(ContainSubstring(`"query"`), Not(ContainSubstring(`"name":"one"`))))
		g.Expect(definitionsIn(stored["previous"])).To(ContainSubstring(`"name":"one"`))
	}).Should(Succeed())

	// When others change the ConfigMap or delete it, then it has the contract again
	digest := v1beta1.ContractKeyCurrent + second.Status.Contract.Digest
	w.Expect(w.Suite.API.Patch(t.Context(), harness.Read(w, "tools-contract", &corev1.ConfigMap{}),
		client.RawPatch(types.MergePatchType, []byte(`{"data":{"`+digest+`":"forged"}}`)), client.FieldOwner("someone"))).To(Succeed())
	w.Eventually(func() string { return harness.Read(w, "tools-contract", &corev1.ConfigMap{}).Data[digest] }).ShouldNot(Equal("forged"))
	w.Expect(w.Suite.API.Delete(t.Context(), harness.Read(w, "tools-contract", &corev1.ConfigMap{}))).To(Succeed())
	w.Eventually(func(g Gomega) {
		var live corev1.ConfigMap
		g.Expect(w.Suite.API.Get(t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: "tools-contract"}, &live)).To(Succeed())
		g.Expect(live.Data).To(HaveKey(digest))
	}).Should(Succeed())

	// At rest, probes write nothing
	countsTools := func(count int32) {
		harness.Eventually(w, "tools", &v1beta1.MCPServer{}, func(g Gomega, m *v1beta1.MCPServer) {
			g.Expect(m.Status.Server).To(And(HaveField("Version", "2.0.0"), HaveField("Tools", count)))
		})
	}
	countsTools(2)
	mark, probed := w.Settled(), newer.requests("/mcp")
	w.Eventually(func() int { return newer.requests("/mcp") }).Should(BeNumerically(">", probed+20))
	w.Expect(w.Requests(mark).Writes()).To(BeEmpty())

	// When the server offers another description while it runs, then the full probe finds it
	offer[struct{}](newer, "three", "Counts.")
	w.Eventually(func(g Gomega) {
		live := harness.Read(w, "tools", &v1beta1.MCPServer{})
		g.Expect(live.Status.Contract.LastChange.DescriptionChanged).To(Equal([]string{"tool/three"}))
		g.Expect(w.contractEvents("tools")).To(ConsistOf(HavePrefix("Warning "),
			`Normal ContractChanged the contract changed: other description: tool "three"; see status.contract`))
	}).Should(Succeed())

	// When the server changes while no manager runs, then the next one finds that, and it alone
	w.Settled()
	w.Stop(manager)
	newer.answers.RemoveTools("two")
	manager = w.StartManager(shared.Config(harness.ManagerUser), options)
	w.Eventually(func() []string { return w.contractEvents("tools") }).Should(ContainElement(
		`Warning ContractChanged the contract changed: removed: tool "two"; see status.contract`))
	countsTools(1)
	mark = w.Settled()
	w.Stop(manager)
	w.StartManager(shared.Config(harness.ManagerUser), options)
	probed = newer.requests("/mcp")
	w.Eventually(func() int { return newer.requests("/mcp") }).Should(BeNumerically(">", probed+20))
	w.Settled()
	w.Expect(w.Requests(mark).Writes()).To(BeEmpty())
	w.Expect(w.contractEvents("tools")).To(HaveLen(3))

	// Then no version of the object had another contract
	var seen []string
	for _, version := range versions() {
		w.Expect(version.Status.Contract).NotTo(BeNil())
		seen = append(seen, strings.Join(contractNames(version.Status.Contract), " "))
	}
	w.Expect(slices.Compact(seen)).To(Equal([]string{"tool/one tool/two", "tool/three tool/two", "tool/three"}))

	// When the policy is Disabled, then the status has none
	w.change("tools", func(s *v1beta1.MCPServerSpec) {
		s.Contract = &v1beta1.MCPServerContract{Policy: v1beta1.ContractDisabled}
	})
	harness.Eventually(w, "tools", &v1beta1.MCPServer{}, func(g Gomega, m *v1beta1.MCPServer) {
		g.Expect(m.Status.ObservedGeneration).To(Equal(m.Generation))
		g.Expect(m.Status.Contract).To(BeNil())
	})
	w.Expect(w.contractEvents("tools")).To(HaveLen(3))
	w.Eventually(func() error {
		return w.Suite.API.Get(t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: "tools-contract"}, &corev1.ConfigMap{})
	}).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
}
