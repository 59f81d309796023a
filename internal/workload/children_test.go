package workload

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

func TestAutoscalerReady(t *testing.T) {
	type condition = autoscalingv2.HorizontalPodAutoscalerCondition
	able := condition{Type: autoscalingv2.AbleToScale, Status: corev1.ConditionTrue, Reason: "ReadyForNewScale"}
	applied := outcome{"done", v1beta1.ReasonReady, "HorizontalPodAutoscaler applied"}
	inactive := outcome{"done", v1beta1.ReasonScalingInactive,
		"the HorizontalPodAutoscaler cannot read metrics (FailedGetResourceMetric) and only keeps the number of pods between minReplicas and maxReplicas; set spec.resources.requests and install metrics-server"}

	cases := map[string]struct {
		conditions []condition
		want       outcome
	}{
		"not observed yet": {nil, outcome{"wait", v1beta1.ReasonProgressing, "waiting for the HorizontalPodAutoscaler controller to observe the Deployment"}},
		"scaling": {[]condition{able,
			{Type: autoscalingv2.ScalingActive, Status: corev1.ConditionTrue, Reason: "ValidMetricFound"},
			{Type: autoscalingv2.ScalingLimited, Status: corev1.ConditionFalse, Reason: "DesiredWithinRange"}}, applied},
		"at a bound": {[]condition{able, {Type: autoscalingv2.ScalingLimited, Status: corev1.ConditionTrue, Reason: "TooFewReplicas"}}, applied},
		"no metrics": {[]condition{able,
			{Type: autoscalingv2.ScalingActive, Status: corev1.ConditionFalse, Reason: "FailedGetResourceMetric", Message: "at 12:03:04"}}, inactive},
		"no metrics, and not limited": {[]condition{able,
			{Type: autoscalingv2.ScalingLimited, Status: corev1.ConditionFalse},
			{Type: autoscalingv2.ScalingActive, Status: corev1.ConditionFalse, Reason: "FailedGetResourceMetric"}}, inactive},
		"metrics unknown": {[]condition{able,
			{Type: autoscalingv2.ScalingActive, Status: corev1.ConditionUnknown}}, applied},
		"cannot scale": {[]condition{
			{Type: autoscalingv2.AbleToScale, Status: corev1.ConditionFalse, Reason: "FailedGetScale"},
			{Type: autoscalingv2.ScalingActive, Status: corev1.ConditionFalse, Reason: "FailedGetResourceMetric"}},
			outcome{"wait", v1beta1.ReasonProgressing, "the HorizontalPodAutoscaler cannot scale the Deployment (FailedGetScale)"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			h := &autoscalingv2.HorizontalPodAutoscaler{}
			h.Status.Conditions = c.conditions
			NewWithT(t).Expect(outcomeOf(AutoscalerReady(h))).To(Equal(c.want))
		})
	}
}

func TestAutoscalerReadyOver(t *testing.T) {
	done := phases.DoneBecause(v1beta1.ReasonScalingInactive, "no metrics")
	within := outcome{"done", v1beta1.ReasonScalingInactive, "no metrics"}
	outside := outcome{"wait", v1beta1.ReasonProgressing, "waiting for the HorizontalPodAutoscaler to scale the Deployment to between minReplicas and maxReplicas"}
	off := outcome{"wait", v1beta1.ReasonScalingInactive,
		"the Deployment is scaled to 0 replicas, which disables the HorizontalPodAutoscaler; to enable it, run kubectl scale deployment web --replicas=2"}

	cases := map[string]struct {
		replicas *int32
		verdict  phases.Verdict
		want     outcome
	}{
		"below minReplicas":            {ptr.To[int32](1), done, outside},
		"below, defaulted":             {nil, done, outside},
		"minReplicas":                  {ptr.To[int32](2), done, within},
		"maxReplicas":                  {ptr.To[int32](4), done, within},
		"above maxReplicas":            {ptr.To[int32](5), done, outside},
		"zero":                         {ptr.To[int32](0), done, off},
		"not ready for another reason": {ptr.To[int32](1), phases.Wait("Other", "waiting", 0), outcome{"wait", "Other", "waiting"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := &autoscalingv2.HorizontalPodAutoscaler{}
			h.Spec.MinReplicas, h.Spec.MaxReplicas = ptr.To[int32](2), 4
			d := &appsv1.Deployment{}
			d.Name, d.Spec.Replicas = "web", c.replicas
			g.Expect(outcomeOf(AutoscalerReadyOver(d, h, c.verdict))).To(Equal(c.want))
			g.Expect(outcomeOf(AutoscalerReadyOver(nil, h, c.verdict))).To(Equal(outcomeOf(c.verdict)), "no Deployment")
		})
	}
}

func TestDisruptionBudgetReady(t *testing.T) {
	cases := map[string]struct {
		generation, observed int64
		want                 outcome
	}{
		"not observed": {1, 0, outcome{"wait", v1beta1.ReasonProgressing, "waiting for the disruption controller to observe the last change"}},
		"changed":      {3, 2, outcome{"wait", v1beta1.ReasonProgressing, "waiting for the disruption controller to observe the last change"}},
		"observed":     {2, 2, outcome{"done", v1beta1.ReasonReady, "PodDisruptionBudget applied"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := &policyv1.PodDisruptionBudget{}
			b.Generation, b.Status.ObservedGeneration = c.generation, c.observed
			NewWithT(t).Expect(outcomeOf(DisruptionBudgetReady(b))).To(Equal(c.want))
		})
	}
}
