package workload

import (
	"cmp"
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// JobSucceeded reports whether a Job is complete.
func JobSucceeded(job *batchv1.Job) bool { return jobCondition(job, batchv1.JobComplete) != nil }

// JobFailed reports whether a Job has failed and will not be retried.
func JobFailed(job *batchv1.Job) bool { return jobCondition(job, batchv1.JobFailed) != nil }

func jobCondition(job *batchv1.Job, conditionType batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range job.Status.Conditions {
		if c := &job.Status.Conditions[i]; c.Type == conditionType && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// JobReady is done when a Job has succeeded. Of one that has failed, or whose pod does not start, it says why: it
// lists the pods from the API server, because the cache holds no pods. image is the field of the spec with the image of
// the Job.
func JobReady(ctx context.Context, uncached client.Reader, now clock.PassiveClock, job *batchv1.Job, image string) phases.Verdict {
	failed := jobCondition(job, batchv1.JobFailed)
	switch {
	case JobSucceeded(job):
		return phases.Done("Job " + job.Name + " has succeeded")
	case failed != nil:
		pods, _ := podsOf(ctx, uncached, job) // without pods, the Job has the reason
		why := cmp.Or(podFailure(pods), line(failed.Message), failed.Reason)
		if failed.Reason == batchv1.JobReasonDeadlineExceeded { // the Job controller has stopped its pod
			why = "it ran longer than spec.hooks.preDeploy.activeDeadlineSeconds"
		}
		return phases.Stalled(v1beta1.ReasonHookFailed, fmt.Sprintf(
			"Job %s has failed: %s; an existing Deployment and its pods are left unchanged. Correct what the Job runs, or run it again with kubectl delete job %s", job.Name, why, job.Name))
	case jobCondition(job, batchv1.JobSuspended) != nil:
		return phases.Wait(v1beta1.ReasonProgressing, "Job "+job.Name+" is suspended: resume it, or wait for who suspended it", 0).AsWarning()
	case ptr.Deref(job.Status.Ready, 0) == 0 && now.Since(job.CreationTimestamp.Time) > stuckAfter:
		pods, err := podsOf(ctx, uncached, job)
		if why := findPodProblem(pods, image); why != "" {
			return phases.Wait(v1beta1.ReasonPodsFailing, "Job "+job.Name+": "+why, podsRecheckInterval).AsWarning()
		}
		// Before the start time, the Job controller has not tried to create a pod.
		if err == nil && len(pods) == 0 && job.Status.Active == 0 && job.Status.StartTime != nil {
			return phases.Wait(v1beta1.ReasonPodsFailing, "Job "+job.Name+" has no pod; to find out why, run kubectl describe job "+job.Name, podsRecheckInterval).AsWarning()
		}
	}
	return phases.Wait(v1beta1.ReasonProgressing, "waiting for Job "+job.Name+" to succeed", podsRecheckInterval)
}

// podsOf lists the pods of a Job. If they cannot be listed, the next reconcile lists them again.
func podsOf(ctx context.Context, uncached client.Reader, job *batchv1.Job) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := uncached.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name}, client.Limit(maxPods)); err != nil {
		return nil, fmt.Errorf("listing the pods of Job %s: %w", job.Name, err)
	}
	var owned []corev1.Pod
	for _, pod := range pods.Items {
		if metav1.IsControlledBy(&pod, job) {
			owned = append(owned, pod)
		}
	}
	return owned, nil
}

// podFailure says how the first pod that has failed ended, with the message that its container left
// (terminationMessagePath), or is empty.
func podFailure(pods []corev1.Pod) string {
	for i := range pods {
		for _, status := range pods[i].Status.ContainerStatuses {
			ended := status.State.Terminated
			if ended == nil || ended.ExitCode == 0 {
				continue
			}
			why := fmt.Sprintf("container %s ended with exit code %d", status.Name, ended.ExitCode)
			if ended.Reason != "" && ended.Reason != "Error" {
				why += " (" + line(ended.Reason) + ")"
			}
			if message := line(ended.Message); message != "" {
				why += ": " + message
			}
			return why
		}
		if pods[i].Status.Phase == corev1.PodFailed && pods[i].Status.Reason != "" {
			return fmt.Sprintf("its pod has failed (%s): %s", line(pods[i].Status.Reason), line(pods[i].Status.Message))
		}
	}
	return ""
}
