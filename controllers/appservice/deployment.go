package appservice

import (
	"cmp"
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// deployment is the Deployment that runs the pods.
var deployment = phases.Child[*scope, *appsv1ac.DeploymentApplyConfiguration, *appsv1.Deployment]{
	Name:    "Deployment",
	Desired: func(s *scope) (*appsv1ac.DeploymentApplyConfiguration, error) { return desiredDeployment(s.app) },
	Ready:   workload.Ready,
	Explain: func(ctx context.Context, s *scope, live *appsv1.Deployment, verdict phases.Verdict) phases.Verdict {
		return workload.Explain(ctx, s.uncached, s.clock, live, verdict)
	},
	Observed: func(s *scope, live *appsv1.Deployment) { s.deployment = live },
	// An autoscaler takes over from the number that is there.
	HandOver: []string{"spec.replicas"},
	// The API server keeps these, defaulted, when the strategy becomes Recreate, and refuses both together.
	// The latter is a port that somebody has given another number.
	RemoveFields: []string{"spec.strategy.rollingUpdate"},
	UniqueFields: []string{"spec.template.spec.containers.ports.name"},
}

func desiredDeployment(app *v1alpha1.AppService) (*appsv1ac.DeploymentApplyConfiguration, error) {
	template, err := podTemplate(app)
	if err != nil {
		return nil, err
	}
	spec := appsv1ac.DeploymentSpec().
		WithSelector(metav1ac.LabelSelector().WithMatchLabels(selectorOf(app))).
		WithStrategy(strategy(app)).
		WithProgressDeadlineSeconds(app.Spec.ProgressDeadlineSeconds).
		WithTemplate(template)
	if app.Spec.Replicas != nil {
		spec.WithReplicas(*app.Spec.Replicas)
	}
	return appsv1ac.Deployment(app.Name, app.Namespace).WithLabels(labelsOf(app)).WithSpec(spec), nil
}

// strategy lets a rolling update never fall below the number of pods that is asked for.
func strategy(app *v1alpha1.AppService) *appsv1ac.DeploymentStrategyApplyConfiguration {
	if app.Spec.Strategy == v1alpha1.StrategyRecreate {
		return appsv1ac.DeploymentStrategy().WithType(appsv1.RecreateDeploymentStrategyType)
	}
	return appsv1ac.DeploymentStrategy().
		WithType(appsv1.RollingUpdateDeploymentStrategyType).
		WithRollingUpdate(appsv1ac.RollingUpdateDeployment().
			WithMaxUnavailable(intstr.FromInt32(0)).
			WithMaxSurge(intstr.FromString("25%")))
}

func podTemplate(app *v1alpha1.AppService) (*corev1ac.PodTemplateSpecApplyConfiguration, error) {
	container, err := appContainer(app)
	if err != nil {
		return nil, err
	}
	pod := corev1ac.PodSpec().WithContainers(container)
	for _, secret := range app.Spec.ImagePullSecrets {
		pod.WithImagePullSecrets(corev1ac.LocalObjectReference().WithName(secret.Name))
	}
	if app.Spec.ServiceAccountName != "" {
		// The API server copies the name into the deprecated field, from which the name would come
		// back when it is taken out of the spec: so both are ours.
		pod.WithServiceAccountName(app.Spec.ServiceAccountName).WithDeprecatedServiceAccount(app.Spec.ServiceAccountName)
	}
	if len(app.Spec.NodeSelector) > 0 {
		pod.WithNodeSelector(app.Spec.NodeSelector)
	}
	if mountsConfig(app) {
		pod.WithVolumes(corev1ac.Volume().WithName(configVolume).
			WithConfigMap(corev1ac.ConfigMapVolumeSource().WithName(app.Name)))
	}
	workload.DeclarePullPolicies(pod)
	template := corev1ac.PodTemplateSpec().WithLabels(labelsOf(app)).WithSpec(pod)
	if len(app.Spec.Config) > 0 {
		template.WithAnnotations(map[string]string{configHashAnnotation: configHash(app)})
	}
	return template, nil
}

func mountsConfig(app *v1alpha1.AppService) bool {
	return len(app.Spec.Config) > 0 && app.Spec.ConfigMountPath != ""
}

func appContainer(app *v1alpha1.AppService) (*corev1ac.ContainerApplyConfiguration, error) {
	container := corev1ac.Container().
		WithName(containerName).
		WithImage(app.Spec.Image).
		WithPorts(corev1ac.ContainerPort().
			WithName(portName).
			WithContainerPort(app.Spec.Port).
			WithProtocol(corev1.ProtocolTCP))
	for i := range app.Spec.Env {
		env := corev1ac.EnvVar()
		if err := workload.Convert(app.Spec.Env[i], env); err != nil {
			return nil, fmt.Errorf("reading spec.env[%d]: %w", i, err)
		}
		container.WithEnv(env)
	}
	if len(app.Spec.Resources.Requests)+len(app.Spec.Resources.Limits)+len(app.Spec.Resources.Claims) > 0 {
		resources := corev1ac.ResourceRequirements()
		if err := workload.Convert(app.Spec.Resources, resources); err != nil {
			return nil, fmt.Errorf("reading spec.resources: %w", err)
		}
		container.WithResources(resources)
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
	return container, nil
}

func withProbes(container *corev1ac.ContainerApplyConfiguration, app *v1alpha1.AppService) {
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

func probe(p *v1alpha1.AppServiceProbe) *corev1ac.ProbeApplyConfiguration {
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
