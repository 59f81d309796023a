package appservice_test

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// podUIDs tells pods that stayed from pods that were replaced.
func (w *fixture) podUIDs(name string) []types.UID {
	w.T.Helper()
	var uids []types.UID
	for _, pod := range w.pods(name) {
		if pod.DeletionTimestamp == nil {
			uids = append(uids, pod.UID)
		}
	}
	return uids
}

func TestConfigChangeRollsPodsOnce(t *testing.T) {
	for mode, mount := range map[string]string{"as variables": "", "as files": "/etc/shop"} {
		t.Run(mode, func(t *testing.T) {
			w := newManagedFixture(t)
			w.createReady("web", config("A", "1"), func(s *v1beta1.AppServiceSpec) { s.ConfigMountPath = mount })
			before := w.podUIDs("web")
			w.Expect(w.replicaSets("web")).To(HaveLen(1))
			generation := w.deployment("web").Generation
			configs := harness.Versions[*corev1.ConfigMap](w, &corev1.ConfigMapList{}, "web")
			mark := w.Mark()

			w.changeReady("web", config("A", "2"))
			w.Settled()

			w.Expect(w.replicaSets("web")).To(HaveLen(2), "one more version of the pods")
			w.Expect(w.podUIDs("web")).To(HaveLen(2))
			w.Expect(w.podUIDs("web")).NotTo(ContainElements(before))
			w.Expect(configs()).To(HaveLen(2), "that before, and one write")
			w.Expect(w.deployment("web").Generation).To(Equal(generation+1), "one write")
			applies := w.Requests(mark).Applies()
			if !w.ReadsStale() {
				w.Expect(applies.Of("configmaps")).To(HaveLen(1), "%s", applies)
				w.Expect(applies.Of("deployments.apps")).To(HaveLen(1), "%s", applies)
			}
			ofConfig, ofPods := applies.Of("configmaps").Succeeded(), applies.Of("deployments.apps").Succeeded()
			w.Expect(ofConfig[0].Answered).To(BeTemporally("<", ofPods[len(ofPods)-1].Received), "new pods must find the new config")

			// Back to what it was, the pods of the first version come again.
			w.changeReady("web", config("A", "1"))
			w.Expect(w.replicaSets("web")).To(HaveLen(2))
		})
	}
}

func TestUnrelatedChangesDoNotRollPods(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("web", replicas(4), config("A", "1"))
	before := w.podUIDs("web")

	// A change of the number keeps the pods that stay,
	w.changeReady("web", replicas(2))
	w.Eventually(func() []types.UID { return w.podUIDs("web") }).Should(And(HaveLen(2), HaveEach(BeElementOf(before))))
	w.Expect(w.replicaSets("web")).To(HaveLen(1))

	// and a label or an annotation of the AppService changes nothing at all.
	harness.Eventually(w, "web", &v1beta1.AppService{}, func(g Gomega, a *v1beta1.AppService) { g.Expect(a.Status.Replicas).To(BeEquivalentTo(2)) })
	w.AtRest("web") // its controller may be late to say how many pods there are
	mark := w.Settled()
	deployment := w.deployment("web")
	w.checkedAfter("web", 1, func() {
		harness.Update(w, "user", "web", &v1beta1.AppService{}, func(a *v1beta1.AppService) {
			a.Labels = with(a.Labels, "team", "shop")
			a.Annotations = with(a.Annotations, "note", "mine")
		})
	})
	w.Settled()
	w.Expect(w.Requests(mark).Writes()).To(BeEmpty())
	w.Expect(w.deployment("web").ResourceVersion).To(Equal(deployment.ResourceVersion))

	// Nor do options beside the pods.
	w.changeReady("web", func(s *v1beta1.AppServiceSpec) {
		s.ProgressDeadlineSeconds = 300
		s.Strategy = v1beta1.StrategyRecreate
		s.DriftPolicy = v1beta1.DriftReport
		s.AdoptionPolicy = v1beta1.AdoptionIfUnowned
	})
	w.Expect(w.replicaSets("web")).To(HaveLen(1))
}

func TestRollingUpdateKeepsTheDesiredNumberOfPods(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("web", replicas(3))
	versions := harness.Versions[*appsv1.Deployment](w, &appsv1.DeploymentList{}, "web")

	w.changeReady("web", withImage(otherImage))

	for _, version := range versions() {
		w.Expect(version.Status.AvailableReplicas).To(BeNumerically(">=", 3))
	}
}

func TestKubectlScalesAnAppService(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("web", replicas(2))

	w.kubectl("scale", "appservice/web", "--replicas=4")

	app := w.ready("web")
	w.Expect(app.Spec.Replicas).To(HaveValue(BeEquivalentTo(4)))
	w.Expect(app.Status.Replicas).To(BeEquivalentTo(4))
	w.Expect(w.deployment("web").Spec.Replicas).To(HaveValue(BeEquivalentTo(4)))
	w.Expect(app.Status.Drifts).To(BeEmpty(), "scaling the AppService is a change of its spec")
	w.Expect(w.replicaSets("web")).To(HaveLen(1))
	scale := w.kubectl("get", "--raw", "/apis/fixpoint.dev/v1beta1/namespaces/"+w.Namespace+"/appservices/web/scale")
	w.Expect(scale).To(And(ContainSubstring(`"replicas":4`), ContainSubstring(`"selector":"app.kubernetes.io/name=web"`)))
}
