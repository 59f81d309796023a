package workload

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

func TestAutoscalerReady(t *testing.T) {
	type condition = autoscalingv2.HorizontalPodAutoscalerCondition
	able := condition{Type: autoscalingv2.AbleToScale, Status: corev1.ConditionTrue, Reason: "ReadyForNewScale"}
	decides := judgement{"done", v1alpha1.ReasonReady, "the autoscaler decides how many pods there are"}
	inactive := judgement{"done", v1alpha1.ReasonScalingInactive,
		"the autoscaler keeps to its bounds and does not scale in between (FailedGetResourceMetric); give the pods spec.resources.requests, and the cluster a metrics server"}

	cases := map[string]struct {
		conditions []condition
		want       judgement
	}{
		"not looked at yet": {nil, judgement{"wait", v1alpha1.ReasonProgressing, "the autoscaler has not looked at the Deployment yet"}},
		"all is well": {[]condition{able,
			{Type: autoscalingv2.ScalingActive, Status: corev1.ConditionTrue, Reason: "ValidMetricFound"},
			{Type: autoscalingv2.ScalingLimited, Status: corev1.ConditionFalse, Reason: "DesiredWithinRange"}}, decides},
		"at a bound": {[]condition{able, {Type: autoscalingv2.ScalingLimited, Status: corev1.ConditionTrue, Reason: "TooFewReplicas"}}, decides},
		"no metrics": {[]condition{able,
			{Type: autoscalingv2.ScalingActive, Status: corev1.ConditionFalse, Reason: "FailedGetResourceMetric", Message: "at 12:03:04"}}, inactive},
		"no metrics, and not limited": {[]condition{able,
			{Type: autoscalingv2.ScalingLimited, Status: corev1.ConditionFalse},
			{Type: autoscalingv2.ScalingActive, Status: corev1.ConditionFalse, Reason: "FailedGetResourceMetric"}}, inactive},
		"no metrics that are known of": {[]condition{able,
			{Type: autoscalingv2.ScalingActive, Status: corev1.ConditionUnknown}}, decides},
		"cannot scale": {[]condition{
			{Type: autoscalingv2.AbleToScale, Status: corev1.ConditionFalse, Reason: "FailedGetScale"},
			{Type: autoscalingv2.ScalingActive, Status: corev1.ConditionFalse, Reason: "FailedGetResourceMetric"}},
			judgement{"wait", v1alpha1.ReasonProgressing, "the autoscaler cannot scale the Deployment (FailedGetScale)"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			h := &autoscalingv2.HorizontalPodAutoscaler{}
			h.Status.Conditions = c.conditions
			NewWithT(t).Expect(judgementOf(AutoscalerReady(h))).To(Equal(c.want))
		})
	}
}

func TestAutoscalerReadyOver(t *testing.T) {
	done := phases.DoneBecause(v1alpha1.ReasonScalingInactive, "no metrics")
	within := judgement{"done", v1alpha1.ReasonScalingInactive, "no metrics"}
	outside := judgement{"wait", v1alpha1.ReasonProgressing, "the autoscaler has not brought the number of pods within its bounds yet"}
	off := judgement{"wait", v1alpha1.ReasonScalingInactive,
		"somebody has scaled the Deployment to 0, which turns the autoscaler off; turn it on again: kubectl scale deployment web --replicas=2"}

	cases := map[string]struct {
		replicas *int32
		verdict  phases.Verdict
		want     judgement
	}{
		"fewer than the least":         {ptr.To[int32](1), done, outside},
		"fewer, by default":            {nil, done, outside},
		"the least":                    {ptr.To[int32](2), done, within},
		"the most":                     {ptr.To[int32](4), done, within},
		"more than the most":           {ptr.To[int32](5), done, outside},
		"none":                         {ptr.To[int32](0), done, off},
		"not ready for another reason": {ptr.To[int32](1), phases.Wait("Other", "waiting", 0), judgement{"wait", "Other", "waiting"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := &autoscalingv2.HorizontalPodAutoscaler{}
			h.Spec.MinReplicas, h.Spec.MaxReplicas = ptr.To[int32](2), 4
			d := &appsv1.Deployment{}
			d.Name, d.Spec.Replicas = "web", c.replicas
			g.Expect(judgementOf(AutoscalerReadyOver(d, h, c.verdict))).To(Equal(c.want))
			g.Expect(judgementOf(AutoscalerReadyOver(nil, h, c.verdict))).To(Equal(judgementOf(c.verdict)), "no Deployment to judge by")
		})
	}
}

func TestDisruptionBudgetReady(t *testing.T) {
	cases := map[string]struct {
		generation, observed int64
		want                 judgement
	}{
		"not seen yet": {1, 0, judgement{"wait", v1alpha1.ReasonProgressing, "the disruption controller has not seen the last change yet"}},
		"changed":      {3, 2, judgement{"wait", v1alpha1.ReasonProgressing, "the disruption controller has not seen the last change yet"}},
		"seen":         {2, 2, judgement{"done", v1alpha1.ReasonReady, "the cluster keeps to the disruption budget"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := &policyv1.PodDisruptionBudget{}
			b.Generation, b.Status.ObservedGeneration = c.generation, c.observed
			NewWithT(t).Expect(judgementOf(DisruptionBudgetReady(b))).To(Equal(c.want))
		})
	}
}
