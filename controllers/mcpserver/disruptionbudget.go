package mcpserver

import (
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	policyv1ac "k8s.io/client-go/applyconfigurations/policy/v1"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// disruptionBudget is the PodDisruptionBudget that drains of nodes keep to. Where there may be more
// than one pod there is one without being asked for, because all at once would end all sessions.
var disruptionBudget = phases.Child[*scope, *policyv1ac.PodDisruptionBudgetApplyConfiguration, *policyv1.PodDisruptionBudget]{
	Name:    "DisruptionBudget",
	Desired: desired(desiredDisruptionBudget),
	Absent:  "spec.disruptionBudget is not set, and there is no more than one pod",
	Ready:   workload.DisruptionBudgetReady,
}

func desiredDisruptionBudget(server *v1alpha1.MCPServer) *policyv1ac.PodDisruptionBudgetApplyConfiguration {
	budget := server.Spec.DisruptionBudget
	if budget == nil && !hasMany(server) {
		return nil
	}
	if budget == nil {
		budget = &v1alpha1.AppServiceDisruptionBudget{MaxUnavailable: ptr.To(intstr.FromInt32(1))}
	}
	return workload.DisruptionBudget(server.Name, server.Namespace, selectorOf(server), *budget).WithLabels(labelsOf(server))
}

// hasMany says whether there may be more than one pod, as far as the spec decides that.
func hasMany(server *v1alpha1.MCPServer) bool {
	if scaling := server.Spec.Autoscaling; scaling != nil {
		return scaling.MaxReplicas > 1
	}
	return server.Spec.Replicas != nil && *server.Spec.Replicas > 1
}
