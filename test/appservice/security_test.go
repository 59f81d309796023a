package appservice_test

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// restrictNamespace has the API server enforce the restricted Pod Security Standard, as
// `kubectl label namespace` does.
func (w *fixture) restrictNamespace() {
	w.T.Helper()
	namespace := &corev1.Namespace{}
	namespace.Name = w.Namespace
	w.Expect(api.Get(w.Ctx, client.ObjectKeyFromObject(namespace), namespace)).To(Succeed())
	namespace.Labels["pod-security.kubernetes.io/enforce"] = "restricted"
	w.Expect(api.Update(w.Ctx, namespace)).To(Succeed())
}

func TestSamplesRunInARestrictedNamespace(t *testing.T) {
	w := newManagedFixture(t)
	w.restrictNamespace()
	text, err := os.ReadFile(filepath.Join(harness.Root, "config", "samples", "fixpoint_v1alpha1_appservice.yaml"))
	w.Expect(err).NotTo(HaveOccurred())
	sample := &v1alpha1.AppService{}
	w.Expect(yaml.UnmarshalStrict(text, sample)).To(Succeed())
	sample.Namespace = w.Namespace

	w.Expect(api.Create(w.Ctx, sample)).To(Succeed())

	app := w.ready(sample.Name)
	w.Expect(app.Status.ReadyReplicas).To(BeEquivalentTo(3))

	// The API server refuses the pods of the same AppService without the standard.
	w.create("baseline")
	w.shows("baseline", "DeploymentReady", "False PodsFailing", ContainSubstring(`violates PodSecurity "restricted:latest"`))
	w.changeReady("baseline", standard(v1alpha1.PodSecurityRestricted))
}

func TestRefusesPrivilegedPods(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("web")
	before := w.deployment("web")

	w.change("web", func(s *v1alpha1.AppServiceSpec) {
		s.ContainerSecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	})

	app := w.shows("web", "DeploymentReady", "False NotPermitted", HavePrefix("spec.containerSecurityContext: the baseline Pod Security Standard forbids such pods: privileged"))
	w.Expect(conditions(app)).To(HaveKeyWithValue("Stalled", "True NotPermitted"))
	w.Settled()
	w.Expect(w.deployment("web").Spec).To(Equal(before.Spec), "the Deployment is left unchanged")
}

// What another client writes to the environment may be confidential: the status, the Events and the
// conditions have more readers than the Deployment.
func TestReportsOfDriftDoNotQuoteConfidentialValues(t *testing.T) {
	w := newManagedFixture(t)
	const confidential = "c0nfidential"
	w.createReady("web", env(corev1.EnvVar{Name: "TOKEN", Value: "declared-" + confidential}), config("PASSWORD", "declared-"+confidential))

	harness.Update(w, "kubectl-set", "web", w.deployment("web"), func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Env[0].Value = "changed-" + confidential
		d.Spec.Template.Spec.Containers[0].Image = otherImage
	})
	harness.Update(w, "kubectl-edit", "web", &corev1.ConfigMap{}, func(c *corev1.ConfigMap) { c.Data["PASSWORD"] = "changed-" + confidential })

	app := harness.Eventually(w, "web", &v1alpha1.AppService{}, func(g Gomega, a *v1alpha1.AppService) {
		g.Expect(a.Status.Drifts).To(ContainElements(
			And(HaveField("Manager", "kubectl-set"), HaveField("Field", HaveSuffix(`.env[name="TOKEN"].value`)), HaveField("From", `"(redacted)"`), HaveField("To", `"(redacted)"`)),
			And(HaveField("Manager", "kubectl-set"), HaveField("Field", HaveSuffix(`.image`)), HaveField("To", `"`+otherImage+`"`)),
			And(HaveField("Manager", "kubectl-edit"), HaveField("Field", ".data.PASSWORD"), HaveField("To", `"(redacted)"`)),
		))
	})
	status, err := yaml.Marshal(app.Status)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(string(status)).NotTo(ContainSubstring(confidential))
	w.Eventually(func() []string { return w.events("web") }).Should(ContainElement(ContainSubstring("kubectl-edit changed .data.PASSWORD")))
	w.Expect(w.events("web")).NotTo(ContainElement(ContainSubstring(confidential)))
}
