// Package workload judges the Deployments that the controllers make: whether all pods run what was
// declared, and if not, why, in the words of the person who has to do something about it.
package workload

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// Labels of all children. See
// https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/.
const (
	LabelName      = "app.kubernetes.io/name"
	LabelManagedBy = "app.kubernetes.io/managed-by"

	// ManagedBy is the value of LabelManagedBy.
	ManagedBy = "fixpoint"
)

// Ready judges a Deployment as kubectl rollout status does: all pods are of the version
// that the spec declares, and all are available.
func Ready(d *appsv1.Deployment) phases.Verdict {
	if d.Status.ObservedGeneration < d.Generation {
		return phases.Wait(v1alpha1.ReasonRolloutProgressing, "the Deployment controller has not seen the last change yet", 0)
	}
	if refused := condition(d, appsv1.DeploymentReplicaFailure); refused != nil && refused.Status == corev1.ConditionTrue {
		return podsRefused(refused.Message)
	}
	if progressing := condition(d, appsv1.DeploymentProgressing); progressing != nil && progressing.Reason == "ProgressDeadlineExceeded" {
		return phases.Stalled(v1alpha1.ReasonRolloutStalled, fmt.Sprintf(
			"not all pods became available within spec.progressDeadlineSeconds (%d); correct the spec, or see what their events and logs say: kubectl describe pods -l %s=%s",
			*d.Spec.ProgressDeadlineSeconds, LabelName, d.Name))
	}
	replicas := orOne(d.Spec.Replicas)
	switch {
	case d.Status.UpdatedReplicas < replicas:
		return phases.Wait(v1alpha1.ReasonRolloutProgressing, "not all pods of the current version have been created yet", podsCheck)
	case d.Status.AvailableReplicas < replicas:
		return phases.Wait(v1alpha1.ReasonRolloutProgressing, "not all pods of the current version are available yet", podsCheck)
	case d.Status.Replicas > d.Status.UpdatedReplicas:
		return phases.Wait(v1alpha1.ReasonRolloutProgressing, "pods of an earlier version are still terminating", 0)
	default:
		return phases.Done("all pods run the current version and are available")
	}
}

func condition(d *appsv1.Deployment, conditionType appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range d.Status.Conditions {
		if d.Status.Conditions[i].Type == conditionType {
			return &d.Status.Conditions[i]
		}
	}
	return nil
}

// podsRefused reports why the API server does not let the ReplicaSet make pods. Its message begins
// with a generated pod name, and a quota's holds what is used at the moment: both change from try
// to try, and so are left out.
func podsRefused(message string) phases.Verdict {
	for _, afterName := range []string{" is forbidden: ", " is invalid: "} {
		if _, rest, ok := strings.Cut(message, afterName); ok {
			message = rest
			break
		}
	}
	if strings.Contains(message, "exceeded quota") {
		return phases.Wait(v1alpha1.ReasonQuotaExceeded,
			"pods are refused: "+withoutUsage(message)+"; raise the quota, or lower spec.replicas or spec.resources", 0).AsTrouble()
	}
	return phases.Wait(v1alpha1.ReasonPodsFailing, "pods are refused: "+message, 0).AsTrouble()
}

// withoutUsage takes the momentary use out of "exceeded quota: q, requested: ..., used: ..., limited: ...".
func withoutUsage(message string) string {
	before, rest, ok := strings.Cut(message, ", used: ")
	if !ok {
		return message
	}
	if _, limited, ok := strings.Cut(rest, ", limited: "); ok {
		return before + ", limited: " + limited
	}
	return before
}
