package appservice_test

import (
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// isNoWatch leaves out the watches, which the API server ends from time to time.
func isNoWatch(r cluster.Request) bool { return r.Verb != "watch" }

func TestPrunesChildOfDisabledOption(t *testing.T) {
	shared := newManagedFixture(t)
	cases := map[string]struct {
		on, off edit
		kind    string
		phase   string
	}{
		"config":  {on: config("A", "1"), off: config(), kind: "ConfigMap", phase: "Config"},
		"scaling": {on: autoscaled(2, 4), off: fixed(2), kind: "HorizontalPodAutoscaler", phase: "Autoscaling"},
		"budget": {
			on:   budget(&v1alpha1.AppServiceDisruptionBudget{MinAvailable: ptr.To(intstr.FromInt32(1))}),
			off:  budget(nil),
			kind: "PodDisruptionBudget", phase: "DisruptionBudget",
		},
		"ingress": {
			on:   ingress(&v1alpha1.AppServiceIngress{Host: "a.test", IngressClassName: ptr.To(ingressClass)}),
			off:  ingress(nil),
			kind: "Ingress", phase: "Ingress",
		},
	}
	// A phase whose child not every AppService has needs a case.
	shared.createReady("least")
	covered := map[string]bool{}
	for _, c := range cases {
		covered[c.kind] = true
	}
	for kind, newObject := range childKinds {
		if isOptional := shared.IsGone("least", newObject())() == nil; isOptional != covered[kind] {
			t.Errorf("%s is optional: %t; has a case: %t", kind, isOptional, covered[kind])
		}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := shared.sub(t, name)
			w.createReady(name, c.on)
			child := harness.Read(w, name, childKinds[c.kind]())

			w.changeReady(name, c.off)

			w.Eventually(w.IsGone(name, childKinds[c.kind]())).Should(Succeed())
			app := harness.Eventually(w, name, &v1alpha1.AppService{}, func(g Gomega, a *v1alpha1.AppService) {
				g.Expect(conditions(a)).To(And(
					HaveKeyWithValue("Ready", "True Ready"),
					Not(HaveKey(c.phase+"Ready"))))
			})
			w.Expect(app.Status.Drifts).To(BeEmpty())

			// And on again, it is another object.
			w.changeReady(name, c.on)
			w.Expect(harness.Read(w, name, childKinds[c.kind]()).GetUID()).NotTo(Equal(child.GetUID()))
			w.Expect(w.ready(name).Status.Drifts).To(BeEmpty(), "a child that is desired again is no drift")
		})
	}
}

func TestPrunesConfigOncePodsNoLongerUseIt(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("web", config("A", "1"))
	mark := w.Mark()

	w.changeReady("web", config())
	w.Eventually(w.IsGone("web", &corev1.ConfigMap{})).Should(Succeed())

	requests := w.Requests(mark)
	applied, deleted := requests.Applies().Of("deployments.apps"), requests.Verbs("delete").Of("configmaps")
	w.Expect(applied).To(HaveLen(1))
	w.Expect(deleted).To(HaveLen(1))
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

		mark := w.Mark()
		w.changeReady("web", fixed(4))
		w.Expect(w.deployment("web").Spec.Replicas).To(HaveValue(BeEquivalentTo(4)))
		requests := w.Requests(mark)
		// A delete is refused, and sent again, if the autoscaler's controller has written just before.
		deleted := requests.Verbs("delete").Of("horizontalpodautoscalers.autoscaling").Where(func(r cluster.Request) bool { return r.Code == http.StatusOK })
		applied := requests.Applies().Of("deployments.apps")
		w.Expect(deleted).To(HaveLen(1))
		w.Expect(applied).To(HaveLen(1))
		w.Expect(deleted[0].Answered).To(BeTemporally("<", applied[0].Received), "or the two would pull at the number:\n%s", requests)
	}

	for _, version := range versions() {
		w.Expect(version.Spec.Replicas).To(HaveValue(BeNumerically(">=", 4)))
	}
	w.Expect(w.replicaSets("web")).To(HaveLen(1))
	w.Expect(w.ready("web").Status.Drifts).To(BeEmpty())
}
