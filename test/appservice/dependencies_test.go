package appservice_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

func (w *fixture) createSecret(name string, data map[string]string) {
	w.T.Helper()
	w.Expect(api.Create(w.Ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}, StringData: data})).To(Succeed())
}

func (w *fixture) createAccount(name string) {
	w.T.Helper()
	w.Expect(api.Create(w.Ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}})).To(Succeed())
}

func passwordFrom(secret string, optional bool) edit {
	return env(corev1.EnvVar{Name: "PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: "password", Optional: &optional}}})
}

func TestWaitsForMissingDependencies(t *testing.T) {
	w := newManagedFixture(t)
	w.create("web", passwordFrom("db", false), func(s *v1beta1.AppServiceSpec) {
		s.ServiceAccountName = "robot"
		s.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
	})
	a := w.shows("web", "DependenciesReady", "False DependencyMissing",
		Equal("missing: Secret db, Secret pull, ServiceAccount robot; create the missing objects and keys, or mark the references optional"))
	w.Expect(conditions(a)).To(HaveKeyWithValue("DeploymentReady", "Unknown Blocked"))
	w.Expect(w.IsGone("web", &corev1.Service{})()).To(Succeed(), "the phases after an unready phase create nothing")

	w.createSecret("db", map[string]string{"user": "shop"})
	w.createSecret("pull", nil)
	w.createAccount("robot")
	w.shows("web", "DependenciesReady", "False DependencyMissing", HavePrefix("missing: key password of Secret db;"))

	harness.Update(w, "kubectl-edit", "db", &corev1.Secret{}, func(s *corev1.Secret) { s.Data["password"] = []byte("1") })
	w.Expect(conditions(w.ready("web"))).To(HaveKeyWithValue("DependenciesReady", "True Ready"))
}

func TestDependenciesOfARunningAppServiceReplaceNoPods(t *testing.T) {
	w := newManagedFixture(t)
	w.createSecret("db", map[string]string{"password": "1"})
	w.createReady("web", passwordFrom("db", false))
	pods := w.deployment("web").Generation
	w.AtRest("web")
	mark := w.Settled()

	// A change of the data has no effect, as documented.
	harness.Update(w, "rotator", "db", &corev1.Secret{}, func(s *corev1.Secret) { s.Data["password"] = []byte("2") })
	w.Eventually(func() cluster.Requests { return w.Requests(mark).Verbs("get").Of("secrets") }).Should(HaveLen(1))
	w.Settled()
	w.Expect(w.Requests(mark).Writes()).To(BeEmpty())

	// The pods run on without the Secret, and changes wait for it.
	w.Expect(api.Delete(w.Ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "db"}})).To(Succeed())
	a := w.shows("web", "Ready", "False DependencyMissing", ContainSubstring("Secret db"))
	w.Expect(a.Status.Phase).To(Equal(v1beta1.PhaseDegraded))
	w.change("web", withImage(otherImage))
	harness.Eventually(w, "web", &v1beta1.AppService{}, func(g Gomega, a *v1beta1.AppService) {
		g.Expect(a.Status.ObservedGeneration).To(Equal(a.Generation))
	})
	w.Expect(w.deployment("web").Generation).To(Equal(pods))

	// An optional one is not waited for, and has no condition.
	w.change("web", passwordFrom("db", true))
	w.Expect(conditions(w.ready("web"))).NotTo(HaveKey("DependenciesReady"))
}

// The child of a later phase is no dependency: to wait for it would never end.
func TestVariableFromTheOwnConfig(t *testing.T) {
	w := newManagedFixture(t)
	a := w.createReady("web", config("MODE", "fast"), func(s *v1beta1.AppServiceSpec) {
		s.ConfigMountPath = "/etc/web"
		s.Env = []corev1.EnvVar{{Name: "MODE", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "web"}, Key: "MODE"}}}}
	})
	w.Expect(conditions(a)).NotTo(HaveKey("DependenciesReady"))
}

// cert-manager creates the Secret for an Ingress that exists.
func TestIngressDoesNotWaitForItsCertificate(t *testing.T) {
	w := newManagedFixture(t)
	w.create("web", ingress(&v1beta1.Ingress{Host: "shop.test", IngressClassName: ptr.To(ingressClass), TLSSecretName: "web-tls"}))
	w.shows("web", "IngressReady", "False DependencyMissing",
		Equal("Ingress applied, but Secret web-tls (spec.ingress.tlsSecretName) does not exist; create it, or have cert-manager create it"))
	w.Expect(harness.Read(w, "web", &networkingv1.Ingress{}).Spec.TLS).To(HaveLen(1))

	mark := w.Mark()
	w.createSecret("web-tls", nil)
	w.ready("web")
	w.Expect(w.Requests(mark).Verbs("get").Of("secrets")).To(BeEmpty(), "the private key is not read")

	w.Expect(api.Delete(w.Ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "web-tls"}})).To(Succeed())
	w.shows("web", "Ready", "False DependencyMissing", ContainSubstring("Secret web-tls"))
}
