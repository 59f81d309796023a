package mcpserver

import (
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	policyv1ac "k8s.io/client-go/applyconfigurations/policy/v1"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// disruptionBudget is the PodDisruptionBudget. It is created by default if more than one pod may run, so
// that a node drain does not end all sessions at once.
var disruptionBudget = phases.Child[*scope, *policyv1ac.PodDisruptionBudgetApplyConfiguration, *policyv1.PodDisruptionBudget]{
	Name:         "DisruptionBudget",
	Desired:      desired(desiredDisruptionBudget),
	Health:       workload.DisruptionBudgetReady,
	RemoveFields: workload.DisruptionBudgetRemoveFields,
}

func desiredDisruptionBudget(server *v1beta1.MCPServer) *policyv1ac.PodDisruptionBudgetApplyConfiguration {
	budget := server.Spec.DisruptionBudget
	if budget == nil && !mayRunMultiplePods(server) {
		return nil
	}
	if budget == nil {
		budget = &v1beta1.DisruptionBudget{MaxUnavailable: ptr.To(intstr.FromInt32(1))}
	}
	return workload.DisruptionBudget(server.Name, server.Namespace, selectorOf(server), *budget).WithLabels(labelsOf(server))
}

// mayRunMultiplePods reports whether the spec allows more than one pod.
func mayRunMultiplePods(server *v1beta1.MCPServer) bool {
	if scaling := server.Spec.Autoscaling; scaling != nil {
		return scaling.MaxReplicas > 1
	}
	return server.Spec.Replicas != nil && *server.Spec.Replicas > 1
}
