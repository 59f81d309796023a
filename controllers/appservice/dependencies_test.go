package appservice

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/references"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

func fromSecret(name, key string, optional *bool) corev1.EnvVar {
	selector := &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key, Optional: optional}
	return corev1.EnvVar{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: selector}}
}

func fromConfigMap(name, key string, optional *bool) corev1.EnvVar {
	selector := &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key, Optional: optional}
	return corev1.EnvVar{Name: "B", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: selector}}
}

func TestReferencesOf(t *testing.T) {
	type spec = v1beta1.AppServiceSpec
	cases := map[string]struct {
		change func(*spec)
		want   []string
	}{
		"none": {func(s *spec) { s.Env = []corev1.EnvVar{{Name: "A", Value: "x"}} }, nil},
		"all": {func(s *spec) {
			s.Env = []corev1.EnvVar{fromSecret("db", "password", nil), fromConfigMap("modes", "mode", ptr.To(false))}
			s.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
			s.ServiceAccountName = "robot"
		}, []string{"Secret/db", "ConfigMap/modes", "Secret/pull", "ServiceAccount/robot"}},
		"optional ones are not waited for": {func(s *spec) {
			s.Env = []corev1.EnvVar{fromSecret("db", "password", ptr.To(true)), fromConfigMap("modes", "mode", ptr.To(true))}
		}, nil},
		// The Config phase comes later: to wait for its child would never end.
		"the own ConfigMap": {func(s *spec) {
			s.Config, s.ConfigMountPath, s.Env = map[string]string{"MODE": "fast"}, "/etc/web", []corev1.EnvVar{fromConfigMap("web", "MODE", nil)}
		}, nil},
		"another ConfigMap beside the own one": {func(s *spec) {
			s.Config, s.Env = map[string]string{"MODE": "fast"}, []corev1.EnvVar{fromConfigMap("modes", "mode", nil)}
		}, []string{"ConfigMap/modes"}},
		"the variables of the hook": {withHook(func(h *v1beta1.AppServiceHook) {
			h.Env = []corev1.EnvVar{fromSecret("admin", "password", nil)}
		}), []string{"Secret/admin"}},
		"no hook":                      {func(s *spec) { s.Hooks = &v1beta1.AppServiceHooks{} }, nil},
		"a ConfigMap of the same name": {func(s *spec) { s.Env = []corev1.EnvVar{fromConfigMap("web", "MODE", nil)} }, []string{"ConfigMap/web"}},
		"a Secret of the same name": {func(s *spec) {
			s.Config, s.Env = map[string]string{"A": "x"}, []corev1.EnvVar{fromSecret("web", "k", nil)}
		}, []string{"Secret/web"}},
		"references without a name or a key": {func(s *spec) {
			s.Env = []corev1.EnvVar{fromSecret("", "password", nil), fromConfigMap("modes", "", nil)}
		}, nil},
		"a pull secret without a name":    {func(s *spec) { s.ImagePullSecrets = []corev1.LocalObjectReference{{}} }, nil},
		"the certificate is only watched": {func(s *spec) { s.Ingress = &v1beta1.Ingress{Host: "a.b", TLSSecretName: "web-tls"} }, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			app := webApp(c.change)
			var ids []string
			for _, reference := range referencesOf(app) {
				ids = append(ids, reference.ID())
			}
			g.Expect(ids).To(Equal(c.want))
			g.Expect(dependencies.Configured(&scope{app: app})).To(Equal(len(c.want) > 0))
			watched := watchedReferencesOf(app)
			g.Expect(watched).To(HaveLen(len(c.want) + len(references.FromIngress(app.Spec.Ingress))))
		})
	}
}

func TestObserveDependencies(t *testing.T) {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "1"} }
	password := &corev1.Secret{ObjectMeta: meta("db"), Data: map[string][]byte{"password": []byte("x")}}
	robot := &corev1.ServiceAccount{ObjectMeta: meta("robot")}
	cases := map[string]struct {
		objects []client.Object
		want    string
	}{
		"all exist": {[]client.Object{password, robot}, "done (Ready: all referenced objects exist)"},
		"missing": {[]client.Object{&corev1.Secret{ObjectMeta: meta("db")}},
			"wait (DependencyMissing: missing: ServiceAccount robot, key password of Secret db; create the missing objects and keys, or mark the references optional)"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			reader := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(c.objects...).Build()
			app := webApp(func(s *v1beta1.AppServiceSpec) {
				s.Env, s.ServiceAccountName = []corev1.EnvVar{fromSecret("db", "password", nil)}, "robot"
			})
			observed, err := dependencies.Observe(t.Context(), &scope{app: app, references: &references.Reader{Metadata: reader, Data: reader}})
			g.Expect(err).NotTo(HaveOccurred())
			verdict, ok := observed.(phases.Verdict)
			g.Expect(ok).To(BeTrue())
			g.Expect(verdict.String()).To(Equal(c.want))
		})
	}
}
