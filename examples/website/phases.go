package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	websitesv1 "github.com/fixpoint-dev/fixpoint/examples/website/api/v1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// scope is the data of one reconcile.
type scope struct {
	site       *websitesv1.Website
	dns        registry
	deployment *appsv1.Deployment // as observed; nil until it exists
}

func (s *scope) host() string { return s.site.Name + "." + s.site.Spec.Zone }

// pagesPhase has a ConfigMap for each page. A page that is no longer desired is
// pruned after the pods that use it are replaced.
func pagesPhase() phases.Phase[*scope] {
	return phases.Child[*scope, *corev1ac.ConfigMapApplyConfiguration, *corev1.ConfigMap]{
		Name: "Pages",
		Desired: func(s *scope) (*corev1ac.ConfigMapApplyConfiguration, error) {
			return corev1ac.ConfigMap(s.site.Name, s.site.Namespace).WithData(s.site.Spec.Pages), nil
		},
	}
}

func pageName(site *websitesv1.Website, page string) string { return site.Name + "-" + page }

func deploymentPhase() phases.Phase[*scope] {
	return phases.Child[*scope, *appsv1ac.DeploymentApplyConfiguration, *appsv1.Deployment]{
		Name:     "Deployment",
		Desired:  desiredDeployment,
		Ready:    isRolledOut,
		Observed: func(s *scope, live *appsv1.Deployment) { s.deployment = live },
	}
}

func desiredDeployment(s *scope) (*appsv1ac.DeploymentApplyConfiguration, error) {
	labels := map[string]string{"app.kubernetes.io/name": s.site.Name}
	files := corev1ac.ProjectedVolumeSource()
	for _, page := range slices.Sorted(maps.Keys(s.site.Spec.Pages)) {
		files.WithSources(corev1ac.VolumeProjection().WithConfigMap(corev1ac.ConfigMapProjection().WithName(pageName(s.site, page))))
	}
	container := corev1ac.Container().WithName("web").WithImage(s.site.Spec.Image).
		WithPorts(corev1ac.ContainerPort().WithContainerPort(8080)).
		WithVolumeMounts(corev1ac.VolumeMount().WithName("pages").WithMountPath("/usr/share/nginx/html").WithReadOnly(true))
	return appsv1ac.Deployment(s.site.Name, s.site.Namespace).WithSpec(appsv1ac.DeploymentSpec().
		WithReplicas(s.site.Spec.Replicas).
		WithSelector(metav1ac.LabelSelector().WithMatchLabels(labels)).
		WithTemplate(corev1ac.PodTemplateSpec().WithLabels(labels).WithSpec(corev1ac.PodSpec().
			WithContainers(container).
			WithVolumes(corev1ac.Volume().WithName("pages").WithProjected(files))))), nil
}

func isRolledOut(live *appsv1.Deployment) phases.Verdict {
	status, want := live.Status, *live.Spec.Replicas
	if status.ObservedGeneration < live.Generation || status.UpdatedReplicas < want || status.AvailableReplicas < want || status.Replicas > want {
		return phases.Wait("RolloutProgressing", fmt.Sprintf("%d of %d pods are up to date and available", min(status.UpdatedReplicas, status.AvailableReplicas), want), 0)
	}
	return phases.Done(fmt.Sprintf("%d pods are up to date and available", want))
}

// registrationPhase registers the host in the DNS zone, which is not a Kubernetes API.
func registrationPhase() phases.Phase[*scope] {
	return phases.Step[*scope]{
		Name: "Registration",
		Observe: func(ctx context.Context, s *scope) (phases.Verdict, error) {
			found, err := s.dns.do(ctx, http.MethodGet, s.host())
			if err != nil || !found {
				return phases.Missing("Registering", "register "+s.host()), err
			}
			return phases.Done(s.host() + " is registered").LookAgainAfter(time.Minute), nil
		},
		Ensure: func(ctx context.Context, s *scope) (phases.Verdict, error) {
			_, err := s.dns.do(ctx, http.MethodPut, s.host())
			return phases.Done(s.host() + " is registered"), err
		},
		Undo: func(ctx context.Context, s *scope) (phases.Verdict, error) {
			_, err := s.dns.do(ctx, http.MethodDelete, s.host())
			return phases.Done(s.host() + " is removed"), err
		},
	}
}

// desiredStatus is what the last reconcile observed.
func desiredStatus(s *scope, summary phases.Summary) websitesv1.WebsiteStatus {
	status := websitesv1.WebsiteStatus{ObservedGeneration: s.site.Generation, Host: s.host()}
	if s.deployment != nil {
		status.ReadyReplicas = s.deployment.Status.ReadyReplicas
	}
	return status
}

var (
	_ = errors.New
	_ metav1.Object
	_ ctrl.Manager
	_ ssa.Options
)

func setup(ctrl.Manager, registry) error { return nil }
