package appservice

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	fixpointac "github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// desiredStatus returns the complete status from the observations of the reconcile.
func desiredStatus(s *scope, summary phases.Summary) *fixpointac.AppServiceApplyConfiguration {
	status := fixpointac.AppServiceStatus().
		WithObservedGeneration(summary.ObservedGeneration).
		WithPhase(workload.PhaseOf(s.deployment, summary)).
		WithConditions(phases.ConditionConfigurations(summary.Conditions)...).
		WithReplicas(0).
		WithReadyReplicas(0).
		WithSelector(labels.Set(selectorOf(s.app)).String()).
		WithURL(urlOf(s.app))
	if handled := workload.HandledReconcile(s.app); handled != "" {
		status.WithLastHandledReconcileAt(handled)
	}
	if s.deployment != nil {
		status.WithReplicas(s.deployment.Status.Replicas).WithReadyReplicas(s.deployment.Status.ReadyReplicas)
	}
	if hooks := hooksStatus(s); hooks != nil {
		status.WithHooks(hooks)
	}
	for _, drift := range workload.Drifts(s.app.Status.Drifts, summary, s.app.Spec.DriftHistoryLimit) {
		status.WithDrifts(workload.DriftConfiguration(drift))
	}
	return fixpointac.AppService(s.app.Name, s.app.Namespace).WithStatus(status)
}

// urlOf returns the URL of the application.
func urlOf(app *v1beta1.AppService) string {
	in := app.Spec.Ingress
	if in == nil {
		return fmt.Sprintf("http://%s.%s.svc:%d", app.Name, app.Namespace, app.Spec.Port)
	}
	scheme := "http"
	if in.TLSSecretName != "" {
		scheme = "https"
	}
	return scheme + "://" + in.Host + strings.TrimSuffix(in.Path, "/")
}
