package appservice_test

import (
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/campaign/specs"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

const (
	image      = "registry.test/shop:1"
	otherImage = "registry.test/shop:2"
)

// edit changes the spec of an AppService.
type edit func(spec *v1beta1.AppServiceSpec)

func replicas(n int32) edit { return func(s *v1beta1.AppServiceSpec) { s.Replicas = &n } }

func withImage(image string) edit { return func(s *v1beta1.AppServiceSpec) { s.Image = image } }

func strategy(strategy v1beta1.Strategy) edit {
	return func(s *v1beta1.AppServiceSpec) { s.Strategy = strategy }
}

// config sets keys, given as key, value, key, value, and so on; none of them means no config.
func config(pairs ...string) edit {
	return func(s *v1beta1.AppServiceSpec) {
		s.Config = nil
		for i := 0; i < len(pairs); i += 2 {
			if s.Config == nil {
				s.Config = map[string]string{}
			}
			s.Config[pairs[i]] = pairs[i+1]
		}
	}
}

func env(vars ...corev1.EnvVar) edit { return func(s *v1beta1.AppServiceSpec) { s.Env = vars } }

// autoscaled leaves the number of pods to an autoscaler.
func autoscaled(minimum, maximum int32) edit {
	return func(s *v1beta1.AppServiceSpec) {
		s.Replicas = nil
		s.Autoscaling = &v1beta1.AppServiceAutoscaling{MinReplicas: minimum, MaxReplicas: maximum, TargetCPUUtilizationPercent: ptr.To[int32](80)}
	}
}

// fixed takes the number of pods back from an autoscaler.
func fixed(n int32) edit {
	return func(s *v1beta1.AppServiceSpec) { s.Autoscaling, s.Replicas = nil, &n }
}

func budget(b *v1beta1.DisruptionBudget) edit {
	return func(s *v1beta1.AppServiceSpec) { s.DisruptionBudget = b }
}

func ingress(in *v1beta1.Ingress) edit {
	return func(s *v1beta1.AppServiceSpec) { s.Ingress = in }
}

func adoption(policy v1beta1.AdoptionPolicy) edit {
	return func(s *v1beta1.AppServiceSpec) { s.AdoptionPolicy = policy }
}

func drift(policy v1beta1.DriftPolicy) edit {
	return func(s *v1beta1.AppServiceSpec) { s.DriftPolicy = policy }
}

func deadline(seconds int32) edit {
	return func(s *v1beta1.AppServiceSpec) { s.ProgressDeadlineSeconds = seconds }
}

func suspend(is bool) edit { return func(s *v1beta1.AppServiceSpec) { s.Suspend = is } }

// everything turns all options on, so that there is a child of each kind.
func everything(s *v1beta1.AppServiceSpec) {
	for _, field := range specs.Options() {
		option(field)(s)
	}
}

// option turns one option on, as the seed of the campaign does.
func option(field string) edit {
	return func(s *v1beta1.AppServiceSpec) {
		specs.SetOption(s, field)
		if s.Autoscaling != nil {
			s.Replicas = nil
		}
		if s.Ingress != nil {
			s.Ingress.IngressClassName = ptr.To(ingressClass)
		}
	}
}

// withoutOption turns one option off.
func withoutOption(field string) edit {
	return func(s *v1beta1.AppServiceSpec) {
		specs.UnsetOption(s, field)
		if s.Autoscaling == nil && s.Replicas == nil {
			replicas(2)(s)
		}
	}
}

// app builds an AppService with two pods.
func (w *fixture) app(name string, edits ...edit) *v1beta1.AppService {
	a := &v1beta1.AppService{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name},
		Spec:       v1beta1.AppServiceSpec{Image: image, Replicas: ptr.To[int32](2)},
	}
	for _, e := range edits {
		e(&a.Spec)
	}
	return a
}

// create makes an AppService.
func (w *fixture) create(name string, edits ...edit) *v1beta1.AppService {
	w.T.Helper()
	a := w.app(name, edits...)
	w.Expect(api.Create(w.Ctx, a)).To(Succeed())
	return a
}

