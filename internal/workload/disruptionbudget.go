package workload

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	policyv1ac "k8s.io/client-go/applyconfigurations/policy/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// DisruptionBudget is the PodDisruptionBudget over the pods that the selector finds.
func DisruptionBudget(name, namespace string, selector map[string]string, budget v1alpha1.AppServiceDisruptionBudget) *policyv1ac.PodDisruptionBudgetApplyConfiguration {
	spec := policyv1ac.PodDisruptionBudgetSpec().WithSelector(metav1ac.LabelSelector().WithMatchLabels(selector))
	if budget.MinAvailable != nil {
		spec.WithMinAvailable(*budget.MinAvailable)
	}
	if budget.MaxUnavailable != nil {
		spec.WithMaxUnavailable(*budget.MaxUnavailable)
	}
	return policyv1ac.PodDisruptionBudget(name, namespace).WithSpec(spec)
}

// DisruptionBudgetReady waits until the budget is counted in.
func DisruptionBudgetReady(b *policyv1.PodDisruptionBudget) phases.Verdict {
	if b.Status.ObservedGeneration < b.Generation {
		return phases.Wait(v1alpha1.ReasonProgressing, "the disruption controller has not seen the last change yet", 0)
	}
	return phases.Done("the cluster keeps to the disruption budget")
}
