// Package workload holds what AppService and MCPServer share: building common children, and reporting
// whether a Deployment is rolled out, and if not, why and what to do about it.
package workload

import (
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// ReportInterval is how long a rollout, or a deletion, may take before the status first says so: most pods are ready
// by then, which saves a write.
const ReportInterval = 3 * time.Second

// stalledRecheckInterval is how often the pods of a rollout that has exceeded its deadline are listed again: the Deployment
// does not change when they fail for another reason than before.
const stalledRecheckInterval = time.Minute

// Labels of all children. See
// https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/.
const (
	LabelName      = "app.kubernetes.io/name"
	LabelManagedBy = "app.kubernetes.io/managed-by"

	// ManagedBy is the value of LabelManagedBy.
	ManagedBy = "fixpoint"
)

// Strategy keeps every old pod of a rolling update until a new one is available: it serves, and may hold sessions.
func Strategy(strategy v1beta1.Strategy) *appsv1ac.DeploymentStrategyApplyConfiguration {
	if strategy == v1beta1.StrategyRecreate {
		return appsv1ac.DeploymentStrategy().WithType(appsv1.RecreateDeploymentStrategyType)
	}
	return appsv1ac.DeploymentStrategy().
		WithType(appsv1.RollingUpdateDeploymentStrategyType).
		WithRollingUpdate(appsv1ac.RollingUpdateDeployment().
			WithMaxUnavailable(intstr.FromInt32(0)).
			WithMaxSurge(intstr.FromString("25%")))
}

// Ready reports whether a Deployment is rolled out, by the criteria of kubectl rollout status: all pods
// are updated and available.
func Ready(d *appsv1.Deployment) phases.Verdict {
	if d.Status.ObservedGeneration < d.Generation {
		return phases.Wait(v1beta1.ReasonRolloutProgressing, "waiting for the Deployment controller to observe the last change", 0).Briefly()
	}
	if refused := condition(d, appsv1.DeploymentReplicaFailure); refused != nil && refused.Status == corev1.ConditionTrue {
		return podCreationFailed(refused.Message)
	}
	if progressing := condition(d, appsv1.DeploymentProgressing); progressing != nil && progressing.Reason == "ProgressDeadlineExceeded" {
		return phases.Stalled(v1beta1.ReasonRolloutStalled, fmt.Sprintf(
			"not all pods became available within spec.progressDeadlineSeconds (%d); to find out why, run kubectl describe pods -l %s=%s",
			*d.Spec.ProgressDeadlineSeconds, LabelName, d.Name)).RecheckAfter(stalledRecheckInterval)
	}
	replicas := replicasOrOne(d.Spec.Replicas)
	switch {
	case IsPaused(d):
		return phases.Wait(v1beta1.ReasonRolloutProgressing, fmt.Sprintf(
			"the Deployment is paused: resume it with kubectl rollout resume deployment %s, or wait for who paused it", d.Name), 0).AsWarning()
	case d.Status.UpdatedReplicas < replicas:
		return phases.Wait(v1beta1.ReasonRolloutProgressing, "waiting for updated pods to be created", podsRecheckInterval)
	case d.Status.AvailableReplicas < replicas:
		return phases.Wait(v1beta1.ReasonRolloutProgressing, "waiting for updated pods to become available", podsRecheckInterval)
	case d.Status.Replicas > d.Status.UpdatedReplicas:
		return phases.Wait(v1beta1.ReasonRolloutProgressing, "waiting for old pods to terminate", 0)
	default:
		return phases.Done("all pods are updated and available")
	}
}

// IsPaused reports whether another client has paused a rollout that is not complete: it does not end, and has no deadline.
func IsPaused(d *appsv1.Deployment) bool {
	progressing := condition(d, appsv1.DeploymentProgressing)
	return progressing != nil && progressing.Reason == "DeploymentPaused" &&
		(d.Status.UpdatedReplicas < replicasOrOne(d.Spec.Replicas) || d.Status.Replicas > d.Status.UpdatedReplicas)
}

func condition(d *appsv1.Deployment, conditionType appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range d.Status.Conditions {
		if d.Status.Conditions[i].Type == conditionType {
			return &d.Status.Conditions[i]
		}
	}
	return nil
}

// podCreationFailed reports why the API server rejects the pods of the ReplicaSet. The pod name at the
// start of the message and the current usage of a quota change with each attempt, so both are omitted.
func podCreationFailed(message string) phases.Verdict {
	for _, afterName := range []string{" is forbidden: ", " is invalid: "} {
		if _, rest, ok := strings.Cut(message, afterName); ok {
			message = rest
			break
		}
	}
	if strings.Contains(message, "exceeded quota") {
		return phases.Wait(v1beta1.ReasonQuotaExceeded,
			"pods cannot be created: "+withoutUsage(message)+"; raise the ResourceQuota, or lower spec.replicas or spec.resources", 0).AsWarning()
	}
	return phases.Wait(v1beta1.ReasonPodsFailing, "pods cannot be created: "+message, 0).AsWarning()
}

// withoutUsage removes the current usage from "exceeded quota: q, requested: ..., used: ..., limited: ...".
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
