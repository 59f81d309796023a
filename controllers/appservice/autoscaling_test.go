package appservice

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
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
		scaling *v1beta1.AppServiceAutoscaling
		want    string
	}{
		"none":   {nil, ""},
		"cpu":    {&v1beta1.AppServiceAutoscaling{MinReplicas: 2, MaxReplicas: 6, TargetCPUUtilizationPercent: ptr.To[int32](80)}, head + cpu},
		"memory": {&v1beta1.AppServiceAutoscaling{MinReplicas: 2, MaxReplicas: 6, TargetMemoryUtilizationPercent: ptr.To[int32](70)}, head + memory},
		"both": {&v1beta1.AppServiceAutoscaling{
			MinReplicas: 2, MaxReplicas: 6, TargetCPUUtilizationPercent: ptr.To[int32](80), TargetMemoryUtilizationPercent: ptr.To[int32](70),
		}, head + cpu + memory},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			desired := desiredAutoscaler(webApp(func(spec *v1beta1.AppServiceSpec) { spec.Autoscaling = c.scaling }))
			if c.want == "" {
				g.Expect(desired).To(BeNil())
				return
			}
			g.Expect(asJSON(t, desired)).To(MatchYAML(c.want))
		})
	}
}

// The caches of the two kinds can differ in age: the HorizontalPodAutoscaler may already report a
// scaling that the cached Deployment does not show yet.
func TestAutoscalingWaitsUntilTheDeploymentIsWithinItsBounds(t *testing.T) {
	g := NewWithT(t)
	d := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](1)}}
	h := &autoscalingv2.HorizontalPodAutoscaler{
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: ptr.To[int32](2), MaxReplicas: 6},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{Conditions: []autoscalingv2.HorizontalPodAutoscalerCondition{
			{Type: autoscalingv2.AbleToScale, Status: corev1.ConditionTrue},
		}},
	}
	g.Expect(autoscaling.Health(h).IsDone()).To(BeTrue())
	s := &scope{app: webApp()}
	deployment.Observed(s, d)

	g.Expect(autoscaling.Ready(t.Context(), s, h).IsDone()).To(BeFalse())
	d.Spec.Replicas = ptr.To[int32](2)
	g.Expect(autoscaling.Ready(t.Context(), s, h).IsDone()).To(BeTrue())
}
