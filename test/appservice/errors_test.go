package appservice_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// tenSeconds is how many requests a manager may send in ten seconds about one AppService that
// fails: retries that back off, and a read of the pods from time to time.
const tenSeconds = 6

// TestReportsErrorsAndRecovers: each case makes an AppService fail. The condition says
// what is wrong and what to do; while it lasts the manager does not run hot; and when the cause is
// removed the AppService becomes Ready by itself, without a change of its spec.
func TestReportsErrorsAndRecovers(t *testing.T) {
	cases := map[string]struct {
		edits []edit
		// given is what exists beforehand, and fix removes it.
		given func(w *fixture)
		fix   func(w *fixture)
		// condition, state and message are what is told.
		condition, state string
		message          types.GomegaMatcher
		// stalled: only a person helps. Otherwise it is tried again.
		stalled bool
		phase   v1beta1.Phase
	}{
		"the name is taken": {
			given: func(w *fixture) {
				w.Expect(api.Create(w.Ctx, foreignDeployment(w.Namespace, "web", map[string]string{"app": "unmanaged"}))).To(Succeed())
			},
			fix:       func(w *fixture) { w.Expect(api.Delete(w.Ctx, w.deployment("web"))).To(Succeed()) },
			condition: "DeploymentReady", state: "False NotOwned",
			message: And(MatchRegexp("^Deployment .*web: "), ContainSubstring("delete or rename it, or set spec.adoptionPolicy to IfUnowned")),
			stalled: true, phase: v1beta1.PhaseFailed,
		},
		"another controller owns the name": {
			edits: []edit{adoption(v1beta1.AdoptionIfUnowned)},
			given: func(w *fixture) {
				owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "boss"}}
				w.Expect(api.Create(w.Ctx, owner)).To(Succeed())
				service := &corev1.Service{
					ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "web", OwnerReferences: []metav1.OwnerReference{
						*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap")),
					}},
					Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
				}
				w.Expect(api.Create(w.Ctx, service)).To(Succeed())
			},
			fix:       func(w *fixture) { w.Expect(api.Delete(w.Ctx, harness.Read(w, "web", &corev1.Service{}))).To(Succeed()) },
			condition: "ServiceReady", state: "False OwnedByAnother",
			message: And(MatchRegexp("^Service .*web: "), ContainSubstring("controlled by ConfigMap boss"), ContainSubstring("rename one of the two")),
			stalled: true, phase: v1beta1.PhaseFailed,
		},
		"an adopted Deployment has another selector": {
			edits: []edit{adoption(v1beta1.AdoptionIfUnowned)},
			given: func(w *fixture) {
				w.Expect(api.Create(w.Ctx, foreignDeployment(w.Namespace, "web", map[string]string{"app": "unmanaged"}))).To(Succeed())
			},
			fix:       func(w *fixture) { w.Expect(api.Delete(w.Ctx, w.deployment("web"))).To(Succeed()) },
			condition: "DeploymentReady", state: "False ImmutableField",
			message: And(ContainSubstring("spec.selector"), ContainSubstring("delete the object so that it is recreated")),
			stalled: true, phase: v1beta1.PhaseFailed,
		},
		"a quota refuses pods": {
			given: func(w *fixture) { w.quota(corev1.ResourcePods, "1") },
			fix: func(w *fixture) {
				harness.Update(w, "admin", "quota", &corev1.ResourceQuota{}, func(q *corev1.ResourceQuota) {
					q.Spec.Hard = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10")}
				})
			},
			condition: "DeploymentReady", state: "False QuotaExceeded",
			message: And(ContainSubstring("exceeded quota: quota"), ContainSubstring("limited: pods=1"), Not(ContainSubstring(", used:")),
				ContainSubstring("raise the ResourceQuota, or lower spec.replicas")),
			phase: v1beta1.PhaseDegraded,
		},
		"a quota refuses Services": {
			given: func(w *fixture) { w.quota("count/services", "0") },
			fix: func(w *fixture) {
				harness.Update(w, "admin", "quota", &corev1.ResourceQuota{}, func(q *corev1.ResourceQuota) {
					q.Spec.Hard = corev1.ResourceList{"count/services": resource.MustParse("10")}
				})
			},
			condition: "ServiceReady", state: "False QuotaExceeded",
			message: And(ContainSubstring("exceeded quota: quota"), ContainSubstring("limited: count/services=0"), Not(ContainSubstring(", used:")),
				ContainSubstring("raise the quota or request less")),
			phase: v1beta1.PhaseProvisioning,
		},
		"the ingress class is missing": {
			edits: []edit{ingress(&v1beta1.Ingress{Host: "a.test", IngressClassName: ptr.To("later")})},
			given: func(*fixture) {},
			fix: func(w *fixture) {
				class := newIngressClass("later")
				w.Expect(api.Create(w.Ctx, class)).To(Succeed())
				w.T.Cleanup(func() { _ = api.Delete(w.Ctx, class) })
			},
			condition: "IngressReady", state: "False IngressClassMissing",
			message: And(ContainSubstring("IngressClass later does not exist"), ContainSubstring("correct spec.ingress.ingressClassName, or install the ingress controller")),
			stalled: true, phase: v1beta1.PhaseDegraded,
		},
		"a policy denies the Deployment": {
			given:     func(w *fixture) { w.deny("deployments", "apps", "web") },
			fix:       func(w *fixture) { w.allow() },
			condition: "DeploymentReady", state: "False AdmissionDenied",
			message: ContainSubstring("no Deployment named web today"),
			phase:   v1beta1.PhaseProvisioning,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newManagedFixture(t)
			c.given(w)

			w.create("web", c.edits...)

			// It is told, once in a condition and once in an Event,
			w.shows("web", c.condition, c.state, c.message)
			app := w.phase("web", c.phase) // pods that are let in may be ready only later
			w.Expect(conditions(app)).To(HaveKeyWithValue("Ready", c.state))
			if c.stalled {
				w.Expect(conditions(app)).To(And(HaveKeyWithValue("Stalled", HavePrefix("True ")), Not(HaveKey("Reconciling"))))
				w.Expect(kstatus(app)).To(Equal("Failed"))
			} else {
				w.Expect(conditions(app)).To(And(HaveKeyWithValue("Reconciling", HavePrefix("True ")), Not(HaveKey("Stalled"))))
				w.Expect(kstatus(app)).To(Equal("InProgress"))
			}
			w.Eventually(func() []string { return w.events("web") }).Should(ContainElement(ContainSubstring(" Ready is False: " + strings.TrimSuffix(c.condition, "Ready") + ": ")))

			// it does not run hot, and the status stays as it is,
			version := harness.Read(w, "web", &v1beta1.AppService{}).ResourceVersion
			if name == "a quota refuses pods" {
				version = "" // the Deployment controller reports how far it has come
			}
			w.isNotHot(tenSeconds)
			if version != "" {
				w.Expect(harness.Read(w, "web", &v1beta1.AppService{}).ResourceVersion).To(Equal(version), "the status was written again and again")
			}

			// and it goes on by itself.
			c.fix(w)
			app = w.ready("web")
			w.Expect(conditions(app)).NotTo(HaveKey("Stalled"))
			w.Expect(app.Status.Phase).To(Equal(v1beta1.PhaseRunning))
		})
	}
}

