package appservice

import (
	"cmp"
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// deployment is the Deployment that runs the pods.
var deployment = phases.Child[*scope, *appsv1ac.DeploymentApplyConfiguration, *appsv1.Deployment]{
	Name:    "Deployment",
	Desired: desiredDeployment,
	Health:  workload.Ready,
	Ready: func(ctx context.Context, s *scope, live *appsv1.Deployment) phases.Verdict {
		return workload.Explain(ctx, s.uncached, s.clock, live, workload.Ready(live))
	},
	Observed: func(s *scope, live *appsv1.Deployment) { s.deployment = live },
	// Nothing that is deleted after it has to outlive its pods: the garbage collector may take its time.
	Propagation: metav1.DeletePropagationBackground,
	// The autoscaler starts from the current number of replicas.
	HandOver: []string{"spec.replicas"},
	// When the strategy changes to Recreate, the API server keeps the defaulted rollingUpdate and then
	// rejects the combination. The same applies to what another client has put in the place of a field.
	RemoveFields: workload.DeploymentRemoveFields,
	// A port that another field manager has renumbered has a duplicate name.
	UniqueFields: []string{"spec.template.spec.containers.ports.name"},
}

func desiredDeployment(s *scope) (*appsv1ac.DeploymentApplyConfiguration, error) {
	app := s.app
	template := podTemplate(app)
	if err := checkTemplate(app, s.managerAccount, template); err != nil {
		return nil, err
	}
	spec := appsv1ac.DeploymentSpec().
		WithSelector(metav1ac.LabelSelector().WithMatchLabels(selectorOf(app))).
		WithStrategy(workload.Strategy(app.Spec.Strategy)).
		WithProgressDeadlineSeconds(app.Spec.ProgressDeadlineSeconds).
		WithTemplate(template)
	if app.Spec.Replicas != nil {
		spec.WithReplicas(*app.Spec.Replicas)
	}
	return appsv1ac.Deployment(app.Name, app.Namespace).WithLabels(labelsOf(app)).WithSpec(spec), nil
}

func podTemplate(app *v1beta1.AppService) *corev1ac.PodTemplateSpecApplyConfiguration {
	container, pod := appContainer(app), corev1ac.PodSpec()
	withSecurity(pod, container, app)
	for _, secret := range app.Spec.ImagePullSecrets {
		pod.WithImagePullSecrets(corev1ac.LocalObjectReference().WithName(secret.Name))
	}
	if app.Spec.ServiceAccountName != "" {
		// The API server copies the name to the deprecated field, and would restore it from there when
		// it is removed from the spec. So the controller manages both fields.
		pod.WithServiceAccountName(app.Spec.ServiceAccountName).WithDeprecatedServiceAccount(app.Spec.ServiceAccountName)
	}
	pod.WithNodeSelector(app.Spec.NodeSelector)
	if mountsConfig(app) {
		pod.WithVolumes(corev1ac.Volume().WithName(configVolume).
			WithConfigMap(corev1ac.ConfigMapVolumeSource().WithName(app.Name)))
	}
	withMounts(pod, container, app)
	pod.WithContainers(container)
	workload.DeclarePullPolicies(pod)
	template := corev1ac.PodTemplateSpec().WithLabels(labelsOf(app)).WithSpec(pod)
	if len(app.Spec.Config) > 0 {
		template.WithAnnotations(map[string]string{configHashAnnotation: configHash(app)})
	}
	return template
}

func mountsConfig(app *v1beta1.AppService) bool {
	return len(app.Spec.Config) > 0 && app.Spec.ConfigMountPath != ""
}

// sorted are the mounts by their paths, so that their order in the spec replaces no pods and runs no hook again.
func sorted(mounts []v1beta1.AppServiceMount) []v1beta1.AppServiceMount {
	byPath := func(a, b v1beta1.AppServiceMount) int { return strings.Compare(a.MountPath, b.MountPath) }
	return slices.SortedFunc(slices.Values(mounts), byPath)
}

func withMounts(pod *corev1ac.PodSpecApplyConfiguration, container *corev1ac.ContainerApplyConfiguration, app *v1beta1.AppService) {
	for _, mount := range sorted(app.Spec.Mounts) {
		pod.WithVolumes(corev1ac.Volume().WithName(mount.Name).WithEmptyDir(workload.EmptyDir(mount.EmptyDir)))
		container.WithVolumeMounts(corev1ac.VolumeMount().WithName(mount.Name).WithMountPath(mount.MountPath))
	}
}

func appContainer(app *v1beta1.AppService) *corev1ac.ContainerApplyConfiguration {
	container := corev1ac.Container().
		WithName(containerName).
		WithImage(app.Spec.Image).
		WithPorts(corev1ac.ContainerPort().
			WithName(portName).
			WithContainerPort(app.Spec.Port).
			WithProtocol(corev1.ProtocolTCP))
	if app.Spec.ImagePullPolicy != "" {
		container.WithImagePullPolicy(app.Spec.ImagePullPolicy)
	}
	for i := range app.Spec.Env {
		container.WithEnv(workload.MustConvert(app.Spec.Env[i], corev1ac.EnvVar()))
	}
	if len(app.Spec.Resources.Requests)+len(app.Spec.Resources.Limits)+len(app.Spec.Resources.Claims) > 0 {
		container.WithResources(workload.MustConvert(app.Spec.Resources, corev1ac.ResourceRequirements()))
	}
	switch {
	case mountsConfig(app):
		container.WithVolumeMounts(corev1ac.VolumeMount().
			WithName(configVolume).WithMountPath(app.Spec.ConfigMountPath).WithReadOnly(true))
	case len(app.Spec.Config) > 0:
		container.WithEnvFrom(corev1ac.EnvFromSource().
			WithConfigMapRef(corev1ac.ConfigMapEnvSource().WithName(app.Name)))
	}
	withProbes(container, app)
	return container
}

func withProbes(container *corev1ac.ContainerApplyConfiguration, app *v1beta1.AppService) {
	probes := app.Spec.Probes
	if probes == nil {
		return
	}
	if probes.Readiness != nil {
		container.WithReadinessProbe(probe(probes.Readiness))
	}
	if probes.Liveness != nil {
		container.WithLivenessProbe(probe(probes.Liveness))
	}
	if probes.Startup != nil {
		container.WithStartupProbe(probe(probes.Startup))
	}
}

func probe(p *v1beta1.AppServiceProbe) *corev1ac.ProbeApplyConfiguration {
	port := intstr.FromString(portName)
	if p.Port != nil {
		port = intstr.FromInt32(*p.Port)
	}
	return corev1ac.Probe().
		WithHTTPGet(corev1ac.HTTPGetAction().WithPath(cmp.Or(p.Path, "/")).WithPort(port)).
		WithInitialDelaySeconds(p.InitialDelaySeconds).
		WithPeriodSeconds(p.PeriodSeconds).
		WithTimeoutSeconds(p.TimeoutSeconds).
		WithFailureThreshold(p.FailureThreshold)
}
