package workload

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	policyv1ac "k8s.io/client-go/applyconfigurations/policy/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// DisruptionBudget is the PodDisruptionBudget for the pods that the selector matches.
func DisruptionBudget(name, namespace string, selector map[string]string, budget v1beta1.DisruptionBudget) *policyv1ac.PodDisruptionBudgetApplyConfiguration {
	spec := policyv1ac.PodDisruptionBudgetSpec().WithSelector(metav1ac.LabelSelector().WithMatchLabels(selector))
	if budget.MinAvailable != nil {
		spec.WithMinAvailable(*budget.MinAvailable)
	}
	if budget.MaxUnavailable != nil {
		spec.WithMaxUnavailable(*budget.MaxUnavailable)
	}
	return policyv1ac.PodDisruptionBudget(name, namespace).WithSpec(spec)
}

// DisruptionBudgetReady waits until the disruption controller has observed the budget.
func DisruptionBudgetReady(b *policyv1.PodDisruptionBudget) phases.Verdict {
	if b.Status.ObservedGeneration < b.Generation {
		return phases.Wait(v1beta1.ReasonProgressing, "waiting for the disruption controller to observe the last change", 0).Briefly()
	}
	return phases.Done("PodDisruptionBudget applied")
}