// quota limits a resource in the namespace, and returns when it is in force.
func (w *fixture) quota(name corev1.ResourceName, limit string) {
	w.T.Helper()
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "quota"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{name: resource.MustParse(limit)}},
	}
	w.Expect(api.Create(w.Ctx, quota)).To(Succeed())
	harness.Eventually(w, "quota", &corev1.ResourceQuota{}, func(g Gomega, q *corev1.ResourceQuota) {
		g.Expect(q.Status.Hard).To(HaveKey(name))
	})
}

// deny makes the API server refuse objects of a kind and name in the namespace, and returns when
// it does.
func (w *fixture) deny(resources, group, name string) {
	w.T.Helper()
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: w.Namespace},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resources}},
				},
			}}},
			Validations: []admissionv1.Validation{{
				Expression: fmt.Sprintf("object.metadata.name != %q", name),
				Message:    fmt.Sprintf("no Deployment named %s today", name),
			}},
		},
	}
	w.Expect(api.Create(w.Ctx, policy)).To(Succeed())
	w.Expect(api.Create(w.Ctx, &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: w.Namespace},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        w.Namespace,
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{corev1.LabelMetadataName: w.Namespace},
			}},
		},
	})).To(Succeed())
	w.T.Cleanup(func() { _ = api.Delete(w.Ctx, policy) })
	w.Eventually(func() error {
		return api.Create(w.Ctx, foreignDeployment(w.Namespace, name, map[string]string{"a": "b"}), client.DryRunAll)
	}).Should(MatchError(ContainSubstring("today")), "the policy takes effect")
}

// allow takes back what deny did.
func (w *fixture) allow() {
	w.T.Helper()
	w.Expect(api.Delete(w.Ctx, &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}})).To(Succeed())
}

