package appservice_test

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// hook runs an image, by default that of the application, before each new version.
func hook(image string, args ...string) edit {
	return func(s *v1beta1.AppServiceSpec) {
		s.Hooks = &v1beta1.AppServiceHooks{PreDeploy: &v1beta1.AppServiceHook{Image: image, Args: args}}
	}
}

// jobs are the Jobs of an AppService.
func (w *fixture) jobs(name string) []batchv1.Job {
	w.T.Helper()
	var jobs batchv1.JobList
	w.Expect(api.List(w.Ctx, &jobs, client.InNamespace(w.Namespace), client.MatchingLabels{"fixpoint.dev/pre-deploy": name})).To(Succeed())
	return jobs.Items
}

// jobRan is the container of the one Job of an AppService, which has succeeded.
func (w *fixture) jobRan(name string) corev1.Container {
	w.T.Helper()
	jobs := w.jobs(name)
	w.Expect(jobs).To(HaveLen(1))
	w.Expect(jobs[0].Status.Succeeded).To(BeEquivalentTo(1))
	return jobs[0].Spec.Template.Spec.Containers[0]
}

func TestRunsHookBeforeEachNewVersion(t *testing.T) {
	w := newManagedFixture(t)
	app := w.createReady("web", config("A", "1"), hook("", "migrate"))
	w.Expect(w.jobRan("web").Image).To(Equal(image))
	w.Expect(app.Status.Hooks.PreDeploy.Phase).To(Equal(v1beta1.PhaseSucceeded))
	first := w.jobs("web")[0]
	w.Expect(w.deployment("web").CreationTimestamp.Time).NotTo(BeTemporally("<", first.Status.CompletionTime.Time))

	// A number of pods is no new version.
	w.changeReady("web", replicas(3))
	w.Expect(w.jobs("web")[0].UID).To(Equal(first.UID))

	app = w.changeReady("web", withImage(otherImage))
	w.Expect(w.jobRan("web").Image).To(Equal(otherImage))
	w.Expect(app.Status.Hooks.PreDeploy.SucceededVersions).To(HaveLen(2))

	// A rollback runs nothing, and deleting a Job that has succeeded neither.
	app = w.changeReady("web", withImage(image))
	w.Expect(w.jobs("web")).To(BeEmpty())
	w.Expect(conditions(app)).To(HaveKeyWithValue("PreDeployReady", "True Ready"))
	w.Expect(app.Status.Drifts).To(BeEmpty())

	w.Expect(api.Delete(w.Ctx, app)).To(Succeed())
	w.Eventually(w.IsGone("web", &v1beta1.AppService{})).Should(Succeed())
}

func TestFailedHookLeavesThePodsServing(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("web", replicas(3), hook("", "migrate"))
	before := w.deployment("web")

	w.change("web", func(s *v1beta1.AppServiceSpec) {
		withImage(otherImage)(s)
		hook(cluster.ImageFails, "migrate")(s)
	})

	app := w.shows("web", "PreDeployReady", "False HookFailed", And(
		ContainSubstring("container app ended with exit code 3: the table users is locked"), ContainSubstring("kubectl delete job web-")))
	w.Expect(conditions(app)).To(And(HaveKeyWithValue("Stalled", "True HookFailed"), HaveKeyWithValue("DeploymentReady", "Unknown Blocked")))
	w.Expect(app.Status.Phase).To(Equal(v1beta1.PhaseDegraded))
	w.Expect(app.Status.ReadyReplicas).To(BeEquivalentTo(3))
	w.Expect(app.Status.Hooks.PreDeploy.Phase).To(Equal(v1beta1.PhaseFailed))
	w.Expect(w.deployment("web").Spec).To(Equal(before.Spec))
	w.isNotHot(tenSeconds)

	// A deletion of the Job runs it again, and it fails again.
	failed := w.jobs("web")[0]
	w.Expect(api.Delete(w.Ctx, &failed, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
	w.Eventually(func(g Gomega) {
		jobs := w.jobs("web")
		g.Expect(jobs).To(HaveLen(1))
		g.Expect(jobs[0].UID).NotTo(Equal(failed.UID))
		g.Expect(jobs[0].Status.Failed).To(BeEquivalentTo(1))
	}).Should(Succeed())

	// Another hook is a new version.
	app = w.changeReady("web", hook("", "migrate"))
	w.Expect(w.jobRan("web").Image).To(Equal(otherImage))
	w.Expect(app.Status.Phase).To(Equal(v1beta1.PhaseRunning))
	w.Expect(w.deployment("web").Spec.Template.Spec.Containers[0].Image).To(Equal(otherImage))
}

func TestHookThatCannotStartIsExplained(t *testing.T) {
	w := newManagedFixture(t)
	w.create("web", hook(cluster.ImagePullFails))

	app := w.shows("web", "PreDeployReady", "False PodsFailing", ContainSubstring("cannot pull image "+cluster.ImagePullFails))
	w.Expect(app.Status.Hooks.PreDeploy.Phase).To(Equal(v1beta1.PhaseRunning))
	w.Expect(w.IsGone("web", &appsv1.Deployment{})()).To(Succeed())

	w.changeReady("web", hook(otherImage))
	w.Expect(w.jobRan("web").Image).To(Equal(otherImage))
}

// TestServiceDoesNotSelectThePodOfAHook: it would send requests to it.
func TestServiceDoesNotSelectThePodOfAHook(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("web", hook("", "migrate"))
	var pods corev1.PodList
	w.Expect(api.List(w.Ctx, &pods, client.InNamespace(w.Namespace), client.MatchingLabels(harness.Read(w, "web", &corev1.Service{}).Spec.Selector))).To(Succeed())
	w.Expect(pods.Items).To(HaveLen(2))
	for _, pod := range pods.Items {
		w.Expect(pod.OwnerReferences[0].Kind).To(Equal("ReplicaSet"))
	}
}
