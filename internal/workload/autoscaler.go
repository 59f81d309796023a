package workload

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	autoscalingv2ac "k8s.io/client-go/applyconfigurations/autoscaling/v2"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// Scaling configures an autoscaler; CPU and Memory are target utilizations in percent of the requests.
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

// AutoscalerReady reports whether an autoscaler works. Without metrics it still keeps the number of
// pods within its bounds, so it is ready and the message says what is missing. An autoscaler that has
// not observed the Deployment yet is not ready: it may be about to scale it.
func AutoscalerReady(h *autoscalingv2.HorizontalPodAutoscaler) phases.Verdict {
	hasObserved := false
	for _, c := range h.Status.Conditions {
		hasObserved = hasObserved || c.Type == autoscalingv2.AbleToScale
		if c.Status != corev1.ConditionFalse {
			continue
		}
		switch c.Type {
		case autoscalingv2.AbleToScale:
			return phases.Wait(v1beta1.ReasonProgressing, "the HorizontalPodAutoscaler cannot scale the Deployment ("+c.Reason+")", 0)
		case autoscalingv2.ScalingActive:
			return phases.DoneBecause(v1beta1.ReasonScalingInactive,
				"the HorizontalPodAutoscaler cannot read metrics ("+c.Reason+") and only keeps the number of pods between minReplicas and maxReplicas; set spec.resources.requests and install metrics-server")
		default: // ScalingLimited is normal operation
		}
	}
	if !hasObserved {
		return phases.Wait(v1beta1.ReasonProgressing, "waiting for the HorizontalPodAutoscaler controller to observe the Deployment", 0)
	}
	return phases.Done("HorizontalPodAutoscaler applied")
}

// AutoscalerReadyOver turns the verdict on a ready autoscaler into a wait until the Deployment has a
// number of replicas within the bounds. The two come from separate caches, so the autoscaler may
// already report a scaling that the cached Deployment does not show; and after a change of its bounds
// the autoscaler takes up to one sync period, 15 s by default, to act. A Deployment with 0 replicas
// disables its autoscaler.
// See https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#implicit-maintenance-mode-deactivation.
func AutoscalerReadyOver(d *appsv1.Deployment, h *autoscalingv2.HorizontalPodAutoscaler, verdict phases.Verdict) phases.Verdict {
	if d == nil || !verdict.IsDone() {
		return verdict
	}
	replicas, least := replicasOrOne(d.Spec.Replicas), replicasOrOne(h.Spec.MinReplicas)
	switch {
	case replicas >= least && replicas <= h.Spec.MaxReplicas:
		return verdict
	case replicas == 0:
		return phases.Wait(v1beta1.ReasonScalingInactive, fmt.Sprintf(
			"the Deployment is scaled to 0 replicas, which disables the HorizontalPodAutoscaler; to enable it, run kubectl scale deployment %s --replicas=%d",
			d.Name, least), 0).AsWarning()
	default:
		return phases.Wait(v1beta1.ReasonProgressing, "waiting for the HorizontalPodAutoscaler to scale the Deployment to between minReplicas and maxReplicas", 0)
	}
}

// replicasOrOne applies the API server's default for a number of replicas.
func replicasOrOne(replicas *int32) int32 { return ptr.Deref(replicas, 1) }
