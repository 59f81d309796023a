package mcpserver_test

import (
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/controllers"
)

// mayElect gives a user the rights that are needed for an election in the namespace.
func (w *world) mayElect(user string) {
	w.t.Helper()
	role := &rbacv1.Role{}
	content, err := os.ReadFile("../../config/rbac/leader_election_role.yaml")
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(yaml.Unmarshal(content, role)).To(Succeed())
	role.Namespace = w.namespace
	w.Expect(api.Create(w.ctx, role)).To(Succeed())
	binding := &rbacv1.RoleBinding{
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	binding.Namespace, binding.Name = w.namespace, role.Name
	w.Expect(api.Create(w.ctx, binding)).To(Succeed())
}

func (w *world) leader() string {
	lease := &coordinationv1.Lease{}
	if err := api.Get(w.ctx, w.key(controllers.LeaderElectionID), lease); err != nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// TestAStandbyTakesTheProbingOver: it asks all servers, finds what was found before, and writes nothing.
func TestAStandbyTakesTheProbingOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.mayElect(managerUser)
	start := func() *runningManager {
		options := w.options()
		options.LeaderElection, options.LeaderElectionNamespace = true, w.namespace
		return w.startManagerAs(shared.Config(managerUser), options)
	}
	first := start()
	w.Eventually(w.leader).ShouldNot(BeEmpty())
	leader := w.leader()
	start()
	names := []string{"one", "two", "three"}
	for _, name := range names {
		w.createReady(name, often, replicas(2))
	}
	w.settled()
	versions, mark := w.versions(names), w.mark()

	// When the leader ends
	w.stop(first)
	asked := w.server.requests("/mcp")
	w.Eventually(w.leader).ShouldNot(Or(BeEmpty(), Equal(leader)))

	// Then the other one asks,
	w.Eventually(func() int { return w.server.requests("/mcp") }).Should(BeNumerically(">=", asked+len(names)))
	w.settled()
	// and nothing changes.
	w.Expect(w.requests(mark).Writes()).To(BeEmpty())
	w.Expect(w.versions(names)).To(Equal(versions))

	// A server that stops answering is noticed by the new leader.
	w.server.set(true, "")
	began := time.Now()
	for _, name := range names {
		w.shows(name, "ProtocolReady", "False ProtocolFailing", ContainSubstring("500"))
	}
	w.Expect(time.Since(began)).To(BeNumerically("<", 30*time.Second))
}
