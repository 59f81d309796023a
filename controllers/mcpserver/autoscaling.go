package mcpserver

import (
	"context"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	autoscalingv2ac "k8s.io/client-go/applyconfigurations/autoscaling/v2"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// autoscaling is the HorizontalPodAutoscaler. When spec.autoscaling is removed, it is deleted before the
// Deployment is applied, so that the two do not compete for the number of replicas.
var autoscaling = phases.Child[*scope, *autoscalingv2ac.HorizontalPodAutoscalerApplyConfiguration, *autoscalingv2.HorizontalPodAutoscaler]{
	Name:    "Autoscaling",
	Desired: desired(desiredAutoscaler),
	Prune:   phases.PruneFirst,
	Health:  workload.AutoscalerReady,
	Ready: func(_ context.Context, s *scope, live *autoscalingv2.HorizontalPodAutoscaler) phases.Verdict {
		return workload.AutoscalerReadyOver(s.deployment, live, workload.AutoscalerReady(live))
	},
}

func desiredAutoscaler(server *v1beta1.MCPServer) *autoscalingv2ac.HorizontalPodAutoscalerApplyConfiguration {
	scaling := server.Spec.Autoscaling
	if scaling == nil {
		return nil
	}
	return workload.Autoscaler(server.Name, server.Namespace, workload.Scaling{
		Min: scaling.MinReplicas, Max: scaling.MaxReplicas,
		CPU: scaling.TargetCPUUtilizationPercent, Memory: scaling.TargetMemoryUtilizationPercent,
	}).WithLabels(labelsOf(server))
}
