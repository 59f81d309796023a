package mcpserver

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// The caches of the two kinds are independent: the HorizontalPodAutoscaler may report a scaling that the
// cached Deployment does not show.
func TestAutoscalingWaitsForReplicasWithinBounds(t *testing.T) {
	g := NewWithT(t)
	d := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](1)}}
	h := &autoscalingv2.HorizontalPodAutoscaler{Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: ptr.To[int32](2), MaxReplicas: 6}}
	s := &scope{}
	deployment.Observed(s, d)

	g.Expect(autoscaling.Explain(t.Context(), s, h, phases.Done("")).IsDone()).To(BeFalse())
	d.Spec.Replicas = ptr.To[int32](2)
	g.Expect(autoscaling.Explain(t.Context(), s, h, phases.Done("")).IsDone()).To(BeTrue())
}
