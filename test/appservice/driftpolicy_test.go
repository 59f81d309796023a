package appservice_test

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// drifted is the Event that drift policy Report gives, once.
const drifted = "Warning Drifted Drifted is True: "

// TestReportedDriftRemainsUntilResolved shows the drift policy Report.
func TestReportedDriftRemainsUntilResolved(t *testing.T) {
	shared := newResyncingFixture(t)
	// ends are the ways in which a drift can go.
	ends := map[string]struct {
		end func(w *fixture, name string)
		// image and replicas are what is there then.
		image    string
		replicas int32
	}{
		"reverted-by-hand": {
			end: func(w *fixture, name string) {
				harness.Update(w, "kubectl-edit", name, &appsv1.Deployment{}, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = image })
			}, image: image, replicas: 2,
		},
		"corrected-by-policy": {
			end:   func(w *fixture, name string) { w.change(name, drift(v1beta1.DriftCorrect)) },
			image: image, replicas: 2,
		},
		"taken-into-the-spec": {
			end:   func(w *fixture, name string) { w.change(name, withImage(otherImage)) },
			image: otherImage, replicas: 2,
		},
	}
	for name, c := range ends {
		t.Run(name, func(t *testing.T) {
			w := shared.sub(t, name)
			w.createReady(name, drift(v1beta1.DriftReport), config("A", "1"))

			// When another manager changes the image
			harness.Update(w, "kubectl-set", name, &appsv1.Deployment{}, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = otherImage })

			// Then it is told,
			app := w.shows(name, "Drifted", "True Drifted", And(
				ContainSubstring(`kubectl-set changed .spec.template.spec.containers[name="app"].image from "registry.test/shop:1" to "registry.test/shop:2"`),
				ContainSubstring("drift policy is Report")))
			w.Expect(app.Status.Drifts).To(HaveLen(1))
			w.Expect(app.Status.Drifts[0]).To(Satisfy(sameDrift(v1beta1.Drift{
				Kind: "Deployment", Name: name, Field: `.spec.template.spec.containers[name="app"].image`, Manager: "kubectl-set",
				Desired: `"registry.test/shop:1"`, Found: `"registry.test/shop:2"`, Action: v1beta1.DriftReported,
			})), "%+v", app.Status.Drifts[0])
			noticed := app.Status.Drifts[0].Time

			// and left, however often the manager looks, with one Event,
			w.ready(name)
			before := harness.Eventually(w, name, &appsv1.Deployment{}, func(g Gomega, d *appsv1.Deployment) {
				g.Expect(d.Annotations).To(HaveKeyWithValue("deployment.kubernetes.io/revision", "2"), "its controller has seen the change")
			})
			mark := w.Mark()
			w.checksAgain(name, 3)
			writes := w.Requests(mark).Writes().Where(func(r cluster.Request) bool { return r.Resource == "deployments" && r.Name == name })
			w.Expect(writes).To(BeEmpty(), "%s", writes)
			// Its own controller may still write its status.
			after := w.deployment(name)
			w.Expect(after.Generation).To(Equal(before.Generation))
			w.Expect(after.Annotations).To(Equal(before.Annotations))
			w.Expect(after.Labels).To(Equal(before.Labels))
			app = harness.Read(w, name, &v1beta1.AppService{})
			w.Expect(app.Status.Drifts).To(HaveLen(1))
			w.Expect(app.Status.Drifts[0].Time).To(Equal(noticed), "the time is when it was noticed first")
			w.Eventually(func() []string { return w.events(name) }).Should(ContainElement(HavePrefix(drifted)))

			// while a change of the spec goes around it,
			w.changeReady(name, replicas(3), config("A", "2"))
			w.Expect(container(w, name).Image).To(Equal(otherImage))
			w.Expect(w.deployment(name).Spec.Replicas).To(HaveValue(BeEquivalentTo(3)))
			w.Expect(harness.Read(w, name, &corev1.ConfigMap{}).Data).To(Equal(map[string]string{"A": "2"}))
			w.Expect(conditions(w.ready(name))).To(HaveKeyWithValue("Drifted", "True Drifted"))
			w.changeReady(name, replicas(2))

			// until it is gone.
			c.end(w, name)
			harness.Eventually(w, name, &v1beta1.AppService{}, func(g Gomega, a *v1beta1.AppService) {
				g.Expect(conditions(a)).To(And(HaveKeyWithValue("Ready", "True Ready"), Not(HaveKey("Drifted"))))
				g.Expect(a.Status.ObservedGeneration).To(Equal(a.Generation))
				g.Expect(a.Status.Drifts).NotTo(ContainElement(HaveField("Action", v1beta1.DriftReported)))
			})
			w.Eventually(func() string { return container(w, name).Image }).Should(Equal(c.image))
			w.Expect(w.deployment(name).Spec.Replicas).To(HaveValue(Equal(c.replicas)))
			w.Eventually(func() []string { return w.events(name) }).Should(ContainElement("Normal DriftedOver Drifted is no longer True"))
			w.Expect(filter(w.events(name), drifted)).To(HaveLen(1), "one Event for as long as the drift stood")

			// From then on the field is managed again.
			w.changeReady(name, withImage("registry.test/shop:3"))
			w.Expect(container(w, name).Image).To(Equal("registry.test/shop:3"))
		})
	}
}

