package workload

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

const (
	// podsRecheckInterval is how often the pods of a rollout that makes no progress are listed again.
	podsRecheckInterval = 10 * time.Second
	// stuckAfter is how long a rollout may make no progress before its pods are listed.
	stuckAfter = 5 * time.Second
	// maxPods is how many pods one list returns at most: one failing pod is enough to explain the rollout.
	maxPods = 50
	// imageField is the field with the image of a Deployment.
	imageField = "spec.image"
)

// Explain adds to a verdict why the pods of a Deployment do not become available. It lists the pods
// from the API server, because the cache holds no pods, and only if the rollout has made no progress
// for a while. A Done verdict (old pods still serve) stays Done, and its message names the reason.
func Explain(ctx context.Context, uncached client.Reader, now clock.PassiveClock, live *appsv1.Deployment, verdict phases.Verdict) phases.Verdict {
	isReady := verdict.IsDone() && verdict.Reason() == phases.ReasonReady
	waitsForOthers := live.Status.ObservedGeneration < live.Generation || IsPaused(live)
	if isReady || waitsForOthers || verdict.Reason() == v1beta1.ReasonQuotaExceeded || !isStuck(now, live, verdict) {
		return verdict
	}
	why, err := findProblem(ctx, uncached, live)
	switch {
	case err != nil || why == "": // the next reconcile lists the pods again
		return verdict
	case verdict.IsDone():
		return verdict.WithMessage(verdict.Message() + ": " + why)
	case verdict.IsStalled():
		return verdict.WithMessage(why + "; " + verdict.Message())
	default:
		return phases.Wait(v1beta1.ReasonPodsFailing, why, podsRecheckInterval).AsWarning()
	}
}

// findProblem lists the pods of the current version until one has a problem. Many that have none may come first, such as those
// that were evicted.
func findProblem(ctx context.Context, uncached client.Reader, live *appsv1.Deployment) (string, error) {
	replicaSet := currentReplicaSet(live)
	selected := labels.Set(live.Spec.Selector.MatchLabels)
	if hash, ok := strings.CutPrefix(replicaSet, live.Name+"-"); ok { // not if the name of the Deployment is so long that it is cut
		selected = labels.Merge(selected, labels.Set{appsv1.DefaultDeploymentUniqueLabelKey: hash})
	}
	options := &client.ListOptions{Namespace: live.Namespace, LabelSelector: labels.SelectorFromSet(selected), Limit: maxPods}
	for {
		var pods corev1.PodList
		if err := uncached.List(ctx, &pods, options); err != nil {
			return "", fmt.Errorf("listing the pods of Deployment %s: %w", live.Name, err)
		}
		if why := findPodProblem(ofReplicaSet(replicaSet, pods.Items), imageField); why != "" || pods.Continue == "" {
			return why, nil
		}
		options.Continue = pods.Continue
	}
}

// currentReplicaSet is the name of the ReplicaSet of the current version; empty if it is not known. Only the message of a
// condition has it, in quotes.
func currentReplicaSet(live *appsv1.Deployment) string {
	progressing := condition(live, appsv1.DeploymentProgressing)
	if progressing == nil {
		return ""
	}
	_, quoted, _ := strings.Cut(progressing.Message, `"`)
	name, _, _ := strings.Cut(quoted, `"`)
	return name
}

// ofReplicaSet leaves out the pods of earlier versions, which stay until those of the current one are available: what the
// spec says is no reason for their problems. An empty name leaves out none.
func ofReplicaSet(name string, pods []corev1.Pod) []corev1.Pod {
	if name == "" {
		return pods
	}
	return slices.DeleteFunc(pods, func(pod corev1.Pod) bool {
		owner := metav1.GetControllerOfNoCopy(&pod)
		return owner == nil || owner.Name != name
	})
}

func isStuck(now clock.PassiveClock, live *appsv1.Deployment, verdict phases.Verdict) bool {
	if verdict.IsStalled() || verdict.Reason() == v1beta1.ReasonRolloutStalled {
		return true
	}
	progressing := condition(live, appsv1.DeploymentProgressing)
	return progressing != nil && now.Since(progressing.LastUpdateTime.Time) > stuckAfter
}

// findPodProblem returns the first problem that keeps a pod from running, or "". The message names
// containers and images but no pods, whose names are generated. image is the field of the spec with the image.
func findPodProblem(pods []corev1.Pod, image string) string {
	for i := range pods {
		pod := &pods[i]
		if pod.DeletionTimestamp != nil || HasEnded(pod) {
			continue
		}
		if why := schedulingProblem(pod); why != "" {
			return why
		}
		for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
			if why := containerProblem(status, image); why != "" {
				return why
			}
		}
	}
	return ""
}

