package appservice

import (
	"testing"

	. "github.com/onsi/gomega"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
)

func TestDesiredAutoscaler(t *testing.T) {
	const head = `
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: web
  namespace: shop
  labels: {app.kubernetes.io/name: web, app.kubernetes.io/managed-by: fixpoint}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 2
  maxReplicas: 6
  metrics:
`
	const cpu = `
  - type: Resource
    resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}
`
	const memory = `
  - type: Resource
    resource: {name: memory, target: {type: Utilization, averageUtilization: 70}}
`
	cases := map[string]struct {
		scaling *v1alpha1.AppServiceAutoscaling
		want    string
	}{
		"none":   {nil, ""},
		"cpu":    {&v1alpha1.AppServiceAutoscaling{MinReplicas: 2, MaxReplicas: 6, TargetCPUUtilizationPercent: ptr.To[int32](80)}, head + cpu},
		"memory": {&v1alpha1.AppServiceAutoscaling{MinReplicas: 2, MaxReplicas: 6, TargetMemoryUtilizationPercent: ptr.To[int32](70)}, head + memory},
		"both": {&v1alpha1.AppServiceAutoscaling{
			MinReplicas: 2, MaxReplicas: 6, TargetCPUUtilizationPercent: ptr.To[int32](80), TargetMemoryUtilizationPercent: ptr.To[int32](70),
		}, head + cpu + memory},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			desired := desiredAutoscaler(webApp(func(spec *v1alpha1.AppServiceSpec) { spec.Autoscaling = c.scaling }))
			if c.want == "" {
				g.Expect(desired).To(BeNil())
				return
			}
			g.Expect(asJSON(t, desired)).To(MatchYAML(c.want))
		})
	}
}

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
		"not looked at yet": {nil, decides},
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
			NewWithT(t).Expect(judgementOf(autoscalerReady(h))).To(Equal(c.want))
		})
	}
}
