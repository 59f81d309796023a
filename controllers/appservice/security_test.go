package appservice

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
)

var manager = types.NamespacedName{Namespace: "shop", Name: "fixpoint"}

func TestRefusesPodsThatAreNotPermitted(t *testing.T) {
	const unchanged = ". An existing Deployment and its pods are left unchanged"
	cases := map[string]struct {
		manager types.NamespacedName
		change  func(*v1beta1.AppServiceSpec)
		want    string // empty: permitted
	}{
		"a privileged container": {change: func(s *v1beta1.AppServiceSpec) {
			s.ContainerSecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
		}, want: `spec.containerSecurityContext: the baseline Pod Security Standard forbids such pods: privileged (container "app" must not set securityContext.privileged=true); change these settings` + unchanged},
		"a sysctl of the node": {change: func(s *v1beta1.AppServiceSpec) {
			s.PodSecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "kernel.msgmax", Value: "1"}}}
		}, want: `spec.podSecurityContext: the baseline Pod Security Standard forbids such pods: forbidden sysctls (kernel.msgmax); change these settings` + unchanged},
		"root, with Restricted": {change: func(s *v1beta1.AppServiceSpec) {
			s.PodSecurityStandard = v1beta1.PodSecurityRestricted
			s.PodSecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](0)}
			s.ContainerSecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(true)}
		}, want: `spec.podSecurityContext and spec.containerSecurityContext: the restricted Pod Security Standard forbids such pods: allowPrivilegeEscalation != false (container "app" must set securityContext.allowPrivilegeEscalation=false), runAsUser=0 (pod must not set runAsUser=0); change these settings, or set spec.podSecurityStandard to Baseline if it allows them` + unchanged},
		"root, with Baseline": {change: func(s *v1beta1.AppServiceSpec) {
			s.PodSecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](0)}
		}},
		"the ServiceAccount of the manager": {manager: manager, change: func(s *v1beta1.AppServiceSpec) { s.ServiceAccountName = "fixpoint" },
			want: "spec.serviceAccountName: the pods would run as ServiceAccount shop/fixpoint, which is that of the manager, and have its permissions; use another ServiceAccount, or another namespace" + unchanged},
		"one of the same name in another namespace": {manager: types.NamespacedName{Namespace: "system", Name: "fixpoint"},
			change: func(s *v1beta1.AppServiceSpec) { s.ServiceAccountName = "fixpoint" }},
		"another one in the namespace of the manager": {manager: manager, change: func(s *v1beta1.AppServiceSpec) { s.ServiceAccountName = "shop" }},
		"the default one, which is that of the manager": {manager: types.NamespacedName{Namespace: "shop", Name: "default"}, change: func(*v1beta1.AppServiceSpec) {},
			want: "spec.serviceAccountName: the pods would run as ServiceAccount shop/default, which is that of the manager, and have its permissions; use another ServiceAccount, or another namespace" + unchanged},
		"an unknown manager": {change: func(s *v1beta1.AppServiceSpec) { s.ServiceAccountName = "fixpoint" }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)

			_, err := desiredDeployment(&scope{app: webApp(c.change), managerAccount: c.manager})

			if c.want == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(c.want))
			var refusal *workload.NotPermitted
			g.Expect(errors.As(err, &refusal)).To(BeTrue())
			g.Expect(refusal.ConditionReason()).To(Equal(v1beta1.ReasonNotPermitted))
			g.Expect(refusal.Permanent()).To(BeTrue())
		})
	}
}

// TestPodsSatisfyTheirStandard for all that other fields of the spec add to the pods.
func TestPodsSatisfyTheirStandard(t *testing.T) {
	for _, standard := range []v1beta1.PodSecurityStandard{v1beta1.PodSecurityBaseline, v1beta1.PodSecurityRestricted} {
		t.Run(string(standard), func(t *testing.T) {
			g := NewWithT(t)
			template := podTemplate(webApp(withConfig(map[string]string{"A": "1"}), func(s *v1beta1.AppServiceSpec) {
				s.PodSecurityStandard, s.ConfigMountPath, s.ServiceAccountName = standard, "/etc/shop", "shop"
				s.Probes = &v1beta1.AppServiceProbes{Readiness: &v1beta1.AppServiceProbe{Path: "/"}}
			}))
			g.Expect(workload.Violations(standard, template)).To(BeEmpty())
		})
	}
}
