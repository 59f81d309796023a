package appservice_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
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
	text, err := os.ReadFile(filepath.Join(harness.Root, "config", "samples", "fixpoint_v1beta1_appservice.yaml"))
	w.Expect(err).NotTo(HaveOccurred())
	sample := &v1beta1.AppService{}
	w.Expect(yaml.UnmarshalStrict(text, sample)).To(Succeed())
	sample.Namespace = w.Namespace

	w.Expect(api.Create(w.Ctx, sample)).To(Succeed())

	app := w.ready(sample.Name)
	w.Expect(app.Status.ReadyReplicas).To(BeEquivalentTo(3))

	// So do the pods of an AppService without security settings; the API server refuses those of another standard.
	w.createReady("default")
	w.create("baseline", standard(v1beta1.PodSecurityBaseline))
	w.shows("baseline", "DeploymentReady", "False PodsFailing", ContainSubstring(`violates PodSecurity "restricted:latest"`))
	w.changeReady("baseline", standard(v1beta1.PodSecurityRestricted))
}

func TestRefusesPrivilegedPods(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("web", standard(v1beta1.PodSecurityBaseline))
	before := w.deployment("web")

	w.change("web", func(s *v1beta1.AppServiceSpec) {
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

	app := harness.Eventually(w, "web", &v1beta1.AppService{}, func(g Gomega, a *v1beta1.AppService) {
		g.Expect(a.Status.Drifts).To(ContainElements(
			And(HaveField("Manager", "kubectl-set"), HaveField("Field", HaveSuffix(`.env[name="TOKEN"].value`)), HaveField("Desired", `"(redacted)"`), HaveField("Found", `"(redacted)"`)),
			And(HaveField("Manager", "kubectl-set"), HaveField("Field", HaveSuffix(`.image`)), HaveField("Found", `"`+otherImage+`"`)),
			And(HaveField("Manager", "kubectl-edit"), HaveField("Field", ".data.PASSWORD"), HaveField("Found", `"(redacted)"`)),
		))
	})
	status, err := yaml.Marshal(app.Status)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(string(status)).NotTo(ContainSubstring(confidential))
	w.Eventually(func() []string { return w.events("web") }).Should(ContainElement(ContainSubstring("kubectl-edit changed .data.PASSWORD")))
	w.Expect(w.events("web")).NotTo(ContainElement(ContainSubstring(confidential)))
}

// A manager with a ServiceAccount, as in a pod, runs no pods as itself in its own namespace.
func TestRefusesTheServiceAccountOfTheManager(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	const manager = "manager"
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: manager}}
	w.Expect(api.Create(w.Ctx, account)).To(Succeed())
	for _, role := range []string{"manager-appservice-role", "manager-mcpserver-role"} {
		w.Expect(api.Create(w.Ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: w.Namespace + "-" + role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.Namespace, Name: manager}},
		})).To(Succeed())
	}
	token := &authenticationv1.TokenRequest{}
	w.Expect(api.SubResource("token").Create(w.Ctx, account, token)).To(Succeed())
	cfg := rest.AnonymousClientConfig(shared.Admin())
	cfg.BearerToken = token.Status.Token
	options := w.options()
	options.Controllers = append(options.Controllers, mcpserver.Name)
	w.StartManager(cfg, options)

	w.create("web", func(s *v1beta1.AppServiceSpec) { s.ServiceAccountName = manager })
	server := &v1beta1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "tools"}}
	server.Spec.Image, server.Spec.Protocol.Probe = image, v1beta1.ProbeDisabled
	server.Spec.Protocol.Interval.Duration, server.Spec.Protocol.Timeout.Duration = time.Hour, time.Second
	server.Spec.ServiceAccount = &v1beta1.MCPServerServiceAccount{Name: manager}
	w.Expect(api.Create(w.Ctx, server)).To(Succeed())

	w.shows("web", "DeploymentReady", "False NotPermitted", HavePrefix("spec.serviceAccountName: the pods would run as ServiceAccount "+w.Namespace+"/manager, which is that of the manager"))
	harness.Eventually(w, "tools", &v1beta1.MCPServer{}, func(g Gomega, m *v1beta1.MCPServer) {
		g.Expect(conditions(m)).To(And(HaveKeyWithValue("DeploymentReady", "False NotPermitted"), HaveKeyWithValue("Stalled", "True NotPermitted")))
		g.Expect(messageOf(m, "DeploymentReady")).To(HavePrefix("spec.serviceAccount: "))
	})
	w.Expect(w.IsGone("web", &appsv1.Deployment{})()).To(Succeed(), "no pods")
	w.Expect(w.IsGone("tools", &appsv1.Deployment{})()).To(Succeed(), "no pods")

	// Another ServiceAccount is permitted.
	w.changeReady("web", func(s *v1beta1.AppServiceSpec) { s.ServiceAccountName = "default" })
}
