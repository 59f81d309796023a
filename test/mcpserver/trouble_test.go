package mcpserver_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

// TestARouteWithoutTheGatewayAPISaysWhatIsMissing: this cluster does not serve HTTPRoutes.
func TestARouteWithoutTheGatewayAPISaysWhatIsMissing(t *testing.T) {
	w := newManagedWorld(t)
	w.create("tools", unasked, func(s *v1alpha1.MCPServerSpec) {
		s.HTTPRoute = &v1alpha1.MCPServerHTTPRoute{ParentRefs: []v1alpha1.MCPServerParentRef{{Name: "gateway"}}}
	})

	server := w.shows("tools", "RouteReady", "False KindMissing", ContainSubstring("HTTPRoute"))
	w.Expect(conditions(server)).To(HaveKeyWithValue("Ready", "False KindMissing"))

	w.changeReady("tools", func(s *v1alpha1.MCPServerSpec) { s.HTTPRoute = nil })
}

func TestWhyPodsDoNotStartStandsInTheCondition(t *testing.T) {
	w := newManagedWorld(t)
	w.create("pulls", unasked, withImage(cluster.ImagePullFails))
	w.create("crashes", unasked, withImage(cluster.ImageCrashes))

	w.shows("pulls", "DeploymentReady", "False PodsFailing", ContainSubstring("container server cannot pull image "+cluster.ImagePullFails))
	w.shows("crashes", "DeploymentReady", "False PodsFailing", ContainSubstring("container server crashes"))
}

func TestARolloutThatFailsLeavesOldPodsServingAndSaysSo(t *testing.T) {
	w := newManagedWorld(t)
	w.createReady("tools", often, replicas(2))
	before := w.podUIDs("tools")

	w.change("tools", withImage(cluster.ImagePullFails))

	server := w.shows("tools", "DeploymentReady", "True OldReplicasServing", ContainSubstring("the rollout is not complete"))
	w.Expect(server.Status.ReadyReplicas).To(BeEquivalentTo(2))
	w.settled()
	w.Expect(w.podUIDs("tools")).To(ContainElements(before))
	w.ready("tools")
}

func TestASecretThatGoesMissingTakesNothingDown(t *testing.T) {
	w := newManagedWorld(t)
	w.createSecret("one", "k", "1")
	w.createReady("tools", unasked, fromSecrets("one"))
	before := w.podUIDs("tools")

	w.Expect(api.Delete(w.ctx, read(w, "one", &corev1.Secret{}))).To(Succeed())
	server := w.shows("tools", "DependenciesReady", "False DependencyMissing", ContainSubstring("Secret one"))
	w.Expect(server.Status.Phase).To(Equal(v1alpha1.MCPServerDegraded))
	w.Expect(server.Status.ReadyReplicas).To(BeEquivalentTo(1))

	w.createSecret("one", "k", "1")
	w.complete("tools")
	w.Expect(w.podUIDs("tools")).To(ConsistOf(before))
	w.Expect(w.replicaSets("tools")).To(HaveLen(1))
}
