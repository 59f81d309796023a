package mcpserver_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

func TestReportsWhyPodsDoNotStart(t *testing.T) {
	w := newManagedFixture(t)
	w.create("pulls", unasked, withImage(cluster.ImagePullFails))
	w.create("crashes", unasked, withImage(cluster.ImageCrashes))

	w.shows("pulls", "DeploymentReady", "False PodsFailing", ContainSubstring("container server cannot pull image "+cluster.ImagePullFails))
	w.shows("crashes", "DeploymentReady", "False PodsFailing", ContainSubstring("container server crashes"))
	w.Eventually(func() []string { return w.events("pulls") }).Should(ContainElement(
		HavePrefix("Warning PodsFailing Ready is False: Deployment: container server cannot pull image")))
}

func TestReportsWhyPodsAreRefused(t *testing.T) {
	w := newManagedFixture(t)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "small"}}
	quota.Spec.Hard = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}
	w.Expect(api.Create(w.Ctx, quota)).To(Succeed())
	harness.Eventually(w, "small", &corev1.ResourceQuota{}, func(g Gomega, q *corev1.ResourceQuota) { g.Expect(q.Status.Hard).NotTo(BeEmpty()) })
	w.create("refused", unasked)
	w.shows("refused", "DeploymentReady", "False QuotaExceeded", ContainSubstring("pods cannot be created: exceeded quota: small, requested: pods=1, limited: pods=0"))

	harness.Update(w, "administrator", "small", &corev1.ResourceQuota{}, func(q *corev1.ResourceQuota) {
		q.Spec.Hard = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10")}
	})
	w.create("large", unasked, func(s *v1beta1.MCPServerSpec) {
		s.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000")}
	})
	w.shows("large", "DeploymentReady", "False PodsFailing", And(ContainSubstring("pods cannot be scheduled: "), ContainSubstring("Insufficient cpu")))
}

func TestFailedRolloutLeavesOldPodsServing(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("tools", often, replicas(2))
	before := w.podUIDs("tools")

	w.change("tools", withImage(cluster.ImagePullFails))

	// Then it says why, before the deadline, after which the reason is RolloutStalled,
	const why = "the rollout is incomplete; old pods still serve: container server cannot pull image " + cluster.ImagePullFails
	server := w.shows("tools", "DeploymentReady", "True OldReplicasServing", HavePrefix(why))
	w.Expect(conditions(server)).To(And(HaveKeyWithValue("Ready", "True Ready"), HaveKeyWithValue("Reconciling", "True OldReplicasServing")))
	w.Expect(messageOf(server, "Ready")).To(HavePrefix("Deployment: " + why))
	w.Expect(server.Status.ReadyReplicas).To(BeEquivalentTo(2))
	w.Settled()
	w.Expect(w.podUIDs("tools")).To(ContainElements(before))

	// and when the deadline is over, that it is.
	w.change("tools", func(s *v1beta1.MCPServerSpec) { s.ProgressDeadlineSeconds = 10 })
	server = w.shows("tools", "Stalled", "True RolloutStalled", And(ContainSubstring("progressDeadlineSeconds (10)"), ContainSubstring("cannot pull image")))
	w.Expect(conditions(server)).To(And(HaveKeyWithValue("Ready", "True Ready"), HaveKeyWithValue("DeploymentReady", "True RolloutStalled")))
	w.Expect(conditions(server)).NotTo(HaveKey("Reconciling"))
	w.Expect(server.Status.Phase).To(Equal(v1beta1.PhaseDegraded))
	w.Expect(w.podUIDs("tools")).To(ContainElements(before))

	w.change("tools", withImage(image))
	server = w.complete("tools")
	w.Expect(conditions(server)).NotTo(HaveKey("Stalled"))
}

func TestDeletedSecretStopsNoPods(t *testing.T) {
	w := newManagedFixture(t)
	w.createSecret("one", "k", "1")
	w.createReady("tools", unasked, fromSecrets("one"))
	before := w.podUIDs("tools")

	w.Expect(api.Delete(w.Ctx, harness.Read(w, "one", &corev1.Secret{}))).To(Succeed())
	server := w.shows("tools", "DependenciesReady", "False DependencyMissing", ContainSubstring("Secret one"))
	w.Expect(server.Status.Phase).To(Equal(v1beta1.PhaseDegraded))
	w.Expect(server.Status.ReadyReplicas).To(BeEquivalentTo(1))

	w.createSecret("one", "k", "1")
	w.complete("tools")
	w.Expect(w.podUIDs("tools")).To(ConsistOf(before))
	w.Expect(w.replicaSets("tools")).To(HaveLen(1))
}
