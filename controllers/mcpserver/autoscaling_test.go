package mcpserver

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// The caches of the two kinds are independent: the HorizontalPodAutoscaler may report a scaling that the
// cached Deployment does not show.
func TestAutoscalingWaitsForReplicasWithinBounds(t *testing.T) {
	g := NewWithT(t)
	d := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](1)}}
	h := &autoscalingv2.HorizontalPodAutoscaler{
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: ptr.To[int32](2), MaxReplicas: 6},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{Conditions: []autoscalingv2.HorizontalPodAutoscalerCondition{
			{Type: autoscalingv2.AbleToScale, Status: corev1.ConditionTrue},
		}},
	}
	g.Expect(autoscaling.Health(h).IsDone()).To(BeTrue())
	s := &scope{}
	deployment.Observed(s, d)

	g.Expect(autoscaling.Ready(t.Context(), s, h).IsDone()).To(BeFalse())
	d.Spec.Replicas = ptr.To[int32](2)
	g.Expect(autoscaling.Ready(t.Context(), s, h).IsDone()).To(BeTrue())
}
