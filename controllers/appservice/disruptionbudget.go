package appservice

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	policyv1ac "k8s.io/client-go/applyconfigurations/policy/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// disruptionBudget is the PodDisruptionBudget that drains of nodes keep to.
var disruptionBudget = phases.Child[*scope, *policyv1ac.PodDisruptionBudgetApplyConfiguration, *policyv1.PodDisruptionBudget]{
	Name: "DisruptionBudget",
	Desired: func(s *scope) (*policyv1ac.PodDisruptionBudgetApplyConfiguration, error) {
		return desiredDisruptionBudget(s.app), nil
	},
	Absent: "spec.disruptionBudget is not set",
	Ready:  disruptionBudgetReady,
}

func desiredDisruptionBudget(app *v1alpha1.AppService) *policyv1ac.PodDisruptionBudgetApplyConfiguration {
	budget := app.Spec.DisruptionBudget
	if budget == nil {
		return nil
	}
	spec := policyv1ac.PodDisruptionBudgetSpec().
		WithSelector(metav1ac.LabelSelector().WithMatchLabels(selectorOf(app)))
	if budget.MinAvailable != nil {
		spec.WithMinAvailable(*budget.MinAvailable)
	}
	if budget.MaxUnavailable != nil {
		spec.WithMaxUnavailable(*budget.MaxUnavailable)
	}
	return policyv1ac.PodDisruptionBudget(app.Name, app.Namespace).WithLabels(labelsOf(app)).WithSpec(spec)
}

func disruptionBudgetReady(b *policyv1.PodDisruptionBudget) phases.Verdict {
	if b.Status.ObservedGeneration < b.Generation {
		return phases.Wait(v1alpha1.ReasonProgressing, "the disruption controller has not seen the last change yet", 0)
	}
	return phases.Done("the cluster keeps to the disruption budget")
}
