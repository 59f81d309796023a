package appservice_test

import (
	"net/http"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers/appservice"
	"github.com/fixpoint-dev/fixpoint/test/campaign/specs"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// TestPrunesChildOfDisabledOption turns each option that adds a child off, and on again. Which child an option
// adds is seen from an AppService that has this option only.
func TestPrunesChildOfDisabledOption(t *testing.T) {
	shared := newManagedFixture(t)
	shared.createReady("least")
	pruned := map[string][]harness.Phase{}
	for _, p := range harness.Children(appservice.Name) {
		if shared.IsGone("least", p.NewChild())() != nil {
			continue // every AppService has this child
		}
		field := shared.optionThatAdds(p)
		pruned[field] = append(pruned[field], p)
	}
	for field, children := range pruned {
		name := strings.ToLower(field)
		t.Run(field, func(t *testing.T) {
			w := shared.sub(t, name)
			before := map[string]types.UID{}
			for _, p := range children {
				before[p.Kind] = harness.Read(w, name, p.NewChild()).GetUID()
			}

			w.changeReady(name, withoutOption(field))

			for _, p := range children {
				w.Eventually(w.IsGone(name, p.NewChild())).Should(Succeed())
				app := harness.Eventually(w, name, &v1beta1.AppService{}, func(g Gomega, a *v1beta1.AppService) {
					g.Expect(conditions(a)).To(And(
						HaveKeyWithValue("Ready", "True Ready"),
						Not(HaveKey(p.Condition()))))
				})
				w.Expect(app.Status.Drifts).To(BeEmpty())
			}

			// And on again, it is another object.
			w.changeReady(name, option(field))
			for _, p := range children {
				w.Expect(harness.Read(w, name, p.NewChild()).GetUID()).NotTo(Equal(before[p.Kind]))
			}
			w.Expect(w.ready(name).Status.Drifts).To(BeEmpty(), "a child that is desired again is no drift")
		})
	}
}

// optionThatAdds is the option that adds the child of a phase. It leaves an AppService with this option alone,
// under the name of the option.
func (w *fixture) optionThatAdds(p harness.Phase) string {
	w.T.Helper()
	for _, field := range specs.Options() {
		name := strings.ToLower(field)
		if w.IsGone(name, &v1beta1.AppService{})() == nil {
			w.createReady(name, option(field))
		}
		if w.IsGone(name, p.NewChild())() != nil {
			return field
		}
	}
	w.T.Fatalf("no option turns the phase %s on: add one to test/campaign/specs/seeds/appservice-autoscaled.yaml", p.Name)
	return ""
}

func TestPrunesConfigOncePodsNoLongerUseIt(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("web", config("A", "1"))
	generation := w.deployment("web").Generation
	mark := w.Mark()

	w.changeReady("web", config())
	w.Eventually(w.IsGone("web", &corev1.ConfigMap{})).Should(Succeed())

	w.Expect(w.deployment("web").Generation).To(Equal(generation+1), "one write")
	requests := w.Requests(mark)
	applied, deleted := requests.Applies().Of("deployments.apps").Succeeded(), requests.Verbs("delete").Of("configmaps").Succeeded()
	w.Expect(deleted).To(HaveLen(1))
	if !w.ReadsStale() {
		w.Expect(applied).To(HaveLen(1), "%s", requests)
	}
	w.Expect(deleted[0].Received).To(BeTemporally(">", applied[0].Answered))
	// All pods that are there run without it.
	w.Expect(w.deployment("web").Spec.Template.Annotations).NotTo(HaveKey("fixpoint.dev/config-hash"))
}

// TestHandingReplicasOverNeverRemovesPods turns replicas over to an autoscaler and takes
// them back, twice.
func TestHandingReplicasOverNeverRemovesPods(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("web", replicas(4))
	versions := harness.Versions[*appsv1.Deployment](w, &appsv1.DeploymentList{}, "web")

	for range 2 {
		w.changeReady("web", autoscaled(2, 8))
		harness.Read(w, "web", &autoscalingv2.HorizontalPodAutoscaler{})
		w.Expect(w.deployment("web").Spec.Replicas).To(HaveValue(BeEquivalentTo(4)), "the autoscaler begins with what there is")

		// The autoscaler does its work, and nobody minds.
		w.Scale("kube-controller-manager", w.deployment("web"), 6)
		w.ready("web")

		generation := w.deployment("web").Generation
		mark := w.Mark()
		w.changeReady("web", fixed(4))
		w.Expect(w.deployment("web").Spec.Replicas).To(HaveValue(BeEquivalentTo(4)))
		w.Expect(w.deployment("web").Generation).To(Equal(generation+1), "one write")
		requests := w.Requests(mark)
		// A delete is refused, and sent again, if the autoscaler's controller has written just before.
		deleted := requests.Verbs("delete").Of("horizontalpodautoscalers.autoscaling").Where(func(r cluster.Request) bool { return r.Code == http.StatusOK })
		applied := requests.Applies().Of("deployments.apps").Succeeded()
		w.Expect(deleted).To(HaveLen(1))
		if !w.ReadsStale() {
			w.Expect(applied).To(HaveLen(1), "%s", requests)
		}
		w.Expect(deleted[0].Answered).To(BeTemporally("<", applied[len(applied)-1].Received), "or the two would pull at the number:\n%s", requests)
	}

	for _, version := range versions() {
		w.Expect(version.Spec.Replicas).To(HaveValue(BeNumerically(">=", 4)))
	}
	w.Expect(w.replicaSets("web")).To(HaveLen(1))
	w.Expect(w.ready("web").Status.Drifts).To(BeEmpty())
}