// checksAgain waits until the manager has checked an AppService the given number of times from now on: the
// Service has not drifted, and the Deployment has.
func (w *fixture) checksAgain(name string, times int) {
	w.T.Helper()
	m := w.Managers[len(w.Managers)-1]
	before := m.Checks("AppService", name, "Service")
	w.Eventually(func() int { return m.Checks("AppService", name, "Service") }).Should(BeNumerically(">=", before+times), "checks of %s", name)
}

func filter(texts []string, prefix string) []string {
	var kept []string
	for _, text := range texts {
		if len(text) >= len(prefix) && text[:len(prefix)] == prefix {
			kept = append(kept, text)
		}
	}
	return kept
}

func TestReportPolicyRecreatesDeletedChild(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("web", drift(v1beta1.DriftReport), everything)

	for kind, newObject := range childKinds {
		before := harness.Read(w, "web", newObject())
		w.Expect(api.Delete(w.Ctx, before)).To(Succeed())
		w.Eventually(func(g Gomega) {
			after := newObject()
			g.Expect(api.Get(w.Ctx, w.Key("web"), after)).To(Succeed())
			g.Expect(after.GetUID()).NotTo(Equal(before.GetUID()), kind)
		}).Should(Succeed())
		w.ready("web")
	}
}

func TestReportedDriftRemainsWhileAnEarlierPhaseBlocks(t *testing.T) {
	w := newResyncingFixture(t)
	w.createReady("web", drift(v1beta1.DriftReport), budget(&v1beta1.DisruptionBudget{MaxUnavailable: ptr.To(intstr.FromInt32(1))}))
	harness.Update(w, "kubectl-edit", "web", &policyv1.PodDisruptionBudget{}, func(b *policyv1.PodDisruptionBudget) {
		b.Spec.MaxUnavailable = ptr.To(intstr.FromInt32(2))
	})
	w.shows("web", "Drifted", "True Drifted", ContainSubstring("kubectl-edit changed .spec.maxUnavailable from 1 to 2"))
	versions := harness.Versions[*v1beta1.AppService](w, &v1beta1.AppServiceList{}, "web")

	// When the Deployment, which comes before the disruption budget, is not ready for a while
	w.change("web", withImage(cluster.ImageNeverReady))
	w.shows("web", "DisruptionBudgetReady", "Unknown Blocked", Not(BeEmpty()))
	w.changeReady("web", withImage(otherImage))

	// Then the drift has stood all the time.
	for _, version := range versions() {
		w.Expect(conditions(version)).To(HaveKeyWithValue("Drifted", "True Drifted"))
		w.Expect(version.Status.Drifts).To(ConsistOf(HaveField("Action", v1beta1.DriftReported)))
	}
	w.Eventually(func() []string { return w.events("web") }).Should(ContainElement(HavePrefix(drifted)))
	w.Expect(filter(w.events("web"), drifted)).To(HaveLen(1))

	// And it is over as soon as it is undone, whatever else there is to wait for.
	w.change("web", withImage(cluster.ImageNeverReady))
	w.shows("web", "DisruptionBudgetReady", "Unknown Blocked", Not(BeEmpty()))
	harness.Update(w, "kubectl-edit", "web", &policyv1.PodDisruptionBudget{}, func(b *policyv1.PodDisruptionBudget) {
		b.Spec.MaxUnavailable = ptr.To(intstr.FromInt32(1))
	})
	harness.Eventually(w, "web", &v1beta1.AppService{}, func(g Gomega, a *v1beta1.AppService) {
		g.Expect(conditions(a)).To(And(HaveKeyWithValue("Ready", HavePrefix("False ")), Not(HaveKey("Drifted"))))
		g.Expect(a.Status.Drifts).To(BeEmpty())
	})
	w.Eventually(func() []string { return w.events("web") }).Should(ContainElement("Normal DriftedOver Drifted is no longer True"))
}
