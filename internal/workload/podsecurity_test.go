package workload

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

func TestViolationsAreThoseOfTheStandard(t *testing.T) {
	pod := func(privileged, restricted bool) *corev1ac.PodTemplateSpecApplyConfiguration {
		container, spec := corev1ac.Container().WithName("app"), corev1ac.PodSpec()
		if restricted {
			container.WithSecurityContext(RestrictedContainer())
			spec.WithSecurityContext(RestrictedPod())
		} else {
			container.WithSecurityContext(corev1ac.SecurityContext().WithPrivileged(privileged))
		}
		return corev1ac.PodTemplateSpec().WithSpec(spec.WithContainers(container))
	}
	for name, c := range map[string]struct {
		standard v1beta1.PodSecurityStandard
		template *corev1ac.PodTemplateSpecApplyConfiguration
		want     string
	}{
		"baseline":                 {v1beta1.PodSecurityBaseline, pod(false, false), ""},
		"baseline, privileged":     {v1beta1.PodSecurityBaseline, pod(true, false), "privileged"},
		"restricted":               {v1beta1.PodSecurityRestricted, pod(false, true), ""},
		"restricted, only default": {v1beta1.PodSecurityRestricted, pod(false, false), "runAsNonRoot"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			found := Violations(c.standard, c.template)
			g.Expect(found == "").To(Equal(c.want == ""), found)
			g.Expect(found).To(ContainSubstring(c.want))
		})
	}
}

func TestPodsDoNotRunAsTheManager(t *testing.T) {
	manager := types.NamespacedName{Namespace: "system", Name: "manager"}
	for name, c := range map[string]struct {
		manager   types.NamespacedName
		namespace string
		names     []string
		refused   bool
	}{
		"the manager's":              {manager, "system", []string{"manager"}, true},
		"one of two":                 {manager, "system", []string{"web", "manager"}, true},
		"another":                    {manager, "system", []string{"web"}, false},
		"in another namespace":       {manager, "shop", []string{"manager"}, false},
		"the default one":            {types.NamespacedName{Namespace: "system", Name: "default"}, "system", []string{""}, true},
		"none, which is the default": {types.NamespacedName{Namespace: "system", Name: "default"}, "system", nil, true},
		"unknown manager":            {types.NamespacedName{Namespace: "system"}, "system", []string{"manager"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			err := CheckServiceAccount(c.manager, c.namespace, "spec.serviceAccountName", c.names...)
			if !c.refused {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(And(HavePrefix("spec.serviceAccountName: the pods would run as ServiceAccount system/"+c.manager.Name), HaveSuffix("unchanged"))))
		})
	}
}

func TestAccountsOf(t *testing.T) {
	g := NewWithT(t)
	g.Expect(AccountsOf(corev1ac.PodSpec())).To(BeEmpty())
	g.Expect(AccountsOf(corev1ac.PodSpec().WithServiceAccountName("").WithDeprecatedServiceAccount("old"))).To(Equal([]string{"old"}))
	g.Expect(AccountsOf(corev1ac.PodSpec().WithServiceAccountName("new").WithDeprecatedServiceAccount("old"))).To(Equal([]string{"new", "old"}))
}
