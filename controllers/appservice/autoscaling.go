package appservice

import (
	"context"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	autoscalingv2ac "k8s.io/client-go/applyconfigurations/autoscaling/v2"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// autoscaling is the HorizontalPodAutoscaler that sets the number of replicas. When spec.autoscaling
// is removed, the HorizontalPodAutoscaler is deleted before the Deployment is applied. Otherwise both
// would set the number of replicas.
var autoscaling = phases.Child[*scope, *autoscalingv2ac.HorizontalPodAutoscalerApplyConfiguration, *autoscalingv2.HorizontalPodAutoscaler]{
	Name: "Autoscaling",
	Desired: func(s *scope) (*autoscalingv2ac.HorizontalPodAutoscalerApplyConfiguration, error) {
		return desiredAutoscaler(s.app), nil
	},
	Prune:  phases.PruneFirst,
	Health: workload.AutoscalerReady,
	Ready: func(_ context.Context, s *scope, live *autoscalingv2.HorizontalPodAutoscaler) phases.Verdict {
		return workload.AutoscalerReadyOver(s.deployment, live, workload.AutoscalerReady(live))
	},
}

func desiredAutoscaler(app *v1beta1.AppService) *autoscalingv2ac.HorizontalPodAutoscalerApplyConfiguration {
	scaling := app.Spec.Autoscaling
	if scaling == nil {
		return nil
	}
	return workload.Autoscaler(app.Name, app.Namespace, workload.Scaling{
		Min: scaling.MinReplicas, Max: scaling.MaxReplicas,
		CPU: scaling.TargetCPUUtilizationPercent, Memory: scaling.TargetMemoryUtilizationPercent,
	}).WithLabels(labelsOf(app))
}