// HasEnded reports whether no container of a pod runs any more, as after an eviction. A ReplicaSet replaces such a pod and
// does not delete it.
func HasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func schedulingProblem(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			remedy := "lower spec.resources, relax the scheduling constraints, or add nodes"
			if LacksVolume(c.Message) {
				remedy = "correct the PersistentVolumeClaim: see kubectl describe pvc"
			}
			return "pods cannot be scheduled: " + c.Message + "; " + remedy
		}
	}
	return ""
}

// LacksVolume reports whether the scheduler waits for a PersistentVolumeClaim, by its message: another node does not help.
func LacksVolume(message string) bool {
	return strings.Contains(strings.ToLower(message), "persistentvolumeclaim")
}

func containerProblem(status corev1.ContainerStatus, image string) string {
	waiting := status.State.Waiting
	if waiting == nil {
		return restartProblem(status)
	}
	reason := waiting.Reason
	if reason == "ErrImagePull" {
		reason = "ImagePullBackOff" // the kubelet alternates between the two; the message must not
	}
	switch reason {
	case "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull":
		remedy := PullRemedy(status.Name, reason, image)
		return fmt.Sprintf("container %s cannot pull image %s (%s); %s", status.Name, status.Image, reason, remedy)
	case "CrashLoopBackOff":
		return crashMessage(status)
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
		return fmt.Sprintf("container %s cannot be created (%s): %s", status.Name, reason, creationProblem(waiting.Message))
	default:
		return "" // ContainerCreating and PodInitializing are not problems
	}
}

// PullRemedy says what to do about an image that cannot be pulled. That of the bridge and the proxy is not in the spec.
func PullRemedy(container, reason, image string) string {
	switch {
	case strings.HasPrefix(container, v1beta1.MCPReservedPrefix):
		return "have an administrator correct the flag --bridge-image of the manager, or correct spec.imagePullSecrets"
	case reason == "ErrImageNeverPull":
		return "load the image on the nodes, or set spec.imagePullPolicy to IfNotPresent"
	default:
		return "correct " + image + " or spec.imagePullSecrets"
	}
}

// ofPod is how the kubelet ends some messages: with the name and the UID of the pod, which are generated.
var ofPod = regexp.MustCompile(` \(pod: "[^"]*", container: [^)]*\)$`)

// creationProblem is why a container cannot be created, and what to do if its image would run as root, which the restricted
// Pod Security Standard forbids.
func creationProblem(message string) string {
	problem := line(ofPod.ReplaceAllString(message, ""))
	if strings.Contains(problem, "container has runAsNonRoot") {
		problem += "; set spec.podSecurityContext.runAsUser to the number of a user other than root"
	}
	return problem
}

// restartProblem reports a container that crashed before and is not ready yet after its restart.
func restartProblem(status corev1.ContainerStatus) string {
	last := status.LastTerminationState.Terminated
	if status.Ready || status.RestartCount == 0 || last == nil || last.ExitCode == 0 {
		return ""
	}
	return crashMessage(status)
}

func crashMessage(status corev1.ContainerStatus) string {
	if last := status.LastTerminationState.Terminated; last != nil && last.Reason == "OOMKilled" { // its log has no reason
		return fmt.Sprintf("container %s ran out of memory (OOMKilled); raise its limit in %s", status.Name, LimitsField(status.Name))
	}
	return fmt.Sprintf("container %s crashes%s; see kubectl logs --previous", status.Name, lastExit(status))
}

// LimitsField is the field with the limits of a container. Those of the proxy are fixed.
func LimitsField(container string) string {
	if strings.HasPrefix(container, v1beta1.MCPReservedPrefix) {
		return "spec.podOverrides"
	}
	return "spec.resources.limits"
}

func lastExit(status corev1.ContainerStatus) string {
	last := status.LastTerminationState.Terminated
	if last == nil {
		return ""
	}
	if message := line(last.Message); message != "" {
		return fmt.Sprintf(" with exit code %d: %s", last.ExitCode, message)
	}
	return fmt.Sprintf(" with exit code %d", last.ExitCode)
}

// line is one short line of a text that an image may have chosen, without what a terminal would not print.
func line(text string) string {
	const length = 256
	printed := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || unicode.IsSpace(r) {
			return r
		}
		return -1
	}, text)
	return Cut(strings.Join(strings.Fields(printed), " "), length)
}
