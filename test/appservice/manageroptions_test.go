package appservice_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// writers are the users that have written in the namespace, Leases aside.
func (w *fixture) writers(since cluster.Mark) map[string]int {
	w.T.Helper()
	writers := map[string]int{}
	for _, request := range w.Requests(since).Writes() {
		writers[request.User]++
	}
	return writers
}

// TestStandbyTakesOver runs two managers that elect a leader.
func TestStandbyTakesOver(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	start := func(user string) *harness.Manager {
		options := w.options()
		options.LeaderElection, options.LeaderElectionNamespace = true, w.Namespace
		// A Lease that is not released outlasts the test.
		options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = time.Hour, 50*time.Minute, 500*time.Millisecond
		return w.StartManager(shared.Config(harness.ManagerUser+user, harness.ManagerGroup), options)
	}
	holder := func() string {
		lease := &coordinationv1.Lease{}
		if err := api.Get(w.Ctx, w.Key(controllers.LeaderElectionID), lease); err != nil || lease.Spec.HolderIdentity == nil {
			return ""
		}
		return *lease.Spec.HolderIdentity
	}

	// Given two managers, of which the first has become the leader
	one := start("-one")
	w.Eventually(holder).ShouldNot(BeEmpty())
	leader := holder()
	two := start("-two")
	w.Eventually(func() int { return two.Log.Count("Starting EventSource") }).Should(BeNumerically(">", 0), "the standby fills its caches")
	began := w.Mark()
	w.createReady("web", replicas(2), config("A", "1"))
	w.Settled()

	// Then only the leader writes.
	w.Expect(w.writers(began)).To(And(HaveKey(harness.ManagerUser+"-one"), HaveLen(1)))
	w.Expect(holder()).To(Equal(leader))

	// When it is stopped gracefully
	w.Stop(one)
	w.Expect(holder()).NotTo(Equal(leader), "it has released the Lease")
	mark := w.Mark()

	// Then the other takes over, and not after the Lease has run out,
	w.Eventually(holder).ShouldNot(Or(BeEmpty(), Equal(leader)))
	w.Scale("kubectl", w.deployment("web"), 5)
	harness.Eventually(w, "web", &v1beta1.AppService{}, func(g Gomega, a *v1beta1.AppService) {
		g.Expect(a.Status.Drifts).To(HaveLen(1))
		g.Expect(a.Status.Drifts[0].Manager).To(Equal("kubectl"))
	})
	harness.Eventually(w, "web", &appsv1.Deployment{}, func(g Gomega, d *appsv1.Deployment) { g.Expect(d.Spec.Replicas).To(HaveValue(BeEquivalentTo(2))) })
	// and only it writes.
	w.Expect(w.writers(mark)).To(And(HaveKey(harness.ManagerUser+"-two"), HaveLen(1)))
}

func TestManagerKeepsToItsNamespaces(t *testing.T) {
	t.Parallel()
	inside, alsoInside, outside := newFixture(t), newFixture(t), newFixture(t)
	options := inside.options()
	options.Namespaces = []string{inside.Namespace, alsoInside.Namespace}
	m := inside.StartManager(shared.Config(harness.ManagerUser), options)
	alsoInside.Managers, outside.Managers = inside.Managers, inside.Managers

	outside.create("web")
	inside.createReady("web")
	alsoInside.createReady("web")

	outside.Settled()
	outside.Expect(outside.Requests(outside.Began)).To(BeEmpty(), "nothing is even asked of a namespace that is not watched")
	app := harness.Read(outside, "web", &v1beta1.AppService{})
	outside.Expect(app.Status.Conditions).To(BeEmpty())
	outside.Expect(app.Finalizers).To(BeEmpty())
	outside.Expect(m.Log.Count(outside.Namespace)).To(BeZero())
}

func TestWrongOptionsAreNamed(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	cases := map[string]struct {
		options controllers.Options
		want    string
	}{
		"controller":  {controllers.Options{Controllers: []string{"appservices"}}, `controller "appservices" does not exist: choose from appservice`},
		"concurrency": {controllers.Options{Concurrency: -1}, "the concurrency is -1: set at least 1"},
	}
	for name, c := range cases {
		_, err := controllers.NewManager(w.Ctx, shared.Config(harness.ManagerUser), c.options)
		w.Expect(err).To(MatchError(HavePrefix(c.want)), name)
	}
}

// TestManagerThatCannotStartStops: it has no rights, and so its caches never fill.
func TestManagerThatCannotStartStops(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	const user = harness.ManagerUser + "-without-rights"
	m := w.StartManager(shared.Config(user), w.options())
	w.Eventually(func() cluster.Requests {
		return w.Requests(w.Began).By(user).Where(func(r cluster.Request) bool { return r.Code == 403 })
	}).ShouldNot(BeEmpty())

	w.Stop(m)
}