// createReady makes an AppService and waits until it is Ready.
func (w *fixture) createReady(name string, edits ...edit) *v1beta1.AppService {
	w.T.Helper()
	w.create(name, edits...)
	return w.ready(name)
}

// change edits the spec of an AppService, as its user does.
func (w *fixture) change(name string, edits ...edit) {
	w.T.Helper()
	live := harness.Read(w, name, &v1beta1.AppService{})
	before := live.DeepCopy()
	for _, e := range edits {
		e(&live.Spec)
	}
	w.Expect(w.As("user").Patch(w.Ctx, live, client.MergeFrom(before))).To(Succeed())
}

// changeReady edits the spec of an AppService and waits until it is Ready again.
func (w *fixture) changeReady(name string, edits ...edit) *v1beta1.AppService {
	w.T.Helper()
	w.change(name, edits...)
	return w.ready(name)
}

// ready waits until the AppService is Ready for the spec that it has.
func (w *fixture) ready(name string) *v1beta1.AppService {
	w.T.Helper()
	return harness.Eventually(w, name, &v1beta1.AppService{}, func(g Gomega, a *v1beta1.AppService) {
		g.Expect(a.Status.ObservedGeneration).To(Equal(a.Generation))
		g.Expect(conditions(a)).To(HaveKeyWithValue("Ready", "True Ready"))
	})
}

// shows waits until a condition of the AppService reads like "False NotOwned" and has a message
// that matches.
func (w *fixture) shows(name, conditionType, statusAndReason string, message types.GomegaMatcher) *v1beta1.AppService {
	w.T.Helper()
	return harness.Eventually(w, name, &v1beta1.AppService{}, func(g Gomega, a *v1beta1.AppService) {
		g.Expect(a.Status.ObservedGeneration).To(Equal(a.Generation))
		g.Expect(conditions(a)).To(HaveKeyWithValue(conditionType, statusAndReason))
		g.Expect(messageOf(a, conditionType)).To(message)
	})
}

// scalesNoMore waits until the autoscaler, which gets no metrics here, has said all that it has to say.
func (w *fixture) scalesNoMore(name string) {
	w.T.Helper()
	w.shows(name, "AutoscalingReady", "True ScalingInactive", Not(BeEmpty()))
}

// phase waits until the resource is in a phase.
func (w *fixture) phase(name string, phase v1beta1.Phase) *v1beta1.AppService {
	w.T.Helper()
	return harness.Eventually(w, name, &v1beta1.AppService{}, func(g Gomega, a *v1beta1.AppService) {
		g.Expect(a.Status.Phase).To(Equal(phase))
	})
}

func (w *fixture) deployment(name string) *appsv1.Deployment {
	w.T.Helper()
	return harness.Read(w, name, &appsv1.Deployment{})
}

// replicaSets are those of an AppService, one for each version of its pods.
func (w *fixture) replicaSets(name string) []appsv1.ReplicaSet {
	w.T.Helper()
	var list appsv1.ReplicaSetList
	w.Expect(api.List(w.Ctx, &list, client.InNamespace(w.Namespace), client.MatchingLabels{"app.kubernetes.io/name": name})).To(Succeed())
	return list.Items
}

func (w *fixture) pods(name string) []corev1.Pod {
	w.T.Helper()
	var list corev1.PodList
	w.Expect(api.List(w.Ctx, &list, client.InNamespace(w.Namespace), client.MatchingLabels{"app.kubernetes.io/name": name})).To(Succeed())
	return list.Items
}

// labels are those of every child.
func labels(name string) map[string]string {
	return map[string]string{"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "fixpoint"}
}

// beOwnedBy matches an object whose one owner is the AppService.
func beOwnedBy(a *v1beta1.AppService) types.GomegaMatcher {
	return HaveField("OwnerReferences", beOwnerReferenceTo(a))
}

// beOwnerReferenceTo matches the owner references of an object whose one owner is the AppService.
func beOwnerReferenceTo(a *v1beta1.AppService) types.GomegaMatcher {
	return ConsistOf(metav1.OwnerReference{
		APIVersion: "fixpoint.dev/v1beta1", Kind: "AppService", Name: a.Name, UID: a.UID,
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	})
}
