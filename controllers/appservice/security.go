package appservice

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
)

// withSecurity sets what spec.podSecurityStandard requires; the security contexts of the spec override it
// field by field. The standard Baseline requires nothing, so that images that run as root start (ADR 32).
func withSecurity(pod *corev1ac.PodSpecApplyConfiguration, container *corev1ac.ContainerApplyConfiguration, app *v1beta1.AppService) {
	podContext, containerContext := corev1ac.PodSecurityContext(), corev1ac.SecurityContext()
	restricted := app.Spec.PodSecurityStandard == v1beta1.PodSecurityRestricted
	if restricted {
		podContext, containerContext = workload.RestrictedPod(), workload.RestrictedContainer()
		pod.WithAutomountServiceAccountToken(false)
	}
	if given := app.Spec.AutomountServiceAccountToken; given != nil {
		pod.WithAutomountServiceAccountToken(*given)
	}
	if given := app.Spec.PodSecurityContext; given != nil {
		workload.MustConvert(given, podContext)
	}
	if given := app.Spec.ContainerSecurityContext; given != nil {
		workload.MustConvert(given, containerContext)
	}
	if restricted || app.Spec.PodSecurityContext != nil {
		pod.WithSecurityContext(podContext)
	}
	if restricted || app.Spec.ContainerSecurityContext != nil {
		container.WithSecurityContext(containerContext)
	}
}

// checkTemplate refuses pods that do not satisfy spec.podSecurityStandard, or that would run as the manager.
func checkTemplate(app *v1beta1.AppService, manager types.NamespacedName, template *corev1ac.PodTemplateSpecApplyConfiguration) error {
	if err := workload.CheckServiceAccount(manager, app.Namespace, "spec.serviceAccountName", app.Spec.ServiceAccountName); err != nil {
		return err
	}
	standard := app.Spec.PodSecurityStandard
	violations := workload.Violations(standard, template)
	if violations == "" {
		return nil
	}
	remedy := "change these settings"
	if standard == v1beta1.PodSecurityRestricted {
		remedy += ", or set spec.podSecurityStandard to Baseline if it allows them"
	}
	return &workload.NotPermitted{
		Fields:  workload.SecurityContextFields(app.Spec.PodSecurityContext, app.Spec.ContainerSecurityContext),
		Problem: fmt.Sprintf("the %s Pod Security Standard forbids such pods: %s", strings.ToLower(string(standard)), violations),
		Remedy:  remedy,
	}
}
