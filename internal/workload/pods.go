package workload

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

const (
	// podsCheck is how often the pods of a rollout are looked at that makes no progress.
	podsCheck = 10 * time.Second
	// patience is how long a rollout may go without progress before its pods are looked at.
	patience = 5 * time.Second
	// maxPods bounds how many pods are read to find out what is wrong: one that fails tells it.
	maxPods = 50
)

// Explain looks for why the pods of a Deployment do not become available. It reads them past the
// cache, which holds no pods, and only when the rollout has made no progress for a while. A verdict
// of Done, on a rollout behind which old pods serve, is given back with the reason added to it.
func Explain(ctx context.Context, uncached client.Reader, now clock.PassiveClock, live *appsv1.Deployment, verdict phases.Verdict) phases.Verdict {
	isWell := verdict.IsDone() && verdict.Reason() == phases.ReasonReady
	if isWell || verdict.Reason() == v1alpha1.ReasonQuotaExceeded || !isStuck(now, live, verdict) {
		return verdict
	}
	var pods corev1.PodList
	err := uncached.List(ctx, &pods, client.InNamespace(live.Namespace), client.MatchingLabels(live.Spec.Selector.MatchLabels), client.Limit(maxPods))
	if err != nil {
		return verdict // what is known stands; why is tried again
	}
	why := diagnose(pods.Items)
	switch {
	case why == "":
		return verdict
	case verdict.IsDone():
		return verdict.WithMessage(verdict.Message() + ": " + why)
	case verdict.IsStalled():
		return phases.Stalled(verdict.Reason(), why+"; "+verdict.Message())
	default:
		return phases.Wait(v1alpha1.ReasonPodsFailing, why, podsCheck).AsTrouble()
	}
}

func isStuck(now clock.PassiveClock, live *appsv1.Deployment, verdict phases.Verdict) bool {
	if verdict.IsStalled() || verdict.Reason() == v1alpha1.ReasonRolloutStalled {
		return true
	}
	progressing := condition(live, appsv1.DeploymentProgressing)
	return progressing != nil && now.Since(progressing.LastUpdateTime.Time) > patience
}

// diagnose says in one sentence what keeps pods from running, or nothing if none of them has a
// problem. It names containers and images, and no pods: their names are generated.
func diagnose(pods []corev1.Pod) string {
	for i := range pods {
		pod := &pods[i]
		if pod.DeletionTimestamp != nil {
			continue
		}
		if why := unscheduled(pod); why != "" {
			return why
		}
		for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
			if why := failing(status); why != "" {
				return why
			}
		}
	}
	return ""
}

func unscheduled(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return "pods fit on no node: " + c.Message + "; lower spec.resources, let the pods run on more nodes, or add some"
		}
	}
	return ""
}

func failing(status corev1.ContainerStatus) string {
	waiting := status.State.Waiting
	if waiting == nil {
		return crashedBefore(status)
	}
	reason := waiting.Reason
	if reason == "ErrImagePull" {
		reason = "ImagePullBackOff" // the kubelet alternates between the two; what is said must not
	}
	switch reason {
	case "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull":
		return fmt.Sprintf("container %s cannot pull image %s (%s); correct spec.image or spec.imagePullSecrets", status.Name, status.Image, reason)
	case "CrashLoopBackOff":
		return crashes(status)
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
		return fmt.Sprintf("container %s cannot be created (%s): %s", status.Name, reason, waiting.Message)
	default:
		return "" // ContainerCreating and PodInitializing are on their way
	}
}

// crashedBefore: between two crashes a container runs for a while, and is no better for it.
func crashedBefore(status corev1.ContainerStatus) string {
	last := status.LastTerminationState.Terminated
	if status.Ready || status.RestartCount == 0 || last == nil || last.ExitCode == 0 {
		return ""
	}
	return crashes(status)
}

func crashes(status corev1.ContainerStatus) string {
	return fmt.Sprintf("container %s crashes%s; see kubectl logs --previous", status.Name, lastExit(status))
}

func lastExit(status corev1.ContainerStatus) string {
	last := status.LastTerminationState.Terminated
	if last == nil {
		return ""
	}
	if last.Message != "" {
		return fmt.Sprintf(" with exit code %d: %s", last.ExitCode, last.Message)
	}
	return fmt.Sprintf(" with exit code %d", last.ExitCode)
}
