package appservice

import (
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	autoscalingv2ac "k8s.io/client-go/applyconfigurations/autoscaling/v2"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// autoscaling is the HorizontalPodAutoscaler that decides how many pods there are. When the option
// is turned off it goes before the Deployment is touched, or the two would pull at the number.
var autoscaling = phases.Child[*scope, *autoscalingv2ac.HorizontalPodAutoscalerApplyConfiguration, *autoscalingv2.HorizontalPodAutoscaler]{
	Name: "Autoscaling",
	Desired: func(s *scope) (*autoscalingv2ac.HorizontalPodAutoscalerApplyConfiguration, error) {
		return desiredAutoscaler(s.app), nil
	},
	Absent: "spec.autoscaling is not set",
	Prune:  phases.PruneFirst,
	Ready:  autoscalerReady,
}

func desiredAutoscaler(app *v1alpha1.AppService) *autoscalingv2ac.HorizontalPodAutoscalerApplyConfiguration {
	scaling := app.Spec.Autoscaling
	if scaling == nil {
		return nil
	}
	spec := autoscalingv2ac.HorizontalPodAutoscalerSpec().
		WithScaleTargetRef(autoscalingv2ac.CrossVersionObjectReference().
			WithAPIVersion(appsv1.SchemeGroupVersion.String()).WithKind("Deployment").WithName(app.Name)).
		WithMinReplicas(scaling.MinReplicas).
		WithMaxReplicas(scaling.MaxReplicas)
	if scaling.TargetCPUUtilizationPercent != nil {
		spec.WithMetrics(utilization(corev1.ResourceCPU, *scaling.TargetCPUUtilizationPercent))
	}
	if scaling.TargetMemoryUtilizationPercent != nil {
		spec.WithMetrics(utilization(corev1.ResourceMemory, *scaling.TargetMemoryUtilizationPercent))
	}
	return autoscalingv2ac.HorizontalPodAutoscaler(app.Name, app.Namespace).WithLabels(labelsOf(app)).WithSpec(spec)
}

func utilization(resource corev1.ResourceName, percent int32) *autoscalingv2ac.MetricSpecApplyConfiguration {
	return autoscalingv2ac.MetricSpec().
		WithType(autoscalingv2.ResourceMetricSourceType).
		WithResource(autoscalingv2ac.ResourceMetricSource().
			WithName(resource).
			WithTarget(autoscalingv2ac.MetricTarget().
				WithType(autoscalingv2.UtilizationMetricType).
				WithAverageUtilization(percent)))
}

// autoscalerReady: an autoscaler that gets no metrics still keeps the number of pods between its
// bounds, so it is ready, and says what it lacks.
func autoscalerReady(h *autoscalingv2.HorizontalPodAutoscaler) phases.Verdict {
	for _, c := range h.Status.Conditions {
		if c.Status != corev1.ConditionFalse {
			continue
		}
		switch c.Type {
		case autoscalingv2.AbleToScale:
			return phases.Wait(v1alpha1.ReasonProgressing, "the autoscaler cannot scale the Deployment ("+c.Reason+")", 0)
		case autoscalingv2.ScalingActive:
			return phases.DoneBecause(v1alpha1.ReasonScalingInactive,
				"the autoscaler keeps to its bounds and does not scale in between ("+c.Reason+"); give the pods spec.resources.requests, and the cluster a metrics server")
		default: // ScalingLimited is its daily business
		}
	}
	return phases.Done("the autoscaler decides how many pods there are")
}
