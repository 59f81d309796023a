package main

import (
	"context"
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
	deployment appsv1.Deployment // as observed
}

func (s *scope) host() string { return s.site.Name + "." + s.site.Spec.Zone }

func definition(dns registry) phases.Definition[*websitesv1.Website, *scope] {
	return phases.Definition[*websitesv1.Website, *scope]{
		Controller: "website",
		Finalizer:  "example.com/teardown",
		Phases:     []phases.Phase[*scope]{pages, deployment, registration},
		Scope:      func(site *websitesv1.Website) *scope { return &scope{site: site, dns: dns} },
		Conditions: func(site *websitesv1.Website) []metav1.Condition { return site.Status.Conditions },
		Status:     desiredStatus,
	}
}

// setup adds the controller to the manager.
func setup(mgr ctrl.Manager, dns registry) error {
	deps, err := phases.FromManager(mgr, ssa.Options{FieldManager: "website-operator"})
	if err != nil {
		return err
	}
	engine, err := phases.New(definition(dns), deps)
	if err != nil {
		return err
	}
	return engine.SetupWithManager(mgr, phases.SetupOptions{})
}

// A ConfigMap for each page. Pods of the earlier version mount it until the Deployment is rolled out.
var pages = phases.Children[*scope, *corev1ac.ConfigMapApplyConfiguration, *corev1.ConfigMap]{
	Name:  "Pages",
	Prune: phases.PruneLast,
	Desired: func(s *scope) (desired []*corev1ac.ConfigMapApplyConfiguration, err error) {
		for _, page := range slices.Sorted(maps.Keys(s.site.Spec.Pages)) {
			desired = append(desired, corev1ac.ConfigMap(s.site.Name+"-"+page, s.site.Namespace).WithData(map[string]string{page: s.site.Spec.Pages[page]}))
		}
		return desired, nil
	},
}

var deployment = phases.Child[*scope, *appsv1ac.DeploymentApplyConfiguration, *appsv1.Deployment]{
	Name:     "Deployment",
	Desired:  desiredDeployment,
	Health:   rolledOut,
	Observed: func(s *scope, live *appsv1.Deployment) { live.DeepCopyInto(&s.deployment) },
}

func desiredDeployment(s *scope) (*appsv1ac.DeploymentApplyConfiguration, error) {
	labels := map[string]string{"app.kubernetes.io/name": s.site.Name}
	files := corev1ac.ProjectedVolumeSource()
	for _, page := range slices.Sorted(maps.Keys(s.site.Spec.Pages)) {
		files.WithSources(corev1ac.VolumeProjection().WithConfigMap(corev1ac.ConfigMapProjection().WithName(s.site.Name + "-" + page)))
	}
	return appsv1ac.Deployment(s.site.Name, s.site.Namespace).WithSpec(appsv1ac.DeploymentSpec().
		WithReplicas(s.site.Spec.Replicas).
		WithSelector(metav1ac.LabelSelector().WithMatchLabels(labels)).
		WithTemplate(corev1ac.PodTemplateSpec().WithLabels(labels).WithSpec(corev1ac.PodSpec().
			WithContainers(corev1ac.Container().WithName("web").WithImage(s.site.Spec.Image).
				WithVolumeMounts(corev1ac.VolumeMount().WithName("pages").WithMountPath("/usr/share/nginx/html").WithReadOnly(true))).
			WithVolumes(corev1ac.Volume().WithName("pages").WithProjected(files))))), nil
}

func rolledOut(live *appsv1.Deployment) phases.Verdict {
	want, status := *live.Spec.Replicas, live.Status
	available := min(status.UpdatedReplicas, status.AvailableReplicas)
	if status.ObservedGeneration < live.Generation || available < want || status.Replicas > want {
		return phases.Wait("RolloutProgressing", fmt.Sprintf("%d of %d pods are up to date and available", available, want), 0)
	}
	return phases.Done(fmt.Sprintf("%d pods are up to date and available", want))
}

// The host's record in the DNS zone, which is not a Kubernetes API.
var registration = phases.Step[*scope]{
	Name: "Registration",
	Observe: func(ctx context.Context, s *scope) (phases.Observation, error) {
		found, err := s.dns.do(ctx, http.MethodGet, s.host())
		if err != nil || !found {
			return phases.Missing("Registering", "register "+s.host()), err
		}
		return phases.Done(s.host() + " is registered").RecheckAfter(time.Minute), nil
	},
	Ensure: func(ctx context.Context, s *scope) (phases.Verdict, error) {
		_, err := s.dns.do(ctx, http.MethodPut, s.host())
		return phases.Done(s.host() + " is registered").RecheckAfter(time.Minute), err
	},
	Undo: func(ctx context.Context, s *scope) (phases.Verdict, error) {
		_, err := s.dns.do(ctx, http.MethodDelete, s.host())
		return phases.Done(s.host() + " is removed"), err
	},
}

// registry is the URL of a DNS registry: PUT, GET and DELETE of /records/HOST.
type registry string

// do calls the registry for a host, and reports whether the host is registered.
func (r registry) do(ctx context.Context, method, host string) (bool, error) {
	request, err := http.NewRequestWithContext(ctx, method, string(r)+"/records/"+host, nil)
	if err != nil {
		return false, fmt.Errorf("calling the DNS registry: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false, fmt.Errorf("calling the DNS registry: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 && response.StatusCode != http.StatusNotFound {
		return false, fmt.Errorf("calling the DNS registry: %s", response.Status)
	}
	return response.StatusCode != http.StatusNotFound, nil
}

func desiredStatus(s *scope, summary phases.Summary) ssa.Configuration {
	return ssa.StatusOf(s.site, websitesv1.Kind, websitesv1.WebsiteStatus{
		ObservedGeneration: summary.ObservedGeneration, Host: s.host(),
		ReadyReplicas: s.deployment.Status.ReadyReplicas, Conditions: summary.Conditions,
	})
}