// TestExplainsPodsThatDoNotBecomeReady: the rollout stalls after its deadline, the condition
// says why, and a change of the image is all that is needed.
func TestExplainsPodsThatDoNotBecomeReady(t *testing.T) {
	cases := map[string]struct {
		image string
		// early is the state before the deadline, with the message waiting; after it, the message is why.
		early        string
		waiting, why types.GomegaMatcher
	}{
		"never-ready": {
			image: cluster.ImageNeverReady, early: "False RolloutProgressing",
			waiting: Equal("waiting for updated pods to become available"), why: ContainSubstring("not all pods became available"),
		},
		"pull-fails": {
			image: cluster.ImagePullFails, early: "False PodsFailing",
			why: ContainSubstring("container app cannot pull image fixpoint.test/pull-fails:1 (ImagePullBackOff); correct spec.image or spec.imagePullSecrets"),
		},
		"crashes": {
			image: cluster.ImageCrashes, early: "False PodsFailing",
			why: ContainSubstring("container app crashes with exit code 1; see kubectl logs --previous"),
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newManagedFixture(t)
			w.create("web", withImage(c.image)) // the default deadline leaves time to see the state before it

			// First it is only progressing,
			if c.waiting == nil {
				c.waiting = c.why
			}
			app := w.shows("web", "DeploymentReady", c.early, c.waiting)
			w.Expect(conditions(app)).To(HaveKey("Reconciling"))
			w.Expect(app.Status.Phase).To(Equal(v1beta1.PhaseProvisioning))

			// then it is stalled,
			w.change("web", deadline(15))
			app = w.shows("web", "DeploymentReady", "False RolloutStalled", And(c.why, ContainSubstring("spec.progressDeadlineSeconds (15)"), ContainSubstring("kubectl describe pods -l app.kubernetes.io/name=web")))
			w.Expect(conditions(app)).To(And(HaveKeyWithValue("Stalled", "True RolloutStalled"), Not(HaveKey("Reconciling"))))
			w.Expect(app.Status.Phase).To(Equal(v1beta1.PhaseFailed))
			for _, pod := range w.pods("web") {
				w.Expect(messageOf(app, "Ready")).NotTo(ContainSubstring(pod.Name), "generated names differ from try to try")
			}
			w.isNotHot(tenSeconds)

			// and a good image is all that it takes.
			app = w.changeReady("web", withImage(image))
			w.Expect(conditions(app)).NotTo(HaveKey("Stalled"))
		})
	}
}

func TestFailedUpdateKeepsServing(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("web", replicas(3))

	// The default deadline leaves time to find out why.
	w.change("web", withImage(cluster.ImagePullFails))
	w.shows("web", "DeploymentReady", "False PodsFailing", ContainSubstring("cannot pull image"))

	w.change("web", deadline(10))
	w.shows("web", "Stalled", "True RolloutStalled", ContainSubstring("cannot pull image"))
	app := w.phase("web", v1beta1.PhaseDegraded)
	w.Expect(app.Status.ReadyReplicas).To(BeEquivalentTo(3), "the pods of the version before")
}

func TestExplainsUnschedulablePods(t *testing.T) {
	w := newManagedFixture(t)

	w.create("web", func(s *v1beta1.AppServiceSpec) { s.NodeSelector = map[string]string{"disk": "none-has-it"} })

	w.shows("web", "DeploymentReady", "False PodsFailing", And(ContainSubstring("pods cannot be scheduled"), ContainSubstring("relax the scheduling constraints")))
}

func TestReportsRefusedFieldAsInvalid(t *testing.T) {
	w := newManagedFixture(t)

	// The schema of AppService does not know what makes the name of a variable.
	w.create("web", env(corev1.EnvVar{Name: "A=B", Value: "x"}))

	app := w.shows("web", "DeploymentReady", "False Invalid", ContainSubstring("spec.template.spec.containers[0].env[0].name"))
	w.Expect(conditions(app)).To(HaveKey("Stalled"))
	w.isNotHot(2)
	w.changeReady("web", env())
}

// TestUsesDefaultIngressClass is not parallel: a default class is there for the whole cluster.
func TestUsesDefaultIngressClass(t *testing.T) {
	w := newFixture(t)
	w.startManager()
	w.create("web", ingress(&v1beta1.Ingress{Host: "a.test"}))
	w.shows("web", "IngressReady", "False IngressClassMissing", And(
		ContainSubstring("the cluster has no default IngressClass"), ContainSubstring("set spec.ingress.ingressClassName")))

	// When a class becomes the default one
	class := newIngressClass("default")
	w.Expect(api.Create(w.Ctx, class)).To(Succeed())
	t.Cleanup(func() { _ = api.Delete(w.Ctx, class) })
	class.Annotations = map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"}
	w.Expect(api.Update(w.Ctx, class)).To(Succeed())

	// Then the Ingress gets it, and nobody takes it for drift.
	w.ready("web")
	w.Expect(harness.Read(w, "web", &networkingv1.Ingress{}).Spec.IngressClassName).To(HaveValue(Equal("default")))
	w.AtRest("web")
	mark := w.Settled()
	w.checkedAfter("web", 1, func() {
		harness.Update(w, "user", "web", &v1beta1.AppService{}, func(a *v1beta1.AppService) { a.Labels = map[string]string{"look": "again"} })
	})
	w.Expect(w.Requests(mark).Writes()).To(BeEmpty())
	w.Expect(w.ready("web").Status.Drifts).To(BeEmpty())

	// And a class that is declared and taken back gives way to it: the API server gives the default one
	// only to new Ingresses.
	for _, declared := range []*string{ptr.To(ingressClass), nil} {
		w.changeReady("web", ingress(&v1beta1.Ingress{Host: "a.test", IngressClassName: declared}))
		w.Expect(harness.Read(w, "web", &networkingv1.Ingress{}).Spec.IngressClassName).To(HaveValue(Equal(ptr.Deref(declared, "default"))))
	}
}
