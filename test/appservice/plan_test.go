package appservice_test

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/controllers/appservice"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// planner is an engine with the rights of the manager and no controller that acts.
func (w *fixture) planner() *appservice.Engine {
	w.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	mgr, err := ctrl.NewManager(shared.Config(harness.ManagerUser+"-planner", harness.ManagerGroup), ctrl.Options{
		Scheme:  controllers.NewScheme(),
		Metrics: server.Options{BindAddress: "0"},
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{w.Namespace: {}}},
		Client:  client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}},
	})
	w.Expect(err).NotTo(HaveOccurred())
	engine, err := appservice.NewEngine(mgr, appservice.Options{})
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(engine.Index(mgr.GetFieldIndexer())).To(Succeed())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_ = mgr.Start(ctx)
	}()
	w.T.Cleanup(func() { cancel(); <-stopped })
	w.Expect(mgr.GetCache().WaitForCacheSync(ctx)).To(BeTrue())
	return engine
}

// TestPlanMatchesWhatTheManagerDoes plans for a live AppService while no manager runs, and lets one run.
func TestPlanMatchesWhatTheManagerDoes(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	engine := w.planner()
	steps := []struct {
		given string
		setup func()
		// want is the plan, and writes are what the manager then sends first, in this order.
		want   []string
		writes []string
	}{
		{
			given:  "nothing is there yet",
			setup:  func() { w.create("web", config("A", "1"), replicas(2)) },
			want:   []string{"Config: Create ConfigMap web", "Service: Create Service web", "Deployment: Create Deployment web"},
			writes: []string{"patch appservices", "patch configmaps", "patch services", "patch deployments"},
		},
		{
			given: "nothing is to be done",
			setup: func() {},
		},
		{
			given: "there are drifts, and an option is turned on",
			setup: func() {
				w.Scale("kubectl", w.deployment("web"), 5)
				w.AtRest("web") // or its status would move while it is planned
				harness.Update(w, "kubectl-edit", "web", &corev1.ConfigMap{}, func(c *corev1.ConfigMap) { c.Data["A"] = "x" })
				w.change("web", budget(&v1beta1.DisruptionBudget{MaxUnavailable: ptr.To(intstr.FromInt32(1))}))
			},
			want: []string{
				`Config: Correct ConfigMap web (kubectl-edit changed .data.A from "(redacted)" to "(redacted)")`,
				`Deployment: Correct Deployment web (kubectl changed .spec.replicas from 2 to 5)`,
			},
			writes: []string{"patch configmaps", "patch deployments"},
		},
		{
			given:  "an option is turned off",
			setup:  func() { w.change("web", budget(nil), config()) },
			want:   []string{"Deployment: Update Deployment web"},
			writes: []string{"patch deployments"},
		},
		{
			given:  "it is deleted",
			setup:  func() { w.Expect(api.Delete(w.Ctx, harness.Read(w, "web", &v1beta1.AppService{}))).To(Succeed()) },
			want:   []string{"Service: Delete Service web", "Deployment: Delete Deployment web"},
			writes: []string{"delete deployments", "delete services"},
		},
	}
	for _, step := range steps {
		step.setup()
		versions := w.versions([]string{"web"})

		// A plan changes nothing, and asks for nothing but dry runs.
		mark := w.Mark()
		var planned []string
		w.Eventually(func(g Gomega) {
			plan, err := engine.Plan(w.Ctx, harness.Read(w, "web", &v1beta1.AppService{}))
			g.Expect(err).NotTo(HaveOccurred())
			planned = nil
			for _, change := range plan.Changes() {
				planned = append(planned, change.String())
			}
			g.Expect(planned).To(Equal(step.want), "%s:\n%s", step.given, plan)
		}).Should(Succeed())
		// That a deletion is a dry run stands in its body, which the audit log does not have.
		w.Expect(w.Requests(mark).Writes().Verbs("patch", "create", "update")).To(BeEmpty(), step.given)
		w.Expect(w.versions([]string{"web"})).To(Equal(versions), step.given)

		// What then happens is that.
		mark = w.Mark()
		m := w.startManager()
		if step.given == "it is deleted" {
			w.Eventually(w.IsGone("web", &v1beta1.AppService{})).Should(Succeed())
		} else {
			w.ready("web")
			w.AtRest("web")
			w.Settled()
		}
		w.Stop(m)
		var writes []string
		for _, request := range w.Requests(mark).By(harness.ManagerUser).Writes() {
			if request.Subresource == "" {
				writes = append(writes, request.Verb+" "+request.Resource)
			}
		}
		w.Expect(len(writes)).To(BeNumerically(">=", len(step.writes)), "%s: %v", step.given, writes)
		if !w.ReadsStale() { // or a write may be repeated before the next one
			w.Expect(writes[:len(step.writes)]).To(Equal(step.writes), step.given)
		}
		if len(step.want) == 0 {
			w.Expect(writes).To(BeEmpty(), step.given)
		}
	}
}
