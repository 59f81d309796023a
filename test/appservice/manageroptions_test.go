package appservice_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

// writers are the users that have written in the namespace, Leases aside.
func (w *world) writers(since cluster.Mark) map[string]int {
	w.t.Helper()
	writers := map[string]int{}
	for _, request := range w.requests(since).Writes() {
		writers[request.User]++
	}
	return writers
}

// TestOneOfTwoManagersWorksAndTheOtherTakesOver runs two managers that elect a leader.
func TestOneOfTwoManagersWorksAndTheOtherTakesOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	start := func(user string) *runningManager {
		options := w.options()
		options.LeaderElection, options.LeaderElectionNamespace = true, w.namespace
		options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = 15*time.Second, 10*time.Second, 500*time.Millisecond
		return w.startManagerAs(shared.Config(managerUser+user, managerGroup), options)
	}
	holder := func() string {
		lease := &coordinationv1.Lease{}
		if err := api.Get(w.ctx, w.key(controllers.LeaderElectionID), lease); err != nil || lease.Spec.HolderIdentity == nil {
			return ""
		}
		return *lease.Spec.HolderIdentity
	}

	// Given two managers, of which the first has become the leader
	one := start("-one")
	w.Eventually(holder).ShouldNot(BeEmpty())
	leader := holder()
	two := start("-two")
	w.Eventually(func() int { return two.log.count("Starting EventSource") }).Should(BeNumerically(">", 0), "the standby fills its caches")
	began := w.mark()
	w.createReady("web", replicas(2), config("A", "1"))
	w.settled()

	// Then only the leader writes.
	w.Expect(w.writers(began)).To(And(HaveKey(managerUser+"-one"), HaveLen(1)))
	w.Expect(holder()).To(Equal(leader))

	// When it is stopped gracefully
	w.stop(one)
	mark := w.mark()
	stopped := time.Now()

	// Then the other takes over at once, and not after the Lease has run out,
	w.Eventually(holder).ShouldNot(Or(BeEmpty(), Equal(leader)))
	w.Expect(time.Since(stopped)).To(BeNumerically("<", 10*time.Second))
	w.scale("kubectl", w.deployment("web"), 5)
	eventually(w, "web", &v1alpha1.AppService{}, func(g Gomega, a *v1alpha1.AppService) {
		g.Expect(a.Status.Drifts).To(HaveLen(1))
		g.Expect(a.Status.Drifts[0].Manager).To(Equal("kubectl"))
	})
	eventually(w, "web", &appsv1.Deployment{}, func(g Gomega, d *appsv1.Deployment) { g.Expect(d.Spec.Replicas).To(HaveValue(BeEquivalentTo(2))) })
	// and only it writes.
	w.Expect(w.writers(mark)).To(And(HaveKey(managerUser+"-two"), HaveLen(1)))
}

func TestAManagerKeepsToItsNamespaces(t *testing.T) {
	t.Parallel()
	inside, alsoInside, outside := newWorld(t), newWorld(t), newWorld(t)
	options := inside.options()
	options.Namespaces = []string{inside.namespace, alsoInside.namespace}
	m := inside.startManagerAs(shared.Config(managerUser), options)
	alsoInside.managers, outside.managers = inside.managers, inside.managers

	outside.create("web")
	inside.createReady("web")
	alsoInside.createReady("web")

	outside.settled()
	outside.Expect(outside.requests(outside.began)).To(BeEmpty(), "nothing is even asked of a namespace that is not watched")
	app := read(outside, "web", &v1alpha1.AppService{})
	outside.Expect(app.Status.Conditions).To(BeEmpty())
	outside.Expect(app.Finalizers).To(BeEmpty())
	outside.Expect(m.log.count(outside.namespace)).To(BeZero())
}

func TestWrongOptionsFailClearly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cases := map[string]struct {
		options controllers.Options
		want    string
	}{
		"controller":  {controllers.Options{Controllers: []string{"appservices"}}, `there is no controller "appservices": choose from appservice`},
		"concurrency": {controllers.Options{Concurrency: -1}, "the concurrency is -1: it must be at least 1"},
	}
	for name, c := range cases {
		_, err := controllers.NewManager(w.ctx, shared.Config(managerUser), c.options)
		w.Expect(err).To(MatchError(HavePrefix(c.want)), name)
	}
}

// TestAManagerThatCannotStartStillStops: it has no rights, and so its caches never fill.
func TestAManagerThatCannotStartStillStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const user = managerUser + "-without-rights"
	m := w.startManagerAs(shared.Config(user), w.options())
	w.Eventually(func() cluster.Requests {
		return w.requests(w.began).By(user).Where(func(r cluster.Request) bool { return r.Code == 403 })
	}).ShouldNot(BeEmpty())

	w.stop(m)
}
