package appservice

import (
	policyv1 "k8s.io/api/policy/v1"
	policyv1ac "k8s.io/client-go/applyconfigurations/policy/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// disruptionBudget is the PodDisruptionBudget that limits evictions, for example when a node is drained.
var disruptionBudget = phases.Child[*scope, *policyv1ac.PodDisruptionBudgetApplyConfiguration, *policyv1.PodDisruptionBudget]{
	Name: "DisruptionBudget",
	Desired: func(s *scope) (*policyv1ac.PodDisruptionBudgetApplyConfiguration, error) {
		return desiredDisruptionBudget(s.app), nil
	},
	Health:       workload.DisruptionBudgetReady,
	RemoveFields: workload.DisruptionBudgetRemoveFields,
}

func desiredDisruptionBudget(app *v1beta1.AppService) *policyv1ac.PodDisruptionBudgetApplyConfiguration {
	if app.Spec.DisruptionBudget == nil {
		return nil
	}
	return workload.DisruptionBudget(app.Name, app.Namespace, selectorOf(app), *app.Spec.DisruptionBudget).WithLabels(labelsOf(app))
}
