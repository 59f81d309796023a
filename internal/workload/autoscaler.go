package workload

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	autoscalingv2ac "k8s.io/client-go/applyconfigurations/autoscaling/v2"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// Scaling bounds and steers an autoscaler; CPU and Memory are percentages of what pods request.
type Scaling struct {
	Min, Max    int32
	CPU, Memory *int32
}

// Autoscaler is the HorizontalPodAutoscaler of the Deployment of the same name.
func Autoscaler(name, namespace string, scaling Scaling) *autoscalingv2ac.HorizontalPodAutoscalerApplyConfiguration {
	spec := autoscalingv2ac.HorizontalPodAutoscalerSpec().
		WithScaleTargetRef(autoscalingv2ac.CrossVersionObjectReference().
			WithAPIVersion(appsv1.SchemeGroupVersion.String()).WithKind("Deployment").WithName(name)).
		WithMinReplicas(scaling.Min).
		WithMaxReplicas(scaling.Max)
	if scaling.CPU != nil {
		spec.WithMetrics(utilization(corev1.ResourceCPU, *scaling.CPU))
	}
	if scaling.Memory != nil {
		spec.WithMetrics(utilization(corev1.ResourceMemory, *scaling.Memory))
	}
	return autoscalingv2ac.HorizontalPodAutoscaler(name, namespace).WithSpec(spec)
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

// AutoscalerReady judges an autoscaler. One that gets no metrics still keeps the number of pods between its
// bounds, so it is ready, and says what it lacks. One that has not looked yet is about to change
// the number, of a new Deployment at least, which begins with a single pod.
func AutoscalerReady(h *autoscalingv2.HorizontalPodAutoscaler) phases.Verdict {
	hasLooked := false
	for _, c := range h.Status.Conditions {
		hasLooked = hasLooked || c.Type == autoscalingv2.AbleToScale
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
	if !hasLooked {
		return phases.Wait(v1alpha1.ReasonProgressing, "the autoscaler has not looked at the Deployment yet", 0)
	}
	return phases.Done("the autoscaler decides how many pods there are")
}

// AutoscalerReadyOver judges an autoscaler that is ready by itself beside the Deployment that it
// scales. Each comes from a cache of its own, so that the autoscaler may be seen to have scaled while
// the Deployment is seen as it was before; and after an edit of its bounds it takes the autoscaler up
// to a sync period, 15 s by default, to act on them. A Deployment with no pods turns an autoscaler off.
// See https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#implicit-maintenance-mode-deactivation.
func AutoscalerReadyOver(d *appsv1.Deployment, h *autoscalingv2.HorizontalPodAutoscaler, verdict phases.Verdict) phases.Verdict {
	if d == nil || !verdict.IsDone() {
		return verdict
	}
	replicas, least := orOne(d.Spec.Replicas), orOne(h.Spec.MinReplicas)
	switch {
	case replicas >= least && replicas <= h.Spec.MaxReplicas:
		return verdict
	case replicas == 0:
		return phases.Wait(v1alpha1.ReasonScalingInactive, fmt.Sprintf(
			"somebody has scaled the Deployment to 0, which turns the autoscaler off; turn it on again: kubectl scale deployment %s --replicas=%d",
			d.Name, least), 0).AsTrouble()
	default:
		return phases.Wait(v1alpha1.ReasonProgressing, "the autoscaler has not brought the number of pods within its bounds yet", 0)
	}
}

// orOne is the API server's default for a number of pods.
func orOne(replicas *int32) int32 { return ptr.Deref(replicas, 1) }
