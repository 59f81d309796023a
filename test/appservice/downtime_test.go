package appservice_test

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// versions are the resource versions of all AppServices and children in the namespace.
func (w *fixture) versions(names []string) map[string]string {
	w.T.Helper()
	versions := map[string]string{}
	for _, name := range names {
		versions["AppService "+name] = harness.Read(w, name, &v1beta1.AppService{}).ResourceVersion
		for kind, newObject := range childKinds {
			object := newObject()
			if kind == "HorizontalPodAutoscaler" {
				continue // the autoscaler writes its status as it likes
			}
			if err := api.Get(w.Ctx, w.Key(name), object); err == nil {
				versions[kind+" "+name] = object.GetResourceVersion()
			}
		}
	}
	return versions
}

// TestManagerRestartWritesNothing is not parallel: its managers watch all namespaces, with all
// controllers, as they do by default.
func TestManagerRestartWritesNothing(t *testing.T) {
	w := newFixture(t)
	everywhere := shared.Config(harness.ManagerUser)
	first := w.StartManager(everywhere, controllers.Options{})
	var names []string
	for i := range 10 {
		name := fmt.Sprintf("app-%d", i)
		names = append(names, name)
		switch {
		case i < 5:
			w.create(name, replicas(2), config("A", "1"))
		default:
			w.create(name, everything)
		}
	}
	for i, name := range names {
		w.ready(name)
		if i >= 5 {
			w.scalesNoMore(name)
		}
		w.AtRest(name)
	}
	w.Settled()
	before := w.versions(names)

	// When the manager is stopped, and a new one has reconciled everything
	w.Stop(first)
	mark := w.Mark()
	second := w.StartManager(everywhere, controllers.Options{})
	for _, name := range names {
		w.Eventually(func() int { return second.Checks("AppService", name, "Deployment") }).Should(BeNumerically(">=", 1), name)
	}
	w.Settled()

	// Then it has sent nothing but what fills its caches, and nothing has moved.
	requests, err := shared.Audit().Since(mark)
	w.Expect(err).NotTo(HaveOccurred())
	requests = requests.By(harness.ManagerUser).Where(func(r cluster.Request) bool { return r.Resource != "" })
	w.Expect(requests.Writes()).To(BeEmpty())
	w.Expect(requests.Verbs("get")).To(BeEmpty())
	w.Expect(w.versions(names)).To(Equal(before))
}

func TestReconcilesChangesMadeWhileTheManagerWasDown(t *testing.T) {
	w := newManagedFixture(t)
	for _, name := range []string{"changed", "deleted", "drifted", "bereft", "created"} {
		if name != "created" {
			w.create(name, config("A", "1"))
		}
	}
	for _, name := range []string{"changed", "deleted", "drifted", "bereft"} {
		w.ready(name)
	}
	w.Settled()

	// Given no manager, in whose absence everything happens
	w.Stop(w.Managers[0])
	w.change("changed", withImage(otherImage), replicas(3))
	w.Expect(api.Delete(w.Ctx, harness.Read(w, "deleted", &v1beta1.AppService{}))).To(Succeed())
	harness.Update(w, "kubectl-edit", "drifted", &appsv1.Deployment{}, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = otherImage })
	w.Expect(api.Delete(w.Ctx, harness.Read(w, "bereft", &corev1.Service{}))).To(Succeed())
	w.create("created")

	// When one starts
	w.startManager()

	// Then every change is reverted, and reported with its field manager.
	w.ready("created")
	w.ready("changed")
	w.Expect(container(w, "changed").Image).To(Equal(otherImage))
	w.Expect(w.ready("changed").Status.Drifts).To(BeEmpty())
	w.Eventually(w.IsGone("deleted", &v1beta1.AppService{})).Should(Succeed())
	w.leavesNothing("deleted")
	app := harness.Eventually(w, "drifted", &v1beta1.AppService{}, func(g Gomega, a *v1beta1.AppService) { g.Expect(a.Status.Drifts).To(HaveLen(1)) })
	w.Expect(app.Status.Drifts[0]).To(Satisfy(sameDrift(v1beta1.Drift{
		Kind: "Deployment", Name: "drifted", Field: `.spec.template.spec.containers[name="app"].image`, Manager: "kubectl-edit",
		Desired: `"registry.test/shop:1"`, Found: `"registry.test/shop:2"`, Action: v1beta1.DriftCorrected,
	})))
	w.Expect(container(w, "drifted").Image).To(Equal(image))
	app = harness.Eventually(w, "bereft", &v1beta1.AppService{}, func(g Gomega, a *v1beta1.AppService) { g.Expect(a.Status.Drifts).To(HaveLen(1)) })
	w.Expect(app.Status.Drifts[0]).To(Satisfy(sameDrift(v1beta1.Drift{Kind: "Service", Name: "bereft", Action: v1beta1.DriftCorrected})))
	harness.Read(w, "bereft", &corev1.Service{})
}

// TestDistinguishesDriftFromSpecChange: both have happened when the manager looks.
func TestDistinguishesDriftFromSpecChange(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("web", replicas(3))
	w.Settled()
	w.Stop(w.Managers[0])
	w.Scale("kubectl", w.deployment("web"), 7)
	w.change("web", withImage(otherImage))

	w.startManager()

	app := w.ready("web")
	w.Expect(container(w, "web").Image).To(Equal(otherImage))
	w.Expect(w.deployment("web").Spec.Replicas).To(HaveValue(BeEquivalentTo(3)))
	w.Expect(app.Status.Drifts).To(HaveLen(1))
	w.Expect(app.Status.Drifts[0]).To(Satisfy(sameDrift(v1beta1.Drift{
		Kind: "Deployment", Name: "web", Field: ".spec.replicas", Manager: "kubectl", Desired: "3", Found: "7", Action: v1beta1.DriftCorrected,
	})))
}
