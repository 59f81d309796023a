package mcpserver

import (
	policyv1 "k8s.io/api/policy/v1"
	policyv1ac "k8s.io/client-go/applyconfigurations/policy/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// disruptionBudget is the PodDisruptionBudget that drains of nodes keep to.
var disruptionBudget = phases.Child[*scope, *policyv1ac.PodDisruptionBudgetApplyConfiguration, *policyv1.PodDisruptionBudget]{
	Name:    "DisruptionBudget",
	Desired: desired(desiredDisruptionBudget),
	Absent:  "spec.disruptionBudget is not set",
	Ready:   workload.DisruptionBudgetReady,
}

func desiredDisruptionBudget(server *v1alpha1.MCPServer) *policyv1ac.PodDisruptionBudgetApplyConfiguration {
	if server.Spec.DisruptionBudget == nil {
		return nil
	}
	return workload.DisruptionBudget(server.Name, server.Namespace, selectorOf(server), *server.Spec.DisruptionBudget).WithLabels(labelsOf(server))
}
