package mcpserver_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

func (w *fixture) leader() string {
	lease := &coordinationv1.Lease{}
	if err := api.Get(w.Ctx, w.Key(controllers.LeaderElectionID), lease); err != nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// TestStandbyTakesOverProbing: it asks all servers, finds what was found before, and writes nothing. It takes over because
// the leader releases the Lease, which lasts longer than the test.
func TestStandbyTakesOverProbing(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	start := func() *harness.Manager {
		options := w.options()
		options.LeaseDuration, options.RenewDeadline = time.Hour, 50*time.Minute
		options.LeaderElection, options.LeaderElectionNamespace = true, w.Namespace
		return w.StartManager(shared.Config(harness.ManagerUser, harness.ManagerGroup), options)
	}
	first := start()
	w.Eventually(w.leader).ShouldNot(BeEmpty())
	leader := w.leader()
	start()
	names := []string{"one", "two", "three"}
	for _, name := range names {
		w.createReady(name, often, replicas(2))
	}
	for _, name := range names {
		harness.Eventually(w, name, &v1beta1.MCPServer{}, func(g Gomega, m *v1beta1.MCPServer) {
			toolsAreCounted(g, m)
			g.Expect(m.Status.Contract).NotTo(BeNil())
		})
	}
	w.AtRest(names...)
	w.Settled()
	versions, mark := w.versions(names), w.Mark()

	// When the leader ends
	w.Stop(first)
	asked := w.server.requests("/mcp")
	w.Eventually(w.leader).ShouldNot(Or(BeEmpty(), Equal(leader)))

	// Then the other one asks,
	w.Eventually(func() int { return w.server.requests("/mcp") }).Should(BeNumerically(">=", asked+len(names)))
	w.Settled()
	// and nothing changes.
	w.Expect(w.Requests(mark).Writes()).To(BeEmpty())
	w.Expect(w.versions(names)).To(Equal(versions))

	// A server that stops answering is noticed by the new leader.
	w.server.set(true, "")
	for _, name := range names {
		w.shows(name, "ProtocolReady", "False ProtocolFailing", ContainSubstring("500"))
	}
}
